package memory

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// decideSpread decides on a check whose limit, l, is Spread, for the key in slot i, or for a new one if i is negative. A state says where the windows of its
// key begin. That of a new key does not.
func decideSpread(s *shard, c *core.Check, i int, l *rate.Limit, now, cost int64) {
	c.Slot = i
	c.State = rate.State{}
	if i >= 0 {
		placeWindows(s, c, now)
		c.State = s.slots[i].state
	} else {
		c.State.A = rate.Begun(l, c.Key, now)
	}
	if !l.IsLog {
		rate.Decide(l, &c.State, now, cost, &c.Next, &c.Decision)
	} else if i >= 0 {
		decideInLog(s, i, l, now, cost, &c.Decision)
	} else {
		var none rate.EventLog
		rate.DecideLog(l, &none, c.State.A, now, cost, &c.Decision)
	}
}

// placeWindows makes the state of the key in the check's slot, whose limit is Spread, say where its windows begin, if it has forgotten that: after a block by
// hand, or as it is new.
func placeWindows(s *shard, c *core.Check, now int64) {
	state := &s.slots[c.Slot].state
	if rate.IsBlocked(state) {
		if stillBlocked(s, c, now) {
			return
		}
	} else if c.Rule.Limit.IsLog && len(s.logs[state.A].Times) > 0 || !c.Rule.Limit.IsLog && state.A != 0 {
		return
	}
	beginWindow(s, c, 0) // long ago, so that charges which have been due since are still to come
}

// beginWindow notes, in the state of the key in the check's slot, which has no units, when the window began that a time lies in.
func beginWindow(s *shard, c *core.Check, at int64) {
	begun := rate.Begun(c.Rule.Limit, c.Key, at)
	if c.Rule.Limit.IsLog {
		s.slots[c.Slot].state.B = begun
	} else {
		s.slots[c.Slot].state.A = begun
	}
}

// insertFor is insertKey for a check's key.
func insertFor(m *Store, s *shard, c *core.Check, now int64) int {
	i := insertKey(m, s, c.Rule.InMemory.(*space), c.Hash, now)
	if c.Rule.Limit.Spread {
		c.Slot = i
		beginWindow(s, c, now)
	}
	return i
}
