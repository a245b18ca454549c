package core

// ChargeSlot charges a key for units that another instance has admitted in a slot, whatever the limit says. If it is unknown when in the slot that was, it
// is taken to be as late as possible: so the units never cease to count too early. The rule must be open. It has no overflow policy.
func (m *Memory) ChargeSlot(r *Rule, key string, slot Slot, units int64) {
	c := []Check{{Rule: r, Key: key}}
	s := m.lockKey(&c[0])
	now := m.clock()
	if units > 0 && slot.End > now {
		i := c[0].slot
		if i < 0 {
			i = insertKey(m, s, r.inMemory.(*space), c[0].hash, now)
		}
		if r.limit.isLog {
			m.chargeSlotInLog(s, i, r, atMost(slot.End-r.limit.period, now), units, now)
		} else {
			chargeSlot(r.limit, &s.slots[i].state, &slot, units, now)
		}
	}
	s.mu.Unlock()
	if m.keys.Load() > m.maxKeys.Load() || m.logTimes.Load() > logBudgetFloor {
		m.evict(c)
	}
}

// chargeSlot charges a state for units in a slot.
func chargeSlot(l *Limit, s *State, slot *Slot, units, now int64) {
	stepBack(s, now)
	charge(l, s, now, 0, s) // brings it to the present
	if l.algorithm == SlidingWindowCounter && !isBlocked(s) && slot.Start == s.A-l.period {
		s.B = atMost(int64(uint64(s.B)>>32)+units, mostCounted)<<32 | s.B&mostCounted
		return
	}
	charge(l, s, now, units, s)
}

// chargeSlotInLog charges the log of the key in slot i for units that were admitted at a time in the past. Its newer entries stay behind them.
func (m *Memory) chargeSlotInLog(s *shard, i int, r *Rule, at, units, now int64) {
	var d Decision
	decideInLog(s, i, r.limit, now, 0, &d)
	if isBlocked(&s.slots[i].state) {
		return
	}
	log := &s.logs[s.slots[i].state.A]
	m.countTimes(r.inMemory.(*space), chargeLogAt(r.limit, log, s.slots[i].state.B, at, units))
}

// chargeLogAt adds entries at a time before now, the time of the last look. It returns by how much the ring has grown.
func chargeLogAt(l *Limit, log *eventLog, now, at, units int64) int {
	tick := uint32(now/l.quantum + 1)
	age := int64(tick - uint32((at+l.quantum-1)/l.quantum))
	if age > l.window {
		return 0
	}
	var newer []uint32
	for log.n > 0 {
		last := log.times[(log.head+log.n-1)%len(log.times)]
		if int64(tick-last) >= age {
			break
		}
		newer = append(newer, last)
		log.n--
	}
	grown := chargeLog(l, log, at, atMost(units, atLeast(MaxLogRequests-int64(log.n+len(newer)), 0)), MaxLogRequests)
	grown += growLog(log, len(newer), MaxLogRequests)
	for k := len(newer) - 1; k >= 0; k-- {
		log.times[(log.head+log.n)%len(log.times)] = newer[k]
		log.n++
	}
	return grown
}

// DecideBeside does what Decide does for checks whose rules have no overflow policy. But a request is only allowed if there is space for so many units
// besides, which are not charged: those that others have probably been admitted, of which the counts do not know yet. beside has one number for each check.
// Remaining says what is left after these units.
func (m *Memory) DecideBeside(checks []Check, beside []int64, peek bool) error {
	for i := range checks {
		checks[i].beside = beside[i]
	}
	m.decideWithAccounts(checks, peek)
	for i := range checks {
		checks[i].beside = 0
	}
	if m.keys.Load() > m.maxKeys.Load() || m.logTimes.Load() > logBudgetFloor {
		m.evict(checks)
	}
	return nil
}
