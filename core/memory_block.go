package core

// Block implements Store. It never fails.
func (m *Memory) Block(r *Rule, key string, duration int64) error {
	c := Check{Rule: r, Key: key}
	s := m.lockKey(&c)
	defer s.mu.Unlock()
	now := m.clock()
	if c.slot < 0 {
		if duration <= 0 {
			return nil
		}
		c.slot = insertKey(m, s, c.Rule.inMemory.(*space), c.hash, now)
	}
	if s.owners[c.slot]&accounted != 0 {
		a := s.accounts[c.hash]
		m.fallDue(s, c.slot, a, r.limit, now)
		if duration > 0 {
			a.yield(r.overflow, now+duration, now)
		} else {
			a.pardon(now)
		}
		m.dropIdle(s, &c, a, now)
	}
	if duration > 0 {
		m.dropLog(s, c.slot, r.inMemory.(*space))
		s.slots[c.slot].state = blockState(now, duration)
		m.markHand(s, c.slot)
	} else if isBlocked(&s.slots[c.slot].state) {
		m.unmarkHand(s, c.slot)
		startAfresh(s, c.slot, r.limit.isLog, now)
	}
	return nil
}

// Reset implements Store. It never fails.
func (m *Memory) Reset(r *Rule, key string) error {
	c := Check{Rule: r, Key: key}
	s := m.lockKey(&c)
	defer s.mu.Unlock()
	now := m.clock()
	if c.slot < 0 {
		return nil
	}
	if s.owners[c.slot]&accounted != 0 {
		a := s.accounts[c.hash]
		m.fallDue(s, c.slot, a, r.limit, now) // what it charges is forgotten below
		a.forget(now)
		m.dropIdle(s, &c, a, now)
	}
	if s.owners[c.slot]&accounted == 0 {
		countKeys(m, removeKey(m, s, c.slot), -1)
		return nil
	}
	m.dropLog(s, c.slot, r.inMemory.(*space))
	m.unmarkHand(s, c.slot)
	startAfresh(s, c.slot, r.limit.isLog, now)
	return nil
}

// stillBlocked reports whether the key in slot i is blocked by hand. If its block is over, the key starts afresh.
func stillBlocked(s *shard, i int, isLog bool, now int64) bool {
	state := &s.slots[i].state
	if !isBlocked(state) {
		return false
	}
	stepBack(state, now)
	if blockedFor(state, now) > 0 {
		return true
	}
	startAfresh(s, i, isLog, now)
	return false
}

// startAfresh gives the key in slot i, which has no log, the state of a key that was never seen.
func startAfresh(s *shard, i int, isLog bool, now int64) {
	if isLog {
		startLog(s, i, now)
		return
	}
	s.slots[i].state = State{}
}

// dropLog frees the log of the key in slot i, if it has one, since the key gets another state.
func (m *Memory) dropLog(s *shard, i int, sp *space) {
	if sp.isLog && !isBlocked(&s.slots[i].state) {
		m.freeLog(s, sp, int(s.slots[i].state.A))
	}
}
