package redis

import (
	"bufio"
	"fmt"
	"net"
	"net/textproto"
	"strings"
	"time"
)

// pipelineOf returns a Pipeline that is as good as a connection of the fake.
func pipelineOf(c *fakeConn) *Pipeline {
	f := &fakeStream{conn: c}
	p := &Pipeline{Rouse: func() {}, Unsent: func(*Stream, uint, int, error) {}}
	p.Finish = func(t *Turn) error {
		if t.Err != nil {
			t.Stream.Turns.EndResponse(t.Number)
		}
		t.Call.Reply = f.reply
		return f.err
	}
	p.Stream = &Stream{Conn: f, Reader: bufio.NewReader(f), Turns: &textproto.Pipeline{}}
	return p
}

// fakeStream is a connection to a fake server. Its caller reads a reply before the next command is written.
type fakeStream struct {
	conn  *fakeConn
	reply []int64
	err   error
	line  string
}

// Write runs a command.
func (f *fakeStream) Write(b []byte) (int, error) {
	words := []string{}
	for rest := strings.SplitN(string(b), "\r\n", 2)[1]; rest != ""; {
		n := 0
		_, _ = fmt.Sscanf(rest, "$%d", &n)
		rest = rest[strings.Index(rest, "\n")+1:]
		words = append(words, rest[:n])
		rest = rest[n+2:]
	}
	call := &Call{Keys: words[3:4], Args: words[4:]}
	for _, s := range scripts {
		if s.SHA1 == words[1] {
			call.Script = s
		}
	}
	f.err = f.conn.Run(call)
	f.reply = call.Reply
	f.line = "+" + strings.Trim(fmt.Sprint(f.reply), "[]")
	if r := f.reply; len(r) == 4 && r[0] >= 0 && r[0] <= 1000 && r[1] == 0 && r[2] >= 0 && r[2] <= longest && r[3] >= 0 {
		f.line += fmt.Sprintf(" %d %d %s", (r[2]+999_999)/1_000_000, (r[3]+999_999)/1_000_000, words[3])
	}
	f.line += "\r\n"
	return len(b), nil
}

// Read reads the reply.
func (f *fakeStream) Read(b []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return copy(b, f.line), nil
}

func (f *fakeStream) Close() error                     { return nil }
func (f *fakeStream) LocalAddr() net.Addr              { return nil }
func (f *fakeStream) RemoteAddr() net.Addr             { return nil }
func (f *fakeStream) SetDeadline(time.Time) error      { return nil }
func (f *fakeStream) SetReadDeadline(time.Time) error  { return nil }
func (f *fakeStream) SetWriteDeadline(time.Time) error { return nil }
