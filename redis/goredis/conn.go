package goredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/proxyweir/weir/redis"
)

// conn runs calls on one server, over a few connections. A connection that is free takes all the calls that wait, and sends them in one
// pipeline. A single call finds a free connection, and does not wait for others. conn is safe for concurrent use.
type conn struct {
	client  *goredis.Client
	timeout time.Duration
	cluster *cluster // the server is a node of it; nil: of none

	mu      sync.Mutex
	ready   sync.Cond // signals that calls wait, or that the conn is closed
	waiting []*flight
	closed  bool
}

// most is the most calls in one pipeline.
const most = 256

func newConn(client *goredis.Client, connections int, timeout time.Duration) *conn {
	c := &conn{client: client, timeout: timeout}
	c.ready.L = &c.mu
	for range connections {
		go c.work()
	}
	return c
}

// flight is a call between Run and its result.
type flight struct {
	call   *redis.Call
	err    error
	source bool          // the server did not know the script
	handed bool          // a connection has the command: the server may execute it
	until  time.Duration // how long Run may take
	state  atomic.Int32
	done   chan struct{} // has a buffer of one
	timer  *time.Timer
}

// The states of a flight. If its caller has left before it was sent, the worker drops it.
const (
	waiting int32 = iota
	sent
	landed
	left
)

var flights = sync.Pool{New: func() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &flight{done: make(chan struct{}, 1), timer: timer}
}}

// Run implements redis.Conn.
func (c *conn) Run(call *redis.Call) error {
	f := flights.Get().(*flight)
	f.call = call
	f.err = nil
	f.source = false
	timeout := c.timeout
	if !call.Deadline.IsZero() {
		timeout = time.Until(call.Deadline)
	}
	f.until = timeout
	f.state.Store(waiting)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return redis.ErrUnavailable
	}
	c.waiting = append(c.waiting, f)
	c.mu.Unlock()
	c.ready.Signal()

	f.timer.Reset(timeout)
	select {
	case <-f.done:
		f.timer.Stop()
	case <-f.timer.C:
		switch f.state.Swap(left) {
		case waiting:
			return redis.ErrUnsent
		case sent:
			return redis.ErrTimeout
		}
		<-f.done
	}
	err := f.err
	f.call = nil
	flights.Put(f)
	return err
}

// work sends the calls that wait, until the conn is closed. It runs in one goroutine for each connection.
func (c *conn) work() {
	batch := make([]*flight, 0, most)
	for {
		c.mu.Lock()
		for len(c.waiting) == 0 && !c.closed {
			c.ready.Wait()
			// Lets goroutines that are about to call do so first, so that their calls join the pipeline. If there are none, this takes no time.
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
		if c.closed {
			for _, f := range c.waiting {
				if f.state.CompareAndSwap(waiting, sent) {
					f.land(redis.ErrUnavailable)
				}
			}
			c.waiting = nil
			c.mu.Unlock()
			return
		}
		batch = batch[:0]
		n := min(len(c.waiting), most)
		for _, f := range c.waiting[:n] {
			if f.state.CompareAndSwap(waiting, sent) { // otherwise its caller has left, and it is not sent
				batch = append(batch, f)
			}
		}
		rest := copy(c.waiting, c.waiting[n:])
		clear(c.waiting[rest:])
		c.waiting = c.waiting[:rest]
		c.mu.Unlock()
		if len(batch) > 0 {
			c.send(batch)
			clear(batch)
		}
	}
}

// land passes the result to the caller, if it still waits, or else to the call's Late.
func (f *flight) land(err error) {
	f.err = err
	if f.state.Swap(landed) != left {
		f.done <- struct{}{}
	} else if f.call.Late != nil {
		f.call.Late(err)
	}
}

// tries is how often a call is sent at most, as long as the server has certainly not executed it.
const tries = 4

// group has the calls that go to one server in one pipeline.
type group struct {
	client  *goredis.Client
	asking  bool // with ASKING, since the slot is migrating there
	flights []*flight
}

// send sends the batch. It sends calls again that a server has certainly not executed: with the script's source, if the server did not know
// the script; to the server that has the slot; or over a new connection, if the master has become a replica.
func (c *conn) send(batch []*flight) {
	groups := []group{{client: c.client, flights: batch}}
	for try := 1; len(groups) > 0; try++ {
		var again []group
		for i := range groups {
			again = append(again, c.exchange(&groups[i], try == tries)...)
		}
		groups = again
	}
}

// exchange sends a group, and returns the groups of calls to send again. After the last try there are none.
func (c *conn) exchange(g *group, last bool) []group {
	ctx := context.Background()
	pipe := g.patient().Pipeline()
	commands := make([]goredis.Cmder, len(g.flights))
	var sources []*redis.Script // whose source is in this pipeline already: once per script is enough to load it
	for i, f := range g.flights {
		if g.asking {
			pipe.Do(ctx, "asking")
		}
		if f.source {
			f.source = !slices.Contains(sources, f.call.Script)
			sources = append(sources, f.call.Script)
		}
		commands[i] = f.command(ctx)
		_ = pipe.Process(ctx, commands[i])
	}
	failure := execute(ctx, pipe, commands)
	if failure != nil {
		c.noteFailure(failure)
	}
	var again []group
	for i, f := range g.flights {
		err := f.take(commands[i])
		if errors.Is(err, errNoReply) && failure != nil {
			err = failure // of the whole pipeline, such as a wrong password: the commands were not sent, and have no error
		}
		if err == nil {
			f.call.Asked = g.asking
			f.land(nil)
			continue
		}
		next := group{client: g.client, asking: g.asking}
		known := !last && f.state.Load() == sent // otherwise its caller has left
		if known {
			known = !f.handed && cutShort(err) || c.follow(err, f, &next)
		}
		if !known {
			f.land(explain(err))
			continue
		}
		again = add(again, next, f)
	}
	return again
}

var errNoReply = errors.New("redis: no reply")

// take takes over the reply to the flight's command.
func (f *flight) take(command goredis.Cmder) error {
	switch command := command.(type) {
	case *goredis.IntSliceCmd:
		reply, err := command.Result()
		if err != nil {
			return err
		}
		f.call.Reply = append(f.call.Reply[:0], reply...)
		if reply == nil {
			return errNoReply
		}
	case *goredis.StringSliceCmd:
		reply, err := command.Result()
		if err != nil {
			return err
		}
		f.call.Texts = reply
		if reply == nil {
			return errNoReply
		}
	}
	return nil
}

// patient returns the group's client, which waits for replies as long as the most patient of the group's calls.
func (g *group) patient() *goredis.Client {
	timeout := g.client.Options().ReadTimeout
	longest := timeout
	for _, f := range g.flights {
		if f.until > longest {
			longest = f.until
		}
	}
	if longest == timeout {
		return g.client
	}
	return g.client.WithTimeout(longest)
}

// execute sends a pipeline and reads the replies. If a reply is not RESP, go-redis may panic: then all the commands get an error.
func execute(ctx context.Context, pipe goredis.Pipeliner, commands []goredis.Cmder) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading the reply: %v", p)
			for _, command := range commands {
				command.SetErr(err)
			}
		}
	}()
	_, err = pipe.Exec(ctx)
	return err
}

