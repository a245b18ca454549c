package core

import "math/bits"

// The State of both buckets is a level: how many units are used, in P-ths of a unit, and at what time. R such parts drain in a
// microsecond, a whole number, so nothing is ever rounded. A level is at most mostUnits·P, below 2⁷⁵. Its low 64 bits are in B.
// Its high 11 bits, which few limits need, are in A above the time (53 bits of microseconds, until the year 2255).
//
// Limits with different R and B can share a level: tiers, or nodes while a limit is changed. Each drains it at its own R for the
// time since the last charge, and none cuts it down to its own B. So what any of them allows in a time t is at most the largest B
// plus t/P times the largest R.
const timeBits = 53

// mostUnits is the most units that a level holds: the capacity of the largest limit.
const mostUnits = MaxRequests + 1

// drain returns a bucket's level at time now, in two words, reduced by R/P since its last charge; with refill interval, by R for
// each whole P of the epoch since. at is the time of that level. It is now, or the key's own time if the clock has stepped back
// by at most a period; after a longer step the key starts over. If the limit delays requests, the key's time may be that of the
// last departure, in the future.
func drain(l *Limit, s *State, now int64) (at int64, hi, lo uint64) {
	at, hi, lo = s.A&(1<<timeBits-1), uint64(s.A)>>timeBits, uint64(s.B)
	elapsed := now - at
	if elapsed < 0 {
		if -elapsed <= l.slack {
			return at, hi, lo
		}
		return now, 0, 0
	}
	if l.interval {
		elapsed = now - now%l.period - (at - at%l.period)
	}
	drainedHi, drainedLo := bits.Mul64(uint64(elapsed), uint64(l.requests))
	low, borrow := bits.Sub64(lo, drainedLo, 0)
	high, below := bits.Sub64(hi, drainedHi, borrow)
	if below != 0 {
		return now, 0, 0
	}
	return now, high, low
}

// addUnits returns the level plus n units. n may be negative; a level below 0 becomes 0.
func addUnits(l *Limit, hi, lo uint64, n int64) (uint64, uint64) {
	if n >= 0 {
		moreHi, moreLo := bits.Mul64(uint64(n), uint64(l.period))
		low, carry := bits.Add64(lo, moreLo, 0)
		return hi + moreHi + carry, low
	}
	lessHi, lessLo := bits.Mul64(uint64(-n), uint64(l.period))
	low, borrow := bits.Sub64(lo, lessLo, 0)
	high, below := bits.Sub64(hi, lessHi, borrow)
	if below != 0 {
		return 0, 0
	}
	return high, low
}

// unitsIn returns how many units a level is, rounded up.
func unitsIn(l *Limit, hi, lo uint64) int64 {
	low, carry := bits.Add64(lo, uint64(l.period)-1, 0)
	q, _ := bits.Div64(hi+carry, low, uint64(l.period)) // below 2³², so the high word is below P
	return int64(q)
}

// drainTime returns how long a level takes to drain at R/P, rounded up to a microsecond.
func drainTime(l *Limit, hi, lo uint64) int64 {
	low, carry := bits.Add64(lo, uint64(l.requests)-1, 0)
	hi += carry
	if hi >= uint64(l.requests) { // a lower limit than the one that has counted: more than an int64 holds
		return forever
	}
	q, _ := bits.Div64(hi, low, uint64(l.requests))
	if q > uint64(forever) {
		return forever
	}
	return int64(q)
}

// forever is the longest time that a decision reports: a hundred years.
const forever = 100 * 365 * microsPerDay

// level is a level without its time, in two words.
type level struct{ hi, lo uint64 }

// chargeLevel adds units to a bucket's state, at the state's own time.
func chargeLevel(l *Limit, s *State, n int64) {
	hi, lo := addUnits(l, 0, 0, n)
	addLevel(l, s, level{hi, lo})
}

// addLevel adds a level to a bucket's state, at the state's own time.
func addLevel(l *Limit, s *State, more level) {
	at, hi, lo := s.A&(1<<timeBits-1), uint64(s.A)>>timeBits, uint64(s.B)
	lo, carry := bits.Add64(lo, more.lo, 0)
	hi += more.hi + carry
	if mostHi, mostLo := addUnits(l, 0, 0, mostUnits); hi > mostHi || hi == mostHi && lo > mostLo {
		hi = mostHi
		lo = mostLo
	}
	setLevel(s, at, hi, lo)
}

func setLevel(s *State, at int64, hi, lo uint64) {
	s.A = at | int64(hi<<timeBits)
	s.B = int64(lo)
}

// levelSpent is the shortcut to find out whether a bucket has drained: see unused.
func levelSpent(l *Limit, s *State, elapsed int64) (isSpent, known bool) {
	return elapsed >= l.emptied || s.B <= elapsed*l.requests, s.B <= l.full
}
