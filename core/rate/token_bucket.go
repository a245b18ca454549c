package rate

// decideTokenBucket refills a bucket of B tokens at R per P: evenly, or with refill interval by R at each whole P of the epoch. A
// request takes its cost in tokens, and is rejected if there are fewer.
//
// The state is a level: exactly how many tokens are used, and at what time. Refilling drains the level. (As in x/time/rate, the
// state is brought up to date when it is looked at. It holds use and not tokens, so that a changed B or R applies to it.) A level
// that a larger B has allowed stays whole: under a smaller B the bucket is in debt, and rejects until the debt has drained.
func decideTokenBucket(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	at, hi, lo := Drain(l, s, now)
	wait := at - now // positive if the clock has stepped back: times count from the key's own time
	room := l.Capacity - unitsIn(l, hi, lo)
	setLevel(next, at, hi, lo)
	d.Allowed = cost <= room || cost == 0
	if d.Allowed {
		room -= cost
		hi, lo = addUnits(l, hi, lo, cost)
		setLevel(next, at, hi, lo)
	} else {
		d.RetryAfter = Never
		if cost <= l.Capacity {
			overHi, overLo := addUnits(l, hi, lo, cost)
			overHi, overLo = addUnits(l, overHi, overLo, -l.Capacity)
			d.RetryAfter = wait + refillTime(l, at, overHi, overLo)
		}
		if room >= 0 {
			fullHi, fullLo := addUnits(l, 0, 0, l.Capacity)
			setLevel(next, at, fullHi, fullLo)
		}
	}
	d.Remaining = room
	if room < 0 {
		d.Remaining = 0
	}
	if hi|lo != 0 {
		d.ResetAfter = wait + refillTime(l, at, hi, lo)
		if d.Allowed {
			hi, lo = addUnits(l, hi, lo, d.Remaining+1-l.Capacity)
			d.MoreAfter = wait + refillTime(l, at, hi, lo)
		}
	}
}

// refillTime returns how long it takes from time at until the tokens of that level are back, but at most forever.
func refillTime(l *Limit, at int64, hi, lo uint64) int64 {
	if l.interval {
		refills := (unitsIn(l, hi, lo) + l.Requests - 1) / l.Requests
		if refills > Forever/l.Period {
			return Forever
		}
		return (at/l.Period+refills)*l.Period - at
	}
	return drainTime(l, hi, lo)
}

// TakeFromTokenBucket is the shortcut: see algorithmRow.take.
//
//flatten:inline
func TakeFromTokenBucket(l *Limit, s *State, now int64) (remaining, reset, more int64) {
	elapsed := now - s.A
	level := s.B
	if elapsed|level|s.A < 0 || level > l.Full { // one of the three is negative, or the level is too high
		return -1, 0, 0
	}
	if elapsed >= l.Emptied {
		level = 0
	} else {
		level -= elapsed * l.Requests
		if level < 0 {
			level = 0
		}
	}
	level += l.Step
	if level > l.Full {
		return -1, 0, 0
	}
	s.A = now
	s.B = level
	room := l.Full - level
	return room / l.Period, (level + l.Requests - 1) / l.Requests, (l.Period - room%l.Period + l.Requests - 1) / l.Requests
}

// rejectFromTokenBucket is the shortcut: see algorithmRow.reject.
//
//flatten:inline
func rejectFromTokenBucket(l *Limit, s *State, now int64) (retry, reset int64) {
	elapsed := now - s.A
	level := s.B
	if elapsed|level|s.A < 0 || level > l.Full || elapsed >= l.Emptied {
		return -1, 0
	}
	level -= elapsed * l.Requests
	over := level + l.Period - l.Full
	if over <= 0 {
		return -1, 0
	}
	return (over + l.Requests - 1) / l.Requests, (level + l.Requests - 1) / l.Requests
}

// tokenBucketSlot is slot.
func tokenBucketSlot(l *Limit, now, grain int64) Slot {
	if l.hasWindows() {
		return windowSlot(l, now)
	}
	return levelSlot(l, now, grain)
}

// leaseTokenBucket is lease.
func leaseTokenBucket(l *Limit, t *LeaseTerms) {
	if l.interval {
		leaseAtOnce(l, t)
		return
	}
	leaseByTime(l, t)
}
