package memory

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// Block implements Store. It never fails.
func (m *Store) Block(r *core.Rule, key string, duration int64) error {
	c := core.Check{Rule: r, Key: key}
	s := m.lockKey(&c)
	defer s.mu.Unlock()
	now := m.clock()
	if c.Slot < 0 {
		if duration <= 0 {
			return nil
		}
		c.Slot = insertFor(m, s, &c, now)
	}
	if s.owners[c.Slot]&accounted != 0 {
		a := s.accounts[c.Hash]
		if r.Limit.Spread {
			placeWindows(s, &c, now)
		}
		m.fallDue(s, c.Slot, a, r.Limit, now)
		if duration > 0 {
			a.yield(r.Overflow, now+duration, now)
		} else {
			a.pardon(now)
		}
		m.dropIdle(s, &c, a, now)
	}
	if duration > 0 {
		m.dropLog(s, c.Slot, r.InMemory.(*space))
		s.slots[c.Slot].state = rate.BlockState(now, duration)
		m.markHand(s, c.Slot)
	} else if rate.IsBlocked(&s.slots[c.Slot].state) {
		m.unmarkHand(s, c.Slot)
		startAfresh(s, &c, now)
	}
	return nil
}

// Reset implements Store. It never fails.
func (m *Store) Reset(r *core.Rule, key string) error {
	c := core.Check{Rule: r, Key: key}
	s := m.lockKey(&c)
	defer s.mu.Unlock()
	now := m.clock()
	if c.Slot < 0 {
		return nil
	}
	if s.owners[c.Slot]&accounted != 0 {
		a := s.accounts[c.Hash]
		if r.Limit.Spread {
			placeWindows(s, &c, now)
		}
		m.fallDue(s, c.Slot, a, r.Limit, now) // what it charges is forgotten below
		a.forget(now)
		m.dropIdle(s, &c, a, now)
	}
	if s.owners[c.Slot]&accounted == 0 {
		countKeys(m, removeKey(m, s, c.Slot), -1)
		return nil
	}
	m.dropLog(s, c.Slot, r.InMemory.(*space))
	m.unmarkHand(s, c.Slot)
	startAfresh(s, &c, now)
	return nil
}

// Credit implements Store. It never fails.
func (m *Store) Credit(r *core.Rule, key string, units int64) error {
	c := core.Check{Rule: r, Key: key}
	s := m.lockKey(&c)
	defer s.mu.Unlock()
	now := m.clock()
	if c.Slot < 0 {
		return nil
	}
	if r.Limit.Spread {
		placeWindows(s, &c, now)
	}
	if s.owners[c.Slot]&accounted != 0 {
		m.fallDue(s, c.Slot, s.accounts[c.Hash], r.Limit, now)
	}
	state := &s.slots[c.Slot].state
	if !r.Limit.IsLog {
		rate.Credit(r.Limit, state, units)
		return nil
	}
	var d rate.Decision
	decideInLog(s, c.Slot, r.Limit, now, 0, &d)
	if !rate.IsBlocked(state) {
		rate.CreditLog(r.Limit, &s.logs[state.A], units)
	}
	return nil
}

// stillBlocked reports whether the key in the check's slot is blocked by hand. If its block is over, the key starts afresh.
func stillBlocked(s *shard, c *core.Check, now int64) bool {
	state := &s.slots[c.Slot].state
	if !rate.IsBlocked(state) {
		return false
	}
	rate.StepBack(state, now)
	if rate.BlockedFor(state, now) > 0 {
		return true
	}
	startAfresh(s, c, now)
	return false
}

// startAfresh gives the key in the check's slot, which has no log, the state of a key that was never seen.
func startAfresh(s *shard, c *core.Check, now int64) {
	s.slots[c.Slot].state = rate.State{}
	if c.Rule.Limit.IsLog {
		startLog(s, c.Slot, now)
	}
}

// dropLog frees the log of the key in slot i, if it has one, since the key gets another state.
func (m *Store) dropLog(s *shard, i int, sp *space) {
	if sp.isLog && !rate.IsBlocked(&s.slots[i].state) {
		m.freeLog(s, sp, int(s.slots[i].state.A))
	}
}
