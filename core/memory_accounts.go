package core

import (
	"hash/maphash"
	"sync"
)

// accounts pools accounts, since those of requests under way come and go with each request.
var accounts = sync.Pool{New: func() interface{} { return &account{} }}

// chargeWhole charges the key in slot i for a request that was allowed before, whatever the limit would decide now. It reports
// whether the key has a state, and not a log.
func (m *Memory) chargeWhole(s *shard, i int, l *Limit, at, cost, now int64) bool {
	if s.slots[i].state.A >= blockMark {
		stepBack(&s.slots[i].state, now)
	}
	if sp := m.spaces.Load().([]*space)[s.owners[i]&^marks]; sp.isLog {
		var d Decision
		decideInLog(s, i, l, at, 0, &d)
		chargeInLog(m, s, i, sp, l, cost, MaxLogRequests)
		return false
	}
	charge(l, &s.slots[i].state, at, cost, &s.slots[i].state)
	return true
}

// accountOf returns the account of a check's key. It makes one if there is none.
func (m *Memory) accountOf(s *shard, c *Check, now int64) *account {
	c.slot = find(s, c.hash)
	if c.slot < 0 {
		c.slot = insertKey(m, s, c.Rule.inMemory.(*space), c.hash, now)
	}
	if s.owners[c.slot]&accounted != 0 {
		return s.accounts[c.hash]
	}
	if s.accounts == nil {
		s.accounts = make(map[uint64]*account)
	}
	a := accounts.Get().(*account)
	a.last = now
	s.accounts[c.hash] = a
	s.owners[c.slot] |= accounted
	return a
}

// unitsUnderWay returns how many units a request under way reserves, of a rule that counts by status or counts requests in flight.
func unitsUnderWay(r *Rule, cost int64) int64 {
	if r.limit.inFlight {
		return 1
	}
	return cost
}

// fallDue charges the key in slot i for all pending charges that are due by now.
func (m *Memory) fallDue(s *shard, i int, a *account, l *Limit, now int64) {
	a.look(now)
	due := 0
	for due < len(a.pending) && a.pending[due].at <= now {
		p := &a.pending[due]
		due++
		a.units -= p.cost
		if a.loan != nil && p.at >= a.softUntil {
			a.payBack(l, &s.slots[i].state, now)
		}
		by := l
		if a.loan != nil { // tolerance charges by its wide limit while it lasts, whatever limit the check has
			by = a.loan.wide
			if l.lends {
				a.lend(l, by, s.slots[i].state, p.at)
			}
		}
		if m.chargeWhole(s, i, by, p.at, p.cost, now) {
			a.queue = a.queue[:0] // its states do not include this charge
		}
	}
	if due > 0 {
		a.last = now
	}
	if a.loan != nil && now >= a.softUntil {
		a.payBack(l, &s.slots[i].state, now)
	}
	a.pending = a.pending[due:]
	if len(a.pending) == 0 {
		a.pending = nil
	}
	if a.kept && !a.isUnderWay() {
		m.countKept(m.spaces.Load().([]*space)[s.owners[i]&^marks], a)
	}
}

// fallDueIn is fallDue for callers without a check. It uses the first limit of the key's rule.
func (m *Memory) fallDueIn(s *shard, i int, now int64) *account {
	a := s.accounts[s.slots[i].hash]
	limits := m.spaces.Load().([]*space)[s.owners[i]&^marks].limits.Load().([]*Limit)
	if len(limits) > 0 {
		m.fallDue(s, i, a, limits[0], now)
	}
	return a
}

// keyIdle reports whether the account of the key in slot i no longer has any effect. If the rule is gone, only reservations of
// requests under way have one.
func keyIdle(m *Memory, s *shard, i int, now int64) bool {
	a := m.fallDueIn(s, i, now)
	if len(m.spaces.Load().([]*space)[s.owners[i]&^marks].limits.Load().([]*Limit)) == 0 {
		return a.underWay == 0
	}
	return a.idle(now)
}

// appraiseAccount adds the key's account to its standing, where that weighs more than its state.
func (m *Memory) appraiseAccount(s *shard, i int, now int64, st *standing) {
	a := s.accounts[s.slots[i].hash]
	reset := int64(0)
	class := expired
	if a.isUnderWay() {
		class = underWay
	} else if a.blockedUntil > now {
		class = penalized
		if st.class < byHand { // when a key was charged or recovers says nothing about which was blocked first
			st.charged = 0
			st.reset = 0
		}
		reset = a.blockedUntil - now
		if st.offences < a.offences {
			st.offences = a.offences
		}
	} else if a.quietUntil > now || a.softAgain > now || a.softUntil > now || a.tail > now {
		class = exhausted
		reset = latest(latest(a.quietUntil, a.tail), latest(a.softAgain, a.softUntil)) - now
	}
	if class > st.class {
		st.class = class
	}
	if reset > st.reset {
		st.reset = reset
	}
}

// Settle implements Store.
func (m *Memory) Settle(reservations []Reservation) error {
	for i := range reservations {
		m.settle(&reservations[i])
	}
	return nil
}

func (m *Memory) settle(r *Reservation) {
	c := Check{Rule: r.Rule, Key: r.Key, Cost: r.Cost}
	s := m.lockKey(&c)
	defer s.mu.Unlock()
	now := m.clock()
	if c.slot < 0 || s.owners[c.slot]&accounted == 0 {
		return // the rule was released meanwhile
	}
	a := s.accounts[c.hash]
	m.fallDue(s, c.slot, a, r.Rule.limit, now)
	if before, restore := a.leave(r.Ticket, now, s.slots[c.slot].state); restore && !r.Rule.limit.isLog {
		s.slots[c.slot].state = before
	} else if r.Rule.reserves() && a.underWay > 0 {
		a.underWay -= unitsUnderWay(r.Rule, r.Cost)
		if a.underWay < 0 {
			a.underWay = 0
		}
		if r.Keep {
			m.chargeWhole(s, c.slot, r.Rule.limit, now, r.Cost, now)
		}
	}
	m.dropIdle(s, &c, a, now)
}

// dropIdle forgets the account of the key in the check's slot if it no longer has any effect.
func (m *Memory) dropIdle(s *shard, c *Check, a *account, now int64) {
	if a.kept && !a.isUnderWay() {
		m.countKept(c.Rule.inMemory.(*space), a)
	}
	if a.idle(now) {
		delete(s.accounts, c.hash)
		s.owners[c.slot] &^= accounted
		*a = account{}
		accounts.Put(a)
	}
}

// lockKey locks the shard of a check's key, sets the check's slot, and returns the shard.
func (m *Memory) lockKey(c *Check) *shard {
	sp := c.Rule.inMemory.(*space)
	c.hash = (maphash.String(m.seed, c.Key)^sp.salt)&^kindBit | sp.kind
	if c.hash == 0 {
		c.hash = 1
	}
	s := &m.shards[c.hash&m.mask]
	s.mu.Lock()
	c.slot = find(s, c.hash)
	return s
}
