package ratelimit

import (
	"sync"
	"time"
)

// line counts the requests that wait in all handlers of a configuration. When all of them are refused at once, none is answered
// before all have cancelled their reservations. Otherwise the first client to return would get a reservation behind those of the
// others, whose places would then pass unused. It is safe for concurrent use, and the zero line is empty.
type line struct {
	mu    sync.Mutex
	n     int
	empty chan struct{} // closed when no request waits; nil: nobody waits for that
}

func (l *line) enter() {
	l.mu.Lock()
	l.n++
	l.mu.Unlock()
}

func (l *line) leave() {
	l.mu.Lock()
	l.n--
	if l.n == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
	l.mu.Unlock()
}

// awaitEmpty returns when no request waits any more, or after a time in which every reservation must have been cancelled unless the
// store has failed.
func (l *line) awaitEmpty() {
	l.mu.Lock()
	if l.n == 0 {
		l.mu.Unlock()
		return
	}
	if l.empty == nil {
		l.empty = make(chan struct{})
	}
	empty := l.empty
	l.mu.Unlock()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
	}
}