// noteFailure reports errors that are not replies of a server to the Cluster.
func (c *conn) noteFailure(err error) {
	var reply goredis.Error
	if c.cluster == nil || errors.As(err, &reply) {
		return
	}
	if errors.Is(err, goredis.ErrClosed) {
		c.cluster.dropNode(c.client)
	}
	c.cluster.failed()
}

// cutShort reports whether an error is that of a connection that has ended, and not of a server that accepts none.
func cutShort(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// follow reports whether an error says that the server has not executed the call. If so it sets how and where to send it again.
func (c *conn) follow(err error, f *flight, next *group) bool {
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		f.source = true
		return true
	}
	if goredis.IsReadOnlyError(err) {
		// The master has become a replica. go-redis drops a connection if the first reply of a pipeline says so, and finds the new master
		// with the next connection.
		return true
	}
	if c.cluster == nil {
		return false
	}
	if addr, ok := goredis.IsMovedError(err); ok {
		next.client = c.cluster.elsewhere(addr, true)
		next.asking = false
		return true
	}
	if addr, ok := goredis.IsAskError(err); ok {
		next.client = c.cluster.elsewhere(addr, false)
		next.asking = true
		return true
	}
	return false
}

// add adds a flight to the group with the same server and asking as next, which it appends if there is none.
func add(groups []group, next group, f *flight) []group {
	for i := range groups {
		if groups[i].client == next.client && groups[i].asking == next.asking {
			groups[i].flights = append(groups[i].flights, f)
			return groups
		}
	}
	next.flights = []*flight{f}
	return append(groups, next)
}

// command returns the flight's call as a command. If the server did not know the script, the command has its source, and the server keeps
// that.
func (f *flight) command(ctx context.Context) goredis.Cmder {
	args := make([]any, 0, 3+len(f.call.Keys)+len(f.call.Args))
	if f.source {
		args = append(args, "eval", f.call.Script.Source)
	} else {
		args = append(args, "evalsha", f.call.Script.SHA1)
	}
	f.handed = false
	args = append(args, f)
	for _, key := range f.call.Keys {
		args = append(args, key)
	}
	for _, arg := range f.call.Args {
		args = append(args, arg)
	}
	if f.call.Script.Texts {
		return goredis.NewStringSliceCmd(ctx, args...)
	}
	return goredis.NewIntSliceCmd(ctx, args...)
}

// MarshalBinary implements encoding.BinaryMarshaler. It returns the number of the command's keys, which goes in front of them. go-redis calls it
// when it has a connection and writes the command there.
func (f *flight) MarshalBinary() ([]byte, error) {
	f.handed = true
	return strconv.AppendInt(nil, int64(len(f.call.Keys)), 10), nil
}

// explain adds to an error what a user can do about it.
func explain(err error) error {
	if goredis.IsTryAgainError(err) {
		return redis.ErrMoving
	}
	if _, moved := goredis.IsMovedError(err); moved {
		return fmt.Errorf("redis: %w (the server is a node of a Cluster: configure it as one)", mark(err))
	}
	err = mark(err)
	if strings.HasPrefix(err.Error(), "redis: ") {
		return err
	}
	return fmt.Errorf("redis: %w", err)
}

// close stops the workers. It does not wait for them: each first finishes the batch that it is sending.
func (c *conn) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.ready.Broadcast()
}
