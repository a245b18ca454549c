package resp

import "runtime"

// write sends what is added to a link's commands, until the connection ends.
func write(c *conn, l *link) {
	defer func() {
		if p := recover(); p != nil { // in an interpreted program nobody above would
			hangUp(l)
		}
	}()
	send(c, l)
}

// send does what write does. Its variables are made once, for all that is ever sent.
func send(c *conn, l *link) {
	for {
		_, goesOn := <-l.wake
		if !goesOn {
			return
		}
		runtime.Gosched() // who is about to call comes along
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
			if err != nil { // the reader sees to the rest
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
