package core

// enter counts one more request, and reports whether the rule has room for it. If not, the request must leave at once.
func (w *waitQuota) enter(r *Rule, key string) bool {
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

// leave counts one request less.
func (w *waitQuota) leave(r *Rule, key string) {
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
func (w *waitQuota) admits(r *Rule, key string) bool {
	total := w.total.Load()
	if total == 0 { // the most frequent case
		return true
	}
	w.mu.Lock()
	own := w.keys[key]
	w.mu.Unlock()
	return hasRoom(r, total, own)
}

// hasRoom reports whether one more request may wait when that many wait in all, and that many of its key. Unless the rule sets a
// bound for a key, it is a quarter of the places that are left. So one key gets at most a fifth of the room. n keys that take all
// they can, one after the other, leave (4/5)ⁿ of it to the others: twelve leave a fifteenth.
func hasRoom(r *Rule, total, own int64) bool {
	if !boundsKeys(r) {
		return true
	}
	policy := r.Overflow
	left := policy.maxWaiting - total
	if policy.waitingPerKey > 0 {
		return left > 0 && own < policy.waitingPerKey
	}
	return left > 0 && 4*own < left
}

// boundsKeys reports whether a rule bounds how many requests of a key wait, so that they are counted by key. A leaky bucket
// without on_limit delay does not: its burst bounds each key.
func boundsKeys(r *Rule) bool { return r.Overflow != nil && r.Overflow.maxWaiting != 0 }

// Waits reports whether requests may wait for the rule: its limit delays them, or is a leaky bucket.
func (r *Rule) Waits() bool { return r.waitQuota != nil }

// Waiting returns how many requests wait for the rule now, in this process; 0 if the rule delays none. All limits of one rule
// count together.
func (r *Rule) Waiting() int64 {
	if r.waitQuota == nil {
		return 0
	}
	return r.waitQuota.total.Load()
}

// Patience returns the longest that one more request of the key may wait for the rule now, in microseconds; 0 if it may not wait. For
// a shadow nobody waits, and so there is always room.
func (r *Rule) Patience(key string) int64 {
	if !r.Limit.Delays || !r.Shadow && !r.waitQuota.admits(r, key) {
		return 0
	}
	return r.Limit.MaxDelay
}
