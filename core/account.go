package core

import "math/bits"

// account is what a store keeps of a key, besides what its limit has counted, for a rule with a conduct. The zero account is a key
// of which there is nothing to keep. Times are microseconds since the Unix epoch.
type account struct {
	last int64 // when it was last written

	// Of requests under way: units that they have reserved and may be charged (count), or how many there are (concurrency).
	held int64

	// Of requests that wait, in the order in which they depart.
	pending []pendingCharge // those that another rule makes wait, and all of a log
	units   int64           // of pending
	line    []place         // those that this rule makes wait, whose charges are in the state already (or, of a log, pending)
	tail    int64           // when the last departs that this rule made wait

	softUntil int64 // there is tolerance until then; 0: it has not been used
	softAgain int64 // and again from then on, where nothing exceeds the limit before
	loan      *loan // what tolerance has given; nil: there was none

	blockedUntil int64 // no request is let in before
	quietUntil   int64 // who offends before that is not a first offender
	offences     int   // that there have been

	kept bool // the key is counted as one that requests under way hold
}

// pendingCharge is charged when its time has come.
type pendingCharge struct {
	ticket uint64
	at     int64
	cost   int64
}

// turn is the place of a request that waits. Those that have left are not in the line any more: what they have used is given back with the
// turn behind them.
type place struct {
	ticket        uint64
	at            int64 // when it departs
	before, after State // the state without it and all behind it, and the state with it; of a log, whose charges are pending, neither
	tail          int64 // when the one before it departs
}

// isUnderWay reports whether requests under way hold something, or wait for their turn.
func (a *account) isUnderWay() bool {
	return a.held > 0 || len(a.pending)+len(a.line) > 0
}

// idle reports whether an account says nothing any more.
func (a *account) idle(now int64) bool {
	return a.held == 0 && len(a.pending) == 0 && a.tail <= now && a.softUntil <= now && a.softAgain <= now && a.blockedUntil <= now && a.quietUntil <= now
}

// look brings an account to the time at which it is looked at. Where the clock has stepped back to before the account was written, all
// instants step back with it, so that nothing lasts longer than it was to.
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
		a.line = a.line[:0] // the states in it are of times to come
		a.last = now
	}
	gone := 0
	for gone < len(a.line) && a.line[gone].at <= now {
		gone++
	}
	a.line = a.line[gone:]
}

// reserved returns how many units of a rule requests have reserved. Where the rule does not count by status any more, those that are under
// way since before are charged when they end.
func (a *account) reserved(r *Rule) int64 {
	if a == nil {
		return 0
	}
	if r.overflow != nil && r.overflow.count != nil {
		return a.held + a.units
	}
	return a.units
}

// wait adds a charge to come, in the order of time.
func (a *account) wait(ticket uint64, at, cost int64) {
	a.pending = append(a.pending, pendingCharge{ticket, at, cost})
	for i := len(a.pending) - 1; i > 0 && a.pending[i-1].at > at; i-- {
		a.pending[i] = a.pending[i-1]
		a.pending[i-1] = pendingCharge{ticket, at, cost}
	}
	a.units += cost
}

