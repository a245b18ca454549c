package resp

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis"
)

// busy is a connection of a process that comes to read only when the deadline of so many commands has passed, and what is in pieces has come by then.
func busy(commands int, pieces ...string) *hooked {
	var mu sync.Mutex
	deadline := time.Time{}
	missing := commands
	sent, reads := make(chan struct{}), 0
	h := &hooked{deadline: func(t time.Time) {
		mu.Lock()
		deadline = t
		mu.Unlock()
	}}
	h.write = func(b []byte) (int, error) {
		if n := strings.Count(string(b), "EVALSHA"); n > 0 {
			if missing -= n; missing == 0 {
				close(sent)
			}
		}
		return len(b), nil
	}
	h.read = func(b []byte) (int, error) {
		<-sent
		reads++
		if reads == 1 {
			for late := false; !late; {
				mu.Lock()
				late = !deadline.IsZero() && time.Now().After(deadline)
				mu.Unlock()
			}
			return 0, os.ErrDeadlineExceeded
		}
		if reads-2 < len(pieces) {
			return copy(b, pieces[reads-2]), nil
		}
		return 0, io.EOF
	}
	return h
}

// A process that is short of CPU is late itself. What Redis has answered by then counts; and what it has not, does not, whatever else has come.
func TestAnAnswerThatHasComeIsNotLate(t *testing.T) {
	t.Parallel()
	c := newConn(Config{Timeout: time.Microsecond, ReadTimeout: patience}, "", redis.Started)
	c.closed = true                               // so that it does not connect again
	nc := busy(2, "*1\r\n:7\r\n", "*1\r\n:7\r\n") // the second is too late even for a look
	l := newLink(nc)
	c.link = l
	results := make(chan error, 2)
	var calls []*redis.Call
	for i := 0; i < 2; i++ { // before anybody sends, so that they are sent in this order
		call := &redis.Call{Script: echo, Keys: []string{"key"}, Args: []string{"7"}}
		calls = append(calls, call)
		go func() { results <- c.Run(call) }()
		until(t, "the call waits", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return l.stream.Number == uint(i+1)
		})
	}
	go write(c, l)
	read(c, l)
	answered, late := <-results, <-results
	if answered != nil {
		answered, late = late, answered
	}
	if answered != nil || len(calls[0].Reply) != 1 || calls[0].Reply[0] != 7 || !errors.Is(late, redis.ErrTimeout) {
		t.Errorf("%v, %v; %v, want no error, [7], and that nothing has come in time", answered, calls[0].Reply, late)
	}
}

func TestALineThatHasComeIsNotLate(t *testing.T) {
	t.Parallel()
	config := Config{Timeout: time.Microsecond, ReadTimeout: patience}
	client := &single{conn: newConn(config, "", redis.Started)}
	client.fast = newFast(client.conn)
	client.fast.closed = true
	nc := busy(1, "+5 2 key\r\n")
	l := newLink(nc)
	client.fast.link = l
	ended := make(chan struct{})
	go func() {
		read(client.fast, l)
		close(ended)
	}()
	until(t, "callers read", func() bool { return isOpen(client) })
	if reply, open, err := pass(client, "key", 2); !open || err != nil || len(reply) != 2 || reply[0] != 5 {
		t.Errorf("%v, over the pipeline %v, %v", reply, open, err)
	}
	client.fast.cancel()
	<-ended
}

// A look is for a process that was late. A server that is slow, and answers, must not keep callers who look in turn waiting.
func TestCallersThatAreLateLookOnceInATimeout(t *testing.T) {
	c := newConn(Config{Timeout: 100 * time.Millisecond}, "", redis.Started)
	l := newLink(nil)
	for _, at := range []struct{ now, until time.Duration }{{1000, 1010}, {1005, 1010}, {1050, 1010}, {1099, 1010}, {1100, 1110}, {1111, 1110}} {
		if got := lookUntil(c, l, at.now*time.Millisecond); got != at.until*time.Millisecond {
			t.Errorf("at %d ms: until %s, want %d ms", at.now, got, at.until)
		}
	}
}

// What is left in the Reader would answer those who come after. A defect of the first form: a look that ended within an array left the rest of it there.
func TestACallerThatIsLateLeavesNothingInTheReader(t *testing.T) {
	for _, c := range []struct{ read, line, left string }{
		{":5\r\n:3\r\n*2\r\n", "*2\r\n:5\r\n:3\r\n", "*2\r\n"},
		{":5\r\n", "", ""}, // the rest comes later: the reader goes on
	} {
		at := newConn(Config{Timeout: time.Minute, ReadTimeout: 2 * time.Minute}, "", redis.Started)
		pieces := []string{c.read}
		nc := &hooked{read: func(b []byte) (int, error) {
			if len(pieces) == 0 {
				return 0, os.ErrDeadlineExceeded
			}
			n := copy(b, pieces[0])
			pieces = nil
			return n, nil
		}}
		l := newLink(nc)
		now := time.Since(at.started)
		l.looked = now - 10*time.Second // so that the look is over, and there is no other
		if _, err := l.stream.Reader.Peek(1); err != nil {
			t.Fatal(err)
		}
		l.stream.Turns.StartResponse(0)
		f := newPendingCall().(*pendingCall)
		f.call = &redis.Call{Script: listing, Keys: []string{"key"}}
		f.deadline = now - time.Second
		line := readOn(at, l, f, "*2\r\n", nil)
		rest, _ := l.stream.Reader.Peek(l.stream.Reader.Buffered())
		if line != c.line || string(rest) != c.left || c.line == "" && l.rest != "*2\r\n"+c.read {
			t.Errorf("%q: %q, with %q left and %q for the reader; want %q and %q", c.read, line, rest, l.rest, c.line, c.left)
		}
	}
}
