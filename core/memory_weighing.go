package core

import "sync"

// weighing is what weigh finds out about a check, for charging it.
type weighing struct {
	account  *account // nil: the key has none
	limit    *Limit   // the limit that decided: the rule's own, or the wide one
	depart   int64    // when the rule would let the request depart; not before now
	hardWait int64    // with tolerance: how long the rule's own limit would make the request wait; Never if it cannot say
	begins   bool     // tolerance begins with this request
	behind   bool     // the request departs after all pending charges, and becomes one of them
	blocked  bool     // it was rejected because its key is blocked
	reserved bool     // it was rejected only because of what others have reserved, which may never be charged
}

var weighings = sync.Pool{New: func() interface{} { return &[]weighing{} }}

// reservedRetry is the RetryAfter, in microseconds, of a request that was rejected because others hold reservations: nobody knows
// for how long.
const reservedRetry = 1_000_000

// accountsNeeded reports whether any of the rules has an overflow policy, which decideAll cannot handle.
func accountsNeeded(checks []Check) bool {
	for i := range checks {
		if checks[i].Rule.overflow != nil {
			return true
		}
	}
	return false
}

// decideWithAccounts is decideAll for checks of which at least one rule has an overflow policy.
func (m *Memory) decideWithAccounts(checks []Check, peek bool) {
	pooled := weighings.Get().(*[]weighing)
	list := (*pooled)[:0]
	for range checks {
		list = append(list, weighing{})
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
		m.weigh(&m.shards[c.hash&m.mask], c, &list[i], now)
		delays = delays || c.Rule.limit.delays && !c.Rule.shadow
		if c.Rule.shadow {
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
		s := &m.shards[c.hash&m.mask]
		others := rejecting
		if i > 0 && c.Rule.overflow != nil && c.Rule.overflow.candidate && !checks[i-1].Rule.shadow && !checks[i-1].Decision.Allowed {
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
		} else if c.Rule.shadow && c.Rule.limit.delays { // charged as if the request waited for this rule alone
			m.admit(s, c, w, now, w.depart)
		} else {
			m.admit(s, c, w, now, depart)
		}
	}
	for i := range list {
		list[i] = weighing{}
	}
	*pooled = list
	weighings.Put(pooled)
}

// unlockAll unlocks what lockAll has locked.
func unlockAll(m *Memory, checks []Check) {
	for i := range checks {
		if checks[i].locked {
			m.shards[checks[i].hash&m.mask].mu.Unlock()
		}
	}
}

// weigh evaluates a check, and writes its Decision.
func (m *Memory) weigh(s *shard, c *Check, w *weighing, now int64) {
	r := c.Rule
	policy := r.overflow
	c.slot = find(s, c.hash)
	w.limit = r.limit
	w.depart = now
	if c.slot >= 0 && s.owners[c.slot]&accounted != 0 {
		w.account = s.accounts[c.hash]
		m.fallDue(s, c.slot, w.account, r.limit, now)
	}
	a := w.account
	if c.slot >= 0 && s.slots[c.slot].state.A >= blockMark && stillBlocked(s, c.slot, r.limit.isLog, now) {
		w.blocked = true
		decideBlocked(r.limit, blockedFor(&s.slots[c.slot].state, now), c.Cost, &c.Decision)
		return
	}
	if r.limit.inFlight {
		weighInFlight(c, a)
		return
	}
	reserved := a.reserved(r) + c.beside
	if policy != nil && policy.wide != nil {
		m.weighSoft(s, c, w, now, reserved)
	} else if r.limit.delays {
		m.weighDelay(s, c, w, now, reserved)
	} else {
		m.weighPlain(s, c, w, now, reserved)
	}
	if a != nil && a.blockedUntil > now && policy != nil && len(policy.penalties) > 0 { // a reload may have removed the penalties
		w.blocked = true
		c.Decision.blocked(a.blockedUntil - now)
	}
}

// weighInFlight evaluates a check of a limit on requests in flight.
func weighInFlight(c *Check, a *account) {
	l := c.Rule.limit
	used := int64(0)
	if a != nil {
		used = a.underWay
	}
	c.Decision = Decision{Allowed: used < l.requests && c.Cost <= MaxRequests, Limit: l.quota}
	if c.Decision.Allowed {
		c.Decision.Remaining = l.requests - used - 1
		return
	}
	c.Decision.RetryAfter = reservedRetry
	if c.Cost > MaxRequests { // such a cost marks a request that must be rejected because it has no key
		c.Decision.RetryAfter = Never
	}
}

// evaluate writes the decision of a limit on a check, at a time and cost that may differ from the check's.
func (m *Memory) evaluate(s *shard, c *Check, l *Limit, at, cost int64) {
	if c.Rule.limit.isLog {
		decideInLog(s, c.slot, l, at, cost, &c.Decision)
		return
	}
	c.state = State{}
	if c.slot >= 0 {
		c.state = s.slots[c.slot].state
		if policy := c.Rule.overflow; policy != nil && policy.wide != nil && l == c.Rule.limit && s.owners[c.slot]&accounted != 0 {
			s.accounts[c.hash].owe(l, &c.state) // during tolerance the wide limit charges; the rule's own limit decides as if there were no tolerance
		}
	}
	decide(l, &c.state, at, cost, &c.next, &c.Decision)
}

// weighPlain evaluates a check of a rule that rejects, with that many units reserved.
func (m *Memory) weighPlain(s *shard, c *Check, w *weighing, now, reserved int64) {
	m.evaluate(s, c, w.limit, now, c.Cost+reserved)
	d := &c.Decision
	if d.Allowed {
		w.depart = now + d.Delay
		return
	}
	if reserved == 0 {
		return
	}
	m.evaluate(s, c, w.limit, now, c.Cost)
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

// weighSoft evaluates a check of a rule with tolerance: by its own limit, and if that is exceeded, by the wide one.
func (m *Memory) weighSoft(s *shard, c *Check, w *weighing, now, reserved int64) {
	there, begun := w.account.tolerance(now)
	m.weighPlain(s, c, w, now, reserved)
	w.hardWait = c.Decision.RetryAfter
	if w.reserved { // that is only a guess
		w.hardWait = Never
	}
	if !there || c.Decision.Allowed && !begun {
		return
	}
	hard := c.Decision
	next := c.next
	wasReserved := w.reserved
	w.reserved = false
	w.limit = c.Rule.overflow.wide
	m.weighPlain(s, c, w, now, reserved)
	d := &c.Decision
	d.Limit = hard.Limit
	if !d.Allowed && !begun { // tolerance would not help, so it does not begin
		w.limit = c.Rule.limit
		w.reserved = wasReserved
		c.Decision = hard
		c.next = next
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

// weighDelay evaluates a check of a rule that delays requests: it finds out when the request may depart.
func (m *Memory) weighDelay(s *shard, c *Check, w *weighing, now, reserved int64) {
	l := w.limit
	a := w.account
	d := &c.Decision
	if c.Rule.limit.isLog {
		m.evaluate(s, c, l, now, 0)
		log := &eventLog{}
		looked := now
		if c.slot >= 0 {
			log = &s.logs[s.slots[c.slot].state.A]
			looked = s.slots[c.slot].state.B
		}
		room := l.requests - int64(log.n) - reserved - c.Cost
		d.Allowed = room >= 0
		d.Remaining = room
		if !d.Allowed {
			d.Remaining = 0
			d.MoreAfter = 0
			d.RetryAfter = Never
			if c.Cost <= l.requests {
				d.RetryAfter = unitExpiry(l, log, a, int(-room)-1, looked) - now
			}
		}
	} else {
		m.evaluate(s, c, l, now, c.Cost+reserved)
		if d.RetryAfter == Never && c.Cost <= l.capacity { // too much is reserved for the limit to hold both at once
			if len(a.pending) > mostPending {
				w.reserved = true
				d.RetryAfter = a.pending[0].at - now
				return
			}
			m.weighBehind(s, c, w, now)
		}
	}
	if d.RetryAfter == Never || !d.Allowed && l.queues { // the queue is full
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

// mostPending is the most pending charges that weighBehind goes through.
const mostPending = 1000

// weighBehind finds out when a request may depart that departs after all pending charges.
func (m *Memory) weighBehind(s *shard, c *Check, w *weighing, now int64) {
	l := w.limit
	d := &c.Decision
	c.state = State{}
	if c.slot >= 0 {
		c.state = s.slots[c.slot].state
	}
	w.depart = now
	for i := range w.account.pending {
		p := &w.account.pending[i]
		w.depart = p.at
		charge(l, &c.state, p.at, p.cost, &c.state)
	}
	decide(l, &c.state, w.depart, c.Cost, &c.next, d)
	w.behind = true
	d.MoreAfter = 0
	d.ResetAfter += w.depart - now
	if !d.Allowed && l.queues { // its queue is full then, too
		d.RetryAfter += w.depart - now
		return
	}
	w.depart += d.RetryAfter + d.Delay
}

// unitExpiry returns when the i-th unit expires, counting those in the log and then those of pending charges. at is the time of
// the last look at the log.
func unitExpiry(l *Limit, log *eventLog, a *account, i int, at int64) int64 {
	if i < log.n {
		return logExpiry(l, log, i, at/l.quantum)
	}
	left := int64(i - log.n)
	for j := range a.pending {
		p := &a.pending[j]
		if left < p.cost {
			return ((p.at+l.quantum-1)/l.quantum + l.window) * l.quantum
		}
		left -= p.cost
	}
	return at // not reached: there are as many units
}

// standWithout writes the state of a rule that would have allowed a request that another rule rejected.
func (m *Memory) standWithout(s *shard, c *Check, w *weighing, now int64) {
	d := &c.Decision
	if c.Rule.limit.inFlight {
		d.Remaining++
		return
	}
	reserved := w.account.reserved(c.Rule) + c.beside
	c.slot = find(s, c.hash) // notes on the rules that reject may have moved it
	m.evaluate(s, c, c.Rule.limit, now, 0)
	d.Remaining -= reserved
	if d.Remaining < 0 {
		d.Remaining = 0
		d.MoreAfter = 0
	}
	d.Delay = 0
}

// reject notes a rejection, as far as the rule's overflow policy or count_rejected asks for it.
func (m *Memory) reject(s *shard, c *Check, w *weighing, now int64) {
	r := c.Rule
	policy := r.overflow
	if c.slot = find(s, c.hash); c.slot >= 0 {
		s.owners[c.slot] |= rejected
		noteCost(c)
	}
	if w.blocked || w.reserved || r.limit.inFlight {
		return
	}
	if r.countRejected {
		m.chargeRejected(s, c, w, now)
	}
	if policy == nil || c.Decision.RetryAfter == Never {
		return
	}
	if policy.wide != nil && w.account != nil {
		w.account.exceed(r, false, w.hardWait, now)
	}
	if policy.longest > 0 { // else a former rule, whose rejections are no offences
		a := m.accountOf(s, c, now)
		a.offend(policy, now)
		c.Decision.blocked(a.blockedUntil - now)
		c.Decision.Penalty = true
	}
}

// chargeRejected charges a request to the rule that rejects it, and decides again by the new state, as charge does.
func (m *Memory) chargeRejected(s *shard, c *Check, w *weighing, now int64) {
	if c.slot < 0 {
		c.slot = insertKey(m, s, c.Rule.inMemory.(*space), c.hash, now)
	}
	quota := c.Decision.Limit
	m.evaluate(s, c, w.limit, now, c.Cost)
	if c.Decision.Allowed { // its own state would allow the request, so there is no rejection to charge
		return
	}
	m.write(s, c, w.limit, now)
	m.evaluate(s, c, w.limit, now, c.Cost)
	c.Decision.Limit = quota
	if w.limit != c.Rule.limit {
		c.Decision.Remaining = 0
	}
}

// write charges the key in the check's slot what evaluate found at that time.
func (m *Memory) write(s *shard, c *Check, l *Limit, at int64) {
	if c.Rule.limit.isLog {
		chargeInLog(m, s, c.slot, c.Rule.inMemory.(*space), l, c.Cost, l.requests)
		return
	}
	s.slots[c.slot].state = c.next
}

// admit charges a request that departs at that time, or reserves its charge.
func (m *Memory) admit(s *shard, c *Check, w *weighing, now, depart int64) {
	r := c.Rule
	policy := r.overflow
	if r.limit.inFlight || policy != nil && policy.count != nil {
		reserve(m, s, c, now).underWay += unitsUnderWay(r, c.Cost)
		return
	}
	if w.begins || c.Decision.Soft {
		m.accountOf(s, c, now).exceed(r, w.begins, w.hardWait, now)
	}
	shows := r.shadow && r.limit.delays // nobody waits, and so nobody leaves before the charge is due
	if depart > now && (w.depart < depart || r.limit.isLog || w.behind) && !shows {
		a := reserve(m, s, c, now)
		a.wait(c.Ticket, depart, c.Cost)
		a.last = now
		if r.limit.delays && w.depart == depart {
			a.queue = append(a.queue, place{ticket: c.Ticket, at: depart, tail: a.tail})
			a.tail = depart
		}
		c.Decision.ResetAfter = latest(c.Decision.ResetAfter, depart-now+r.limit.period)
		c.Decision.MoreAfter = 0
		return
	}
	if depart > now {
		c.Decision.MoreAfter = 0
	}
	c.slot = find(s, c.hash)
	if c.slot < 0 {
		c.slot = insertKey(m, s, c.Rule.inMemory.(*space), c.hash, now)
	}
	decision := c.Decision
	at := now
	if !r.limit.queues { // a leaky bucket's state includes its queue
		at = depart
	}
	m.evaluate(s, c, w.limit, at, c.Cost)
	decision.ResetAfter = at - now + c.Decision.ResetAfter
	if r.limit.delays && r.limit.isLog && depart == now { // weighDelay has asked a log how it stood before the request
		decision.MoreAfter = c.Decision.MoreAfter
	}
	c.Decision = decision
	before := c.state
	if w.limit != r.limit && r.limit.lends {
		m.accountOf(s, c, now).lend(r.limit, w.limit, before, at)
	}
	m.write(s, c, w.limit, at)
	if decision.Soft && w.hardWait == Never { // as for a request that costs more than the limit: what is left after it shows what it owes
		m.evaluate(s, c, r.limit, at, 1)
		m.accountOf(s, c, now).exceed(r, false, c.Decision.RetryAfter, now)
		c.Decision = decision
	}
	if depart > now && shows {
		a := m.accountOf(s, c, now)
		a.tail = depart
		a.last = now
	} else if depart > now && r.limit.delays {
		a := reserve(m, s, c, now)
		a.queue = append(a.queue, place{c.Ticket, depart, before, c.next, a.tail})
		a.tail = depart
		a.last = now
	}
}

// reserve gives a request the ticket of a reservation, and returns the account to note it in.
func reserve(m *Memory, s *shard, c *Check, now int64) *account {
	a := m.accountOf(s, c, now)
	c.Ticket = m.tickets.Add(1)
	if !a.kept {
		m.countKept(c.Rule.inMemory.(*space), a)
	}
	return a
}
