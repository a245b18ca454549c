package resp

import (
	"time"

	"github.com/proxyweir/weir/redis"
)

// Run implements redis.Conn. It leaves rare cases to other functions, such as again, and sending to a goroutine: in the interpreter each call
// of a function allocates all its variables.
func (c *conn) Run(call *redis.Call) error {
	var (
		f       *pendingCall
		l       *link
		s       *redis.Stream
		command string
		key     string
	)
	f = pendingCalls.Get().(*pendingCall)
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
	s = l.stream
	f.number = s.Number
	s.Number++
	if l.last == nil {
		l.queue = f
	} else {
		l.last.next = f
	}
	l.last = f
	if f.deadline < l.watched {
		watch(c, l, f.deadline)
	}
	s.Out += command
	if !s.Sending {
		s.Sending = true
		l.wake <- struct{}{}
	}
	c.mu.Unlock()
	<-f.done
	if f.err != nil {
		return again(c, f)
	}
	f.call = nil
	pendingCalls.Put(f)
	return nil
}

// again sends a call again, as often as the server has certainly not executed it. If the call fails otherwise, it returns the error.
func again(c *conn, f *pendingCall) error {
	for f.err != nil {
		if f.retry == 0 || f.resent == tries-1 {
			return failed(f)
		}
		f.resent++
		if f.retry == elsewhere || f.retry == asking {
			return c.referrals.follow(c.address, f)
		}
		f.source = f.source || f.retry == withSource
		if !resend(c, f) {
			return failed(f)
		}
	}
	f.call.Asked = f.asks
	reset(f)
	return nil
}

// resend sends a pending call to a server, and waits for the result. It returns false, with the error in it, if it could not be sent.
func resend(c *conn, f *pendingCall) bool {
	f.retry = 0
	f.err = nil
	f.asking = f.asks
	c.mu.Lock()
	l := c.link
	if l == nil {
		if l = await(c, f); l == nil {
			return false
		}
	}
	s := l.stream
	f.number = s.Number
	s.Number++
	l.add(f)
	if f.deadline < l.watched {
		watch(c, l, f.deadline)
	}
	if f.asking {
		s.Out += askingCommand
	}
	s.Out += script(f.call, f.source)
	if !s.Sending {
		s.Sending = true
		l.wake <- struct{}{}
	}
	c.mu.Unlock()
	<-f.done
	return true
}

// reset frees a pending call that has ended.
func reset(f *pendingCall) {
	f.call = nil
	f.err = nil
	f.retry = 0
	f.resent = 0
	f.source = false
	f.asks = false
	f.asking = false
	pendingCalls.Put(f)
}

// failed returns the error of a pending call that has ended, and frees it.
func failed(f *pendingCall) error {
	err := f.err
	reset(f)
	return err
}

// late sets a pending call's deadline to that of its call. It reports whether the call's deadline has passed.
func late(f *pendingCall) bool {
	left := time.Until(f.call.Deadline)
	f.deadline = f.sent + left
	if left > 0 {
		return false
	}
	f.err = redis.ErrUnsent
	return true
}

// close closes the conn. Calls that are under way fail.
func (c *conn) close() {
	c.mu.Lock()
	c.closed = true
	if c.link != nil {
		abandon(c, c.link, errClosed)
	}
	for l := range c.links {
		hangUp(l)
	}
	c.mu.Unlock()
	c.cancel()
}
