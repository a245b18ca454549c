package redis

import (
	"sync"
	"sync/atomic"
)

// breaker keeps requests from waiting for a server that does not answer. It is closed at first, and opens after five failures in a row.
// While it is open nobody calls the server, except for one probe at a time (the breaker is then half open). A probe that succeeds closes
// the breaker. The wait for the first probe is 0.1 s, and doubles after each that fails, up to a second. Waits are jittered, down to half,
// so that the nodes of a fleet do not probe in step.
//
// Calls that are under way at the same time fail together, from one cause: a lost connection, or a server that pauses. They count
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

// Open reports whether the breaker is open: the server must not be called.
func (b *breaker) Open() bool { return b.open.Load() }

// Trouble returns the counter of failures in a row. While it is 0 the breaker is closed, and Succeed has nothing to do. Callers only
// read it: before each call, for Fail.
func (b *breaker) Trouble() *atomic.Int64 { return &b.failures }

// Succeed notes that the server has answered a call. It does not close an open breaker: a late answer says little.
func (b *breaker) Succeed() {
	if b.failures.Load() != 0 && !b.open.Load() {
		b.failures.Store(0)
	}
}

// Fail notes that a call has failed. It returns true if this failure has opened the breaker; the caller must then start the probes. seen
// is the value of Trouble when the call began. If it has changed since, this failure does not count: it has the cause of one that was
// counted, or other calls have succeeded meanwhile.
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

// Probe returns true to one caller at a time, while the breaker is open. That caller may call the server, and must then call Probed with
// the result.
func (b *breaker) Probe() bool {
	b.mu.Lock()
	ok := b.open.Load() && !b.probing
	if ok {
		b.probing = true
	}
	b.mu.Unlock()
	return ok
}

// Probed ends the probe that Probe began. A success closes the breaker.
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
