package resp

import (
	"io"
	"runtime"
)

// write sends the commands that are added to a link, until the connection ends.
func write(c *conn, l *link) {
	defer func() {
		if p := recover(); p != nil { // an interpreted program has no other recover
			hangUp(l)
		}
	}()
	send(c, l)
}

// send does the work of write. It is a function of its own so that an interpreter allocates its variables once for all commands.
func send(c *conn, l *link) {
	s := l.stream
	for {
		_, goesOn := <-l.wake
		if !goesOn {
			return
		}
		runtime.Gosched() // lets goroutines that are about to call do so first, so that one write sends all their commands
		c.mu.Lock()
		for s.Out != "" {
			out := s.Out
			s.Out = ""
			sent := s.Sent
			s.Sent = s.Number
			c.mu.Unlock()
			n, err := io.WriteString(s.Conn, out)
			if err != nil {
				unsent(c, l, sent, n, err)
				return
			}
			c.mu.Lock()
		}
		s.Sending = false
		c.mu.Unlock()
	}
}

// unsent notes that writing has failed, as redis.Pipeline.Unsent says. The reader cleans up.
func unsent(c *conn, l *link, sent uint, bytes int, err error) {
	c.mu.Lock()
	if bytes == 0 {
		l.stream.Sent = sent
	}
	l.broken = err
	c.mu.Unlock()
	hangUp(l)
}
