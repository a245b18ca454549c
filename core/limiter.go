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

	// Ticket names what the request has reserved of the rule, in the store; 0: nothing. Holds makes use of it.
	Ticket uint64

	// The limiter's note: the request is counted among those that wait.
	waits bool

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
	//
	// Some rules have a conduct. Of a candidate the check before it, in whose place it is, is left out of what rejects the request.
	// Where a limit delays and the request departs later than now, all rules are charged at its departure; where a rule counts by
	// status, or in flight, units are only reserved. Check.Ticket names what is not charged yet.
	Decide(checks []Check, peek bool) error

	// Settle ends what Decide has reserved: it is charged now if Keep is set, and else given back. The turn of a request that
	// waits is given back only where it is the last in line; what others than the rule that has it wait have reserved for it, and what a
	// log has, is in any case.
	Settle(reservations []Reservation) error

	// Block shuts a key of a rule out for that many microseconds from now, in place of what its limit has counted, and of a penalty or a
	// shut-out that there is; 0 lets it in, and forgets its offences. When its time is over the key starts afresh. No charge, and no
	// reload that keeps the rule's identity, ends it before.
	Block(r *Rule, key string, duration int64) error

	// Reset forgets what was counted of a key of a rule, its tolerance, its offences and penalties, and that it is shut out. What
	// requests under way hold stays, and ends as it would have; but a turn is not given back any more.
	Reset(r *Rule, key string) error
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
	Reported   int   // index of the check that clients are told of: of those that reject, the one with the longest wait; else the tightest; -1: none
	RetryAfter int64 // of a rejected request, in microseconds: the longest wait that a rule asks for, or Never
	Delay      int64 // of a delayed one: the longest that a rule asks for
	Soft       bool  // the request is let through by a rule's tolerance
	Reserved   bool  // the request has reserved something: AppendReservations says what, and Limiter.Finish or Leave is to be called
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
	if l.local != nil && r.onError == CountLocally {
		local := r.sharedBy(l.nodes)
		if err := l.local.Open(local); err != nil {
			l.store.Release(r)
			return err
		}
		r.local = local
	}
	for i, other := range r.beside {
		if err := l.Open(other); err != nil {
			for _, opened := range r.beside[:i] {
				l.Release(opened)
			}
			l.release(r)
			return err
		}
	}
	return nil
}

// Release ends what Open began.
func (l *Limiter) Release(r *Rule) {
	l.release(r)
	for _, other := range r.beside {
		l.Release(other)
	}
}

func (l *Limiter) release(r *Rule) {
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
		c.Ticket = 0
		c.waits = false
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
		*v = Verdict{Outcome: Unavailable, Reported: -1, RetryAfter: unavailableFor}
		return failure
	}
	conclude(checks, v)
	if v.Outcome == Delay {
		l.enter(checks, v)
	}
	return failure
}

// enter counts a request among those that wait for the rules that have it wait. If there are too many of one, because others have
// come at the same time, it is rejected after all.
func (l *Limiter) enter(checks []Check, v *Verdict) {
	full := -1
	v.Reserved = true // so that it waits, also where no rule counts it
	for i := range checks {
		c := &checks[i]
		if c.Rule.room == nil || c.Uncounted || c.Decision.Delay == 0 { // the last: others have it wait
			continue
		}
		if c.Rule.limit.delays && c.Ticket == 0 {
			continue
		}
		c.waits = true
		if !c.Rule.room.enter(c.Rule, c.Key) && full < 0 {
			full = i
		}
	}
	if full < 0 {
		return
	}
	_ = l.Leave(AppendReservations(nil, checks)) // what is not given back expires
	v.Outcome = Reject
	v.Reported = full
	v.RetryAfter = v.Delay
	v.Delay = 0
	v.Reserved = false
	d := &checks[full].Decision
	d.Allowed = false
	d.RetryAfter = v.RetryAfter
	d.MoreAfter = 0
	d.Delay = 0
}

// unavailableFor is when to come back if the store has failed: by then it may be asked again.
const unavailableFor int64 = 1_000_000

// Unaffordable is a cost that no limit can ever hold.
const Unaffordable int64 = 2 * MaxRequests

// conclude writes the verdict that the decisions come to.
func conclude(checks []Check, v *Verdict) {
	*v = Verdict{Outcome: Allow, Reported: -1}
	for i := range checks {
		c := &checks[i]
		if c.Ticket != 0 {
			v.Reserved = true
		}
		if c.Rule.shadow || c.Uncounted {
			continue
		}
		d := &c.Decision
		if c.Rule.blocks {
			*d = Decision{RetryAfter: Never}
		}
		if !d.Allowed {
			if v.Outcome != Reject || longer(d.RetryAfter, v.RetryAfter) {
				v.Reported = i
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
		if d.Soft {
			v.Soft = true
		}
		if v.Reported < 0 || Tighter(d, &checks[v.Reported].Decision) {
			v.Reported = i
		}
	}
	if v.Outcome == Reject {
		v.Delay = 0
		v.Soft = false
	}
}

// longer reports whether waiting a is waiting longer than b; Never is the longest.
func longer(a, b int64) bool {
	return b != Never && (a == Never || a > b)
}

// Tighter reports whether a has the smaller share of its quota left.
func Tighter(a, b *Decision) bool {
	return a.Remaining*b.Limit < b.Remaining*a.Limit // both are at most 10⁹
}
