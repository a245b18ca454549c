package rate

import "time"

// Credit takes units back from a state, as if they had not been charged: the newest first, and no more than there are, so that nothing is ever saved
// up beyond a full quota. The state keeps its time. A key that is blocked by hand has none. It does not apply to logs, which decide
// brings to the present first: see CreditLog.
//
// What that leaves is what the algorithm makes of it. A bucket has that many units more. A window counts them no more. Of the two windows of a
// sliding_window_counter the present one comes first; a unit of the one before leaves as much as it weighs.
func Credit(l *Limit, s *State, units int64) {
	if !IsBlocked(s) {
		creditBy(l, s, units)
	}
}

// creditLevel is credit of a bucket.
func creditLevel(l *Limit, s *State, units int64) {
	at, hi, lo := s.A&(1<<TimeBits-1), uint64(s.A)>>TimeBits, uint64(s.B)
	hi, lo = addUnits(l, hi, lo, -units)
	setLevel(s, at, hi, lo)
}

// creditFixedWindow is credit.
func creditFixedWindow(l *Limit, s *State, units int64) { s.B = AtLeast(s.B-units, 0) }

// creditSlidingWindowCounter is credit.
func creditSlidingWindowCounter(l *Limit, s *State, units int64) {
	previous, current := int64(uint64(s.B)>>32), s.B&MostCounted
	taken := AtMost(units, current)
	previous = AtLeast(previous-(units-taken), 0)
	s.B = previous<<32 | (current - taken)
}

// creditSlidingWindowLog is creditLog. If the limit Owes, the newest are those that are owed.
func creditSlidingWindowLog(l *Limit, log *EventLog, units int64) {
	log.N -= int(AtMost(units, int64(log.N)))
}

// creditSlidingWindowSegments is creditLog.
func creditSlidingWindowSegments(l *Limit, log *EventLog, units int64) {
	if len(log.Times) == 0 {
		return
	}
	for before := int64(0); before <= l.Window && units > 0; before++ {
		i := (log.Head + len(log.Times) - int(before)) % len(log.Times)
		taken := AtMost(units, int64(log.Times[i]))
		log.Times[i] -= uint32(taken)
		if before < l.Window {
			log.N -= int(taken)
		}
		units -= taken
	}
}

// More returns the limit with so many units more, in the same period; of a bucket the burst has as many more, too. The error is that of NewLimit.
func (l *Limit) More(units int64) (*Limit, error) {
	c := LimitConfig{
		Algorithm: l.Algorithm.Named(), Requests: l.Requests + units, Period: time.Duration(l.Period) * time.Microsecond,
		Start: l.Start, Interval: l.interval, Delays: l.Delays && !l.Queues, MaxDelay: time.Duration(l.MaxDelay) * time.Microsecond, Owes: l.Owes,
	}
	if l.Calendar != nil {
		c.Period = 0
		c.Calendar = l.Calendar.unit
		c.On = l.Calendar.on
		c.Location = l.Calendar.location
	}
	if l.IsBucket {
		c.Burst = l.Burst + units
	}
	if l.Algorithm == SlidingWindowSegments {
		c.Segments = l.Window
	}
	return NewLimit(c)
}
