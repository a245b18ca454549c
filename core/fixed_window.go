package core

// decideFixedWindow: at most R in each window of length P, aligned to the Unix epoch, or of each day, week or month. Twice R
// can pass within one P, half at the end of a window and half at the start of the next: the known edge of the algorithm.
//
// The state is the window's start (A) and the units counted in it (B).
//
// Here is what most requests need; decideAnyFixedWindow does the same for all.
func decideFixedWindow(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	start := now - now%l.period
	count := cost
	if int64(s.A) == start {
		count = cost + int64(s.B)
	}
	if int64(s.A) > start || count > l.requests || cost == 0 || l.calendar != nil {
		decideAnyFixedWindow(l, s, now, cost, next, d)
		return
	}
	next.A = uint64(start)
	next.B = uint64(count)
	d.Allowed = true
	d.Limit = l.quota
	d.Remaining = l.requests - count
	d.RetryAfter = 0
	d.ResetAfter = start + l.period - now
	d.Delay = 0
}

// decideAnyFixedWindow is decideFixedWindow for every limit, state and request.
func decideAnyFixedWindow(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	at := now
	counted := int64(s.B)
	if last := int64(s.A); last > now { // the clock stepped back
		if last-now <= l.period {
			at = last
		} else {
			counted = 0
		}
	}
	var start, end int64
	if l.calendar != nil {
		w := l.calendar.at(at)
		start, end = w.start, w.end
	} else {
		start = at - at%l.period
		end = start + l.period
	}
	count := int64(0)
	if int64(s.A) == start {
		count = counted
	}
	d.Limit = l.quota
	d.Delay = 0
	d.RetryAfter = 0
	d.Allowed = cost <= l.requests-count || cost == 0
	next.A = uint64(start)
	if d.Allowed {
		count += cost
	} else {
		d.RetryAfter = Never
		if cost <= l.requests {
			d.RetryAfter = end - now
		}
	}
	next.B = uint64(count)
	if !d.Allowed && count < l.requests {
		next.B = uint64(l.requests)
	}
	d.Remaining = l.requests - count
	if d.Remaining < 0 {
		d.Remaining = 0
	}
	d.ResetAfter = 0
	if count > 0 {
		d.ResetAfter = end - now
	}
}