// leave takes back what a request that waits was to be charged, by its ticket. In the line that is so only of the last: the state is then
// to be what it was before it, if it is what it was after it (restore), and nobody else has been charged since.
func (a *account) leave(ticket uint64, now int64, state State) (before State, restore bool) {
	last := len(a.line) - 1
	for i := last; i >= 0; i-- {
		if a.line[i].ticket != ticket {
			continue
		}
		a.last = now
		if i < last { // its turn passes unused, unless those behind it leave, too
			a.line[i+1].before = a.line[i].before
			a.line[i+1].tail = a.line[i].tail
		} else {
			restore = state == a.line[i].after
			before = a.line[i].before
			a.tail = a.line[i].tail
		}
		a.line = append(a.line[:i], a.line[i+1:]...)
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

// tolerance says of a rule with enforcement soft whether there is tolerance, and whether it has begun.
func (a *account) tolerance(now int64) (there, begun bool) {
	if a == nil || now >= a.softUntil && now >= a.softAgain {
		return true, false
	}
	return now < a.softUntil, now < a.softUntil
}

// exceed notes that a request has exceeded the limit, or would have without tolerance. wait is how long the rule's own limit would have
// it wait, or Never where that does not say by when what tolerance has let through has drained. Tolerance does not come again before.
func (a *account) exceed(r *Rule, begins bool, wait, now int64) {
	if begins {
		a.softUntil = now + r.overflow.softFor
		a.loan = &loan{wide: r.overflow.wide}
	}
	if now < a.softUntil || now < a.softAgain {
		a.last = now
		again := now + latest(r.limit.period, wait)
		if wait != Never || again > a.softAgain { // what another request has said is owed stays owed
			a.softAgain = again
		}
	}
}

// loan is what tolerance gives, until it ends.
type loan struct {
	wide *Limit // what decides

	// How much a bucket has been refilled faster, up to the time of the state that it is owed to: what tolerance has let through is
	// paid back at the limit's own rate.
	lent   level
	lentAt int64
}

// lend notes how much less a bucket's level is at that time than its limit alone would have it, where the wide one charges it.
func (a *account) lend(l, wide *Limit, s State, at int64) {
	owed := s
	a.owe(l, &owed)
	if a.loan == nil {
		a.loan = &loan{wide: wide}
	}
	_, hi, lo := drain(l, &owed, at)
	charged, wideHi, wideLo := drain(wide, &s, at)
	low, borrow := bits.Sub64(lo, wideLo, 0)
	high, below := bits.Sub64(hi, wideHi, borrow)
	a.loan.lent = level{high, low}
	if below != 0 {
		a.loan.lent = level{}
	}
	a.loan.lentAt = charged
	a.last = at
}

// owe adds to a bucket's state what is owed to it. Where others have charged the bucket since, who know no tolerance, that is nothing.
func (a *account) owe(l *Limit, s *State) {
	if a.loan != nil && a.loan.lent.hi|a.loan.lent.lo != 0 && !isBlocked(s) && s.A&(1<<timeBits-1) == a.loan.lentAt {
		addLevel(l, s, a.loan.lent)
	}
}

// payBack ends the loan: what was lent is owed by the bucket's state.
func (a *account) payBack(l *Limit, s *State, now int64) {
	a.owe(l, s)
	a.loan = nil
	a.last = now
}

// offend shuts the key out for the time of its next offence.
func (a *account) offend(co *overflow, now int64) {
	if now >= a.quietUntil {
		a.offences = 0
	}
	which := a.offences
	if which >= len(co.penalties) {
		which = len(co.penalties) - 1
	}
	a.offences++
	a.last = now
	a.blockedUntil = now + co.penalties[which]
	a.quietUntil = a.blockedUntil + co.longest
}

// yield lifts the penalty that there is, in whose place the key is shut out by hand until that time. What it has offended is remembered
// for as long from then on as it would be behind a penalty. Requests that depart before are not charged. The states in the line are not
// the key's any more: turns pass unused.
func (a *account) yield(co *overflow, until, now int64) {
	longest := int64(0)
	if co != nil {
		longest = co.longest
	}
	a.last = now
	a.blockedUntil = 0
	if a.loan != nil {
		a.loan.lent = level{}
	}
	a.line = a.line[:0]
	gone := 0
	for gone < len(a.pending) && a.pending[gone].at < until {
		a.units -= a.pending[gone].cost
		gone++
	}
	a.pending = a.pending[gone:]
	if now < a.quietUntil {
		a.quietUntil = latest(a.quietUntil, until+longest)
	}
}

// pardon lifts the penalty, and forgets the offences.
func (a *account) pardon(now int64) {
	a.last = now
	a.blockedUntil = 0
	a.quietUntil = 0
	a.offences = 0
}

// forget leaves of an account what requests under way hold. Whoever waits departs as it was told, and behind it whoever comes then; a
// turn is not given back any more, as in yield.
func (a *account) forget(now int64) {
	a.pardon(now)
	a.softUntil = 0
	a.softAgain = 0
	a.loan = nil
	a.line = a.line[:0]
}
