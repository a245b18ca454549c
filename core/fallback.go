package core

import "github.com/proxyweir/weir/core/rate"

// RejectsWithoutStore reports whether requests under the rule are rejected while the store has failed.
func (r *Rule) RejectsWithoutStore() bool {
	return !r.Shadow && (r.onError == RejectAll || r.onError == CountLocally && r.Local == nil)
}

// decideWithout decides on a request while the store has failed. Rules that let requests pass are left out. The others count in
// memory, by this node's share of the limit. It returns false if an enforced rule rejects requests in this case.
//
// The decisions hold what the store last knew of each key. If memory has counted less, it is first charged this node's share of
// that: a failure does not give anyone a used quota back.
func (l *Limiter) decideWithout(checks []Check, peek bool) bool {
	uncounted := 0
	for i := range checks {
		c := &checks[i]
		r := c.Rule
		if r.RejectsWithoutStore() {
			return false
		}
		if r.onError != CountLocally || r.Local == nil {
			c.Uncounted = true
			c.Decision = rate.Decision{Allowed: true}
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
	var rules []*Rule
	for i := range counted {
		c := &counted[i]
		known := c.Decision
		if l.refused != nil {
			rules = append(rules, c.Rule)
		}
		whole := c.Rule.Limit.Quota
		affordable := c.Cost <= c.Rule.Limit.Capacity
		c.Rule = c.Rule.Local
		if affordable && c.Cost > c.Rule.Limit.Capacity { // it takes all of the share
			c.Cost = c.Rule.Limit.Capacity
		}
		if known.Limit > 0 && known.Remaining < known.Limit && !peek {
			l.startFrom(c, known.Limit-known.Remaining, whole)
		}
	}
	if len(counted) > 0 && l.local.Decide(counted, peek) != nil {
		return false
	}
	if l.refused != nil && !peek && rejectsOne(counted) {
		l.refused.RefusedLocally(rules, counted)
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

// rejectsOne reports whether an enforced rule rejects the request.
func rejectsOne(checks []Check) bool {
	for i := range checks {
		if !checks[i].Decision.Allowed && !checks[i].Rule.Shadow {
			return true
		}
	}
	return false
}

// startFrom charges a key of a local rule until it has used at least the same part of its quota as used is of the whole one. It
// skips limits of requests in flight: those that the store counts end in the store, and nobody would end them here.
func (l *Limiter) startFrom(c *Check, used, whole int64) {
	if c.Rule.Limit.InFlight {
		return
	}
	one := []Check{{Rule: c.Rule, Key: c.Key}}
	share := (used*c.Rule.Limit.Quota + whole - 1) / whole
	if l.missing(one, share) <= 0 {
		return
	}
	l.starting.Lock() // so that concurrent requests do not charge it twice
	if missing := l.missing(one, share); missing > 0 {
		one[0].Cost = missing
		if missing > one[0].Decision.Remaining {
			one[0].Cost = one[0].Decision.Remaining
		}
		if one[0].Cost > 0 {
			_ = l.local.Decide(one, false) // it does not fail; if it did, the request's own decision would report it
			if one[0].Ticket != 0 {        // a rule that counts by status: these requests stay charged
				reservations := AppendReservations(nil, one)
				reservations[0].Keep(true)
				_ = l.local.Settle(reservations)
			}
		}
	}
	l.starting.Unlock()
}

// missing returns how many units are to be charged to the check's key until it has used that share.
func (l *Limiter) missing(one []Check, share int64) int64 {
	one[0].Cost = 0 // only reads
	if l.local.Decide(one, true) != nil {
		return 0
	}
	return share - (one[0].Rule.Limit.Quota - one[0].Decision.Remaining)
}
