package goredis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/proxyweir/weir/redis"
)

// conn runs calls on one server, over a few connections. What waits together travels together: a connection that is free
// takes all the calls that wait, and sends them in one pipeline. A lone call finds a free connection, and does not wait
// for others.
type conn struct {
	client  *goredis.Client
	timeout time.Duration
	cluster *cluster // that the server is a node of; nil: of none

	mu      sync.Mutex
	ready   sync.Cond // there are calls that wait, or the end has come
	waiting []*flight
	closed  bool
}

// most is how many calls one pipeline takes.
const most = 256

func newConn(client *goredis.Client, connections int, timeout time.Duration) *conn {
	c := &conn{client: client, timeout: timeout}
	c.ready.L = &c.mu
	for range connections {
		go c.work()
	}
	return c
}

// flight is a call on its way.
type flight struct {
	call   *redis.Call
	err    error
	source bool // the server did not know the script
	state  atomic.Int32
	done   chan struct{} // has room for one
	timer  *time.Timer
}

// The states of a flight. One that is left by its caller is the worker's to throw away.
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
	f.state.Store(waiting)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return redis.ErrUnavailable
	}
	c.waiting = append(c.waiting, f)
	c.mu.Unlock()
	c.ready.Signal()

	timeout := c.timeout
	if !call.Deadline.IsZero() {
		timeout = min(timeout, time.Until(call.Deadline))
	}
	f.timer.Reset(timeout)
	select {
	case <-f.done:
		f.timer.Stop()
	case <-f.timer.C:
		if f.state.Swap(left) != landed {
			return redis.ErrTimeout
		}
		<-f.done
	}
	err := f.err
	f.call = nil
	flights.Put(f)
	return err
}

// work sends what waits, until the end.
func (c *conn) work() {
	batch := make([]*flight, 0, most)
	for {
		c.mu.Lock()
		for len(c.waiting) == 0 && !c.closed {
			c.ready.Wait()
			// Those that are about to ask do so first, and come along; where nobody is, this takes no time.
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
		if c.closed {
			for _, f := range c.waiting {
				f.land(redis.ErrUnavailable)
			}
			c.waiting = nil
			c.mu.Unlock()
			return
		}
		batch = batch[:0]
		n := min(len(c.waiting), most)
		for _, f := range c.waiting[:n] {
			if f.state.CompareAndSwap(waiting, sent) { // else its caller has left, and it is not sent
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

// land tells the caller, if it still waits.
func (f *flight) land(err error) {
	f.err = err
	if f.state.Swap(landed) != left {
		f.done <- struct{}{}
	}
}

// tries is how often a call is sent at most, where the server has surely not executed it.
const tries = 4

// group is what goes to one server in one pipeline.
type group struct {
	client  *goredis.Client
	asking  bool // the slot is on its way there
	flights []*flight
}

// send sends the batch, and what of it a server surely has not executed again: with the script's source where it did not know
// the script, to the server that has the slot, over a new connection where a master has become a replica.
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

// exchange sends a group, and returns what is to be sent again.
func (c *conn) exchange(g *group, last bool) []group {
	ctx := context.Background()
	pipe := g.client.Pipeline()
	commands := make([]*goredis.IntSliceCmd, len(g.flights))
	var sources []*redis.Script // that are in this pipeline already: the first of a script loads it
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
		reply, err := commands[i].Result()
		if err == nil && reply == nil {
			err = failure // such as that of a password: the commands themselves were not sent, and do not have it
		}
		if err == nil {
			f.call.Reply = append(f.call.Reply[:0], reply...)
			f.call.Asked = g.asking
			f.land(nil)
			continue
		}
		next := group{client: g.client, asking: g.asking}
		known := !last && f.state.Load() == sent // else its caller has left
		if known {
			known = c.follow(err, f, &next)
		}
		if !known {
			f.land(explain(err))
			continue
		}
		again = add(again, next, f)
	}
	return again
}

// execute sends a pipeline and reads the replies. Of a panic, by what is not RESP, it makes an error of all the commands.
func execute(ctx context.Context, pipe goredis.Pipeliner, commands []*goredis.IntSliceCmd) (err error) {
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

// noteFailure tells the Cluster of errors that are not a server's replies.
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

// follow reports whether an error says that the call was not executed, and finds where it is to be sent.
func (c *conn) follow(err error, f *flight, next *group) bool {
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		f.source = true
		return true
	}
	if goredis.IsReadOnlyError(err) {
		// The master has become a replica. The client drops the connection, as it does if the first of a pipeline's
		// replies says so, and finds the master of now with the next.
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

// add puts a flight into the group that goes where next does.
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

// command returns the flight's call as a command. Where the server did not know the script it has the source, which the
// server then keeps.
func (f *flight) command(ctx context.Context) *goredis.IntSliceCmd {
	args := make([]any, 0, 3+len(f.call.Keys)+len(f.call.Args))
	if f.source {
		args = append(args, "eval", f.call.Script.Source)
	} else {
		args = append(args, "evalsha", f.call.Script.SHA1)
	}
	args = append(args, len(f.call.Keys))
	for _, key := range f.call.Keys {
		args = append(args, key)
	}
	for _, arg := range f.call.Args {
		args = append(args, arg)
	}
	return goredis.NewIntSliceCmd(ctx, args...)
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

// close ends the workers, when they are through with what they are at.
func (c *conn) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.ready.Broadcast()
}
