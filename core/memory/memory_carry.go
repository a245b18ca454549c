package memory

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// Now implements Store: it is the time by which the store counts.
func (m *Store) Now() int64 { return m.clock() }

// carried is what blocks a key, with the key's hash without its rule.
type carried struct {
	hash  uint64
	hand  rate.State // a block by hand; else zero
	until int64      // the end of a penalty
	quiet int64
	count int // of offences
}

// Carry implements Store. A key's hash under another rule is known from the one that it has, since the two differ in the salt
// alone, and in the bit of a log. It holds the lock of one shard at a time.
func (m *Store) Carry(from, to *core.Rule, done func()) {
	defer done()
	if from.InMemory.(*space) == to.InMemory.(*space) || from.InMemory.(*space).kept.Load() == 0 && !hasPenalties(from) {
		return
	}
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		list := m.blockedIn(s, from, m.clock())
		s.mu.Unlock()
		for j := range list {
			m.bring(&list[j], to)
		}
	}
}

func hasPenalties(r *core.Rule) bool { return r.Overflow != nil && len(r.Overflow.Penalties) > 0 }

// blockedIn returns what blocks keys of a rule in a shard.
func (m *Store) blockedIn(s *shard, r *core.Rule, now int64) []carried {
	var list []carried
	sp := r.InMemory.(*space)
	if sp.kept.Load() > 0 {
		for i := range s.owners {
			if s.owners[i]&handMark == 0 || s.owners[i]&^marks != sp.number || s.slots[i].hash == 0 {
				continue
			}
			if left := rate.BlockedFor(&s.slots[i].state, now); left > 0 {
				list = append(list, carried{hash: s.slots[i].hash ^ sp.salt, hand: rate.BlockState(now, left)})
			}
		}
	}
	if !hasPenalties(r) {
		return list
	}
	for hash, a := range s.accounts {
		i := find(s, hash)
		if i < 0 || s.owners[i]&^marks != sp.number {
			continue
		}
		m.fallDue(s, i, a, r.Limit, now)
		if a.blockedUntil > now || a.quietUntil > now {
			list = append(list, carried{hash: hash ^ sp.salt, until: a.blockedUntil, quiet: a.quietUntil, count: a.offences})
		}
	}
	return list
}

// bring blocks a key under a rule, by what has blocked it under another.
func (m *Store) bring(b *carried, to *core.Rule) {
	c := core.Check{Rule: to}
	sp := to.InMemory.(*space)
	c.Hash = (b.hash^sp.salt)&^kindBit | sp.kind
	if c.Hash == 0 {
		c.Hash = 1
	}
	s := &m.shards[c.Hash&m.mask]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.clock()
	c.Slot = find(s, c.Hash)
	if b.hand.A == 0 {
		if !hasPenalties(to) { // it has none any more
			return
		}
		a := m.accountOf(s, &c, now)
		m.fallDue(s, c.Slot, a, to.Limit, now)
		a.last = now
		a.blockedUntil = rate.Latest(a.blockedUntil, b.until)
		a.quietUntil = rate.Latest(a.quietUntil, b.quiet)
		if b.count > a.offences {
			a.offences = b.count
		}
		return
	}
	if c.Slot < 0 {
		c.Slot = insertFor(m, s, &c, now)
	}
	if rate.BlockedFor(&s.slots[c.Slot].state, now) >= b.hand.B-now {
		return
	}
	if s.owners[c.Slot]&accounted != 0 {
		a := s.accounts[c.Hash]
		m.fallDue(s, c.Slot, a, to.Limit, now)
		a.yield(to.Overflow, b.hand.B, now)
		m.dropIdle(s, &c, a, now)
	}
	m.dropLog(s, c.Slot, to.InMemory.(*space))
	s.slots[c.Slot].state = b.hand
	m.markHand(s, c.Slot)
}
