package memory

import (
	"hash/maphash"
	"sync"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// accounts pools accounts, since those of requests under way come and go with each request.
var accounts = sync.Pool{New: func() interface{} { return &account{} }}

// chargeWhole charges the key in slot i for a request that was allowed before, whatever the limit would decide now. It reports
// whether the key has a state, and not a log.
func (m *Store) chargeWhole(s *shard, i int, l *rate.Limit, at, cost, now int64) bool {
	if s.slots[i].state.A >= rate.BlockMark {
		rate.StepBack(&s.slots[i].state, now)
	}
	if sp := m.spaces.Load().([]*space)[s.owners[i]&^marks]; sp.isLog {
		var d rate.Decision
		decideInLog(s, i, l, at, 0, &d)
		chargeInLog(m, s, i, sp, l, cost, rate.MaxLogRequests)
		return false
	}
	rate.Charge(l, &s.slots[i].state, at, cost, &s.slots[i].state)
	return true
}

// accountOf returns the account of a check's key. It makes one if there is none.
func (m *Store) accountOf(s *shard, c *core.Check, now int64) *account {
	c.Slot = find(s, c.Hash)
	if c.Slot < 0 {
		c.Slot = insertFor(m, s, c, now)
	}
	if s.owners[c.Slot]&accounted != 0 {
		return s.accounts[c.Hash]
	}
	if s.accounts == nil {
		s.accounts = make(map[uint64]*account)
	}
	a := accounts.Get().(*account)
	a.last = now
	s.accounts[c.Hash] = a
	s.owners[c.Slot] |= accounted
	return a
}

// unitsUnderWay returns how many units a request under way reserves, of a rule that counts by status or counts requests in flight.
func unitsUnderWay(r *core.Rule, cost int64) int64 {
	if r.Limit.InFlight {
		return 1
	}
	return cost
}

// fallDue charges the key in slot i for all pending charges that are due by now. If its limit is Spread, placeWindows comes before, or nothing is charged after
// a block by hand.
func (m *Store) fallDue(s *shard, i int, a *account, l *rate.Limit, now int64) {
	a.look(now)
	if l.Spread && rate.IsBlocked(&s.slots[i].state) && rate.BlockedFor(&s.slots[i].state, now) <= 0 {
		return
	}
	due := 0
	for due < len(a.pending) && a.pending[due].at <= now {
		p := &a.pending[due]
		due++
		a.units -= p.cost
		if a.credit != nil && p.at >= a.softUntil {
			a.payBack(l, &s.slots[i].state, now)
		}
		by := l
		if a.credit != nil { // tolerance charges by its wide limit while it lasts, whatever limit the check has
			by = a.credit.wide
			if l.Lends {
				a.grantCredit(l, by, s.slots[i].state, p.at)
			}
		}
		if m.chargeWhole(s, i, by, p.at, p.cost, now) {
			a.queue = a.queue[:0] // its states do not include this charge
		}
	}
	if due > 0 {
		a.last = now
	}
	if a.credit != nil && now >= a.softUntil {
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
func (m *Store) fallDueIn(s *shard, i int, now int64) *account {
	a := s.accounts[s.slots[i].hash]
	limits := m.spaces.Load().([]*space)[s.owners[i]&^marks].limits.Load().([]*rate.Limit)
	if len(limits) > 0 {
		m.fallDue(s, i, a, limits[0], now)
	}
	return a
}

// keyIdle reports whether the account of the key in slot i no longer has any effect. If the rule is gone, only reservations of
// requests under way have one.
func keyIdle(m *Store, s *shard, i int, now int64) bool {
	a := m.fallDueIn(s, i, now)
	if len(m.spaces.Load().([]*space)[s.owners[i]&^marks].limits.Load().([]*rate.Limit)) == 0 {
		return a.underWay == 0
	}
	return a.idle(now)
}

// scoreAccount adds the key's account to its score, where that weighs more than its state.
func (m *Store) scoreAccount(s *shard, i int, now int64, score *evictionScore) {
	a := s.accounts[s.slots[i].hash]
	reset := int64(0)
	class := expired
	if a.isUnderWay() {
		class = underWay
	} else if a.blockedUntil > now {
		class = penalized
		if score.class < byHand { // when a key was charged or recovers says nothing about which was blocked first
			score.charged = 0
			score.reset = 0
		}
		reset = a.blockedUntil - now
		if score.offences < a.offences {
			score.offences = a.offences
		}
	} else if a.quietUntil > now || a.softAgain > now || a.softUntil > now || a.tail > now {
		class = exhausted
		reset = rate.Latest(rate.Latest(a.quietUntil, a.tail), rate.Latest(a.softAgain, a.softUntil)) - now
	}
	if class > score.class {
		score.class = class
	}
	if reset > score.reset {
		score.reset = reset
	}
}

// Settle implements Store.
func (m *Store) Settle(reservations []core.Reservation) error {
	for i := range reservations {
		m.settle(&reservations[i])
	}
	return nil
}

func (m *Store) settle(r *core.Reservation) {
	c := core.Check{Rule: r.Rule, Key: r.Key, Cost: r.Cost}
	s := m.lockKey(&c)
	defer s.mu.Unlock()
	now := m.clock()
	if c.Slot >= 0 && r.Rule.Limit.Spread {
		placeWindows(s, &c, now)
	}
	if c.Slot < 0 || s.owners[c.Slot]&accounted == 0 { // the rule was released meanwhile, or nothing was reserved
		sp := r.Rule.InMemory.(*space)
		if r.Units > 0 && len(sp.limits.Load().([]*rate.Limit)) > 0 {
			if c.Slot < 0 {
				c.Slot = insertFor(m, s, &c, now)
			}
			m.chargeWhole(s, c.Slot, r.Rule.Limit, now, r.Units, now)
		}
		return
	}
	a := s.accounts[c.Hash]
	m.fallDue(s, c.Slot, a, r.Rule.Limit, now)
	if before, restore := a.leave(r.Ticket, now, s.slots[c.Slot].state); restore && !r.Rule.Limit.IsLog {
		s.slots[c.Slot].state = before
	} else if r.Rule.Reserves() {
		a.underWay -= unitsUnderWay(r.Rule, r.Cost)
		if a.underWay < 0 {
			a.underWay = 0
		}
		if r.Units > 0 {
			m.chargeWhole(s, c.Slot, r.Rule.Limit, now, r.Units, now)
		}
	}
	m.dropIdle(s, &c, a, now)
}

// dropIdle forgets the account of the key in the check's slot if it no longer has any effect.
func (m *Store) dropIdle(s *shard, c *core.Check, a *account, now int64) {
	if a.kept && !a.isUnderWay() {
		m.countKept(c.Rule.InMemory.(*space), a)
	}
	if a.idle(now) {
		delete(s.accounts, c.Hash)
		s.owners[c.Slot] &^= accounted
		*a = account{}
		accounts.Put(a)
	}
}

// lockKey locks the shard of a check's key, sets the check's slot, and returns the shard.
func (m *Store) lockKey(c *core.Check) *shard {
	sp := c.Rule.InMemory.(*space)
	c.Hash = (maphash.String(m.seed, c.Key)^sp.salt)&^kindBit | sp.kind
	if c.Hash == 0 {
		c.Hash = 1
	}
	s := &m.shards[c.Hash&m.mask]
	s.mu.Lock()
	c.Slot = find(s, c.Hash)
	return s
}
