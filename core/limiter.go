package core

import (
	"math"
	"sync"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

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
	share    float64    // 0: the store is of no region
	starting sync.Mutex // held while memory takes over what the store last knew of a key
	refused  RefusedLocally
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

// OnRefusedLocally sets what is told of requests that are rejected while the store fails. It must be called before the first decision.
func (l *Limiter) OnRefusedLocally(told RefusedLocally) { l.refused = told }

// InRegion sets the part of limits that hold across regions that all limiters of this region keep to while their store fails. It must be called before Open.
func (l *Limiter) InRegion(share float64) { l.share = share }

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
	if r.lease == nil && r.sync == nil && !r.regionsLease {
		return nil
	}
	setting, value := "consistency", r.consistencyText()
	if r.regionsLease {
		setting, value = "regions", "lease"
	}
	return words.Wrong(setting, value, "the rule counts in the memory of this process, which no other node shares; configure a store in Redis, or remove it")
}

// Open makes the limiter ready for a rule, as Store.Open does. A rule belongs to one limiter.
func (l *Limiter) Open(r *Rule) error {
	if err := l.store.Open(r); err != nil {
		return err
	}
	if l.local != nil && r.onError == CountLocally {
		local := r.sharedBy(l.divisor(r))
		if err := l.local.Open(local); err != nil {
			l.store.Release(r)
			return err
		}
		r.Local = local
	}
	for i, other := range r.linked {
		if err := l.Open(other); err != nil {
			for _, opened := range r.linked[:i] {
				l.Release(opened)
			}
			l.release(r)
			return err
		}
	}
	if r.requested != nil {
		r.requested.(*Requested).opened(l)
	}
	return nil
}

// divisor returns by what a rule's limit is divided while the store fails.
func (l *Limiter) divisor(r *Rule) float64 {
	nodes := math.Max(1, float64(l.nodes))
	if l.share > 0 && (r.regions != nil || r.regionsLease) {
		nodes /= l.share
	}
	return nodes
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
	if r.requested != nil {
		r.requested.(*Requested).released()
	}
	l.release(r)
	for _, other := range r.linked {
		l.Release(other)
	}
}

func (l *Limiter) release(r *Rule) {
	l.store.Release(r)
	if r.Local != nil {
		l.local.Release(r.Local)
	}
}

// Now is Store.Now of the limiter's store.
func (l *Limiter) Now() int64 { return l.store.Now() }

// Carry does what Store.Carry does, and the same in the memory that takes the store's place when it fails.
func (l *Limiter) Carry(from, to *Rule, done func()) {
	l.store.Carry(from, to, done)
	if from.Local != nil && to.Local != nil {
		l.local.Carry(from.Local, to.Local, func() {}) // memory, which is done at once
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
		more = more || len(c.Previous) > 0 || c.Rule.linked != nil
	}
	if more {
		pooled = expand(checks)
		all = *pooled
	}
	for i := range all {
		c := &all[i]
		c.Uncounted = false
		c.Ticket = 0
		c.Taken = nil
		c.waits = false
		if c.Cost < 1 {
			setCost(c)
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

// setCost sets the cost of a check that costs less than a unit.
func setCost(c *Check) {
	c.Spared = c.Cost == Spared && c.Rule.countsSome()
	if c.Spared || c.Cost == 0 && c.Rule.Measures() {
		c.Cost = 0
	} else {
		c.Cost = 1
	}
}

// Conclude is the second half of Decide, for callers that have asked the store themselves about rules that the limiter has opened, and that have no
// previous rules. all are the checks, each with those of PartOf behind it; list is empty. Conclude returns the checks, and failure, which is the error of Store.Decide.
func (l *Limiter) Conclude(list, all []Check, failure error, v *Verdict) ([]Check, error) {
	for i := range all {
		if !all[i].isPart {
			list = append(list, all[i])
		}
	}
	expanded := len(list) < len(all)
	if !expanded {
		all = list
	}
	err := l.finish(list, all, expanded, false, failure, v)
	return list, err
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

// expand returns the checks with those of what is decided together with each rule behind it: its candidate, its concurrency, and previous rules. release
// takes the list back.
func expand(checks []Check) *[]Check {
	pooled := expansions.Get().(*[]Check)
	all := *pooled
	for i := range checks {
		c := &checks[i]
		all = append(all, *c)
		for _, other := range c.Rule.linked {
			all = append(all, Check{Rule: other, Key: c.Key, Cost: c.Cost, isPart: true})
		}
		for _, previous := range c.Previous {
			all = append(all, Check{Rule: previous, Key: c.Key, Cost: c.Cost, isPart: true})
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
			case part.Rule.previous:
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
		for j := range c.parts { // a previous rule has the room of the one that took its place
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
	if c.Rule.waitQuota == nil || c.Uncounted || c.Decision.Delay == 0 { // without a Delay, other rules delay it
		return true
	}
	if c.Rule.Limit.Delays && c.Ticket == 0 {
		return true
	}
	c.waits = true
	return c.Rule.waitQuota.enter(c.Rule, c.Key)
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

// Depart must be called when a request has waited until its departure: its place is free for others.
func (l *Limiter) Depart(reservations []Reservation) {
	for i := range reservations {
		if reservations[i].waits {
			reservations[i].waits = false
			reservations[i].Rule.waitQuota.leave(reservations[i].Rule, reservations[i].Key)
		}
	}
}

// Leave ends the reservations of a request that was allowed but is not served, because its client left while it waited. Its place
// in the queue is given back if it is the last, and else stays unused. All other reservations are given back. The error is the
// store's.
func (l *Limiter) Leave(reservations []Reservation) error {
	l.Depart(reservations)
	kept := reservations[:0]
	for i := range reservations {
		r := reservations[i]
		r.Units = 0
		if r.Ticket != 0 { // else it waited in a leaky bucket, which gives nothing back
			kept = append(kept, r)
		}
	}
	return l.settle(kept)
}

// Finish ends the reservations of a request that was served. Rules that count by status charge it or not, by that status. Rules that
// measure charge what Reservation.Measure was told, and else what the request has reserved. Finish must be called for each request with
// reservations, however it ended. The error is the store's.
func (l *Limiter) Finish(reservations []Reservation, status int) error {
	kept := reservations[:0]
	for i := range reservations {
		r := reservations[i]
		if !r.Rule.Reserves() { // it was charged at its departure
			continue
		}
		if !r.Rule.Measures() {
			r.Keep(r.Rule.CountsByResponse() && r.Counts(status))
		} else if !r.Counts(status) {
			r.Units = 0
		}
		kept = append(kept, r)
	}
	return l.settle(kept)
}

// settle passes each reservation to the store that has it.
func (l *Limiter) settle(reservations []Reservation) error {
	if len(reservations) == 0 {
		return nil
	}
	local := 0
	for i := range reservations {
		if reservations[i].Rule.isLocal {
			local++
		}
	}
	if local == 0 {
		return l.store.Settle(reservations)
	}
	var there, here []Reservation
	for i := range reservations {
		if reservations[i].Rule.isLocal {
			here = append(here, reservations[i])
		} else {
			there = append(there, reservations[i])
		}
	}
	_ = l.local.Settle(here) // memory does not fail
	if len(there) == 0 {
		return nil
	}
	return l.store.Settle(there)
}
