package resp

import "runtime"

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
	for {
		_, goesOn := <-l.wake
		if !goesOn {
			return
		}
		runtime.Gosched() // lets goroutines that are about to call do so first, so that one write sends all their commands
		c.mu.Lock()
		for len(l.out) > 0 {
			out := l.out
			l.out = l.spare
			handed := l.handed
			l.handed = l.number
			c.mu.Unlock()
			n, err := l.net.Write(out)
			c.mu.Lock()
			if n == 0 {
				l.handed = handed
			}
			l.spare = nil
			if cap(out) <= largestBuffer {
				l.spare = out[:0]
			}
			if err != nil { // the reader cleans up
				l.broken = err
				c.mu.Unlock()
				hangUp(l)
				return
			}
		}
		l.writing = false
		c.mu.Unlock()
	}
}
