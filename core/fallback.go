package core

// RejectsWithoutStore reports whether requests under the rule are turned away while the store has failed.
func (r *Rule) RejectsWithoutStore() bool {
	return !r.shadow && (r.onError == RejectAll || r.onError == CountLocally && r.local == nil)
}

// decideWithout comes to the decisions of a request where the store has failed: rules that let pass are left out, the others
// are counted in memory, by this node's share. It returns false if an enforced rule turns the request away then.
//
// What the store last knew of a key stands in the decisions. If memory has less on a key, this node's share of that is
// charged first: whoever had used up the limit has not got it back by the failure.
func (l *Limiter) decideWithout(checks []Check, peek bool) bool {
	uncounted := 0
	for i := range checks {
		c := &checks[i]
		r := c.Rule
		if r.RejectsWithoutStore() {
			return false
		}
		if r.onError != CountLocally || r.local == nil {
			c.Uncounted = true
			c.Decision = Decision{Allowed: true}
			uncounted++
		}
	}
	counted := checks
	if uncounted > 0 {
		counted = make([]Check, 0, len(checks)-uncounted)
		for i := range checks {
			if !checks[i].Uncounted {
				counted = append(counted, checks[i])
			}
		}
	}
	for i := range counted {
		c := &counted[i]
		known := c.Decision
		whole := c.Rule.limit.quota
		affordable := c.Cost <= c.Rule.limit.capacity
		c.Rule = c.Rule.local
		if affordable && c.Cost > c.Rule.limit.capacity { // it takes all of the share, then
			c.Cost = c.Rule.limit.capacity
		}
		if known.Limit > 0 && known.Remaining < known.Limit && !peek {
			l.startFrom(c, known.Limit-known.Remaining, whole)
		}
	}
	if len(counted) > 0 && l.local.Decide(counted, peek) != nil {
		return false
	}
	if uncounted > 0 {
		for i, j := 0, 0; i < len(checks); i++ {
			if !checks[i].Uncounted {
				checks[i] = counted[j]
				j++
			}
		}
	}
	return true
}

// startFrom charges a local rule's key until it has used at least as much of its quota as used is of the whole one. Not of requests in
// flight: those that the store counts end there, and nobody would end them here.
func (l *Limiter) startFrom(c *Check, used, whole int64) {
	if c.Rule.limit.inFlight {
		return
	}
	one := []Check{{Rule: c.Rule, Key: c.Key}}
	share := (used*c.Rule.limit.quota + whole - 1) / whole
	if l.missing(one, share) <= 0 {
		return
	}
	l.starting.Lock() // so that requests at the same time do not charge it twice
	if missing := l.missing(one, share); missing > 0 {
		one[0].Cost = missing
		if missing > one[0].Decision.Remaining {
			one[0].Cost = one[0].Decision.Remaining
		}
		if one[0].Cost > 0 {
			_ = l.local.Decide(one, false) // it does not fail; if it did, the request's own decision would say so
			if one[0].Ticket != 0 {        // of a rule that counts by status: the statuses are known already
				reservations := AppendReservations(nil, one)
				reservations[0].Keep = true
				_ = l.local.Settle(reservations)
			}
		}
	}
	l.starting.Unlock()
}

// missing returns how many units of the check's key are to be charged until that many are used.
func (l *Limiter) missing(one []Check, share int64) int64 {
	one[0].Cost = 0 // asks how things stand
	if l.local.Decide(one, true) != nil {
		return 0
	}
	return share - (one[0].Rule.limit.quota - one[0].Decision.Remaining)
}
