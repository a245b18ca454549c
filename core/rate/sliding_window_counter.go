package rate

import "math/bits"

// decideSlidingWindowCounter counts in windows of length P, aligned to the Unix epoch unless the limit is Spread. It estimates the sliding window from two
// of them, as if the units of the previous one had come evenly, where overlap is the part of the previous window that the sliding
// one still covers:
//
//	⌊previous × overlap⌋ + current + cost ≤ R
//
// This is the approximation that Cloudflare described in 2017; the arithmetic here is exact. The state is the start of the
// current window (A) and two counts (B: previous in the high 32 bits, current in the low). If the limit Owes, a window of count C leaves behind R at most,
// and C−R to the next one.
func decideSlidingWindowCounter(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	at := now
	last := s.A
	previous, current := int64(uint64(s.B)>>32), s.B&(1<<32-1)
	if last > now { // the clock has stepped back
		if last-now <= l.Period {
			at = last
		} else {
			previous, current = 0, 0
		}
	}
	into := at % l.Period
	if l.Own {
		into = intoOwn(at, last, l.Period)
	}
	start := at - into
	if start != last {
		if start-last == l.Period {
			previous = current
		} else {
			previous = 0
		}
		if l.Owes && current > l.Requests && start > last {
			previous, current = owedByWindowPair(l, current, (start-last)/l.Period)
		} else {
			current = 0
		}
	}
	weighted := int64(0)
	if previous != 0 {
		weighted = overlap(l, previous, l.Period-into, l.Period)
	}
	room := l.Requests - weighted - current
	wait := at - now
	d.Allowed = cost <= room || cost == 0
	if d.Allowed {
		current += cost
		room -= cost
		next.B = previous<<32 | current
	} else {
		d.RetryAfter = Never
		if cost <= l.Requests {
			d.RetryAfter = wait + windowPairFree(l, previous, current, cost) - into
		}
		// Rejected requests count in full, and weigh on the next window like others. Counts stop at 2³²−1.
		counted := current + cost
		if counted > 1<<32-1 {
			counted = 1<<32 - 1
		}
		next.B = previous<<32 | counted
	}
	next.A = start
	d.Remaining = room
	if room < 0 {
		d.Remaining = 0
	}
	if current > 0 {
		d.ResetAfter = wait + windowPairFree(l, previous, current, l.Requests) - into
	} else if weighted > 0 {
		d.ResetAfter = wait + leftBehind(l, previous, 0, l.Period) - into
	}
	if d.Allowed && d.Remaining < l.Requests {
		// When the weight of the previous window falls by a unit; if it has no weight, in the next window.
		d.MoreAfter = wait + windowPairFree(l, previous, current, d.Remaining+1) - into
	}
}

// windowPairFree returns how long after the beginning of the current window so many units are free: in this window, if leaving enough of the previous one
// behind suffices; else in the next one, whose previous window is this one; or if the limit Owes, in the one that has room for them at last.
func windowPairFree(l *Limit, previous, current, units int64) int64 {
	if room := l.Requests - units - current; room >= 0 {
		return leftBehind(l, previous, room, l.Period)
	}
	windows := int64(1)
	owed := int64(0)
	previous = current
	if l.Owes && current > l.Requests {
		windows = (current + units - 1) / l.Requests
		previous, owed = owedByWindowPair(l, current, windows)
	}
	return windows*l.Period + leftBehind(l, previous, l.Requests-units-owed, l.Period)
}

// owedByWindowPair returns the counts of the previous and of the current window, that many windows after one of that count, which is above R.
func owedByWindowPair(l *Limit, counted, windows int64) (previous, current int64) {
	windows = AtMost(windows, counted/l.Requests+2)
	previous = AtLeast(AtMost(counted-(windows-1)*l.Requests, l.Requests), 0)
	return previous, AtLeast(counted-windows*l.Requests, 0)
}

// TakeFromSlidingWindowCounter is the shortcut, in a window that has begun: see algorithmRow.take.
//
//flatten:inline
func TakeFromSlidingWindowCounter(l *Limit, s *State, now int64) (remaining, reset, more int64) {
	left := l.Period - now%l.Period
	if s.A != now+left-l.Period || s.B < 0 || s.B>>32 > l.Weighable {
		return -1, 0, 0
	}
	current := s.B&(1<<32-1) + l.Cost
	weight := (s.B >> 32) * left
	remaining = l.Requests - current - weight/l.Period
	if remaining < 0 {
		return -1, 0, 0
	}
	more = left + 1
	if weight >= l.Period {
		more = weight%l.Period/(s.B>>32) + 1
	}
	s.B += l.Cost
	reset = left + l.Period + 1 - (l.Period+current-1)/current // reset and more are as leftBehind has them
	return remaining, reset, more
}

