package core

import (
	"sync"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// Check is one rule's part in the decision on a request. The caller sets Rule, Key and Cost, and Limits and Tier if these are in transition; the limiter
// sets the rest. To save allocations, a caller may reuse its checks for later requests, after Clear.
type Check struct {
	Rule     *Rule
	Key      string
	Cost     int64         // units; below 1 means 1; above what the limit can hold the request is rejected without a RetryAfter
	Decision rate.Decision // of the rule's limit, and of former limits that the request must pass, too: as strict as all of them

	// Limits are those that have chosen the rule, for Tier and Key; nil: their field Moved is 0. While they are in transition, the request must pass their
	// former limits, too.
	Limits *Limits
	Tier   string

	// InFlight has the decision of the rule's concurrency, and Candidate that of its candidate; nil: it has none, or nobody has decided.
	InFlight, Candidate *Check

	// Uncounted is set by the limiter if the store has failed and the rule lets requests pass in that case. Decision then says
	// nothing.
	Uncounted bool

	// Ticket identifies the request's reservation in the store; 0: there is none. AppendReservations uses it.
	Ticket uint64

	// Set by the limiter: the request is counted among those that wait.
	waits bool

	parts  []Check // what was decided together with the rule: InFlight, Candidate, and former limits
	isPart bool    // this check is such a part of another

	// Set by the store between evaluating and charging.
	Hash        uint64
	Slot        int
	Locked      bool // this check has locked its shard
	State, Next rate.State

	Beside int64 // units besides its cost: see DecideBeside of the store in memory
}

// Clear makes a check ready for another request.
func (c *Check) Clear() {
	parts := c.parts
	for i := range parts {
		parts[i] = Check{}
	}
	*c = Check{parts: parts[:0]}
}

// Parts returns the checks of what was decided together with the rule: its candidate, its concurrency, and former limits.
func (c *Check) Parts() []Check { return c.parts }

// Store keeps the counters. All its methods are safe for concurrent use.
type Store interface {
	// Open makes the store ready for a rule. Existing state under the rule's identity survives unchanged. A rule belongs to one
	// store.
	Open(*Rule) error

	// Release ends what Open began. The store forgets the state of an identity when its last open rule is released.
	Release(*Rule)

	// Decide sets every check's Decision, in one atomic step at one time. Unless peek is set, it also charges them. If every
	// enforced rule (that is, all but shadow rules) allows the request, all of these are charged. Else only those are charged
	// that reject it themselves and have count_rejected. A shadow rule is charged if it and all enforced rules allow the request.
	// Each rule may appear in the checks only once.
	//
	// After an error nobody knows what was charged. Each Decision then has the last known Limit and Remaining of the key, or is
	// zero.
	//
	// Overflow policies change this. A candidate's check stands behind that of its rule, and stands in for it, so a rejection by that rule does
	// not count for the candidate. If a limit delays the request, all rules are charged at the time of its departure. A rule that
	// counts by status, or counts requests in flight, only reserves units. Check.Ticket identifies what is not charged yet.
	Decide(checks []Check, peek bool) error

	// Settle ends reservations: each is charged now if Keep is set, and else given back. The place of a waiting request in the
	// queue of the rule that delays it is given back only if it is the last. What other rules have reserved for it, and places in
	// a log, are always given back.
	Settle(reservations []Reservation) error

	// Block blocks a key of a rule for that many microseconds from now. The block replaces the state of the key's limit, a
	// penalty, and an earlier block. A duration of 0 ends a block or a penalty, and forgets the key's offences. After the block
	// the key starts afresh. Neither a charge, nor a reload that keeps the rule's identity, ends it earlier.
	Block(r *Rule, key string, duration int64) error

	// Carry makes what blocks keys under the rule from block them under the rule to, for all that is left of it: blocks by hand,
	// and penalties with the offences that are remembered, unless the key is blocked there for longer already. Both rules are open, and
	// have the same namespace, name and key. A store that needs long for this does it in the background. It calls done when it has
	// finished, or given up.
	Carry(from, to *Rule, done func())

	// Now returns the time in microseconds by which transitions end: see Limiter.SwitchTo. Only its differences matter.
	Now() int64

	// Reset forgets the state of a key under a rule: counters, tolerance, offences, penalties and blocks. Reservations of
	// requests under way stay, and end as usual; but places in the queue are not given back any more.
	Reset(r *Rule, key string) error
}

// Outcome is what the limiter decides on a request.
type Outcome int

// The outcomes.
const (
	Allow       Outcome = iota
	Delay               // allowed, after waiting for Verdict.Delay
	Reject              // over a limit
	Unavailable         // the store has failed, and a rule rejects requests in that case
)

// String returns the outcome's name.
func (o Outcome) String() string {
	return [...]string{"allow", "delay", "reject", "unavailable"}[o]
}

// Verdict combines the decisions of all rules on a request.
type Verdict struct {
	Outcome    Outcome
	Reported   int   // index of the check that the quota fields report: among those that reject, the one with the longest wait; else the tightest; -1: none
	InFlight   bool  // they report its concurrency, and not its limit
	RetryAfter int64 // of a rejected request, in microseconds: the longest wait that a rule asks for, or Never
	Delay      int64 // of a delayed request, in microseconds: the longest that a rule asks for
	Soft       bool  // a rule's tolerance has allowed the request
	Reserved   bool  // the request has reservations, which AppendReservations lists; Limiter.Finish or Leave must be called
}

// Limiter makes verdicts on requests from the decisions of a store. It is safe for concurrent use once FallBack was called.
type Limiter struct {
	store    Store
	local    Store
	nodes    int
	starting sync.Mutex // held while memory takes over what the store last knew of a key
}

// NewLimiter returns a limiter over that store.
func NewLimiter(store Store) *Limiter {
	return &Limiter{store: store}
}

// FallBack sets the store that counts when the limiter's own store fails, for rules whose OnError is CountLocally. It must be one
// that does not fail. nodes is the number of limiters that share the store that failed; each then allows that share of a limit. 0
// means 1. FallBack must be called before Open.
func (l *Limiter) FallBack(local Store, nodes int) {
	l.local = local
	l.nodes = nodes
}

// Selective is a Store that not every rule can count in.
type Selective interface {
	// Fits reports why a rule cannot count in the store. It is called before Open.
	Fits(*Rule) error
}

// Fits reports why the limiter's store is not one for the rule: see Selective and FitsMemory.
func (l *Limiter) Fits(r *Rule) error {
	if s, is := l.store.(Selective); is {
		return s.Fits(r)
	}
	if l.local != nil {
		return nil
	}
	return FitsMemory(r)
}

// FitsMemory reports why a rule cannot count in memory: nodes keep to its limit together, and no other node shares the memory.
func FitsMemory(r *Rule) error {
	if r.lease == nil && r.sync == nil {
		return nil
	}
	return words.Wrong("consistency", r.consistencyText(), "the rule counts in the memory of this process, which no other node shares; configure a store in Redis, or remove it")
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
		r.Local = local
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

// OpenAll opens rules that fit the limiter's store, all or none. With an error, failed is the rule that it is about.
func (l *Limiter) OpenAll(rules []*Rule) (failed *Rule, err error) {
	for i, r := range rules {
		err = l.Fits(r)
		if err == nil {
			err = l.Open(r)
		}
		if err != nil {
			for _, opened := range rules[:i] {
				l.Release(opened)
			}
			return r, err
		}
	}
	return nil, nil
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
	if r.Local != nil {
		l.local.Release(r.Local)
	}
}

// Decide asks the store about all checks at once, and writes the verdict into v. With peek nothing is charged: the verdict is
// what it would be.
//
// An error is the store's. The verdict is valid all the same: it follows each rule's OnError. If a rule was counted locally, its
// check then has the local rule in its Rule.
func (l *Limiter) Decide(checks []Check, peek bool, v *Verdict) error {
	all := checks
	var pooled *[]Check
	more := false
	for i := range checks {
		c := &checks[i]
		if len(c.parts) > 0 { // of an earlier decision
			c.parts = c.parts[:0]
			c.InFlight = nil
			c.Candidate = nil
		}
		more = more || c.Limits != nil || c.Rule.beside != nil
	}
	if more {
		pooled = expand(checks)
		all = *pooled
	}
	for i := range all {
		c := &all[i]
		c.Uncounted = false
		c.Ticket = 0
		c.waits = false
		if c.Cost < 1 {
			c.Cost = 1
		} else if c.Cost > rate.Unaffordable {
			c.Cost = rate.Unaffordable
		}
		if c.Rule.blocks {
			c.Cost = rate.Unaffordable
		}
	}
	var failure error
	if len(all) > 0 {
		failure = l.store.Decide(all, peek)
	}
	failure = l.finish(checks, all, more, peek, failure, v)
	if pooled != nil {
		release(pooled)
	}
	return failure
}

// Conclude is the second half of Decide, for callers that have asked the store themselves about rules that the limiter has
// opened, and that have neither a concurrency, nor a candidate, nor former limits. failure is the error of Store.Decide. Conclude returns it.
func (l *Limiter) Conclude(checks []Check, peek bool, failure error, v *Verdict) error {
	return l.finish(checks, checks, false, peek, failure, v)
}

// finish makes a verdict of what the store has decided on all: the checks themselves, or what they were expanded to.
func (l *Limiter) finish(checks, all []Check, expanded, peek bool, failure error, v *Verdict) error {
	if failure != nil && !l.decideWithout(all, peek) {
		*v = Verdict{Outcome: Unavailable, Reported: -1, RetryAfter: unavailableFor}
		return failure
	}
	if expanded {
		collect(checks, all)
	}
	conclude(checks, v)
	if v.Outcome == Delay {
		l.enter(checks, v)
	}
	return failure
}

// expansions pools lists of checks with their parts.
var expansions = sync.Pool{New: func() interface{} { return new([]Check) }}

// expand returns the checks with those of what is decided together with each rule behind it: its candidate, its concurrency, and former limits. release
// takes the list back.
func expand(checks []Check) *[]Check {
	pooled := expansions.Get().(*[]Check)
	all := *pooled
	for i := range checks {
		c := &checks[i]
		all = append(all, *c)
		for _, other := range c.Rule.beside {
			all = append(all, Check{Rule: other, Key: c.Key, Cost: c.Cost, isPart: true})
		}
		if c.Limits != nil {
			all = c.Limits.appendFormers(all, c)
		}
	}
	*pooled = all
	return pooled
}

func release(pooled *[]Check) {
	all := *pooled
	for i := range all {
		all[i] = Check{}
	}
	*pooled = all[:0]
	expansions.Put(pooled)
}

// collect gives each check what was decided on it and its parts.
func collect(checks, all []Check) {
	at := 0
	for i := range checks {
		c := &checks[i]
		parts := c.parts[:0]
		*c = all[at]
		for at++; at < len(all) && all[at].isPart; at++ {
			parts = append(parts, all[at])
		}
		c.parts = parts
		for j := range parts {
			part := &parts[j]
			switch {
			case part.Rule.IsCandidate():
				c.Candidate = part
			case part.Rule.former:
				if !part.Uncounted && !c.Uncounted {
					merge(&c.Decision, &part.Decision)
				}
			default:
				c.InFlight = part
			}
		}
	}
}

// enter counts a request among those that wait, for each rule that delays it. If a rule has too many by now, because others have
// come at the same time, the request is rejected after all.
func (l *Limiter) enter(checks []Check, v *Verdict) {
	full := -1
	v.Reserved = true // so that the request waits, even if no rule has a ticket for it
	for i := range checks {
		c := &checks[i]
		if !enterRoom(c) && full < 0 {
			full = i
		}
		waits := c.waits
		for j := range c.parts { // a former limit has the room of the rule that took its place
			part := &c.parts[j]
			if waits {
				break
			}
			if !enterRoom(part) && full < 0 {
				full = i
			}
			waits = part.waits
		}
	}
	if full < 0 {
		return
	}
	_ = l.Leave(AppendReservations(nil, checks)) // what is not given back expires
	v.Outcome = Reject
	v.Reported = full
	v.InFlight = false
	v.RetryAfter = v.Delay
	v.Delay = 0
	v.Reserved = false
	d := &checks[full].Decision
	d.Allowed = false
	d.RetryAfter = v.RetryAfter
	d.MoreAfter = 0
	d.Delay = 0
}

// enterRoom counts a request among those that wait for the check's rule, if that delays it. It returns false if too many wait.
func enterRoom(c *Check) bool {
	if c.Rule.room == nil || c.Uncounted || c.Decision.Delay == 0 { // without a Delay, other rules delay it
		return true
	}
	if c.Rule.Limit.Delays && c.Ticket == 0 {
		return true
	}
	c.waits = true
	return c.Rule.room.enter(c.Rule, c.Key)
}

// unavailableFor is the RetryAfter when the store has failed, in microseconds. By then the store may be asked again.
const unavailableFor int64 = 1_000_000

// conclude makes a verdict from the decisions.
func conclude(checks []Check, v *Verdict) {
	*v = Verdict{Outcome: Allow, Reported: -1}
	for i := range checks {
		for j := range checks[i].parts {
			v.Reserved = v.Reserved || checks[i].parts[j].Ticket != 0
		}
		for c := &checks[i]; c != nil; c = c.InFlight {
			if c.Ticket != 0 {
				v.Reserved = true
			}
			if c.Rule.Shadow || c.Uncounted {
				continue
			}
			d := &c.Decision
			if c.Rule.blocks {
				*d = rate.Decision{RetryAfter: rate.Never}
			}
			if !d.Allowed {
				if v.Outcome != Reject || longer(d.RetryAfter, v.RetryAfter) {
					v.Reported = i
					v.InFlight = c != &checks[i]
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
			if v.Reported < 0 || Tighter(d, &Reported(checks, v).Decision) {
				v.Reported = i
				v.InFlight = c != &checks[i]
			}
		}
	}
	if v.Outcome == Reject {
		v.Delay = 0
		v.Soft = false
	}
}

// Reported returns the check that the quota fields report, which may be that of a rule's concurrency. v.Reported is not negative.
func Reported(checks []Check, v *Verdict) *Check {
	if v.InFlight {
		return checks[v.Reported].InFlight
	}
	return &checks[v.Reported]
}

// longer reports whether a is the longer wait. Never is the longest.
func longer(a, b int64) bool {
	return b != rate.Never && (a == rate.Never || a > b)
}

// Tighter reports whether a has a smaller share of its quota left than b.
func Tighter(a, b *rate.Decision) bool {
	return a.Remaining*b.Limit < b.Remaining*a.Limit // both are at most 10⁹
}
