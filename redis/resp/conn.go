package resp

import (
	"context"
	"sync"
	"time"

	"github.com/proxyweir/weir/redis"
)

// conn runs calls on one server, over one connection that all callers share. It is safe for concurrent use.
//
// A caller adds its command to the commands to send. One goroutine sends them, and then those that were added meanwhile. So a single call is
// sent at once, and calls that wait are sent together, without a timer. Another goroutine reads the replies, which come in the order of the
// commands.
//
// A call has no timer either. The reading goroutine has the deadline of the oldest call, and ends late calls when that passes. So a call costs
// little although each operation is interpreted, and an idle connection costs nothing.
type conn struct {
	config      Config
	timeout     time.Duration
	readTimeout time.Duration
	started     time.Time // all times are durations since then

	mu   sync.Mutex
	link *link // nil: there is no connection
	making
}

// making is the state of a conn while it has no connection, or makes one. The conn's mutex guards it.
type making struct {
	links      map[*link]bool // all links that are still read, also those that get no new calls
	connecting bool           // a goroutine is trying to connect

	// attempt ends with the current attempt to connect; nil: there is none. (Goroutines wait for a context, and never at a select: in Yaegi
	// those at the same select would wait for each other's channels.)
	attempt     context.Context //nolint:containedctx // see above
	attemptEnds context.CancelFunc

	failures int           // failed attempts, and connections without a single decision, in a row
	reason   error         // of the last failure
	asked    time.Duration // when a call last needed a connection that was not there
	closed   bool
	ctx      context.Context //nolint:containedctx // ends with the conn
	cancel   context.CancelFunc
}

func newConn(config Config) *conn {
	c := &conn{config: config, timeout: config.Timeout, readTimeout: config.ReadTimeout, started: time.Now()}
	c.links = make(map[*link]bool)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// flight is a call between Run and its result.
type flight struct {
	call     *redis.Call // nil: the caller has left
	err      error
	retry    int           // how to send the call again, after an error; 0: not at all
	sent     time.Duration // when Run was called
	deadline time.Duration // of the call; if the caller has left, of the connection
	next     *flight       // was sent after it
	done     chan struct{} // has a buffer of one
}

// How to send a call again that the server has certainly not executed.
const (
	_ = iota
	withSource
	overAnother // connection
)

// tries is how often a call is sent at most.
const tries = 3

var flights = sync.Pool{New: newFlight}

func newFlight() interface{} { return &flight{done: make(chan struct{}, 1)} }

// Run implements redis.Conn. It leaves rare cases to other functions, such as again, and sending to a goroutine: in the interpreter each call
// of a function allocates all its variables.
func (c *conn) Run(call *redis.Call) error {
	var (
		f       *flight
		l       *link
		command string
		key     string
	)
	f = flights.Get().(*flight)
	f.call = call
	f.sent = time.Since(c.started)
	f.deadline = f.sent + c.timeout
	if !call.Deadline.IsZero() && late(f) {
		return failed(f)
	}
	if len(call.Keys) == 1 && call.Constant {
		key = call.Keys[0]
	}
	if key != "" && len(key) < longestReady && call.Head != "" {
		command = call.Head + lengths[len(key)] + key + call.Tail
	} else {
		command = commandOf(call)
	}
	c.mu.Lock()
	l = c.link
	if l == nil {
		if l = await(c, f); l == nil { // await has unlocked the mutex
			return failed(f)
		}
	}
	l.number++
	if l.last == nil {
		l.queue = f
	} else {
		l.last.next = f
	}
	l.last = f
	if f.deadline < l.watched {
		watch(c, l, f.deadline)
	}
	l.out = append(l.out, command...)
	if !l.writing {
		l.writing = true
		l.wake <- struct{}{}
	}
	c.mu.Unlock()
	<-f.done
	if f.err != nil {
		return again(c, f)
	}
	f.call = nil
	flights.Put(f)
	return nil
}

// again sends a call again if the server has certainly not executed it. Otherwise it returns the flight's error.
func again(c *conn, f *flight) error {
	source := false
	for try := 2; f.err != nil; try++ {
		if f.retry == 0 || try > tries {
			return failed(f)
		}
		source = source || f.retry == withSource
		f.retry = 0
		f.err = nil
		c.mu.Lock()
		l := c.link
		if l == nil {
			if l = await(c, f); l == nil {
				return failed(f)
			}
		}
		l.number++
		if l.last == nil {
			l.queue = f
		} else {
			l.last.next = f
		}
		l.last = f
		if f.deadline < l.watched {
			watch(c, l, f.deadline)
		}
		l.out = append(l.out, script(f.call, source)...)
		if !l.writing {
			l.writing = true
			l.wake <- struct{}{}
		}
		c.mu.Unlock()
		<-f.done
	}
	f.call = nil
	flights.Put(f)
	return nil
}

// failed returns the error of a flight that has ended, and frees the flight.
func failed(f *flight) error {
	err := f.err
	f.call = nil
	f.err = nil
	f.retry = 0
	flights.Put(f)
	return err
}

// late sets a flight's deadline to that of its call, if that is earlier. It reports whether the call's deadline has passed.
func late(f *flight) bool {
	left := time.Until(f.call.Deadline)
	if f.sent+left < f.deadline {
		f.deadline = f.sent + left
	}
	if left > 0 {
		return false
	}
	f.err = redis.ErrTimeout
	return true
}

// close closes the conn. Calls that are under way fail.
func (c *conn) close() {
	c.mu.Lock()
	c.closed = true
	c.link = nil
	for l := range c.links {
		hangUp(l)
	}
	c.mu.Unlock()
	c.cancel()
}
