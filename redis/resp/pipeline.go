package resp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/redis"
)

// idleAfter is after how long without a call the reader of a pipeline reads, so that it learns when the server hangs up.
const idleAfter = 100 * time.Millisecond

// newFast returns a conn of the same server as another, for the redis.Pipeline of the fast path. Its calls are all alike: they have the same time,
// and the reply to each is a line, or an array of numbers.
//
// Deadlines need no timer for each call. Calls get their turn in the order in which they began, and so in the order of their deadlines. The
// connection's read deadline is never later than that of the call whose turn it is. If it passes too early, the call sets it again. If the call is
// late, or its connection has ended, it hands itself over to the reader, and so do those that come after it. While the reader reads, new calls go over
// the other conn, and so do those that are sent again.
func newFast(other *conn) *conn {
	c := newConn(other.config, other.address, other.started)
	c.again = func(f *pendingCall) error { return again(other, f) }
	c.pipeline = &redis.Pipeline{
		Wake:   func() { wake(c) },
		Unsent: func(s *redis.Stream, sent uint, bytes int, err error) { unsent(c, s.Owner.(*link), sent, bytes, err) },
		Finish: func(t *redis.Turn) error { return finish(c, t) },
	}
	c.mu = &c.pipeline.Mu
	return c
}

// wake has a connection made, or has callers read again, as redis.Pipeline.Wake says.
func wake(c *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil && !c.closed {
		need(c)
	}
	if c.link != nil && c.link.idle {
		c.link.idle = false
		watch(c, c.link, 0) // long ago
	}
}

// alternate lets callers read, and then reads itself until they may again. It returns why the connection is to end.
func alternate(c *conn, l *link) error {
	turn := letCallersRead(c, l)
	l.stream.Turns.StartResponse(turn) // after the last of their calls
	defer l.stream.Turns.EndResponse(turn)
	c.mu.Lock()
	watch(c, l, 0) // long ago: it looks for late calls first
	c.mu.Unlock()
	return replies(c, l)
}

// letCallersRead lets callers read, unless the connection gets no new calls, until one of them hands its call over, or none has begun a call for a
// while. It returns the reader's turn.
func letCallersRead(c *conn, l *link) uint {
	s := l.stream
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, stop := context.WithCancel(c.ctx)
	defer stop()
	l.takeOver = stop
	l.idle = false
	watch(c, l, time.Since(c.started)+c.timeout) // not later than that of any call to come
	_ = s.Conn.SetWriteDeadline(time.Time{})
	if c.link == l {
		c.pipeline.Stream = s
	}
	for used := true; used && c.pipeline.Stream == s; {
		begun := s.Number
		c.mu.Unlock()
		sleep(waiting, idleAfter)
		c.mu.Lock()
		used = s.Number != begun
		if used && c.pipeline.Stream == s { // no reply is late
			l.proved = true
			c.failures = 0
		}
	}
	l.idle = c.link != l || c.pipeline.Stream == s
	takeOver(c, l)
	s.Number++
	return s.Number - 1
}

// takeOver has the reader read, after the calls that have begun. The caller has the conn's mutex.
func takeOver(c *conn, l *link) {
	if c.pipeline != nil && c.pipeline.Stream == l.stream {
		c.pipeline.Stream = nil
	}
	l.takeOver()
}

// breakOff closes a connection, as err says. The caller has the conn's mutex.
func breakOff(c *conn, l *link, err error) {
	if l.broken == nil {
		l.broken = err
	}
	hangUp(l)
	abandon(c, l, err)
}

// finish goes on with a call, as redis.Pipeline.Finish says.
func finish(c *conn, t *redis.Turn) error {
	l := t.Stream.Owner.(*link)
	f := pendingCalls.Get().(*pendingCall)
	f.call = t.Call
	f.number = t.Number
	f.sent = t.Began
	f.deadline = t.Began + c.timeout
	line := string(t.Line)
	if t.Err != nil {
		line = readOn(c, l, f, line, t.Err)
		if line == "" { // the reader has it
			<-f.done
			if f.err != nil {
				return c.again(f)
			}
			reset(f)
			return nil
		}
	}
	text := strings.TrimSuffix(line, "\r\n")
	if strings.HasPrefix(line, "*") { // whole
		text = "+" + strings.Join(strings.Split(text, "\r\n:")[1:], " ")
	}
	numbers, ok := numbersOf(text, t.Call)
	if ok {
		t.Call.Reply = numbers
		reset(f)
		return nil
	}
	if len(text) > 1 && text[0] == '-' {
		judge(c, l, f, text[1:])
		return c.again(f)
	}
	c.mu.Lock()
	breakOff(c, l, errMalformed(text))
	c.mu.Unlock()
	f.err = fmt.Errorf("%w: the connection was lost: %w", redis.ErrLost, errMalformed(text))
	return failed(f)
}

// whole reports whether a reply, of which that was read, is whole: a line, or an array of numbers.
func whole(text string) bool {
	first, rest, ends := strings.Cut(text, "\n")
	if !ends || !strings.HasPrefix(first, "*") {
		return ends
	}
	n, err := strconv.Atoi(strings.TrimSuffix(first[1:], "\r"))
	return err != nil || strings.Count(rest, "\n") >= n
}

// readOn reads the reply to a pending call whose turn it is, after an error, and ends the turn. line is what was read of it before the error. If the
// pending call's deadline has passed, or the connection has ended, readOn hands it over to the reader, and returns "". A late caller leaves at once.
func readOn(c *conn, l *link, f *pendingCall, line string, err error) string {
	s := l.stream
	defer s.Turns.EndResponse(f.number)
	c.mu.Lock()
	defer c.mu.Unlock()
	for l.queue == nil && (err == nil && !whole(line) || errors.Is(err, os.ErrDeadlineExceeded)) {
		now := time.Since(c.started)
		until := f.deadline
		if now >= until {
			until = lookUntil(c, l, now)
		}
		if now >= until && err != nil { // so that nothing is left in the Reader, which callers who come after would take for theirs
			break
		}
		watch(c, l, until)
		c.mu.Unlock()
		var piece []byte
		piece, err = s.Reader.ReadSlice('\n')
		line += string(piece)
		c.mu.Lock()
	}
	if err == nil {
		return line
	}
	if l.queue == nil {
		l.rest = line
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		breakOff(c, l, err)
		l.add(f)
	} else if time.Since(c.started) < f.deadline {
		l.add(f)
	} else {
		l.add(leaving(c, f))
		end(f, redis.ErrTimeout)
	}
	takeOver(c, l)
	watch(c, l, 0)                                         // long ago: so all calls that follow are handed over
	_ = s.Conn.SetWriteDeadline(time.Now().Add(c.timeout)) // a server that does not read must not block the one that sends
	return ""
}
