package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/redis"
)

// mostElements is the most elements of the replies to a round trip. The longest reply is a Cluster's table, with up to 16,384 ranges.
const mostElements = 1 << 19

// answer is the replies to a round trip: their elements in the order in which they were sent, each with the first byte of its type. An array is "*" and its
// length, before its elements; nil is "_".
type answer struct {
	elements []string
	next     int
	bad      bool // an element was not what it was read as
}

// roundTrip sends a command, and reads the reply. It is for the commands of connecting, on a connection that nothing else uses meanwhile.
func roundTrip(s *redis.Stream, words ...string) (*answer, error) {
	return roundTrips(s, command(words), 1, "")
}

// roundTrips sends so many commands, and reads the replies. Its errors never have the password in them.
func roundTrips(s *redis.Stream, commands string, replies int, password string) (*answer, error) {
	_, unsent := io.WriteString(s.Conn, commands)
	a := &answer{}
	for want := replies; want > 0; want-- {
		element, length, err := readElement(s.Reader, password)
		if err != nil && !errors.Is(err, redis.ErrReply) && unsent != nil { // a server that accepts no clients says so and hangs up: that is read first
			err = unsent
		}
		if err != nil {
			return nil, err
		}
		a.elements = append(a.elements, element)
		want += length
		if len(a.elements)+want > mostElements {
			return nil, errTooLong
		}
	}
	if s.Reader.Buffered() > 0 {
		return nil, errNoRedis
	}
	return a, nil
}

var errTooLong = fmt.Errorf("the reply is too long%w", redis.ErrReply)

// readElement reads an element of a reply. If that is an array, its length is how many elements follow.
func readElement(in *bufio.Reader, password string) (element string, length int, err error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", 0, errNoRedis
	}
	if err != nil {
		return "", 0, err
	}
	text := strings.TrimSuffix(string(line), "\r\n")
	if len(text) < 2 || len(text) != len(line)-2 {
		return "", 0, errNoRedis
	}
	kind := text[:1]
	if kind == "+" || kind == ":" {
		return text, 0, nil
	}
	if kind != "*" && kind != "$" {
		return "", 0, refused(text, password)
	}
	n, err := strconv.Atoi(text[1:])
	if err != nil || n < -1 || n > mostElements {
		return "", 0, errNoRedis
	}
	if n < 0 {
		return "_", 0, nil
	}
	if kind == "*" {
		return text, n, nil
	}
	if n > longestLine {
		return "", 0, errTooLong
	}
	bulk := make([]byte, n+2)
	if _, err := io.ReadFull(in, bulk); err != nil {
		return "", 0, err
	}
	return "$" + string(bulk[:n]), 0, nil
}

// take returns the next element, which must be of that type, without the type.
func (a *answer) take(kind string) string {
	if a.next >= len(a.elements) {
		a.bad = true
		return ""
	}
	element := a.elements[a.next]
	a.next++
	if element[:1] != kind {
		a.bad = true
		return ""
	}
	return element[1:]
}

// text returns the next element, which must be a string; nil is "".
func (a *answer) text() string {
	if a.next < len(a.elements) && a.elements[a.next] == "_" {
		a.next++
		return ""
	}
	return a.take("$")
}

// number returns the next element, which must be a number, or the length of an array.
func (a *answer) number(kind string) int {
	n, err := strconv.Atoi(a.take(kind))
	if err != nil {
		a.bad = true
		return 0
	}
	return n
}

// skip skips so many elements, with all elements of the arrays among them.
func (a *answer) skip(n int) {
	for ; n > 0 && a.next < len(a.elements); n-- {
		if a.elements[a.next][:1] == "*" {
			n += a.number("*")
		} else {
			a.next++
		}
	}
	if n != 0 {
		a.bad = true
	}
}

// err returns an error if something that was read was not there.
func (a *answer) err() error {
	if a.bad {
		return errNoRedis
	}
	return nil
}

// refused returns the error for a line that is no reply to a command of connecting. It never has the password in it.
func refused(line, password string) error {
	if !strings.HasPrefix(line, "-") {
		return errNoRedis
	}
	text := line[1:]
	if arguments := strings.Index(text, ", with args beginning with"); arguments >= 0 { // those of AUTH, from a server that does not know AUTH
		text = text[:arguments]
	}
	if password != "" && strings.Contains(text, password) {
		return fmt.Errorf("the server refuses the password, and repeats it%w", redis.ErrReply)
	}
	return fmt.Errorf("%s%w", readable(text), redis.ErrReply)
}
