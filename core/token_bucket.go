package core

import "math/bits"

// decideTokenBucket: a bucket of B tokens is refilled at R per P, evenly or, with refill interval, with R at each whole P
// of the epoch; a request takes its cost in tokens, and is rejected where there are fewer.
//
// The state is the level of use: how many tokens are gone, exactly, as a whole number and P-ths of a token, and when
// that was so. Refilling is draining the level, so nothing is ever rounded. (As in x/time/rate the state is brought up
// to date when it is looked at; what is kept is use and not tokens, so that a changed B or R applies to it.)
func decideTokenBucket(l *Limit, s State, now, cost int64, next *State, d *Decision) {
	if int64(s.B>>fracLow) >= l.capacity { // the burst was lowered: the bucket was empty then, not in debt
		s.A &^= 1<<fracHigh - 1
		s.B = uint64(l.capacity) << fracLow
	}
	if l.interval {
		drainInterval(l, &s, now)
	} else {
		drain(l, &s, now)
	}
	at := int64(s.A >> fracHigh)
	wait := at - now // above 0 where the clock has stepped back: counted from the key's own time
	used := int64(s.B >> fracLow)
	frac := int64(s.A&(1<<fracHigh-1))<<fracLow | int64(s.B&(1<<fracLow-1))
	room := l.capacity - used
	if frac > 0 {
		room--
	}
	d.Limit = l.quota
	d.Delay = 0
	d.RetryAfter = 0
	d.Allowed = cost <= room
	if d.Allowed {
		room -= cost
		used += cost
		next.A = s.A
		next.B = uint64(used)<<fracLow | s.B&(1<<fracLow-1)
	} else {
		d.RetryAfter = Never
		if cost <= l.capacity {
			d.RetryAfter = wait + refillTime(l, used+cost-l.capacity, frac, at)
		}
		next.A = uint64(at) << fracHigh
		next.B = uint64(l.capacity) << fracLow
	}
	d.Remaining = room
	d.ResetAfter = 0
	if used|frac != 0 {
		d.ResetAfter = wait + refillTime(l, used, frac, at)
	}
}

// refillTime returns how long it takes from time at until used + frac/P tokens are there again.
func refillTime(l *Limit, used, frac, at int64) int64 {
	if l.interval {
		return (at/l.period+(used+l.requests-1)/l.requests)*l.period - at
	}
	return drainTime(l, used, frac)
}

// A bucket's State: A is the time (53 bits of microseconds: until the year 2255) and the high 11 bits of the fraction, B
// the whole units used (30 bits) and the low 34 bits of the fraction, which counts P-ths of a unit and is below P ≤ 2⁴⁵.
const (
	fracHigh = 11
	fracLow  = 34
)

// drain brings a bucket's state to time now: what R/P has drained since is taken off, exactly. A clock that stepped back
// leaves the state at its own time, unless by more than a period: then the key starts over.
func drain(l *Limit, s *State, now int64) {
	at := int64(s.A >> fracHigh)
	used := int64(s.B >> fracLow)
	frac := int64(s.A&(1<<fracHigh-1))<<fracLow | int64(s.B&(1<<fracLow-1))
	elapsed := now - at
	if elapsed < 0 {
		if -elapsed <= l.period {
			return
		}
		used, frac = 0, 0
	} else if used|frac != 0 {
		if elapsed >= l.period {
			// R units a whole period, taken off first: the rest of the product is then small.
			periods := elapsed / l.period
			if periods > used/l.requests {
				used, frac, elapsed = 0, 0, 0
			} else {
				used -= periods * l.requests
				elapsed -= periods * l.period
			}
		}
		var whole, rest int64
		if l.narrow {
			product := elapsed * l.requests
			whole = product / l.period
			rest = product - whole*l.period
		} else {
			hi, lo := bits.Mul64(uint64(elapsed), uint64(l.requests))
			q, r := bits.Div64(hi, lo, uint64(l.period))
			whole, rest = int64(q), int64(r)
		}
		used -= whole
		frac -= rest
		if frac < 0 {
			frac += l.period
			used--
		}
		if used < 0 {
			used, frac = 0, 0
		}
	}
	s.A = uint64(now)<<fracHigh | uint64(frac)>>fracLow
	s.B = uint64(used)<<fracLow | uint64(frac)&(1<<fracLow-1)
}

// drainInterval is drain for refill interval: R at each whole P of the epoch, no fractions.
func drainInterval(l *Limit, s *State, now int64) {
	at := int64(s.A >> fracHigh)
	used := int64(s.B >> fracLow)
	if now < at {
		if at-now <= l.period {
			return
		}
		used = 0
	} else if used != 0 {
		periods := now/l.period - at/l.period
		if periods > used/l.requests {
			used = 0
		} else {
			used -= periods * l.requests
		}
	}
	s.A = uint64(now) << fracHigh
	s.B = uint64(used) << fracLow
}

// drainTime returns how long used + frac/P units take to drain at R/P, rounded up to a microsecond.
func drainTime(l *Limit, used, frac int64) int64 {
	if l.narrow && used <= l.capacity {
		return (used*l.period + frac + l.requests - 1) / l.requests
	}
	hi, lo := bits.Mul64(uint64(used), uint64(l.period))
	lo, carry := bits.Add64(lo, uint64(frac)+uint64(l.requests)-1, 0)
	hi += carry
	if hi >= uint64(l.requests) { // after a limit was lowered, more than an int64 can say
		return forever
	}
	q, _ := bits.Div64(hi, lo, uint64(l.requests))
	if q > uint64(forever) {
		return forever
	}
	return int64(q)
}

// forever is the longest time that is told: a hundred years.
const forever = 100 * 365 * microsPerDay
