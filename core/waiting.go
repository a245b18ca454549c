package core

import (
	"sync"
	"sync/atomic"
)

// room counts the requests that wait for a rule in this process: for all of its limits together, and for each key. It is safe for
// concurrent use.
type room struct {
	total atomic.Int64
	mu    sync.Mutex
	keys  map[string]int64 // of those for which any wait
}

func newRoom() *room { return &room{keys: make(map[string]int64)} }

// enter counts a request in, and reports whether it was within the bounds of its rule. Where it was not, it is to leave at once.
func (w *room) enter(r *Rule, key string) bool {
	if !boundsKeys(r) {
		w.total.Add(1)
		return true
	}
	w.mu.Lock()
	total := w.total.Add(1) - 1
	own := w.keys[key]
	w.keys[key] = own + 1
	w.mu.Unlock()
	return hasRoom(r, total, own)
}

// leave counts a request out.
func (w *room) leave(r *Rule, key string) {
	if !boundsKeys(r) {
		w.total.Add(-1)
		return
	}
	w.mu.Lock()
	w.total.Add(-1)
	if n := w.keys[key]; n > 1 {
		w.keys[key] = n - 1
	} else {
		delete(w.keys, key)
	}
	w.mu.Unlock()
}

// admits reports whether one more request of the key may wait for the rule.
func (w *room) admits(r *Rule, key string) bool {
	total := w.total.Load()
	if total == 0 { // as is mostly so
		return true
	}
	w.mu.Lock()
	own := w.keys[key]
	w.mu.Unlock()
	return hasRoom(r, total, own)
}

// hasRoom reports whether one more request may wait where so many do, and so many of its key. Where the rule does not say how many of a
// key may, it is a quarter of the places that are left. So one key has a fifth of the room at most, and n that take all they can, one
// after the other, leave (4/5)ⁿ of it to those that have none yet: twelve leave a fifteenth.
func hasRoom(r *Rule, total, own int64) bool {
	if !boundsKeys(r) {
		return true
	}
	co := r.overflow
	left := co.maxWaiting - total
	if co.waitingPerKey > 0 {
		return left > 0 && own < co.waitingPerKey
	}
	return left > 0 && 4*own < left
}

// boundsKeys reports whether a rule bounds how many requests of a key wait, so that they are counted by their keys. A leaky bucket that does not
// delay does not: its burst is the bound of each key.
func boundsKeys(r *Rule) bool { return r.overflow != nil && r.overflow.maxWaiting != 0 }

// Waits reports whether the rule may have requests wait: where its limit delays, and in a leaky bucket.
func (r *Rule) Waits() bool { return r.room != nil }

// Waiting returns how many requests wait for the rule now, in this process: 0 for a rule that has none wait. All limits of one rule
// count together.
func (r *Rule) Waiting() int64 {
	if r.room == nil {
		return 0
	}
	return r.room.total.Load()
}

// Patience returns how long a request of that key may wait for the rule now, in microseconds: 0 where as many wait as may.
func (r *Rule) Patience(key string) int64 {
	if !r.limit.delays || !r.room.admits(r, key) {
		return 0
	}
	return r.limit.maxDelay
}
