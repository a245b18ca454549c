package redistest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// answerTime is the longest time that a connection waits for a reply.
const answerTime = 10 * time.Second

// Conn is a connection to a server, for a test's own commands. It speaks RESP2, one command at a time, and is not safe for
// concurrent use.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
}

// Dial connects to an address, over TLS unless the configuration is nil.
func Dial(addr string, config *tls.Config) (*Conn, error) {
	dialer := &net.Dialer{Timeout: answerTime}
	dial := dialer.Dial
	if config != nil {
		dial = (&tls.Dialer{NetDialer: dialer, Config: config}).Dial
	}
	conn, err := dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{conn, bufio.NewReader(conn)}, nil
}

// Close closes the connection.
func (c *Conn) Close() {
	c.conn.Close()
}

// abandon makes Close leave no socket in TIME_WAIT. Otherwise a test with many connections could run out of ports.
func (c *Conn) abandon() {
	conn := c.conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
}

// Do sends a command and returns the reply, which must come within ten seconds. If the reply is an error, Do returns it as an error of type
// Error, too. Errors within an array stay there.
func (c *Conn) Do(args ...string) (Reply, error) {
	if err := c.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return Reply{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		return Reply{}, err
	}
	reply, err := readReply(c.r)
	if err == nil && reply.Kind == KindError {
		err = Error(reply.Text)
	}
	return reply, err
}

// Error is an error that a server has replied with, such as "WRONGTYPE Operation against …".
type Error string

func (e Error) Error() string { return string(e) }

// Kind is the type of a Reply.
type Kind byte

const (
	KindStatus Kind = '+' // in Text
	KindError  Kind = '-' // in Text
	KindInt    Kind = ':' // in Int
	KindBulk   Kind = '$' // in Text
	KindArray  Kind = '*' // in List
	KindNil    Kind = '_'
)

// Reply is the reply of a server.
type Reply struct {
	Kind Kind
	Text string
	Int  int64
	List []Reply
}

// Nil reports whether the reply is nil: there is no such key, for example.
func (r Reply) Nil() bool { return r.Kind == KindNil }

// String returns the text, the number in decimal, "(nil)", or an array's elements in brackets.
func (r Reply) String() string {
	switch r.Kind {
	case KindInt:
		return strconv.FormatInt(r.Int, 10)
	case KindNil:
		return "(nil)"
	case KindArray:
		return "[" + strings.Join(r.Strings(), " ") + "]"
	default:
		return r.Text
	}
}

// Strings returns the elements of an array, each as String does.
func (r Reply) Strings() []string {
	list := make([]string, len(r.List))
	for i, e := range r.List {
		list[i] = e.String()
	}
	return list
}

func readReply(r *bufio.Reader) (Reply, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return Reply{}, err
	}
	kind, rest, ok := cutReply(line)
	if !ok {
		return Reply{}, fmt.Errorf("reply %q: a line of RESP2 was expected", line)
	}
	if kind == KindStatus || kind == KindError {
		return Reply{Kind: kind, Text: rest}, nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return Reply{}, fmt.Errorf("reply %q: a number was expected: %w", line, err)
	}
	switch {
	case kind == KindInt:
		return Reply{Kind: KindInt, Int: n}, nil
	case n < 0:
		return Reply{Kind: KindNil}, nil
	case kind == KindBulk:
		b := make([]byte, n+2)
		if _, err = io.ReadFull(r, b); err != nil {
			return Reply{}, err
		}
		return Reply{Kind: KindBulk, Text: string(b[:n])}, nil
	}
	reply := Reply{Kind: KindArray}
	for range n {
		e, err := readReply(r)
		if err != nil {
			return Reply{}, err
		}
		reply.List = append(reply.List, e)
	}
	return reply, nil
}

// cutReply splits a line into the kind of a reply and what follows.
func cutReply(line string) (Kind, string, bool) {
	if len(line) < 3 || !strings.HasSuffix(line, "\r\n") || !strings.Contains("+-:$*", line[:1]) {
		return 0, "", false
	}
	return Kind(line[0]), line[1 : len(line)-2], true
}
