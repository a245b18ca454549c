package ratelimit

import (
	"sync"
	"time"
)

// line is the requests that wait in all handlers of a configuration. Where all of them are turned away at once, none is answered before all have given their
// turns back: the first to come again would else take a turn behind those of others, which would then pass unused. It is safe for
// concurrent use, and the zero line is empty.
type line struct {
	mu    sync.Mutex
	n     int
	empty chan struct{} // closed when none waits; nil: nobody has asked
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

// awaitEmpty waits until nobody waits any more, or has not given its turn back for so long that the store must have failed.
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
