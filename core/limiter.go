package core

import "sync"

// Check is one rule's part in the decision on a request. The caller sets Rule, Key and Cost; the store fills in Decision.
// Checks are reused from request to request where allocations matter.
type Check struct {
	Rule     *Rule
	Key      string
	Cost     int64 // units; below 1 counts as 1; above what the limit can hold is rejected without a RetryAfter
	Decision Decision

	// Uncounted is set by the limiter where the store has failed and the rule lets requests pass then: Decision says nothing.
	Uncounted bool

	// The store's notes between evaluating and charging.
	hash        uint64
	slot        int
	locked      bool // by this check, of those in one shard
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
	// checks only once.
	//
	// On an error nothing is known of what was charged. Each Decision is then what was last known of the key's Limit and
	// Remaining, or zero.
	Decide(checks []Check, peek bool) error
}

// Outcome is what becomes of a request.
type Outcome int

// The outcomes.
const (
	Allow       Outcome = iota
	Delay               // allowed, after waiting for Verdict.Delay
	Reject              // over a limit
	Unavailable         // the store has failed, and a rule turns requests away then
)

// String returns the outcome's name.
func (o Outcome) String() string {
	return [...]string{"allow", "delay", "reject", "unavailable"}[o]
}

// Verdict is what all the rules of a request come to.
type Verdict struct {
	Outcome    Outcome
	Told       int   // index of the check that clients are told of: of those that reject, the one with the longest wait; else the tightest; -1: none
	RetryAfter int64 // of a rejected request, in microseconds: the longest wait that a rule asks for, or Never
	Delay      int64 // of a delayed one: the longest that a rule asks for
}

// Limiter comes to a verdict on requests, by the decisions of a store.
type Limiter struct {
	store    Store
	local    Store
	nodes    int
	starting sync.Mutex // while memory takes over what the store last knew of a key
}

// NewLimiter returns a limiter over that store.
func NewLimiter(store Store) *Limiter {
	return &Limiter{store: store}
}

// FallBack names what counts instead of the store when it fails, for rules whose OnError is CountLocally: a store that does
// not fail. nodes is how many limiters share the one that does; each lets through that share of a limit then, and 0 means 1.
// It must be called before Open.
func (l *Limiter) FallBack(local Store, nodes int) {
	l.local = local
	l.nodes = nodes
}

// Open makes the limiter ready for a rule, as Store.Open does. A rule belongs to one limiter.
func (l *Limiter) Open(r *Rule) error {
	if err := l.store.Open(r); err != nil {
		return err
	}
	if l.local == nil || r.onError != CountLocally {
		return nil
	}
	local, err := NewRule(RuleConfig{
		Namespace:     r.namespace,
		Name:          r.name,
		KeySpec:       r.keySpec,
		Limit:         r.limit.Share(l.nodes),
		Shadow:        r.shadow,
		CountRejected: r.countRejected,
		Blocks:        r.blocks,
	})
	if err == nil {
		err = l.local.Open(local)
	}
	if err != nil {
		l.store.Release(r)
		return err
	}
	r.local = local
	return nil
}

// Release ends what Open began.
func (l *Limiter) Release(r *Rule) {
	l.store.Release(r)
	if r.local != nil {
		l.local.Release(r.local)
	}
}

// Decide asks the store of all the checks at once and writes what they come to into v. With peek nothing is charged:
// the verdict is what it would be.
//
// An error is the store's. The verdict was then come to without it, by each rule's OnError; of a rule that was counted
// locally the check has the local rule in place of its own.
func (l *Limiter) Decide(checks []Check, peek bool, v *Verdict) error {
	for i := range checks {
		c := &checks[i]
		c.Uncounted = false
		if c.Cost < 1 {
			c.Cost = 1
		} else if c.Cost > Unaffordable {
			c.Cost = Unaffordable
		}
		if c.Rule.blocks {
			c.Cost = Unaffordable
		}
	}
	var failure error
	if len(checks) > 0 {
		failure = l.store.Decide(checks, peek)
	}
	return l.Conclude(checks, peek, failure, v)
}

// Conclude is the second half of Decide, for who has asked the store otherwise, of a rule that the limiter has opened: failure
// is the error of Store.Decide, and what it returns.
func (l *Limiter) Conclude(checks []Check, peek bool, failure error, v *Verdict) error {
	if failure != nil && !l.decideWithout(checks, peek) {
		v.Outcome = Unavailable
		v.Told = -1
		v.RetryAfter = unavailableFor
		v.Delay = 0
		return failure
	}
	conclude(checks, v)
	return failure
}

// unavailableFor is when to come back if the store has failed: by then it may be asked again.
const unavailableFor int64 = 1_000_000

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
		if c.Rule.shadow || c.Uncounted {
			continue
		}
		d := &c.Decision
		if c.Rule.blocks {
			*d = Decision{RetryAfter: Never}
		}
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
