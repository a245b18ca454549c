package memory

import (
	"math/bits"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// account is what a store keeps of a key besides the limit's state, if the rule has an overflow policy. The zero account is that
// of a key without reservations, tolerance, penalties or offences. Times are microseconds since the Unix epoch.
type account struct {
	last int64 // when it was last written

	// Requests under way: the units that they have reserved and may be charged (count), or their number (concurrency).
	underWay int64

	// Requests that wait, in the order of their departure.
	pending []pendingCharge // charged on departure: requests that another rule delays, and all requests of a log
	units   int64           // the sum of pending
	queue   []place         // requests that this rule delays; the state has their charges already (those of a log are pending)
	tail    int64           // the departure of the last request that this rule has delayed

	softUntil int64   // the end of the tolerance; 0: it has not been used
	softAgain int64   // when tolerance is available again, unless a request exceeds the limit before
	credit    *credit // during tolerance; nil: none

	blockedUntil int64 // the end of the penalty
	quietUntil   int64 // an offence before this time is not a first offence
	offences     int   // how many there have been

	kept bool // the key is counted among those with requests under way
}

// pendingCharge is a charge that is due at a later time.
type pendingCharge struct {
	ticket uint64
	at     int64
	cost   int64
}

// place is the place in the queue of a request that waits. The queue has no places of requests that have left: what they have
// used is given back together with the place behind theirs.
type place struct {
	ticket        uint64
	at            int64      // the request's departure
	before, after rate.State // the state without this request and all behind it, and with it; unset for a log, whose charges are pending
	tail          int64      // the departure of the request before it
}

// isUnderWay reports whether the key has requests under way: with a reservation, or waiting.
func (a *account) isUnderWay() bool {
	return a.underWay > 0 || len(a.pending)+len(a.queue) > 0
}

// idle reports whether the account no longer has any effect.
func (a *account) idle(now int64) bool {
	return a.underWay == 0 && len(a.pending) == 0 && a.tail <= now && a.softUntil <= now && a.softAgain <= now && a.blockedUntil <= now && a.quietUntil <= now
}

// look brings the account to the present. If the clock has stepped back to before the account was written, all instants step back
// with it, so that nothing lasts longer than intended.
func (a *account) look(now int64) {
	if back := a.last - now; back > 0 {
		a.tail -= back
		a.softUntil -= back
		a.softAgain -= back
		a.blockedUntil -= back
		a.quietUntil -= back
		for i := range a.pending {
			a.pending[i].at -= back
		}
		a.queue = a.queue[:0] // its states are of the future
		a.last = now
	}
	gone := 0
	for gone < len(a.queue) && a.queue[gone].at <= now {
		gone++
	}
	a.queue = a.queue[gone:]
}

// reserved returns how many units of the rule are reserved. If the rule no longer counts by status, the requests under way from
// before are charged when they end.
func (a *account) reserved(r *core.Rule) int64 {
	if a == nil {
		return 0
	}
	if r.CountsByResponse() {
		return a.underWay + a.units
	}
	return a.units
}

// wait adds a charge that is due at a later time. Charges stay in the order of time.
func (a *account) wait(ticket uint64, at, cost int64) {
	a.pending = append(a.pending, pendingCharge{ticket, at, cost})
	for i := len(a.pending) - 1; i > 0 && a.pending[i-1].at > at; i-- {
		a.pending[i] = a.pending[i-1]
		a.pending[i-1] = pendingCharge{ticket, at, cost}
	}
	a.units += cost
}

// leave removes the charge of a request that waits, by its ticket. Among the requests that this rule delays, only the last can
// give its charge back: restore is then true, and before is the state to restore, provided that nobody else has charged the key
// since.
func (a *account) leave(ticket uint64, now int64, state rate.State) (before rate.State, restore bool) {
	last := len(a.queue) - 1
	for i := last; i >= 0; i-- {
		if a.queue[i].ticket != ticket {
			continue
		}
		a.last = now
		if i < last { // its place stays unused, unless those behind it leave, too
			a.queue[i+1].before = a.queue[i].before
			a.queue[i+1].tail = a.queue[i].tail
		} else {
			restore = state == a.queue[i].after
			before = a.queue[i].before
			a.tail = a.queue[i].tail
		}
		a.queue = append(a.queue[:i], a.queue[i+1:]...)
		break
	}
	for i := range a.pending {
		if a.pending[i].ticket == ticket {
			a.last = now
			a.units -= a.pending[i].cost
			a.pending = append(a.pending[:i], a.pending[i+1:]...)
			return before, false
		}
	}
	return before, restore
}

// tolerance reports, for a rule with enforcement soft, whether there is tolerance now, and whether it has begun.
func (a *account) tolerance(now int64) (there, begun bool) {
	if a == nil || now >= a.softUntil && now >= a.softAgain {
		return true, false
	}
	return now < a.softUntil, now < a.softUntil
}

// exceed notes that a request has exceeded the limit, or would have without tolerance. wait is how long the rule's own limit
// would make it wait, or Never if that does not say when the requests that tolerance has allowed have drained. Tolerance does not
// return before.
func (a *account) exceed(r *core.Rule, begins bool, wait, now int64) {
	if begins {
		a.softUntil = now + r.Overflow.SoftFor
		a.credit = &credit{wide: r.Overflow.Wide}
	}
	if now < a.softUntil || now < a.softAgain {
		a.last = now
		again := now + rate.Latest(r.Limit.Period, wait)
		if wait != rate.Never || again > a.softAgain { // what an earlier request has found to be owed stays owed
			a.softAgain = again
		}
	}
}

// credit lets a key exceed its rule's own limit until tolerance ends.
type credit struct {
	wide *rate.Limit // the limit that decides

	// How much more of a bucket the wide limit has refilled than the rule's own limit would have, up to owedAt, the time of the
	// bucket's state. It is paid back at the own limit's rate when tolerance ends.
	owed   rate.Level
	owedAt int64
}

// grantCredit notes by how much a bucket's level at that time is lower, since the wide limit charges it, than under its own limit.
func (a *account) grantCredit(l, wide *rate.Limit, s rate.State, at int64) {
	owed := s
	a.addOwed(l, &owed)
	if a.credit == nil {
		a.credit = &credit{wide: wide}
	}
	_, hi, lo := rate.Drain(l, &owed, at)
	charged, wideHi, wideLo := rate.Drain(wide, &s, at)
	low, borrow := bits.Sub64(lo, wideLo, 0)
	high, below := bits.Sub64(hi, wideHi, borrow)
	a.credit.owed = rate.Level{Hi: high, Lo: low}
	if below != 0 {
		a.credit.owed = rate.Level{}
	}
	a.credit.owedAt = charged
	a.last = at
}

// addOwed adds to a bucket's state what it owes. If requests without tolerance have charged the bucket since, it owes nothing.
func (a *account) addOwed(l *rate.Limit, s *rate.State) {
	if a.credit != nil && a.credit.owed.Hi|a.credit.owed.Lo != 0 && !rate.IsBlocked(s) && s.A&(1<<rate.TimeBits-1) == a.credit.owedAt {
		rate.AddLevel(l, s, a.credit.owed)
	}
}

// payBack ends the credit: it adds what is owed to the bucket's state.
func (a *account) payBack(l *rate.Limit, s *rate.State, now int64) {
	a.addOwed(l, s)
	a.credit = nil
	a.last = now
}

// offend counts an offence, and blocks the key for the duration of its penalty.
func (a *account) offend(policy *core.Overflow, now int64) {
	if now >= a.quietUntil {
		a.offences = 0
	}
	which := a.offences
	if which >= len(policy.Penalties) {
		which = len(policy.Penalties) - 1
	}
	a.offences++
	a.last = now
	a.blockedUntil = now + policy.Penalties[which]
	a.quietUntil = a.blockedUntil + policy.Longest
}

// yield ends a penalty, since the key is now blocked by hand until that time. Offences are remembered for as long after the block
// as they would be after a penalty. Requests that depart before its end are not charged. The states in the queue no longer apply:
// places in it stay unused.
func (a *account) yield(policy *core.Overflow, until, now int64) {
	longest := int64(0)
	if policy != nil {
		longest = policy.Longest
	}
	a.last = now
	a.blockedUntil = 0
	if a.credit != nil {
		a.credit.owed = rate.Level{}
	}
	a.queue = a.queue[:0]
	gone := 0
	for gone < len(a.pending) && a.pending[gone].at < until {
		a.units -= a.pending[gone].cost
		gone++
	}
	a.pending = a.pending[gone:]
	if now < a.quietUntil {
		a.quietUntil = rate.Latest(a.quietUntil, until+longest)
	}
}

// pardon ends the penalty, and forgets the offences.
func (a *account) pardon(now int64) {
	a.last = now
	a.blockedUntil = 0
	a.quietUntil = 0
	a.offences = 0
}

// forget keeps only what requests under way have reserved. Requests that wait depart as planned, and later ones depart behind
// them; as in yield, a place in the queue is not given back any more.
func (a *account) forget(now int64) {
	a.pardon(now)
	a.softUntil = 0
	a.softAgain = 0
	a.credit = nil
	a.queue = a.queue[:0]
}