// rejectFromSlidingWindowCounter is the shortcut, in a window that has begun: see algorithmRow.reject.
//
//flatten:inline
func rejectFromSlidingWindowCounter(l *Limit, s *State, now int64) (retry, reset int64) {
	left := l.Period - now%l.Period
	previous := s.B >> 32
	current := s.B & (1<<32 - 1)
	if s.A != now+left-l.Period || s.B < 0 || previous > l.Weighable || current > l.Weighable || previous*left/l.Period+current < l.Requests {
		return -1, 0
	}
	weighs := previous // the count that must be left behind, of this window or of the previous one, as leftBehind has it
	room := l.Requests - current
	retry = left
	reset = left - l.Period
	if room <= 0 {
		weighs = current
		room = l.Requests
		retry += l.Period
	}
	retry -= (room*l.Period+weighs-1)/weighs - 1
	if current > 0 {
		previous = current
		reset = left
	}
	reset += l.Period + 1 - (l.Period+previous-1)/previous
	return retry, reset
}

// rollSlidingWindowCounter moves the state of an earlier window to the present one, as decide would, if that allows a request. Else
// it changes nothing, and returns false.
func rollSlidingWindowCounter(l *Limit, s *State, now int64) bool {
	left := l.Period - now%l.Period
	start := now + left - l.Period
	if s.A >= start || s.A|s.B < 0 || l.Own {
		return false
	}
	previous := int64(0)
	if s.A == start-l.Period {
		previous = s.B & (1<<32 - 1)
	}
	if previous > l.Weighable || previous*left/l.Period > l.Requests-l.Cost {
		return false
	}
	s.A = start
	s.B = previous << 32
	return true
}

// chargeSlidingWindowCounter counts units that were allowed before: see algorithmRow.charge.
func chargeSlidingWindowCounter(l *Limit, s *State, cost int64) {
	current := s.B&MostCounted + cost
	if current > MostCounted {
		current = MostCounted
	}
	s.B = s.B>>32<<32 | current
}

// lateSlidingWindowCounter counts units of the previous window, or of this one: see algorithmRow.late.
func lateSlidingWindowCounter(l *Limit, s *State, slot *Slot, now, units int64) {
	if slot.Start == s.A-l.Period && !IsBlocked(s) {
		s.B = AtMost(int64(uint64(s.B)>>32)+units, MostCounted)<<32 | s.B&MostCounted
		return
	}
	Charge(l, s, now, units, s)
}

// slidingWindowCounterSlot is slot.
func slidingWindowCounterSlot(l *Limit, now, grain int64) Slot {
	slot := windowSlot(l, now)
	slot.End += l.Period
	return slot
}

// slidingWindowCounterSpent is the shortcut: see algorithmRow.spent.
func slidingWindowCounterSpent(l *Limit, s *State, elapsed int64) (isSpent, known bool) {
	if elapsed >= 2*l.Period {
		return true, true
	}
	return false, elapsed < l.Period && s.B&MostCounted != 0
}

// overlap returns ⌊count × left/of⌋, where of is the length of the window, or of a segment.
func overlap(l *Limit, count, left, of int64) int64 {
	if l.Narrow && count <= l.Capacity {
		return count * left / of
	}
	hi, lo := bits.Mul64(uint64(count), uint64(left))
	q, _ := bits.Div64(hi, lo, uint64(of)) // left ≤ of, so the quotient is at most count
	return int64(q)
}

// leftBehind returns how far into a window, or a segment, the weight of the count that it leaves behind falls to room: the least into with ⌊count ×
// (of−into)/of⌋ ≤ room, which means of−into < (room+1)·of/count.
func leftBehind(l *Limit, count, room, of int64) int64 {
	if count <= room {
		return 0
	}
	var overlap int64 // the longest overlap that suffices: ⌈(room+1)·P/count⌉ − 1
	if l.Narrow && room < l.Capacity {
		overlap = ((room+1)*of+count-1)/count - 1
	} else {
		hi, lo := bits.Mul64(uint64(room+1), uint64(of))
		lo, carry := bits.Add64(lo, uint64(count)-1, 0)
		q, _ := bits.Div64(hi+carry, lo, uint64(count)) // room+1 ≤ count, so the quotient is at most of
		overlap = int64(q) - 1
	}
	return of - overlap
}
