package resp

import (
	"bufio"
	"errors"
	"fmt"
	"net/textproto"
	"os"
	"strings"
	"time"

	"github.com/proxyweir/weir/redis"
)

// lane is a second connection to a server, for the redis.Pipeline of the fast path. Its calls are all alike: they have the same time, and the
// reply to each is a line. Whatever else happens to them is left to the conn.
//
// Deadlines need no timer for each call. Calls get their turn in the order in which they began, and so in the order of their deadlines. The
// connection's read deadline is never later than that of the call whose turn it is. If it passes too early, the call sets it again. If the call
// is late, it leaves, and its reply is dropped by those that come after it.
//
// A goroutine keeps the lane, from its first call until the connection ends. If nobody calls for a while it reads, so that it learns when the
// server hangs up. While it reads, or late replies are to come, new calls go over the conn.
type lane struct {
	conn      *conn
	sentinels *sentinels // of its own; nil: there are none
	pipeline  *redis.Pipeline

	// The pipeline's Mu guards these.
	track    *track        // of the connection; nil: there is none
	kept     bool          // a goroutine keeps the lane
	closed   bool          // for good
	failures int           // connections in a row that have brought no reply
	next     time.Duration // when a connection may be made again
}

// track is what a lane has besides the redis.Stream of a connection.
type track struct {
	link   *link
	stream *redis.Stream
	proved bool // it has brought replies; only the keeper uses it

	// The pipeline's Mu guards these.
	lost error // why the connection has ended
	left bool  // it gets no new calls
	idle bool  // the keeper reads, and Rouse must wake it

	// Whose turn it is uses these.
	late    int           // how many replies are to be dropped
	since   time.Duration // when the call began whose reply is the first of these; 0: none was late
	partial string        // the beginning of a line
}

// glance is how long a lane is unused until its keeper reads.
const glance = 100 * time.Millisecond

// newLane returns a lane beside a conn.
func newLane(c *conn) *lane {
	a := &lane{conn: c}
	a.pipeline = &redis.Pipeline{
		Rouse:  func() { rouse(a) },
		Unsent: func(s *redis.Stream, sent uint, bytes int, err error) { unsent(a, s, sent, bytes, err) },
		Finish: func(t *redis.Turn) error { return finish(a, t) },
	}
	return a
}

// rouse has the lane opened, if it is not.
func rouse(a *lane) {
	p := a.pipeline
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if a.track != nil && a.track.idle {
		a.track.idle = false
		_ = a.track.stream.Conn.SetReadDeadline(a.conn.started) // long ago
	}
	if !a.kept && !a.closed && time.Since(a.conn.started) >= a.next {
		a.kept = true
		go keep(a)
	}
}

// keep makes a connection, and keeps the lane until the connection ends.
func keep(a *lane) {
	var k *track
	var err error
	defer func() {
		if p := recover(); p != nil { // an interpreted program has no other recover
			err = fmt.Errorf("keeping panicked: %v", p)
		}
		drop(a, k, err)
	}()
	l, err := dialBy(a.conn, a.sentinels, func(l *link) { divert(a, l) })
	if err != nil {
		return
	}
	k = newTrack(l)
	p := a.pipeline
	p.Mu.Lock()
	a.track = k
	if a.closed {
		err = errClosed
	} else {
		admit(a, k)
	}
	p.Mu.Unlock()
	for err == nil {
		err = tend(a, k)
	}
}

func newTrack(l *link) *track {
	k := &track{link: l}
	k.stream = &redis.Stream{Conn: l.net, Reader: bufio.NewReaderSize(l.net, longestLine), Turns: &textproto.Pipeline{}, Owner: k}
	return k
}

// admit lets new calls use the connection. The caller has the pipeline's Mu, and nobody reads.
func admit(a *lane, k *track) {
	_ = k.stream.Conn.SetReadDeadline(time.Now().Add(a.conn.timeout)) // not later than that of any call to come
	if !k.left {
		a.pipeline.Stream = k.stream
	}
}

