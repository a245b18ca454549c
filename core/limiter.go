package core

// Check is one rule's part in the decision on a request. The caller sets Rule, Key and Cost; the store fills in Decision.
// Checks are reused from request to request where allocations matter.
type Check struct {
	Rule     *Rule
	Key      string
	Cost     int64 // units; below 1 counts as 1; above what the limit can hold is rejected without a RetryAfter
	Decision Decision

	// The store's notes between evaluating and charging.
	hash        uint64
	state, next State
}

// Store keeps the counters. It is safe for concurrent use.
type Store interface {
	// Open makes the store ready for a rule. State that is there under the rule's identity is kept: nothing of it
	// changes. A rule belongs to one store.
	Open(*Rule) error

	// Release ends what Open began. The state of an identity that no open rule has any more is let go of.
	Release(*Rule)

	// Decide fills in every check's Decision, in one atomic step at one time. Unless peek is set it charges them: all
	// if every enforced (not shadow) rule allows the request, else none, but for the rules with count_rejected that
	// themselves reject it. A shadow rule is charged if it and the enforced ones all admit. A rule may stand in the
	// checks only once. On an error nothing is known of what was charged.
	Decide(checks []Check, peek bool) error
}

// Outcome is what becomes of a request.
type Outcome int

// The outcomes.
const (
	Allow  Outcome = iota
	Delay          // allowed, after waiting for Verdict.Delay
	Reject         // over a limit
)

// String returns the outcome's name.
func (o Outcome) String() string {
	return [...]string{"allow", "delay", "reject"}[o]
}

// Verdict is what all the rules of a request come to.
type Verdict struct {
	Outcome    Outcome
	Told       int   // index of the check that clients are told of: of those that reject, the one with the longest wait; else the tightest; -1: none
	RetryAfter int64 // of a rejected request, in microseconds: the longest wait that a rule asks for, or Never
	Delay      int64 // of a delayed one: the longest that a rule asks for
}

// Limiter comes to a verdict on requests, by the decisions of one store.
type Limiter struct {
	store Store
}

// NewLimiter returns a limiter over that store.
func NewLimiter(store Store) *Limiter {
	return &Limiter{store: store}
}

// Decide asks the store of all the checks at once and writes what they come to into v. With peek nothing is charged:
// the verdict is what it would be. An error is the store's.
func (l *Limiter) Decide(checks []Check, peek bool, v *Verdict) error {
	for i := range checks {
		c := &checks[i]
		if c.Cost < 1 {
			c.Cost = 1
		} else if c.Cost > Unaffordable {
			c.Cost = Unaffordable
		}
	}
	if len(checks) > 0 {
		if err := l.store.Decide(checks, peek); err != nil {
			return err
		}
	}
	conclude(checks, v)
	return nil
}

// Unaffordable is a cost that no limit can ever hold.
const Unaffordable int64 = 2 * MaxRequests

// conclude writes the verdict that the decisions come to.
func conclude(checks []Check, v *Verdict) {
	v.Outcome = Allow
	v.Told = -1
	v.RetryAfter = 0
	v.Delay = 0
	for i := range checks {
		c := &checks[i]
		if c.Rule.shadow {
			continue
		}
		d := &c.Decision
		if !d.Allowed {
			if v.Outcome != Reject || longer(d.RetryAfter, v.RetryAfter) {
				v.Told = i
				v.RetryAfter = d.RetryAfter
			}
			v.Outcome = Reject
			continue
		}
		if v.Outcome == Reject {
			continue
		}
		if d.Delay > v.Delay {
			v.Delay = d.Delay
			v.Outcome = Delay
		}
		if v.Told < 0 || tighter(d, &checks[v.Told].Decision) {
			v.Told = i
		}
	}
	if v.Outcome == Reject {
		v.Delay = 0
	}
}

// longer reports whether waiting a is waiting longer than b; Never is the longest.
func longer(a, b int64) bool {
	return b != Never && (a == Never || a > b)
}

// tighter reports whether a has the smaller share of its quota left.
func tighter(a, b *Decision) bool {
	return a.Remaining*b.Limit < b.Remaining*a.Limit // both are at most 10⁹
}
