package redis

import (
	"sync"
	"sync/atomic"
)

// breaker keeps requests from waiting for a server that does not answer. It is closed until calls have failed five times in a
// row, and open from then on: nobody asks the server but, after a while, one probe at a time (the breaker is then half
// open). A probe that succeeds closes it; after one that fails the next waits twice as long, up to a second. Waits are
// jittered, so that the nodes of a fleet do not probe in step.
//
// Calls that are under way at the same time fail together, of one cause: a connection that is lost, or a server that pauses. They count
// as one failure.
//
// The zero value is closed and ready to use. It is safe for concurrent use.
type breaker struct {
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
func (b *breaker) Open() bool { return b.open.Load() }

// Trouble returns the counter of failures in a row: as long as it is 0 the breaker is closed, and Succeed has nothing to note.
// It is for reading only: before a call, for Fail.
func (b *breaker) Trouble() *atomic.Int64 { return &b.failures }

// Succeed notes that a call has been answered. It does not close an open breaker: a late answer says little.
func (b *breaker) Succeed() {
	if b.failures.Load() != 0 && !b.open.Load() {
		b.failures.Store(0)
	}
}

// Fail notes that a call has failed, and returns true if that has opened the breaker. Who is told so sees to the probes. seen is what
// Trouble had when the call began: where that has changed since, the failure is a part of one that was counted, or others have been
// answered meanwhile, and it does not count.
func (b *breaker) Fail(seen int64) bool {
	if !b.failures.CompareAndSwap(seen, seen+1) || seen+1 < failuresToOpen {
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
func (b *breaker) Wait(random float64) int64 {
	b.mu.Lock()
	wait := b.wait
	b.mu.Unlock()
	return wait/2 + int64(random*float64(wait/2))
}

// Probe returns true to one caller at a time, while the breaker is open: that caller may ask the server, and says by
// Probed what came of it.
func (b *breaker) Probe() bool {
	b.mu.Lock()
	ok := b.open.Load() && !b.probing
	if ok {
		b.probing = true
	}
	b.mu.Unlock()
	return ok
}

// Probed ends what Probe began.
func (b *breaker) Probed(succeeded bool) {
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
