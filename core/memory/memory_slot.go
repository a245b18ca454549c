package memory

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// ChargeSlot charges a key for units that another instance has admitted in a slot, whatever the limit says. If it is unknown when in the slot that was, it
// is taken to be as late as possible: so the units never cease to count too early. The rule must be open. It has no tolerance, and no request under it waits.
func (m *Store) ChargeSlot(r *core.Rule, key string, slot rate.Slot, units int64) {
	c := []core.Check{{Rule: r, Key: key}}
	s := m.lockKey(&c[0])
	now := m.clock()
	if units > 0 && slot.End > now {
		i := c[0].Slot
		if i < 0 {
			i = insertFor(m, s, &c[0], now)
		}
		if r.Limit.IsLog {
			m.chargeSlotInLog(s, i, r, &slot, units, now)
		} else {
			chargeSlot(r.Limit, &s.slots[i].state, &slot, units, now)
		}
	}
	s.mu.Unlock()
	if m.keys.Load() > m.maxKeys.Load() || m.logTimes.Load() > logBudgetFloor {
		m.evict(c)
	}
}

// chargeSlot charges a state for units in a slot.
func chargeSlot(l *rate.Limit, s *rate.State, slot *rate.Slot, units, now int64) {
	rate.StepBack(s, now)
	rate.Charge(l, s, now, 0, s) // brings it to the present
	rate.ChargeLate(l, s, slot, now, units)
}

// chargeSlotInLog charges the log of the key in slot i of the table for units in a slot of time.
func (m *Store) chargeSlotInLog(s *shard, i int, r *core.Rule, slot *rate.Slot, units, now int64) {
	var d rate.Decision
	decideInLog(s, i, r.Limit, now, 0, &d)
	if rate.IsBlocked(&s.slots[i].state) {
		return
	}
	log := &s.logs[s.slots[i].state.A]
	m.countTimes(r.InMemory.(*space), rate.LateLog(r.Limit, log, slot, s.slots[i].state.B, units))
}

// DecideWithExtra does what Decide does. But a request is only allowed if there is space for so many units
// besides, which are not charged: those that others have probably been admitted, of which the counts do not know yet. beside has one number for each check.
// Remaining says what is left after these units.
func (m *Store) DecideWithExtra(checks []core.Check, beside []int64, peek bool) error {
	for i := range checks {
		checks[i].Extra = beside[i]
	}
	m.decideWithAccounts(checks, peek)
	for i := range checks {
		checks[i].Extra = 0
	}
	if m.keys.Load() > m.maxKeys.Load() || m.logTimes.Load() > logBudgetFloor {
		m.evict(checks)
	}
	return nil
}
