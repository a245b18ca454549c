package rate

// decideFixedWindow allows at most R in each window of length P, aligned as the limit's Start says, or in each day, week or month. Up to
// 2R can pass within one P, half at the end of a window and half at the start of the next: a known weakness of the algorithm.
//
// The state is the window's start (A) and the units counted in it (B). If the limit Owes, what does not fit into a window counts in the next one:
// a window of count C leaves max(0, C−R) to it.
func decideFixedWindow(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	at := now
	counted := s.B
	if last := s.A; last > now { // the clock has stepped back, or requests wait for a later window
		if last-now <= l.slack {
			at = last
		} else {
			counted = 0
		}
	}
	var start, end int64
	if l.Calendar != nil {
		w := l.Calendar.at(at)
		start, end = w.start, w.end
	} else {
		start = at - at%l.Period
		if l.Own {
			start = at - intoOwn(at, s.A, l.Period)
		}
		end = start + l.Period
	}
	count := int64(0)
	if s.A == start {
		count = counted
	} else if l.Owes && s.A < start {
		count = owedByWindows(l, s.A, start, counted)
	}
	if count == 0 && l.Start == FirstRequest {
		start = at
		end = at + l.Period
	}
	d.Allowed = cost <= l.Requests-count || cost == 0
	next.A = start
	if d.Allowed {
		count += cost
	} else {
		d.RetryAfter = Never
		if cost <= l.Requests {
			d.RetryAfter = windowsLater(l, end, count+cost) - now
		}
	}
	next.B = count
	if !d.Allowed && count < l.Requests {
		next.B = l.Requests
	}
	d.Remaining = l.Requests - count
	if d.Remaining < 0 {
		d.Remaining = 0
	}
	if count > 0 {
		d.ResetAfter = windowsLater(l, end, count+l.Requests) - now
		if d.Allowed {
			d.MoreAfter = windowsLater(l, end, count+1) - now
		}
	}
}

// owedByWindows returns what a later window is charged with for the units of an earlier one.
func owedByWindows(l *Limit, from, to, counted int64) int64 {
	if counted <= l.Requests {
		return 0
	}
	return AtLeast(counted-AtMost((to-from+l.usual/2)/l.usual, counted/l.Requests+1)*l.Requests, 0)
}

// windowsLater returns when, at the end of which window, no more than R of so many units are left: at the end of this one, unless the limit Owes. If it
// follows the calendar, windows behind this one are taken to last as long as usual.
func windowsLater(l *Limit, end, units int64) int64 {
	if !l.Owes || units <= 2*l.Requests {
		return end
	}
	return end + AtMost((units-1)/l.Requests-1, Forever/l.usual)*l.usual
}

// TakeFromFixedWindow is the shortcut: see algorithmRow.take.
//
//flatten:inline
func TakeFromFixedWindow(l *Limit, s *State, now int64) (remaining, reset, more int64) {
	start := now - now%l.Period
	count := l.Cost
	if s.A == start {
		count += s.B
	}
	if s.A > start || count > l.Requests || l.Own {
		return -1, 0, 0
	}
	s.A = start
	s.B = count
	reset = start + l.Period - now
	return l.Requests - count, reset, reset
}

// rejectFromFixedWindow is the shortcut: see algorithmRow.reject.
//
//flatten:inline
func rejectFromFixedWindow(l *Limit, s *State, now int64) (retry, reset int64) {
	start := now - now%l.Period
	if s.A != start || s.B < l.Requests || l.Calendar != nil {
		return -1, 0
	}
	reset = start + l.Period - now
	return reset, reset
}

// chargeFixedWindow counts units that were allowed before: see algorithmRow.charge.
func chargeFixedWindow(l *Limit, s *State, cost int64) {
	s.B += cost
	if s.B > MostCounted {
		s.B = MostCounted
	}
}

// fixedWindowSpent is the shortcut: see algorithmRow.spent.
func fixedWindowSpent(l *Limit, s *State, elapsed int64) (isSpent, known bool) {
	return elapsed >= l.Period || s.B == 0, l.Calendar == nil
}

// fixedWindowSlot is slot.
func fixedWindowSlot(l *Limit, now, grain int64) Slot { return windowSlot(l, now) }
