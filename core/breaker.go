package core

import (
	"sync"
	"sync/atomic"
)

// Breaker keeps requests from waiting for a server that does not answer. It is closed until so many calls in a row have
// failed, and open from then on: nobody asks the server but, after a while, one probe at a time (the breaker is then half
// open). A probe that succeeds closes it; after one that fails the next waits twice as long, up to a second. Waits are
// jittered, so that the nodes of a fleet do not probe in step.
//
// The zero value is closed and ready to use. It is safe for concurrent use.
type Breaker struct {
	open     atomic.Bool
	failures atomic.Int64 // in a row, while closed

	mu      sync.Mutex
	probing bool
	wait    int64 // until the next probe, before jitter
}

const (
	failuresToOpen = 5
	firstProbe     = 100_000   // µs
	lastProbe      = 1_000_000 // µs
)

// Open reports whether the server is not to be asked.
func (b *Breaker) Open() bool { return b.open.Load() }

// Trouble returns the counter of failures in a row: as long as it is 0 the breaker is closed, and Succeed has nothing to note.
// It is for reading only.
func (b *Breaker) Trouble() *atomic.Int64 { return &b.failures }

// Succeed notes that a call has been answered. It does not close an open breaker: a late answer says little.
func (b *Breaker) Succeed() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}

// Fail notes that a call has failed, and returns true if that has opened the breaker. Who is told so sees to the probes.
func (b *Breaker) Fail() bool {
	if b.failures.Add(1) < failuresToOpen {
		return false
	}
	b.mu.Lock()
	opened := !b.open.Load()
	if opened {
		b.wait = firstProbe
		b.open.Store(true)
	}
	b.mu.Unlock()
	return opened
}

// Wait returns how long to wait for the next probe, in microseconds. random is from 0 up to 1.
func (b *Breaker) Wait(random float64) int64 {
	b.mu.Lock()
	wait := b.wait
	b.mu.Unlock()
	return wait/2 + int64(random*float64(wait/2))
}

// Probe returns true to one caller at a time, while the breaker is open: that caller may ask the server, and says by
// Probed what came of it.
func (b *Breaker) Probe() bool {
	b.mu.Lock()
	ok := b.open.Load() && !b.probing
	if ok {
		b.probing = true
	}
	b.mu.Unlock()
	return ok
}

// Probed ends what Probe began.
func (b *Breaker) Probed(succeeded bool) {
	b.mu.Lock()
	b.probing = false
	if succeeded {
		b.failures.Store(0)
		b.open.Store(false)
	} else if b.wait *= 2; b.wait > lastProbe {
		b.wait = lastProbe
	}
	b.mu.Unlock()
}
