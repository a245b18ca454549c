package core

// decideTokenBucket: a bucket of B tokens is refilled at R per P, evenly or, with refill interval, with R at each whole P
// of the epoch; a request takes its cost in tokens, and is rejected where there are fewer.
//
// The state is the level of use: how many tokens are gone, exactly, and when that was so. Refilling is draining the level. (As
// in x/time/rate the state is brought up to date when it is looked at; what is kept is use and not tokens, so that a changed
// B or R applies to it.)
//
// Here is what most requests need, with levels that fit an int64; decideAnyTokenBucket does the same for all.
func decideTokenBucket(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	elapsed := now - int64(s.A>>levelBits)
	if !l.plain || elapsed < 0 || s.B > l.full || s.A&(1<<levelBits-1) != 0 || cost > l.capacity {
		decideAnyTokenBucket(l, s, now, cost, next, d)
		return
	}
	level := int64(0)
	if elapsed < l.emptied {
		level = int64(s.B) - elapsed*l.requests
		if level < 0 {
			level = 0
		}
	}
	after := level + cost*l.period
	d.Limit = l.quota
	d.Delay = 0
	d.RetryAfter = 0
	next.A = uint64(now) << levelBits
	if after > int64(l.full) {
		d.Allowed = false
		d.RetryAfter = (after - int64(l.full) + l.requests - 1) / l.requests
		next.B = l.full
		after = level
	} else {
		d.Allowed = true
		next.B = uint64(after)
	}
	d.Remaining = (int64(l.full) - after) / l.period
	d.ResetAfter = (after + l.requests - 1) / l.requests
}

// decideAnyTokenBucket is decideTokenBucket for every limit and state.
func decideAnyTokenBucket(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	state := *s
	if unitsIn(l, s.A&(1<<levelBits-1), s.B) > l.capacity { // the burst was lowered: the bucket was empty then, not in debt
		hi, lo := addUnits(l, 0, 0, l.capacity)
		setLevel(&state, int64(s.A>>levelBits), hi, lo)
	}
	at, hi, lo := drain(l, &state, now)
	wait := at - now // above 0 where the clock has stepped back: counted from the key's own time
	room := l.capacity - unitsIn(l, hi, lo)
	d.Limit = l.quota
	d.Delay = 0
	d.RetryAfter = 0
	d.Allowed = cost <= room
	if d.Allowed {
		room -= cost
		hi, lo = addUnits(l, hi, lo, cost)
		setLevel(next, at, hi, lo)
	} else {
		d.RetryAfter = Never
		if cost <= l.capacity {
			overHi, overLo := addUnits(l, hi, lo, cost)
			overHi, overLo = addUnits(l, overHi, overLo, -l.capacity)
			d.RetryAfter = wait + refillTime(l, at, overHi, overLo)
		}
		fullHi, fullLo := addUnits(l, 0, 0, l.capacity)
		setLevel(next, at, fullHi, fullLo)
	}
	d.Remaining = room
	d.ResetAfter = 0
	if hi|lo != 0 {
		d.ResetAfter = wait + refillTime(l, at, hi, lo)
	}
}

// refillTime returns how long it takes from time at until what the level has of tokens is there again.
func refillTime(l *Limit, at int64, hi, lo uint64) int64 {
	if l.interval {
		return (at/l.period+(unitsIn(l, hi, lo)+l.requests-1)/l.requests)*l.period - at
	}
	return drainTime(l, hi, lo)
}
