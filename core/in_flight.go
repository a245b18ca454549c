package core

import "fmt"

// NewConcurrency returns a limit of so many requests in flight, 1 to MaxRequests. It has no period: a unit is in use from the
// decision until Limiter.Finish is told that the request is over.
func NewConcurrency(n int64) (*Limit, error) {
	if n < 1 || n > MaxRequests {
		return nil, fmt.Errorf("concurrency %d: must be from 1 to %d", n, MaxRequests)
	}
	l := newLimit(inFlight, n, 1) // a period there must be, for what divides by it
	l.slack = 1
	l.setWidths()
	return l, nil
}

// decideInFlight: at most R requests at a time. A state says nothing of them, and is zero: it is the account that counts them, and
// weighInFlight that decides. So it is told that nothing is used, to who asks whether the state still makes a difference.
func decideInFlight(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	*next = State{}
	d.Allowed = true
	d.Remaining = l.requests
}

// takeInFlight never applies: see take.
func takeInFlight(l *Limit, s *State, now int64) (remaining, reset, more int64) { return -1, 0, 0 }

// chargeInFlight charges nothing: a request holds its unit until it is over.
func chargeInFlight(l *Limit, s *State, cost int64) {}

func inFlightSpent(l *Limit, s *State, elapsed int64) (isSpent, known bool) { return true, true }

// weighInFlight evaluates a check of a limit of requests in flight.
func weighInFlight(c *Check, a *account) {
	l := c.Rule.limit
	used := int64(0)
	if a != nil {
		used = a.held
	}
	c.Decision = Decision{Allowed: used < l.requests && c.Cost <= MaxRequests, Limit: l.quota}
	if c.Decision.Allowed {
		c.Decision.Remaining = l.requests - used - 1
		return
	}
	c.Decision.RetryAfter = reservedRetry
	if c.Cost > MaxRequests { // as where a request is to be rejected for want of a key
		c.Decision.RetryAfter = Never
	}
}
