package memory

import (
	"sync"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// evaluation is how a check is to be charged, and why it was rejected.
type evaluation struct {
	account  *account    // nil: the key has none
	limit    *rate.Limit // the limit that decided: the rule's own, or the wide one
	depart   int64       // when the rule would let the request depart; not before now
	hardWait int64       // with tolerance: how long the rule's own limit would make the request wait; Never if it cannot say
	begins   bool        // tolerance begins with this request
	behind   bool        // the request departs after all pending charges, and becomes one of them
	blocked  bool        // it was rejected because its key is blocked
	reserved bool        // it was rejected only because of what others have reserved, which may never be charged
}

var evaluations = sync.Pool{New: func() interface{} { return &[]evaluation{} }}

// reservedRetry is the RetryAfter, in microseconds, of a request that was rejected because others hold reservations: nobody knows
// for how long.
const reservedRetry = 1_000_000

// accountsNeeded reports whether any of the rules has an overflow policy, which decideAll cannot handle.
func accountsNeeded(checks []core.Check) bool {
	for i := range checks {
		if checks[i].Rule.Overflow != nil {
			return true
		}
	}
	return false
}

// decideWithAccounts is decideAll for checks of which at least one rule has an overflow policy.
func (m *Store) decideWithAccounts(checks []core.Check, peek bool) {
	pooled := evaluations.Get().(*[]evaluation)
	list := (*pooled)[:0]
	for range checks {
		list = append(list, evaluation{})
	}
	lockAll(m, checks)
	defer unlockAll(m, checks) // even after a panic: a defect here must not block all other requests
	now := m.clock()
	rejecting := 0
	delays := false
	depart := now // when the last of the rules lets the request depart
	for i := range checks {
		c := &checks[i]
		c.Ticket = 0
		m.evaluate(&m.shards[c.Hash&m.mask], c, &list[i], now)
		delays = delays || c.Rule.Limit.Delays && !c.Rule.Shadow
		if c.Rule.Shadow {
			continue
		}
		if !c.Decision.Allowed {
			rejecting++
		} else if list[i].depart > depart {
			depart = list[i].depart
		}
	}
	if rejecting > 0 || !delays { // a leaky bucket alone does not delay the charges of other rules, as in decideAll
		depart = now
	}
	for i := range checks {
		c := &checks[i]
		w := &list[i]
		s := &m.shards[c.Hash&m.mask]
		others := rejecting
		if i > 0 && c.Rule.Overflow != nil && c.Rule.Overflow.Candidate && !checks[i-1].Rule.Shadow && !checks[i-1].Decision.Allowed {
			others-- // a candidate ignores the rule that it stands in for
		}
		if !c.Decision.Allowed {
			if !peek {
				m.reject(s, c, w, now)
			}
		} else if others > 0 {
			m.standWithout(s, c, w, now)
		} else if peek {
			continue
		} else if c.Rule.Shadow && c.Rule.Limit.Delays { // charged as if the request waited for this rule alone
			m.admit(s, c, w, now, w.depart)
		} else {
			m.admit(s, c, w, now, depart)
		}
	}
	for i := range list {
		list[i] = evaluation{}
	}
	*pooled = list
	evaluations.Put(pooled)
}

// unlockAll unlocks what lockAll has locked.
func unlockAll(m *Store, checks []core.Check) {
	for i := range checks {
		if checks[i].Locked {
			m.shards[checks[i].Hash&m.mask].mu.Unlock()
		}
	}
}

// evaluate evaluates a check, and writes its Decision.
func (m *Store) evaluate(s *shard, c *core.Check, w *evaluation, now int64) {
	r := c.Rule
	policy := r.Overflow
	c.Slot = find(s, c.Hash)
	w.limit = r.Limit
	w.depart = now
	if c.Slot >= 0 && s.owners[c.Slot]&accounted != 0 {
		w.account = s.accounts[c.Hash]
		if r.Limit.Spread {
			placeWindows(s, c, now)
		}
		m.fallDue(s, c.Slot, w.account, r.Limit, now)
	}
	a := w.account
	if c.Slot >= 0 && s.slots[c.Slot].state.A >= rate.BlockMark && stillBlocked(s, c, now) {
		w.blocked = true
		rate.DecideBlocked(r.Limit, rate.BlockedFor(&s.slots[c.Slot].state, now), neededBy(c), &c.Decision)
		return
	}
	if r.Limit.InFlight {
		evaluateInFlight(c, a)
		return
	}
	reserved := a.reserved(r) + c.Extra
	if policy != nil && policy.Wide != nil {
		m.evaluateSoft(s, c, w, now, reserved)
	} else if r.Limit.Delays {
		m.evaluateDelay(s, c, w, now, reserved)
	} else {
		m.evaluatePlain(s, c, w, now, reserved)
	}
	if a != nil && a.blockedUntil > now && policy != nil && len(policy.Penalties) > 0 { // a reload may have removed the penalties
		w.blocked = true
		c.Decision.Blocked(a.blockedUntil - now)
	}
}

// evaluateInFlight evaluates a check of a limit on requests in flight.
func evaluateInFlight(c *core.Check, a *account) {
	l := c.Rule.Limit
	used := int64(0)
	if a != nil {
		used = a.underWay
	}
	c.Decision = rate.Decision{Allowed: used < l.Requests && c.Cost <= rate.MaxRequests, Limit: l.Quota}
	if c.Decision.Allowed {
		c.Decision.Remaining = l.Requests - used - 1
		return
	}
	c.Decision.RetryAfter = reservedRetry
	if c.Cost > rate.MaxRequests { // such a cost marks a request that must be rejected because it has no key
		c.Decision.RetryAfter = rate.Never
	}
}

// decideAt writes the decision of a limit on a check, at a time and cost that may differ from the check's.
func (m *Store) decideAt(s *shard, c *core.Check, l *rate.Limit, at, cost int64) {
	if l.Spread {
		decideSpread(s, c, c.Slot, l, at, cost)
		return
	}
	if c.Rule.Limit.IsLog {
		decideInLog(s, c.Slot, l, at, cost, &c.Decision)
		return
	}
	c.State = rate.State{}
	if c.Slot >= 0 {
		c.State = s.slots[c.Slot].state
		if policy := c.Rule.Overflow; policy != nil && policy.Wide != nil && l == c.Rule.Limit && s.owners[c.Slot]&accounted != 0 {
			s.accounts[c.Hash].addOwed(l, &c.State) // during tolerance the wide limit charges; the rule's own limit decides as if there were no tolerance
		}
	}
	rate.Decide(l, &c.State, at, cost, &c.Next, &c.Decision)
}

// neededBy returns how many units must be left for a request to pass: for one that is spared, or whose response says what it has cost, any.
func neededBy(c *core.Check) int64 {
	if c.Spared || c.Cost == 0 && c.Rule.Measures() {
		return 1
	}
	return c.Cost
}

// evaluatePlain evaluates a check of a rule that rejects, with that many units reserved.
func (m *Store) evaluatePlain(s *shard, c *core.Check, w *evaluation, now, reserved int64) {
	cost := neededBy(c)
	m.decideAt(s, c, w.limit, now, cost+reserved)
	d := &c.Decision
	if d.Allowed {
		if cost > c.Cost {
			delay := d.Delay
			m.decideAt(s, c, w.limit, now, reserved)
			d.Delay = delay
		}
		w.depart = now + d.Delay
		return
	}
	if reserved == 0 {
		return
	}
	m.decideAt(s, c, w.limit, now, cost)
	if !d.Allowed {
		d.Remaining -= reserved
		if d.Remaining < 0 {
			d.Remaining = 0
		}
		return
	}
	w.reserved = true
	d.Allowed = false
	d.Delay = 0
	d.Remaining = 0
	d.MoreAfter = 0
	d.RetryAfter = reservedRetry
	if a := w.account; a != nil && a.units == reserved && a.pending[0].at-now > 0 {
		d.RetryAfter = a.pending[0].at - now
	}
}

// evaluateSoft evaluates a check of a rule with tolerance: by its own limit, and if that is exceeded, by the wide one.
func (m *Store) evaluateSoft(s *shard, c *core.Check, w *evaluation, now, reserved int64) {
	there, begun := w.account.tolerance(now)
	m.evaluatePlain(s, c, w, now, reserved)
	w.hardWait = c.Decision.RetryAfter
	if w.reserved { // that is only a guess
		w.hardWait = rate.Never
	}
	if !there || c.Decision.Allowed && !begun {
		return
	}
	hard := c.Decision
	next := c.Next
	wasReserved := w.reserved
	w.reserved = false
	w.limit = c.Rule.Overflow.Wide
	m.evaluatePlain(s, c, w, now, reserved)
	d := &c.Decision
	d.Limit = hard.Limit
	if !d.Allowed && !begun { // tolerance would not help, so it does not begin
		w.limit = c.Rule.Limit
		w.reserved = wasReserved
		c.Decision = hard
		c.Next = next
		return
	}
	if !d.Allowed && now+d.RetryAfter >= w.account.softUntil { // by then the rule's own limit applies again
		d.RetryAfter = hard.RetryAfter
		d.ResetAfter = hard.ResetAfter
	}
	d.Soft = d.Allowed && !hard.Allowed
	w.begins = d.Soft && !begun
	d.Remaining = 0
	d.MoreAfter = 0 // over the limit; how fast the excess drains depends on when tolerance ends
	if hard.Allowed {
		d.Remaining = hard.Remaining
		d.MoreAfter = hard.MoreAfter
	}
}

// evaluateDelay evaluates a check of a rule that delays requests: it finds out when the request may depart.
func (m *Store) evaluateDelay(s *shard, c *core.Check, w *evaluation, now, reserved int64) {
	l := w.limit
	a := w.account
	d := &c.Decision
	if c.Rule.Limit.IsLog {
		m.decideAt(s, c, l, now, 0)
		log := &rate.EventLog{}
		looked := now
		if c.Slot >= 0 {
			log = &s.logs[s.slots[c.Slot].state.A]
			looked = s.slots[c.Slot].state.B
		}
		room := l.Requests - int64(log.N) - reserved - c.Cost
		d.Allowed = room >= 0
		d.Remaining = room
		if !d.Allowed {
			d.Remaining = 0
			d.MoreAfter = 0
			d.RetryAfter = rate.Never
			if c.Cost <= l.Requests {
				d.RetryAfter = unitExpiry(l, log, a, int(-room)-1, looked) - now
			}
		}
	} else {
		m.decideAt(s, c, l, now, c.Cost+reserved)
		if d.RetryAfter == rate.Never && c.Cost <= l.Capacity { // too much is reserved for the limit to hold both at once
			if len(a.pending) > mostPending {
				w.reserved = true
				d.RetryAfter = a.pending[0].at - now
				return
			}
			m.evaluateBehind(s, c, w, now)
		}
	}
	if d.RetryAfter == rate.Never || !d.Allowed && l.Queues { // the queue is full
		return
	}
	if !w.behind {
		w.depart = now + d.RetryAfter + d.Delay
	}
	if a != nil && a.tail > w.depart {
		w.depart = a.tail
	}
	wait := w.depart - now
	patience := c.Rule.Patience(c.Key)
	d.Allowed = wait <= patience
	if d.Allowed {
		d.Delay = wait
		d.RetryAfter = 0
		if wait > 0 {
			d.Remaining = 0
			d.MoreAfter = 0
		}
		return
	}
	d.Delay = 0
	d.Remaining = 0
	d.MoreAfter = 0
	d.RetryAfter = wait
	w.reserved = patience == 0 // all places are taken, by whatever keys: this key has done nothing wrong
	if patience > 0 {
		d.RetryAfter = wait - patience
	}
}

// mostPending is the most pending charges that evaluateBehind goes through.
const mostPending = 1000

// evaluateBehind finds out when a request may depart that departs after all pending charges.
func (m *Store) evaluateBehind(s *shard, c *core.Check, w *evaluation, now int64) {
	l := w.limit
	d := &c.Decision
	c.State = rate.State{}
	if c.Slot >= 0 {
		c.State = s.slots[c.Slot].state
	}
	w.depart = now
	for i := range w.account.pending {
		p := &w.account.pending[i]
		w.depart = p.at
		rate.Charge(l, &c.State, p.at, p.cost, &c.State)
	}
	rate.Decide(l, &c.State, w.depart, c.Cost, &c.Next, d)
	w.behind = true
	d.MoreAfter = 0
	d.ResetAfter += w.depart - now
	if !d.Allowed && l.Queues { // its queue is full then, too
		d.RetryAfter += w.depart - now
		return
	}
	w.depart += d.RetryAfter + d.Delay
}

// unitExpiry returns when the i-th unit expires, counting those in the log and then those of pending charges. at is the time of
// the last look at the log.
func unitExpiry(l *rate.Limit, log *rate.EventLog, a *account, i int, at int64) int64 {
	if i < log.N {
		return rate.LogExpiry(l, log, i, at/l.Quantum)
	}
	left := int64(i - log.N)
	for j := range a.pending {
		p := &a.pending[j]
		if left < p.cost {
			return ((p.at+l.Quantum-1)/l.Quantum + l.Window) * l.Quantum
		}
		left -= p.cost
	}
	return at // not reached: there are as many units
}

// standWithout writes the state of a rule that would have allowed a request that another rule rejected.
func (m *Store) standWithout(s *shard, c *core.Check, w *evaluation, now int64) {
	d := &c.Decision
	if c.Rule.Limit.InFlight {
		d.Remaining++
		return
	}
	reserved := w.account.reserved(c.Rule) + c.Extra
	c.Slot = find(s, c.Hash) // notes on the rules that reject may have moved it
	m.decideAt(s, c, c.Rule.Limit, now, 0)
	d.Remaining -= reserved
	if d.Remaining < 0 {
		d.Remaining = 0
		d.MoreAfter = 0
	}
	d.Delay = 0
}

// reject notes a rejection, as far as the rule's overflow policy or count_rejected asks for it.
func (m *Store) reject(s *shard, c *core.Check, w *evaluation, now int64) {
	r := c.Rule
	policy := r.Overflow
	if c.Slot = find(s, c.Hash); c.Slot >= 0 {
		s.owners[c.Slot] |= rejected
		noteCost(c)
	}
	if w.blocked || w.reserved || r.Limit.InFlight {
		return
	}
	if r.CountRejected {
		m.chargeRejected(s, c, w, now)
	}
	if policy == nil || c.Decision.RetryAfter == rate.Never {
		return
	}
	if policy.Wide != nil && w.account != nil {
		w.account.exceed(r, false, w.hardWait, now)
	}
	if policy.Longest > 0 { // else a previous rule, whose rejections are no offences
		a := m.accountOf(s, c, now)
		a.offend(policy, now)
		c.Decision.Blocked(a.blockedUntil - now)
		c.Decision.Penalty = true
	}
}

// chargeRejected charges a request to the rule that rejects it, and decides again by the new state, as charge does.
func (m *Store) chargeRejected(s *shard, c *core.Check, w *evaluation, now int64) {
	if c.Slot < 0 {
		c.Slot = insertFor(m, s, c, now)
	}
	quota := c.Decision.Limit
	m.decideAt(s, c, w.limit, now, c.Cost)
	if c.Decision.Allowed { // its own state would allow the request, so there is no rejection to charge
		return
	}
	m.write(s, c, w.limit, now)
	m.decideAt(s, c, w.limit, now, c.Cost)
	c.Decision.Limit = quota
	if w.limit != c.Rule.Limit {
		c.Decision.Remaining = 0
	}
}

// write charges the key in the check's slot what evaluate found at that time.
func (m *Store) write(s *shard, c *core.Check, l *rate.Limit, at int64) {
	if c.Rule.Limit.IsLog {
		chargeInLog(m, s, c.Slot, c.Rule.InMemory.(*space), l, c.Cost, l.Requests)
		return
	}
	s.slots[c.Slot].state = c.Next
}

// admit charges a request that departs at that time, or reserves its charge.
func (m *Store) admit(s *shard, c *core.Check, w *evaluation, now, depart int64) {
	r := c.Rule
	if c.Spared {
		return
	}
	if r.Reserves() {
		reserve(m, s, c, now).underWay += unitsUnderWay(r, c.Cost)
		return
	}
	if w.begins || c.Decision.Soft {
		m.accountOf(s, c, now).exceed(r, w.begins, w.hardWait, now)
	}
	shows := r.Shadow && r.Limit.Delays // nobody waits, and so nobody leaves before the charge is due
	if depart > now && (w.depart < depart || r.Limit.IsLog || w.behind) && !shows {
		a := reserve(m, s, c, now)
		a.wait(c.Ticket, depart, c.Cost)
		a.last = now
		if r.Limit.Delays && w.depart == depart {
			a.queue = append(a.queue, place{ticket: c.Ticket, at: depart, tail: a.tail})
			a.tail = depart
		}
		c.Decision.ResetAfter = rate.Latest(c.Decision.ResetAfter, depart-now+r.Limit.Period)
		c.Decision.MoreAfter = 0
		return
	}
	if depart > now {
		c.Decision.MoreAfter = 0
	}
	c.Slot = find(s, c.Hash)
	if c.Slot < 0 {
		c.Slot = insertFor(m, s, c, now)
	}
	decision := c.Decision
	at := now
	if !r.Limit.Queues { // a leaky bucket's state includes its queue
		at = depart
	}
	m.decideAt(s, c, w.limit, at, c.Cost)
	decision.ResetAfter = at - now + c.Decision.ResetAfter
	if r.Limit.Delays && r.Limit.IsLog && depart == now { // evaluateDelay has asked a log how it stood before the request
		decision.MoreAfter = c.Decision.MoreAfter
	}
	c.Decision = decision
	before := c.State
	if w.limit != r.Limit && r.Limit.Lends {
		m.accountOf(s, c, now).grantCredit(r.Limit, w.limit, before, at)
	}
	m.write(s, c, w.limit, at)
	if decision.Soft && w.hardWait == rate.Never { // as for a request that costs more than the limit: what is left after it shows what it owes
		m.decideAt(s, c, r.Limit, at, 1)
		m.accountOf(s, c, now).exceed(r, false, c.Decision.RetryAfter, now)
		c.Decision = decision
	}
	if depart > now && shows {
		a := m.accountOf(s, c, now)
		a.tail = depart
		a.last = now
	} else if depart > now && r.Limit.Delays {
		a := reserve(m, s, c, now)
		a.queue = append(a.queue, place{c.Ticket, depart, before, c.Next, a.tail})
		a.tail = depart
		a.last = now
	}
}

// reserve gives a request the ticket of a reservation, and returns the account to note it in.
func reserve(m *Store, s *shard, c *core.Check, now int64) *account {
	a := m.accountOf(s, c, now)
	c.Ticket = m.tickets.Add(1)
	if !a.kept {
		m.countKept(c.Rule.InMemory.(*space), a)
	}
	return a
}
