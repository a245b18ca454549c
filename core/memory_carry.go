package core

// Now implements Store: it is the time by which the store counts.
func (m *Memory) Now() int64 { return m.clock() }

// carried is what blocks a key, with the key's hash without its rule.
type carried struct {
	hash  uint64
	hand  State // a block by hand; else zero
	until int64 // the end of a penalty
	quiet int64
	count int // of offences
}

// Carry implements Store. A key's hash under another rule is known from the one that it has, since the two differ in the salt
// alone, and in the bit of a log. It holds the lock of one shard at a time.
func (m *Memory) Carry(from, to *Rule, done func()) {
	defer done()
	if from.inMemory.(*space) == to.inMemory.(*space) || from.inMemory.(*space).kept.Load() == 0 && !hasPenalties(from) {
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

func hasPenalties(r *Rule) bool { return r.overflow != nil && len(r.overflow.penalties) > 0 }

// blockedIn returns what blocks keys of a rule in a shard.
func (m *Memory) blockedIn(s *shard, r *Rule, now int64) []carried {
	var list []carried
	sp := r.inMemory.(*space)
	if sp.kept.Load() > 0 {
		for i := range s.owners {
			if s.owners[i]&handMark == 0 || s.owners[i]&^marks != sp.number || s.slots[i].hash == 0 {
				continue
			}
			if left := blockedFor(&s.slots[i].state, now); left > 0 {
				list = append(list, carried{hash: s.slots[i].hash ^ sp.salt, hand: blockState(now, left)})
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
		m.fallDue(s, i, a, r.limit, now)
		if a.blockedUntil > now || a.quietUntil > now {
			list = append(list, carried{hash: hash ^ sp.salt, until: a.blockedUntil, quiet: a.quietUntil, count: a.offences})
		}
	}
	return list
}

// bring blocks a key under a rule, by what has blocked it under another.
func (m *Memory) bring(b *carried, to *Rule) {
	c := Check{Rule: to}
	sp := to.inMemory.(*space)
	c.hash = (b.hash^sp.salt)&^kindBit | sp.kind
	if c.hash == 0 {
		c.hash = 1
	}
	s := &m.shards[c.hash&m.mask]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.clock()
	c.slot = find(s, c.hash)
	if b.hand.A == 0 {
		if !hasPenalties(to) { // it has none any more
			return
		}
		a := m.accountOf(s, &c, now)
		m.fallDue(s, c.slot, a, to.limit, now)
		a.last = now
		a.blockedUntil = latest(a.blockedUntil, b.until)
		a.quietUntil = latest(a.quietUntil, b.quiet)
		if b.count > a.offences {
			a.offences = b.count
		}
		return
	}
	if c.slot < 0 {
		c.slot = insertKey(m, s, c.Rule.inMemory.(*space), c.hash, now)
	}
	if blockedFor(&s.slots[c.slot].state, now) >= b.hand.B-now {
		return
	}
	if s.owners[c.slot]&accounted != 0 {
		a := s.accounts[c.hash]
		m.fallDue(s, c.slot, a, to.limit, now)
		a.yield(to.overflow, b.hand.B, now)
		m.dropIdle(s, &c, a, now)
	}
	m.dropLog(s, c.slot, to.inMemory.(*space))
	s.slots[c.slot].state = b.hand
	m.markHand(s, c.slot)
}
