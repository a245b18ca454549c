package rate

import "math/bits"

// TimeBits are the bits of State.A that have a time, for a bucket. The State of both buckets is a level: how many units are used, in P-ths of a unit, and at what time. R such parts drain in a
// microsecond, a whole number, so nothing is ever rounded. A level is at most mostUnits·P, below 2⁷⁵. Its low 64 bits are in B.
// Its high 11 bits, which few limits need, are in A above the time (53 bits of microseconds, until the year 2255).
//
// Limits with different R and B can share a level: tiers, or nodes while a limit is changed. Each drains it at its own R for the
// time since the last charge, and none cuts it down to its own B. So what any of them allows in a time t is at most the largest B
// plus t/P times the largest R.
const TimeBits = 53

// mostUnits is the most units that a level holds: the capacity of the largest limit.
const mostUnits = MaxRequests + 1

// Drain returns a bucket's level at time now, in two words, reduced by R/P since its last charge; with refill interval, by R for
// each whole P of the epoch since. at is the time of that level. It is now, or the key's own time if the clock has stepped back
// by at most a period; after a longer step the key starts over. If the limit delays requests, the key's time may be that of the
// last departure, in the future.
func Drain(l *Limit, s *State, now int64) (at int64, hi, lo uint64) {
	at, hi, lo = s.A&(1<<TimeBits-1), uint64(s.A)>>TimeBits, uint64(s.B)
	elapsed := now - at
	if elapsed < 0 {
		if -elapsed <= l.slack {
			return at, hi, lo
		}
		return now, 0, 0
	}
	if l.interval {
		elapsed = now - now%l.Period - (at - at%l.Period)
	}
	drainedHi, drainedLo := bits.Mul64(uint64(elapsed), uint64(l.Requests))
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
		moreHi, moreLo := bits.Mul64(uint64(n), uint64(l.Period))
		low, carry := bits.Add64(lo, moreLo, 0)
		return hi + moreHi + carry, low
	}
	lessHi, lessLo := bits.Mul64(uint64(-n), uint64(l.Period))
	low, borrow := bits.Sub64(lo, lessLo, 0)
	high, below := bits.Sub64(hi, lessHi, borrow)
	if below != 0 {
		return 0, 0
	}
	return high, low
}

// unitsIn returns how many units a level is, rounded up.
func unitsIn(l *Limit, hi, lo uint64) int64 {
	low, carry := bits.Add64(lo, uint64(l.Period)-1, 0)
	q, _ := bits.Div64(hi+carry, low, uint64(l.Period)) // below 2³², so the high word is below P
	return int64(q)
}

// drainTime returns how long a level takes to drain at R/P, rounded up to a microsecond.
func drainTime(l *Limit, hi, lo uint64) int64 {
	low, carry := bits.Add64(lo, uint64(l.Requests)-1, 0)
	hi += carry
	if hi >= uint64(l.Requests) { // a lower limit than the one that has counted: more than an int64 holds
		return Forever
	}
	q, _ := bits.Div64(hi, low, uint64(l.Requests))
	if q > uint64(Forever) {
		return Forever
	}
	return int64(q)
}

// Forever is the longest time that a decision reports: a hundred years.
const Forever = 100 * 365 * MicrosPerDay

// Level is a level without its time, in two words.
type Level struct{ Hi, Lo uint64 }

// chargeLevel adds units to a bucket's state, at the state's own time.
func chargeLevel(l *Limit, s *State, n int64) {
	hi, lo := addUnits(l, 0, 0, n)
	AddLevel(l, s, Level{hi, lo})
}

// AddLevel adds a level to a bucket's state, at the state's own time.
func AddLevel(l *Limit, s *State, more Level) {
	at, hi, lo := s.A&(1<<TimeBits-1), uint64(s.A)>>TimeBits, uint64(s.B)
	lo, carry := bits.Add64(lo, more.Lo, 0)
	hi += more.Hi + carry
	if mostHi, mostLo := addUnits(l, 0, 0, mostUnits); hi > mostHi || hi == mostHi && lo > mostLo {
		hi = mostHi
		lo = mostLo
	}
	setLevel(s, at, hi, lo)
}

func setLevel(s *State, at int64, hi, lo uint64) {
	s.A = at | int64(hi<<TimeBits)
	s.B = int64(lo)
}

// levelSpent is the shortcut to find out whether a bucket has drained: see algorithmRow.spent.
func levelSpent(l *Limit, s *State, elapsed int64) (isSpent, known bool) {
	return elapsed >= l.Emptied || s.B <= elapsed*l.Requests, s.B <= l.Full
}

// levelSlot is slot.
func levelSlot(l *Limit, now, grain int64) Slot { return partSlot(l, now, grain, bucketSlots) }
