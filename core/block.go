package core

// A key that is blocked by hand has, in place of its limit's state, a state that no algorithm makes: B is the end of the block,
// and A is blockMark plus its duration. As a time, A is one that no clock shows before the year 2253. So blocks cost other
// requests nothing: take allows no request of a key whose time is in the future, and the general path then looks for the mark.
const blockMark = 1<<timeBits - 1<<46

// blockState returns the state of a key that is blocked from now on.
func blockState(now, duration int64) State { return State{A: blockMark + duration, B: now + duration} }

// isBlocked reports whether the state is that of a blocked key; the block may have ended since.
func isBlocked(s *State) bool { return s.A >= blockMark && s.A < 1<<timeBits }

// blockedFor returns for how much longer the state blocks its key: 0 or less if it does not. If the clock has stepped back to
// before the beginning of the block, that is its whole duration.
func blockedFor(s *State, now int64) int64 {
	if !isBlocked(s) {
		return 0
	}
	left := s.B - now
	if longest := s.A - blockMark; left > longest {
		return longest
	}
	return left
}

// stepBack moves the end of a block back with the clock.
func stepBack(s *State, now int64) {
	if isBlocked(s) && s.B-now > s.A-blockMark {
		s.B = now + s.A - blockMark
	}
}

// decideBlocked writes the decision on a request of a key that is blocked for that much longer. RetryAfter is Never for a cost
// that the limit can never allow.
func decideBlocked(l *Limit, left, cost int64, d *Decision) {
	most := l.capacity
	if l.inFlight {
		most = MaxRequests
	}
	*d = Decision{Limit: l.quota, Allowed: cost == 0, RetryAfter: left, ResetAfter: left}
	if cost > most {
		d.RetryAfter = Never
	} else if cost == 0 {
		d.RetryAfter = 0
	}
}
