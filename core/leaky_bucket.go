package core

// decideLeakyBucket: a queue drained at R per P, of which one leaves at a time and B wait. A request is admitted where the
// queue has room and its turn comes within max_delay; Delay says when that is.
//
// The state is a token bucket's, and its level is the queue: with a level of L units a request leaves L·P/R from now. The
// capacity is B+1: those that wait, and the one that leaves. A lowered B does not shorten the queue that stands.
func decideLeakyBucket(l *Limit, s State, now, cost int64, next *State, d *Decision) {
	drain(l, &s, now)
	at := int64(s.A >> fracHigh)
	wait := at - now
	used := int64(s.B >> fracLow)
	frac := int64(s.A&(1<<fracHigh-1))<<fracLow | int64(s.B&(1<<fracLow-1))
	room := l.capacity - used
	if frac > 0 {
		room--
	}
	queue := int64(0)
	if used|frac != 0 {
		queue = wait + drainTime(l, used, frac)
	}
	d.Limit = l.quota
	d.Delay = 0
	d.RetryAfter = 0
	d.ResetAfter = queue
	d.Allowed = cost == 0 || cost <= room && queue <= l.maxDelay
	if cost == 0 {
		*next = s
	} else if d.Allowed {
		room -= cost
		used += cost
		next.A = s.A
		next.B = uint64(used)<<fracLow | s.B&(1<<fracLow-1)
		d.Delay = queue
		d.ResetAfter = wait + drainTime(l, used, frac)
	} else {
		d.RetryAfter = Never
		if cost <= l.capacity {
			d.RetryAfter = queue - l.maxDelay
			if cost > room {
				full := wait + drainTime(l, used+cost-l.capacity, frac)
				if full > d.RetryAfter {
					d.RetryAfter = full
				}
			}
		}
		*next = s
		if cost <= room {
			next.B += uint64(cost) << fracLow
		} else if used < l.capacity { // the queue is full, and stays so for who does not slow down
			next.A = uint64(at) << fracHigh
			next.B = uint64(l.capacity) << fracLow
		}
	}
	d.Remaining = room
	if room < 0 {
		d.Remaining = 0
	} else if room > l.quota {
		d.Remaining = l.quota
	}
}
