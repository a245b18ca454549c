package rate

import "fmt"

// NewConcurrency returns a limit on the number of requests in flight, 1 to MaxRequests. It has no period: a request uses a unit
// from the decision until Limiter.Finish.
func NewConcurrency(n int64) (*Limit, error) {
	if n < 1 || n > MaxRequests {
		return nil, fmt.Errorf("concurrency %d: must be from 1 to %d", n, MaxRequests)
	}
	l := newLimit(InFlight, n, 1) // the period is only there for code that divides by it
	l.slack = 1
	l.setWidths()
	return l, nil
}

// decideInFlight never rejects, since the state is always zero: the account counts requests in flight, and weighInFlight decides.
// Callers that ask whether a state is still in use learn that it is not.
func decideInFlight(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	*next = State{}
	d.Allowed = true
	d.Remaining = l.Requests
}

// takeInFlight never applies: see algorithmRow.take.
func takeInFlight(l *Limit, s *State, now int64) (remaining, reset, more int64) { return -1, 0, 0 }

// chargeInFlight charges nothing: a request holds a reservation until it is over.
func chargeInFlight(l *Limit, s *State, cost int64) {}

func inFlightSpent(l *Limit, s *State, elapsed int64) (isSpent, known bool) { return true, true }
