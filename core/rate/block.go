package rate

// BlockMark marks a key that is blocked by hand. It has, in place of its limit's state, a state that no algorithm makes: B is the end of the block,
// and A is BlockMark plus its duration. As a time, A is one that no clock shows before the year 2253. So blocks cost other
// requests nothing: take allows no request of a key whose time is in the future, and the general path then looks for the mark.
const BlockMark = 1<<TimeBits - 1<<46

// BlockState returns the state of a key that is blocked from now on.
func BlockState(now, duration int64) State { return State{A: BlockMark + duration, B: now + duration} }

// IsBlocked reports whether the state is that of a blocked key; the block may have ended since.
func IsBlocked(s *State) bool { return s.A >= BlockMark && s.A < 1<<TimeBits }

// BlockedFor returns for how much longer the state blocks its key: 0 or less if it does not. If the clock has stepped back to
// before the beginning of the block, that is its whole duration.
func BlockedFor(s *State, now int64) int64 {
	if !IsBlocked(s) {
		return 0
	}
	left := s.B - now
	if longest := s.A - BlockMark; left > longest {
		return longest
	}
	return left
}

// StepBack moves the end of a block back with the clock.
func StepBack(s *State, now int64) {
	if IsBlocked(s) && s.B-now > s.A-BlockMark {
		s.B = now + s.A - BlockMark
	}
}

// DecideBlocked writes the decision on a request of a key that is blocked for that much longer. RetryAfter is Never for a cost
// that the limit can never allow.
func DecideBlocked(l *Limit, left, cost int64, d *Decision) {
	most := l.Capacity
	if l.InFlight {
		most = MaxRequests
	}
	*d = Decision{Limit: l.Quota, Allowed: cost == 0, RetryAfter: left, ResetAfter: left}
	if cost > most {
		d.RetryAfter = Never
	} else if cost == 0 {
		d.RetryAfter = 0
	}
}
