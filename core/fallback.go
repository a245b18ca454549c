package core

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
		how := r.onError
		if how == CountLocally && r.local == nil {
			how = TurnAway
		}
		if how == TurnAway && !r.shadow {
			return false
		}
		if how != CountLocally {
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

// startFrom charges a local rule's key until it has used at least as much of its quota as used is of the whole one.
func (l *Limiter) startFrom(c *Check, used, whole int64) {
	l.starting.Lock()
	one := make([]Check, 1)
	one[0].Rule = c.Rule
	one[0].Key = c.Key
	if l.local.Decide(one, true) == nil { // a cost of 0 asks how things stand
		quota := c.Rule.limit.quota
		share := (used*quota + whole - 1) / whole
		room := one[0].Decision.Remaining
		if missing := share - (quota - room); missing > 0 {
			one[0].Cost = missing
			if missing > room {
				one[0].Cost = room
			}
			if l.local.Decide(one, false) != nil {
				one[0].Cost = 0
			}
		}
	}
	l.starting.Unlock()
}
