package redis

import (
	"errors"
	"fmt"
	"time"
)

// patience returns for how long a request waits for an answer of the server: the timeout, or four times as long as answers take if that is longer. (A
// client may send a call only when the answer to another has come, and machines are busy.) For the first answer of all it waits for the background timeout.
func (s *Store) patience(server *Server) time.Duration {
	least := s.client.Timeout()
	most := s.client.Background()
	longest := server.latency.longest.Load()
	if longest == 0 {
		return most
	}
	wait := time.Duration(4*longest) * time.Microsecond
	if wait < least {
		return least
	}
	if wait > most {
		return most
	}
	return wait
}

// breakerFor returns the server's breaker for calls that wait so.
func (s *Server) breakerFor(w wait) *breaker {
	if w == promptly {
		return &s.breaker
	}
	return &s.patient
}

// call runs a call on a server, unless the breaker for such calls is open, and notes what comes of it.
func (s *Store) call(server *Server, c *Call) error {
	if c.wait != promptly {
		return s.callPatiently(server, c)
	}
	if server.breaker.Open() {
		return ErrOpen
	}
	short := !c.Deadline.IsZero() && time.Until(c.Deadline) < s.client.Timeout()/2 // earlier calls of the request have used up the time
	seen := server.trouble.Load()
	err := server.conn.Run(c)
	if err != nil {
		err = s.runAgain(server, c, err)
	}
	if err == nil {
		server.breaker.Succeed()
	} else if !short || !errors.Is(err, ErrTimeout) {
		s.failed(server, &server.breaker, c.Keys, seen, s.tooFar(server, err))
	}
	return err
}

// tooFar adds to the error of a call that a request has waited for why it cannot succeed, if the server's answers take longer than the timeout.
func (s *Store) tooFar(server *Server, err error) error {
	took := time.Duration(server.latency.longest.Load()) * time.Microsecond
	if !errors.Is(err, ErrTimeout) || took <= s.client.Timeout() {
		return err
	}
	return fmt.Errorf("%w: an answer takes %s, longer than the timeout, %s: set one of several times that, or consistency lease or eventual", err, took.Round(time.Millisecond), s.client.Timeout())
}

// callPatiently is call for calls that may take longer than the timeout. It learns how long answers take, also from those that come too late.
func (s *Store) callPatiently(server *Server, c *Call) error {
	b := &server.patient
	if b.Open() {
		return ErrOpen
	}
	most := s.client.Background()
	if c.wait == patiently {
		most = s.patience(server)
	}
	began := time.Now()
	deadline := c.Deadline
	if limit := began.Add(most); deadline.IsZero() || deadline.After(limit) {
		c.Deadline = limit
	}
	late := c.Late
	c.Late = func(err error) {
		if err == nil {
			server.latency.note(time.Since(began))
		}
		if late != nil {
			late(err)
		}
	}
	seen := b.Trouble().Load()
	err := server.conn.Run(c)
	if err != nil {
		err = s.runAgain(server, c, err)
	}
	if pending(err) { // the Conn still has the call
		server.latency.longest.CompareAndSwap(0, 1)
		s.failed(server, b, c.Keys, seen, err)
		return err
	}
	c.Late = late
	c.Deadline = deadline
	if err != nil {
		s.failed(server, b, c.Keys, seen, err)
		return err
	}
	server.latency.note(time.Since(began))
	b.Succeed()
	return nil
}
