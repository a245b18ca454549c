package rate

// decideLeakyBucket models a queue that drains at R per P: one request leaves at a time, and B wait. A request is allowed if the
// queue has room and the wait is at most max_delay; Delay is the wait.
//
// The state is a token bucket's, and its level is the queue: behind a level of L units a request leaves L·P/R from now. The
// capacity is B+1: the requests that wait, and the one that leaves. A lowered B does not shorten an existing queue.
func decideLeakyBucket(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	at, hi, lo := Drain(l, s, now)
	wait := at - now
	room := l.Capacity - unitsIn(l, hi, lo)
	queue := int64(0)
	if hi|lo != 0 {
		queue = wait + drainTime(l, hi, lo)
	}
	setLevel(next, at, hi, lo)
	d.ResetAfter = queue
	d.Allowed = cost == 0 || cost <= room && queue <= l.MaxDelay
	if d.Allowed {
		if cost != 0 {
			room -= cost
			hi, lo = addUnits(l, hi, lo, cost)
			setLevel(next, at, hi, lo)
			d.Delay = queue
			d.ResetAfter = wait + drainTime(l, hi, lo)
		}
	} else {
		d.RetryAfter = Never
		afterHi, afterLo := addUnits(l, hi, lo, cost)
		if cost <= l.Capacity {
			d.RetryAfter = queue - l.MaxDelay
			if cost > room {
				overHi, overLo := addUnits(l, afterHi, afterLo, -l.Capacity)
				full := wait + drainTime(l, overHi, overLo)
				if full > d.RetryAfter {
					d.RetryAfter = full
				}
			}
		}
		if cost <= room {
			setLevel(next, at, afterHi, afterLo)
		} else if room >= 0 { // the queue is full, and stays full unless the client slows down
			fullHi, fullLo := addUnits(l, 0, 0, l.Capacity)
			setLevel(next, at, fullHi, fullLo)
		}
	}
	d.Remaining = room
	if room < 0 {
		d.Remaining = 0
	} else if room > l.Quota {
		d.Remaining = l.Quota
	}
	if d.Allowed && d.Remaining < l.Quota {
		hi, lo = addUnits(l, hi, lo, d.Remaining+1-l.Capacity)
		d.MoreAfter = wait + drainTime(l, hi, lo)
	}
}

// TakeFromLeakyBucket is the shortcut for a request that does not wait: see algorithmRow.take.
//
//flatten:inline
func TakeFromLeakyBucket(l *Limit, s *State, now int64) (remaining, reset, more int64) {
	elapsed := now - s.A
	if elapsed|s.A|s.B < 0 || s.B > l.Full || elapsed < l.Emptied && s.B > elapsed*l.Requests {
		return -1, 0, 0
	}
	s.A = now
	s.B = l.Period
	return l.Quota, (l.Period + l.Requests - 1) / l.Requests, 0
}

// rejectFromLeakyBucket is the shortcut for a queue that has no room: see algorithmRow.reject.
//
//flatten:inline
func rejectFromLeakyBucket(l *Limit, s *State, now int64) (retry, reset int64) {
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
	queue := (level + l.Requests - 1) / l.Requests
	retry = (over + l.Requests - 1) / l.Requests
	if retry < queue-l.MaxDelay {
		retry = queue - l.MaxDelay
	}
	return retry, queue
}