// tend waits for a while. If no call has begun meanwhile, it tidies the connection up, and watches it until a call needs it.
func tend(a *lane, k *track) error {
	p := a.pipeline
	s := k.stream
	p.Mu.Lock()
	last := s.Number
	p.Mu.Unlock()
	sleep(a.conn.ctx, glance)
	p.Mu.Lock()
	err := k.lost
	if a.closed {
		err = errClosed
	}
	if err != nil || p.Stream == s && s.Number != last {
		k.proved = err == nil // it is open, so that no reply is late
		p.Mu.Unlock()
		return err
	}
	p.Stream = nil
	turn := s.Number
	s.Number++
	p.Mu.Unlock()
	s.Turns.StartResponse(turn)
	defer s.Turns.EndResponse(turn)
	if k.since != 0 {
		return tidy(a, k)
	}
	return watchIdle(a, k)
}

// tidy drops the late replies, and opens the lane again.
func tidy(a *lane, k *track) error {
	_ = k.stream.Conn.SetReadDeadline(a.conn.started.Add(k.since + a.conn.readTimeout))
	for k.late > 0 {
		piece, err := k.stream.Reader.ReadSlice('\n')
		if err != nil {
			return silent(a, err)
		}
		if piece[0] != '+' && piece[0] != '-' && k.partial == "" {
			return errMalformed(string(piece))
		}
		k.partial = ""
		k.late--
	}
	k.since = 0
	_ = k.stream.Conn.SetWriteDeadline(time.Time{})
	a.pipeline.Mu.Lock()
	if k.lost == nil && !a.closed {
		admit(a, k)
	}
	a.pipeline.Mu.Unlock()
	return nil
}

// silent returns the error for a connection on which reading has failed.
func silent(a *lane, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("no reply in %s", a.conn.readTimeout)
	}
	return err
}

// watchIdle reads until a call needs the connection, or it ends.
func watchIdle(a *lane, k *track) error {
	p := a.pipeline
	p.Mu.Lock()
	k.idle = true
	_ = k.stream.Conn.SetReadDeadline(time.Time{})
	p.Mu.Unlock()
	_, err := k.stream.Reader.Peek(1)
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if k.idle && err == nil {
		line, _ := k.stream.Reader.Peek(k.stream.Reader.Buffered())
		return unasked(strings.TrimSuffix(string(line), "\r\n"))
	}
	if k.idle || !errors.Is(err, os.ErrDeadlineExceeded) {
		k.idle = false
		return err
	}
	if k.lost == nil && !a.closed {
		admit(a, k)
	}
	return k.lost
}

// drop ends a connection; k is nil if it could not be made. The next one may be made when the lane is needed, at first at once.
func drop(a *lane, k *track, err error) {
	if k != nil {
		part(a, k, err)
	}
	p := a.pipeline
	p.Mu.Lock()
	defer p.Mu.Unlock()
	a.track = nil
	a.kept = false
	if k != nil && k.proved {
		a.failures = 0
		return
	}
	a.failures++
	a.next = time.Since(a.conn.started) + backoff(a.failures, 1)
}

// part keeps calls off a connection, and closes it. Those that wait for a reply fail.
func part(a *lane, k *track, err error) {
	p := a.pipeline
	p.Mu.Lock()
	if k.lost == nil {
		k.lost = err
	}
	if p.Stream == k.stream {
		p.Stream = nil
	}
	p.Mu.Unlock()
	hangUp(k.link)
}

// divert keeps new calls off a connection to a server that is the master no more.
func divert(a *lane, l *link) {
	p := a.pipeline
	p.Mu.Lock()
	if k := a.track; k != nil && k.link == l {
		k.left = true
		if p.Stream == k.stream {
			p.Stream = nil
		}
	}
	p.Mu.Unlock()
}

// close closes the lane for good.
func (a *lane) close() {
	p := a.pipeline
	p.Mu.Lock()
	a.closed = true
	k := a.track
	p.Mu.Unlock()
	if k != nil {
		part(a, k, errClosed)
	}
}
