package redis

import (
	"bufio"
	"fmt"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"time"
)

// pipelineOf returns a Pipeline that is as good as a connection of the fake.
func pipelineOf(c *fakeConn) *Pipeline {
	f := &fakeStream{conn: c}
	p := &Pipeline{Wake: func() {}, Unsent: func(*Stream, uint, int, error) {}}
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
	keys, _ := strconv.Atoi(words[2])
	call := &Call{Keys: words[3 : 3+keys], Args: words[3+keys:]}
	for _, s := range scripts {
		if s.SHA1 == words[1] {
			call.Script = s
		}
	}
	f.err = f.conn.Run(call)
	f.reply = call.Reply
	f.line = "+" + lineOfReply(f.reply, call.Keys)
	f.line += "\r\n"
	return len(b), nil
}

// lineOfReply returns the line that a script makes of a reply.
func lineOfReply(reply []int64, keys []string) string {
	line := ""
	for i := 0; i+4 <= len(reply); i += 4 {
		r := reply[i:]
		if r[0] < 0 || r[0] > 1000 || r[1] != 0 || r[2] < 0 || r[2] > longest || r[3] < 0 {
			return strings.Trim(fmt.Sprint(reply), "[]")
		}
		line += fmt.Sprintf("%d %d %d %d %d %d ", r[0], r[1], r[2], r[3], (r[2]+999_999)/1_000_000, (r[3]+999_999)/1_000_000)
	}
	if len(reply) == 0 || len(reply) != 4*len(keys) {
		return strings.Trim(fmt.Sprint(reply), "[]")
	}
	return line + keys[len(keys)-1]
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
