package core

import "sync"

// weighing is what the evaluation of a check has found out for charging it.
type weighing struct {
	account  *account // nil: the key has none
	limit    *Limit   // by which it was decided: the rule's, or the wide one
	depart   int64    // when the rule would let the request go; not before now
	hardWait int64    // of a rule with tolerance: how long its own limit would have the request wait; Never where it does not say
	begins   bool     // tolerance begins with the request
	behind   bool     // the turn is behind all charges to come, and is one of them
	blocked  bool     // it was rejected because its key is shut out
	reserved bool     // it was rejected for what others have reserved alone, of which nobody knows whether it will be charged
}

var weighings = sync.Pool{New: func() interface{} { return &[]weighing{} }}

// reservedRetry is when to come back who was rejected for what others have reserved: nobody knows for how long.
const reservedRetry = 1_000_000

// accountsNeeded reports whether any of the rules needs more than decideAll does.
func accountsNeeded(checks []Check) bool {
	for i := range checks {
		if checks[i].Rule.overflow != nil {
			return true
		}
	}
	return false
}

// decideWithAccounts is decideAll for checks of which a rule has a conduct.
func (m *Memory) decideWithAccounts(checks []Check, peek bool) {
	pooled := weighings.Get().(*[]weighing)
	list := (*pooled)[:0]
	for range checks {
		list = append(list, weighing{})
	}
	lockAll(m, checks)
	defer unlockAll(m, checks) // even where this panics, which would be a defect, but not one that all other requests have to bear
	now := m.clock()
	rejecting := 0
	delays := false
	depart := now // of the request: when the last of its rules lets it go
	for i := range checks {
		c := &checks[i]
		c.Ticket = 0
		m.weigh(&m.shards[c.hash&m.mask], c, &list[i], now)
		delays = delays || c.Rule.limit.delays
		if c.Rule.shadow {
			continue
		}
		if !c.Decision.Allowed {
			rejecting++
		} else if list[i].depart > depart {
			depart = list[i].depart
		}
	}
	if rejecting > 0 || !delays { // a leaky bucket alone has the others charged on arrival, as decideAll does
		depart = now
	}
	for i := range checks {
		c := &checks[i]
		w := &list[i]
		s := &m.shards[c.hash&m.mask]
		others := rejecting
		if i > 0 && c.Rule.overflow != nil && c.Rule.overflow.candidate && !checks[i-1].Rule.shadow && !checks[i-1].Decision.Allowed {
			others-- // the rule in whose place it is
		}
		if !c.Decision.Allowed {
			if !peek {
				m.reject(s, c, w, now)
			}
		} else if others > 0 {
			m.standWithout(s, c, w, now)
		} else if !peek {
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

// weigh evaluates a check.
func (m *Memory) weigh(s *shard, c *Check, w *weighing, now int64) {
	r := c.Rule
	co := r.overflow
	c.slot = find(s, c.hash)
	w.limit = r.limit
	w.depart = now
	if c.slot >= 0 && s.owners[c.slot]&accounted != 0 {
		w.account = s.accounts[c.hash]
		m.fallDue(s, c.slot, w.account, r.limit, now)
	}
	a := w.account
	if c.slot >= 0 && s.slots[c.slot].state.A >= blockMark && stillBlocked(s, c.slot, r.space.isLog, now) {
		w.blocked = true
		decideBlocked(r.limit, blockedFor(&s.slots[c.slot].state, now), c.Cost, &c.Decision)
		return
	}
	if r.limit.inFlight {
		weighInFlight(c, a)
		return
	}
	reserved := a.reserved(r)
	if co != nil && co.wide != nil {
		m.weighSoft(s, c, w, now, reserved)
	} else if r.limit.delays {
		m.weighDelay(s, c, w, now, reserved)
	} else {
		m.weighPlain(s, c, w, now, reserved)
	}
	if a != nil && a.blockedUntil > now && co != nil && len(co.penalties) > 0 { // a reload may have taken the penalties out
		w.blocked = true
		c.Decision.blocked(a.blockedUntil - now)
	}
}

// shut makes a decision one on a key that is shut out for that long. It may be that the limit has it come back later yet.
func (d *Decision) blocked(wait int64) {
	if d.Allowed {
		d.RetryAfter = 0
	}
	d.Allowed = false
	d.Soft = false
	d.Delay = 0
	d.Remaining = 0
	d.MoreAfter = 0
	if d.RetryAfter != Never && d.RetryAfter < wait {
		d.RetryAfter = wait
	}
	if d.ResetAfter < wait {
		d.ResetAfter = wait
	}
}

// evaluate writes a limit's decision on a check at a time and cost that may be others than the check's.
func (m *Memory) evaluate(s *shard, c *Check, l *Limit, at, cost int64) {
	if c.Rule.space.isLog {
		decideInLog(s, c.slot, l, at, cost, &c.Decision)
		return
	}
	c.state = State{}
	if c.slot >= 0 {
		c.state = s.slots[c.slot].state
		if co := c.Rule.overflow; co != nil && co.wide != nil && l == c.Rule.limit && s.owners[c.slot]&accounted != 0 {
			s.accounts[c.hash].owe(l, &c.state) // while there is tolerance the wide limit charges, and the own decides as if there were none
		}
	}
	decide(l, &c.state, at, cost, &c.next, &c.Decision)
}

// weighPlain evaluates a check of a rule that rejects, where so many units are reserved.
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
	if a := w.account; a.units == reserved && a.pending[0].at-now > 0 {
		d.RetryAfter = a.pending[0].at - now
	}
}

// weighSoft evaluates a check of a rule with tolerance: by its limit, and where that is exceeded by the wide one.
func (m *Memory) weighSoft(s *shard, c *Check, w *weighing, now, reserved int64) {
	there, begun := w.account.tolerance(now)
	m.weighPlain(s, c, w, now, reserved)
	w.hardWait = c.Decision.RetryAfter
	if w.reserved { // which is no more than a guess
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
	if !d.Allowed && !begun { // tolerance would not help, and does not begin
		w.limit = c.Rule.limit
		w.reserved = wasReserved
		c.Decision = hard
		c.next = next
		return
	}
	if !d.Allowed && now+d.RetryAfter >= w.account.softUntil { // by then the limit holds again
		d.RetryAfter = hard.RetryAfter
		d.ResetAfter = hard.ResetAfter
	}
	d.Soft = d.Allowed && !hard.Allowed
	w.begins = d.Soft && !begun
	d.Remaining = 0
	d.MoreAfter = 0 // past the limit; how fast the excess drains depends on when tolerance ends
	if hard.Allowed {
		d.Remaining = hard.Remaining
		d.MoreAfter = hard.MoreAfter
	}
}

// weighDelay evaluates a check of a rule whose requests wait: it finds out when the request's turn is.
func (m *Memory) weighDelay(s *shard, c *Check, w *weighing, now, reserved int64) {
	l := w.limit
	a := w.account
	d := &c.Decision
	if c.Rule.space.isLog {
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
		if d.RetryAfter == Never && c.Cost <= l.capacity { // what is reserved is more than the limit can hold beside it
			if len(a.pending) > mostPending {
				w.reserved = true
				d.RetryAfter = a.pending[0].at - now
				return
			}
			m.weighBehind(s, c, w, now)
		}
	}
	if d.RetryAfter == Never || !d.Allowed && l.queues { // whose queue is full
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
	w.reserved = patience == 0 // as many wait as may, of whatever keys: this one has done nothing wrong
	if patience > 0 {
		d.RetryAfter = wait - patience
	}
}

// mostPending is behind how many charges to come a turn is looked for.
const mostPending = 1000

// weighBehind finds out when the turn of a request is that has its turn behind all charges to come.
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

// unitExpiry returns when the i-th unit counts no longer, of those in a log, which was looked at at a time, and those to come
// behind it.
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

// standWithout says how things stand for a rule that would have allowed what another rejected.
func (m *Memory) standWithout(s *shard, c *Check, w *weighing, now int64) {
	d := &c.Decision
	if c.Rule.limit.inFlight {
		d.Remaining++
		return
	}
	reserved := w.account.reserved(c.Rule)
	c.slot = find(s, c.hash) // what was noted of the rules that reject may have moved it
	m.evaluate(s, c, c.Rule.limit, now, 0)
	d.Remaining -= reserved
	if d.Remaining < 0 {
		d.Remaining = 0
		d.MoreAfter = 0
	}
	d.Delay = 0
}

// reject notes a rejection where the rule's conduct wants it.
func (m *Memory) reject(s *shard, c *Check, w *weighing, now int64) {
	r := c.Rule
	co := r.overflow
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
	if co == nil || c.Decision.RetryAfter == Never {
		return
	}
	if co.wide != nil && w.account != nil {
		w.account.exceed(r, false, w.hardWait, now)
	}
	if len(co.penalties) > 0 {
		a := m.accountOf(s, c, now)
		a.offend(co, now)
		c.Decision.blocked(a.blockedUntil - now)
		c.Decision.Penalty = true
	}
}

// chargeRejected charges a request to the rule that rejects it, and decides again on what is kept of it, as charge does.
func (m *Memory) chargeRejected(s *shard, c *Check, w *weighing, now int64) {
	if c.slot < 0 {
		c.slot = m.insert(s, c, now)
	}
	quota := c.Decision.Limit
	m.evaluate(s, c, w.limit, now, c.Cost)
	if c.Decision.Allowed { // not by its own state; nothing is rejected by that
		return
	}
	m.write(s, c, w.limit, now)
	m.evaluate(s, c, w.limit, now, c.Cost)
	c.Decision.Limit = quota
	if w.limit != c.Rule.limit {
		c.Decision.Remaining = 0
	}
}

// write charges what was evaluated at a time to the key in the check's slot.
func (m *Memory) write(s *shard, c *Check, l *Limit, at int64) {
	if c.Rule.space.isLog {
		chargeInLog(m, s, c.slot, c.Rule.space, l, c.Cost, l.requests)
		return
	}
	s.slots[c.slot].state = c.next
}

// admit charges a request that departs at that time.
func (m *Memory) admit(s *shard, c *Check, w *weighing, now, depart int64) {
	r := c.Rule
	co := r.overflow
	if r.limit.inFlight || co != nil && co.count != nil {
		reserve(m, s, c, now).held += heldBy(r, c.Cost)
		return
	}
	if w.begins || c.Decision.Soft {
		m.accountOf(s, c, now).exceed(r, w.begins, w.hardWait, now)
	}
	if depart > now && (w.depart < depart || r.space.isLog || w.behind) {
		a := reserve(m, s, c, now)
		a.wait(c.Ticket, depart, c.Cost)
		a.last = now
		if r.limit.delays && w.depart == depart {
			a.line = append(a.line, place{ticket: c.Ticket, at: depart, tail: a.tail})
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
		c.slot = m.insert(s, c, now)
	}
	decision := c.Decision
	at := now
	if !r.limit.queues { // whose state has the queue in it
		at = depart
	}
	m.evaluate(s, c, w.limit, at, c.Cost)
	decision.ResetAfter = at - now + c.Decision.ResetAfter
	if r.limit.delays && r.space.isLog && depart == now { // which was asked how it stood before the request
		decision.MoreAfter = c.Decision.MoreAfter
	}
	c.Decision = decision
	before := c.state
	if w.limit != r.limit && r.limit.lends {
		m.accountOf(s, c, now).lend(r.limit, w.limit, before, at)
	}
	m.write(s, c, w.limit, at)
	if decision.Soft && w.hardWait == Never { // as of a request that costs more than the limit; what it owes is known by what it leaves
		m.evaluate(s, c, r.limit, at, 1)
		m.accountOf(s, c, now).exceed(r, false, c.Decision.RetryAfter, now)
		c.Decision = decision
	}
	if depart > now && r.limit.delays {
		a := reserve(m, s, c, now)
		a.line = append(a.line, place{c.Ticket, depart, before, c.next, a.tail})
		a.tail = depart
		a.last = now
	}
}

// reserve gives a request a ticket for what it holds of the check's key from now on, and returns the account to note it in.
func reserve(m *Memory, s *shard, c *Check, now int64) *account {
	a := m.accountOf(s, c, now)
	c.Ticket = m.tickets.Add(1)
	if !a.kept {
		m.countKept(c.Rule.space, a)
	}
	return a
}
