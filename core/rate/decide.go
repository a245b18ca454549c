package rate

// Decide is what all algorithms have in common. It writes the decision of limit l on a request of that cost at time now, in state
// s, into d, and the new state into next. If the request is allowed, that is the state after it. If not, it is the state that a
// rule with count_rejected keeps: the limit is used up, and more than used up if another limit of the same identity has allowed
// more. next may be s.
//
// A cost of 0 only reads, and is always allowed. ResetAfter is then 0 only for a state that is unused. decide does not apply to
// logs: see DecideLog. For the state of a key that is blocked by hand see block.go.
func Decide(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	if cost == 1 && !l.Owes { // the shortcuts know of no debts
		*next = *s
		if remaining, reset, more := Take(l, next, now); remaining >= 0 {
			*d = Decision{Allowed: true, Limit: l.Quota, Remaining: remaining, ResetAfter: reset, MoreAfter: more}
			return
		}
	}
	if s.A >= BlockMark { // take never allows such a state; after a block, its time is so far ahead that the key starts over
		if left := BlockedFor(s, now); left > 0 {
			*next = *s
			DecideBlocked(l, left, cost, d)
			return
		}
	}
	*d = Decision{Limit: l.Quota}
	decideBy(l, s, now, cost, next, d)
}

// Charge writes into next the state after a request that was allowed before, by this limit or another of the same identity, and
// had a reservation. It is charged whole, as far as the state can hold it, whatever the limit would decide now. next may be s. It
// does not apply to logs: see ChargeLog.
func Charge(l *Limit, s *State, now, cost int64, next *State) {
	var d Decision
	if BlockedFor(s, now) > 0 { // charges of a blocked key are forgotten with all else
		*next = *s
		return
	}
	Decide(l, s, now, 0, next, &d)
	chargeBy(l, next, cost)
}

// chargeNow is late of an algorithm that does not tell a slot from the present.
func chargeNow(l *Limit, s *State, slot *Slot, now, units int64) { Charge(l, s, now, units, s) }

// Unused reports whether a state is unused: whether decide would return a ResetAfter of 0 at a cost of 0. It is a shortcut for
// most limits and states.
func Unused(l *Limit, s *State, now int64) bool {
	elapsed := now - s.A
	if elapsed >= 0 && s.A|s.B >= 0 && !l.Owes {
		isSpent, known := spent(l, s, elapsed)
		if known {
			return isSpent
		}
	}
	var next State
	var d Decision
	Decide(l, s, now, 0, &next, &d)
	return d.ResetAfter == 0
}
