package goredis

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// canned is a connection that reads a given text.
type canned struct {
	net.Conn
	io.Reader
}

func (c canned) Read(b []byte) (int, error) { return c.Reader.Read(b) }

func TestAConnectionEndsAtAnInvalidReply(t *testing.T) {
	for _, c := range []struct {
		name, text string
		whole      bool
	}{
		{"what scripts reply", "*3\r\n:4\r\n:0\r\n:-1\r\n", true},
		{"an error", "-NOSCRIPT No matching script.\r\n", true},
		{"a bulk with line ends in it", "$9\r\n|0\r\n|0\r\nx\r\n+OK\r\n", true},
		{"an empty bulk and nils", "$0\r\n\r\n$-1\r\n*-1\r\n+OK\r\n", true},
		{"a map of RESP3", "%1\r\n$6\r\nserver\r\n#t\r\n", true},
		{"attributes without end", strings.Repeat("|0\r\n", 3), false},
		{"a line without end", "+" + strings.Repeat("a", 10_000), false},
		{"a line of another protocol", "HTTP/1.1 400 Bad Request\r\n", false},
		{"nothing but line ends", "\r\n\r\n", false},
		{"a huge array", "*1000000\r\n", false},
		{"a huge bulk", "$99999999999999999999\r\n", false},
		{"a sign before a length", "*+5\r\n", false},
		{"a length that is none", "$5x\r\n", false},
	} {
		for name, reader := range map[string]func(io.Reader) io.Reader{
			"at once":      func(r io.Reader) io.Reader { return r },
			"byte by byte": iotest.OneByteReader,
		} {
			got, err := io.ReadAll(guard(canned{Reader: reader(strings.NewReader(c.text))}))
			switch {
			case c.whole && (err != nil || string(got) != c.text):
				t.Errorf("%s, %s: read %q, %v", c.name, name, got, err)
			case !c.whole && !errors.Is(err, errMalformed):
				t.Errorf("%s, %s: read %q, %v; want it to end", c.name, name, got, err)
			}
		}
	}
}
