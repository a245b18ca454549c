package core

import (
	"github.com/proxyweir/weir/core/rate"
)

// Check is one rule's part in the decision on a request. The caller sets Rule, Key, Cost and Previous; the limiter
// sets the rest. To save allocations, a caller may reuse its checks for later requests, after Clear.
type Check struct {
	Rule     *Rule
	Key      string
	Cost     int64         // units; Spared; else below 1 means 1; above what the limit can hold the request is rejected without a RetryAfter
	Decision rate.Decision // as strict as the rule's limit and those of Previous
	Previous []*Rule       // in a transition, those that the request must pass, too: see package transition

	// InFlight has the decision of the rule's concurrency, and Candidate that of its candidate; nil: it has none, or nobody has decided.
	InFlight, Candidate *Check

	// Spared is set by the limiter if the request has the cost Spared, and the rule counts only some requests. Cost is 0 then: the request passes if anything
	// is left, and is never charged.
	Spared bool

	// Uncounted is set by the limiter if the store has failed and the rule lets requests pass in that case. Decision then says
	// nothing.
	Uncounted bool

	// Ticket identifies the request's reservation in the store; 0: there is none. AppendReservations uses it.
	Ticket uint64

	// Taken is set by the store, besides a Ticket: what the request has taken of units that the store need not be asked for. It is the store's own.
	Taken interface{}

	// Set by the limiter: the request is counted among those that wait.
	waits bool

	parts  []Check // what was decided together with the rule: InFlight, Candidate, and previous rules
	isPart bool    // this check is such a part of another

	// Set by the store between evaluating and charging.
	Hash        uint64
	Slot        int
	Locked      bool // this check has locked its shard
	State, Next rate.State

	Extra int64 // units besides its cost: see DecideBeside of the store in memory
}

// Spared is the Cost of a request that a rule checks, but does not count: see OverflowPolicy.CountsSome. Other rules take it for 1.
const Spared = -1

// PartOf returns the check of a rule that is decided together with another, whose check comes before: see Limiter.Conclude.
func PartOf(linked *Rule, key string) Check {
	return Check{Rule: linked, Key: key, Cost: 1, isPart: true}
}

// Clear makes a check ready for another request.
func (c *Check) Clear() {
	parts := c.parts
	for i := range parts {
		parts[i] = Check{}
	}
	*c = Check{parts: parts[:0]}
}

// Parts returns the checks of what was decided together with the rule: its candidate, its concurrency, and previous rules.
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

	// Settle ends reservations: each is given back, and its Units are charged now, whatever the limit says. The place of a waiting request in the
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

	// Now returns the time in microseconds by which transitions end: see package transition. Only its differences matter.
	Now() int64

	// Credit gives units back to a key of a rule, as rate.Credit does, or takes as many from what it owes. What requests under way have reserved, penalties and
	// blocks stay. The error is ErrNoCredit if the store cannot.
	Credit(r *Rule, key string, units int64) error

	// Reset forgets the state of a key under a rule: counters, tolerance, offences, penalties and blocks. Reservations of
	// requests under way stay, and end as usual; but places in the queue are not given back any more.
	Reset(r *Rule, key string) error
}

// RefusedLocally is told of requests that are rejected while the store fails.
type RefusedLocally interface {
	// RefusedLocally is told of a request that this node's own count rejects: the rules that count so, and the checks of their rules in memory, in the same
	// places.
	RefusedLocally(rules []*Rule, checks []Check)
}

// Reservation is what a request under way has reserved of a rule: units that may be charged when its status is known, one of the
// requests in flight, or its place in the queue while it waits. AppendReservations returns those of a request; Finish or Leave
// ends them.
type Reservation struct {
	Rule   *Rule
	Key    string
	Cost   int64
	Ticket uint64 // identifies it in the store
	Units  int64  // for Store.Settle: charge so many; the reservation itself is given back
	waits  bool   // the request is counted among those that wait for the rule

	Taken interface{} // of the check

	named bool // a field of the response has the request count
}
