package memory

import "github.com/proxyweir/weir/core/rate"

// keyExpired reports whether the key in slot i is unused. It is a cheaper part of scoreKey.
func keyExpired(m *Store, s *shard, i int, now int64) bool {
	owner := s.owners[i]
	if owner&handMark != 0 && rate.BlockedFor(&s.slots[i].state, now) <= 0 {
		m.unmarkHand(s, i)
	}
	if owner&accounted != 0 && !keyIdle(m, s, i, now) {
		return false
	}
	sp := m.spaces.Load().([]*space)[owner&^marks]
	for _, l := range sp.limits.Load().([]*rate.Limit) {
		if sp.isLog {
			var d rate.Decision
			decideInLog(s, i, l, now, 0, &d)
			if d.ResetAfter != 0 {
				return false
			}
		} else if !rate.Unused(l, &s.slots[i].state, now) {
			return false
		}
	}
	return true
}

// expireKeys looks at the next k slots of a shard, and forgets their keys that are unused again. It returns how many of these were of
// the space uncounted: the caller must subtract those from its count.
func expireKeys(m *Store, s *shard, k int, now int64, uncounted *space) int64 {
	forgotten := int64(0)
	for ; k > 0 && s.n > 0; k-- {
		if s.cursor >= len(s.slots) {
			s.cursor = 0
		}
		i := s.cursor
		if s.slots[i].hash == 0 {
			s.cursor++
			continue
		}
		if !keyExpired(m, s, i, now) {
			s.cursor++
			continue
		}
		if sp := removeKey(m, s, i); sp == uncounted { // another key may have moved to i
			forgotten++
		} else {
			countKeys(m, sp, -1)
		}
	}
	return forgotten
}

// Sweep forgets all keys that are unused again, and frees memory that the tables no longer need. It holds a shard's lock for
// microseconds at a time, and is safe for concurrent use.
func (m *Store) Sweep() {
	batch := 256
	if m.mapped { // under the interpreter each key takes microseconds
		batch = 16
	}
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		s.cursor = 0
		left := len(s.slots)
		s.mu.Unlock()
		for left >= 0 {
			s.mu.Lock()
			before := s.n
			expireKeys(m, s, batch, m.clock(), nil)
			left -= batch - (before - s.n) // where a key was forgotten there may be another now
			if s.n == 0 || left <= 0 {
				m.shrink(s)
				left = -1
			}
			s.mu.Unlock()
		}
	}
	m.bury()
}

// bury frees the spaces that no rule and no key needs any more. It keeps their numbers: a request that is still under way by a
// released rule may charge a key with such a number, and finds a space in which every key is expired.
func (m *Store) bury() {
	m.mu.Lock()
	old := m.spaces.Load().([]*space)
	spaces := make([]*space, len(old))
	copy(spaces, old)
	buried := 0
	for i, sp := range old {
		if len(sp.rules) > 0 || sp.keys.Load() > 0 || sp == m.buried[0] || sp == m.buried[1] {
			continue
		}
		spaces[i] = m.buried[0]
		if sp.isLog {
			spaces[i] = m.buried[1]
		}
		buried++
	}
	if buried > 0 {
		m.spaces.Store(spaces)
	}
	m.mu.Unlock()
}

// shrink frees memory that a shard no longer needs.
func (m *Store) shrink(s *shard) {
	if s.n == 0 {
		s.slots = nil // one at a time, since Yaegi panics at `a, b = nil, nil`
		s.owners = nil
		s.logs = nil
		s.logHashes = nil
		s.freeLogs = nil
		s.accounts = nil
		s.home = 0
		s.cursor = 0
		if s.index != nil {
			s.index = make(map[uint64]int)
			s.fast = s.index
			if s.admitted != nil {
				s.fast = make(map[uint64]int)
				s.admitted = make([]int64, 0, 8)
			}
		}
		return
	}
	if s.index == nil && s.home > 4*minHome && s.n < s.home/3 {
		m.rebuild(s, s.n*3/2)
	}
	for i := range s.logs {
		log := &s.logs[i]
		if len(log.Times) > 16 && log.N < len(log.Times)/4 {
			slot := find(s, s.logHashes[i])
			if slot < 0 {
				continue
			}
			if sp := m.spaces.Load().([]*space)[s.owners[slot]&^marks]; !sp.counts {
				before := len(log.Times)
				rate.ResizeLog(log, before/2)
				m.countTimes(sp, len(log.Times)-before)
			}
		}
	}
}
