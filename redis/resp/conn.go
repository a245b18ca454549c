package resp

import (
	"context"
	"sync"
	"time"

	"github.com/proxyweir/weir/redis"
)

// conn runs calls on one server, over one connection that all callers share. Who calls adds the command to those that are to be
// sent. One goroutine sends them, and what has been added while it did: so what waits together goes together, without a timer,
// and a lone call is sent at once. Another reads the replies, which come in the order of the commands.
//
// A call has no timer. The goroutine that reads has a deadline, that of the oldest call, and looks after those that are late
// when it passes. So a call costs little where each operation is interpreted, and an idle connection nothing.
type conn struct {
	config      Config
	timeout     time.Duration
	readTimeout time.Duration
	started     time.Time // times are kept as what has passed since then

	mu   sync.Mutex
	link *link // nil: there is no connection
	making
}

// making is what a conn knows about the connection that it has not got, or is getting. The conn's mutex guards it.
type making struct {
	links      map[*link]bool // all that are still read from: also those that no new call goes over
	connecting bool           // a goroutine sees to it that there is a connection

	// attempt ends with the attempt to connect that is under way; nil: there is none. (What waits, waits for a context, and
	// never by a select: in Yaegi, goroutines at the same select would wait for each other's channels.)
	attempt     context.Context //nolint:containedctx // see above
	attemptEnds context.CancelFunc

	failures int           // attempts, and connections that came to nothing, in a row
	reason   error         // of the last failure
	asked    time.Duration // when somebody last asked for a connection that was not there
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

// flight is a call on its way.
type flight struct {
	call     *redis.Call // nil: nobody waits for the reply any more
	err      error
	retry    int           // what may be done about the error
	sent     time.Duration // when Run was called
	deadline time.Duration // of the call, or where nobody waits any more, of the connection
	next     *flight       // that was sent after it
	done     chan struct{} // has room for one
}

// What may be done about a call that was surely not executed.
const (
	_ = iota
	withSource
	overAnother // connection
)

// tries is how often a call is sent at most.
const tries = 3

var flights = sync.Pool{New: newFlight}

func newFlight() interface{} { return &flight{done: make(chan struct{}, 1)} }

// Run implements redis.Conn. It does without what is rare, which again and others do, and leaves sending to a goroutine:
// interpreted, each call of a function makes all the variables that are in it.
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
		if l = await(c, f); l == nil { // which has unlocked
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

// again sends a call another time that was surely not executed, or returns the error of a flight that has ended.
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

// failed returns the error of a flight that has ended.
func failed(f *flight) error {
	err := f.err
	f.call = nil
	f.err = nil
	f.retry = 0
	flights.Put(f)
	return err
}

// late moves a flight's deadline to where its call has it, if that is earlier, and reports whether it has passed.
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

// close ends the conn. Calls that are under way fail.
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
