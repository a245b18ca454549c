package resp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/redis"
)

// link is one connection, with the calls whose replies it has yet to bring.
type link struct {
	net net.Conn
	raw net.Conn // below TLS, or the same: closing it does not wait for anything

	wake chan struct{} // tells the goroutine that sends that there is something; has room for one

	// The conn's mutex guards these.
	queue, last *flight // whose replies are to come, after those that the reader has taken over
	number      int64   // flights so far
	handed      int64   // of those, the ones whose commands may have been sent
	writing     bool    // what is to be sent is being sent, or will be at once
	out         []byte  // what is to be sent next
	spare       []byte  // a buffer for it
	watched     time.Duration
	broken      error // why it could not be written to
	retired     bool  // no new calls go over it

	// The reader's own.
	first  *flight // whose replies come next
	proved bool    // it has brought a reply
}

func newLink(raw net.Conn) *link {
	return &link{net: raw, raw: raw, watched: never, wake: make(chan struct{}, 1)}
}

const (
	never         = time.Duration(1<<63 - 1)
	bufferSize    = 16 << 10
	largestBuffer = 64 << 10
)

// hangUp closes a connection. What reads and writes fails then, and the reader sees to the rest.
func hangUp(l *link) { _ = l.raw.Close() }

// watch has the reader look after late calls at that time. The conn's mutex is held.
func watch(c *conn, l *link, at time.Duration) {
	l.watched = at
	until := time.Time{}
	if at != never {
		until = c.started.Add(at)
	}
	_ = l.net.SetReadDeadline(until) // fails if the connection is closed, which the reader finds out
}

// read reads replies until the connection ends.
func read(c *conn, l *link) {
	var err error
	defer func() {
		if p := recover(); p != nil { // in an interpreted program nobody above would
			err = fmt.Errorf("reading panicked: %v", p)
		}
		lose(c, l, err)
	}()
	err = replies(c, l)
}

// replies reads replies, each of which ends the flight that comes next, and returns why there are no more. A reply is an array
// of numbers, a line of them with a space between two, or an error; after anything else the connection is of no use any more.
// It is long, and calls little, because it is on the way of every request, and interpreted: its variables are made once.
func replies(c *conn, l *link) error {
	buffer := make([]byte, bufferSize)
	rest := "" // the beginning of a line
	want := 0  // how many numbers of an array are to come
	var reply []int64
	for {
		size, failure := l.net.Read(buffer)
		if size == 0 || failure != nil {
			if size == 0 && errors.Is(failure, os.ErrDeadlineExceeded) {
				failure = seeToLate(c, l)
				if l.first != nil && l.first.call == nil {
					reply = nil // that of nobody who waits
				}
			}
			if failure != nil {
				return failure
			}
			continue
		}
		lines := strings.Split(rest+string(buffer[:size]), "\r\n")
		last := len(lines) - 1
		for i := 0; i < last; i++ {
			line := lines[i]
			if len(line) < 2 || len(line) > longestLine {
				return errMalformed(line)
			}
			f := l.first
			if f == nil {
				c.mu.Lock()
				f = l.queue
				l.first = f
				l.queue = nil
				l.last = nil
				c.mu.Unlock()
				if f == nil {
					return unasked(line)
				}
			}
			kind := line[0]
			if want > 0 {
				n, err := strconv.ParseInt(line[1:], 10, 64)
				if err != nil || kind != ':' {
					return errMalformed(line)
				}
				reply = append(reply, n)
				want--
				if want > 0 {
					continue
				}
			} else if kind == '*' {
				n, err := strconv.Atoi(line[1:])
				if err != nil || n < 1 || n > mostNumbers {
					return errMalformed(line)
				}
				want = n
				reply = nil
				if f.call != nil {
					reply = f.call.Reply[:0]
				}
				continue
			} else if kind == '+' {
				words := strings.Split(line[1:], " ")
				reply = nil
				if f.call != nil {
					reply = f.call.Reply[:0]
				}
				for _, word := range words {
					n, err := strconv.ParseInt(word, 10, 64)
					if err != nil || len(words) > mostNumbers {
						return errMalformed(line)
					}
					reply = append(reply, n)
				}
			} else if kind == '-' {
				refuse(c, l, f, line[1:])
				continue
			} else {
				return errMalformed(line)
			}
			if !l.proved {
				prove(c, l)
			}
			l.first = f.next
			f.next = nil
			if f.call != nil {
				f.call.Reply = reply
				f.done <- struct{}{}
			}
		}
		rest = lines[last]
		if len(rest) > longestLine+len("\r") {
			return errMalformed(rest)
		}
		if l.retired && l.first == nil && over(c, l) {
			return io.EOF
		}
	}
}

// take moves what is queued behind the flights that the reader has already. The conn's mutex is held.
func (l *link) take() {
	if l.first == nil {
		l.first = l.queue
	} else {
		f := l.first
		for f.next != nil {
			f = f.next
		}
		f.next = l.queue
	}
	l.queue = nil
	l.last = nil
}

// seeToLate ends the calls whose deadline has passed. Their replies may still come, and are thrown away then. When one is so
// late that the connection is given up, the error says so.
func seeToLate(c *conn, l *link) error {
	now := time.Since(c.started)
	c.mu.Lock()
	defer c.mu.Unlock()
	l.take()
	next := never
	var before *flight
	for f := l.first; f != nil; f = f.next {
		if f.call != nil && f.deadline <= now {
			left := &flight{deadline: f.sent + c.readTimeout, next: f.next}
			if before == nil {
				l.first = left
			} else {
				before.next = left
			}
			land(f, redis.ErrTimeout)
			f = left
		}
		if f.deadline <= now {
			return fmt.Errorf("no reply in %s", c.readTimeout)
		}
		if f.deadline < next {
			next = f.deadline
		}
		before = f
	}
	watch(c, l, next)
	return nil
}

// land ends a flight, of which nothing must be read any more then.
func land(f *flight, err error) {
	f.next = nil
	f.err = err
	f.done <- struct{}{}
}

// lose ends a connection and the calls that wait for it, and sees to another one.
func lose(c *conn, l *link, err error) {
	hangUp(l)
	now := time.Since(c.started)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.links, l)
	l.take()
	close(l.wake)                                                         // nobody adds to it any more: under the lock it is not the conn's link from here on
	if l.broken != nil && (err == nil || errors.Is(err, net.ErrClosed)) { // because of which it was closed
		err = l.broken
	}
	if c.link == l {
		c.link = nil
		fail(c, l, err)
	}
	lost := fmt.Errorf("%w: the connection was lost: %w", redis.ErrUnavailable, err)
	retry := overAnother
	if c.closed {
		lost = errClosed
		retry = 0
	}
	sent := l.handed - l.number // of those in the line
	for f := l.first; f != nil; f = f.next {
		sent++
	}
	for f := l.first; f != nil; {
		next := f.next
		if sent <= 0 && f.call != nil { // surely not executed
			f.retry = retry
		}
		sent--
		switch {
		case f.call == nil:
		case f.deadline <= now:
			f.retry = 0
			land(f, redis.ErrTimeout)
		default:
			land(f, lost)
		}
		f = next
	}
	l.first = nil
}

// retire lets no new call go over a connection, of which an error says that it leads to the wrong place. It is closed when
// the replies have come that it has yet to bring. The reader calls it.
func retire(c *conn, l *link, err error) {
	c.mu.Lock()
	l.retired = true
	if c.link == l {
		c.link = nil
		fail(c, l, err)
	}
	c.mu.Unlock()
}
