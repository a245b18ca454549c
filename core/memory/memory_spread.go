package memory

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// decideSpread decides on a check whose limit, l, is Spread, for the key in slot i, or for a new one if i is negative. A state says where the windows of its
// key begin. That of a new key does not, and one without units may have forgotten it.
func decideSpread(s *shard, c *core.Check, i int, l *rate.Limit, now, cost int64) {
	c.Slot = i
	if i >= 0 && rate.IsBlocked(&s.slots[i].state) {
		stillBlocked(s, c, now)
	}
	if l.IsLog && i < 0 {
		var none rate.EventLog
		rate.DecideLog(l, &none, rate.Begun(l, c.Key, now), now, cost, &c.Decision)
		return
	}
	if l.IsLog {
		if state := &s.slots[i].state; !rate.IsBlocked(state) && len(s.logs[state.A].Times) == 0 {
			beginWindow(s, c, now)
		}
		decideInLog(s, i, l, now, cost, &c.Decision)
		return
	}
	c.State = rate.State{}
	if i >= 0 {
		c.State = s.slots[i].state
	}
	if c.State.B == 0 && c.State.A <= now {
		c.State.A = rate.Begun(l, c.Key, now)
	}
	rate.Decide(l, &c.State, now, cost, &c.Next, &c.Decision)
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

// beginWindow notes in the state of the key in the check's slot, which has no units, where its windows begin.
func beginWindow(s *shard, c *core.Check, now int64) {
	begun := rate.Begun(c.Rule.Limit, c.Key, now)
	if c.Rule.Limit.IsLog {
		s.slots[c.Slot].state.B = begun
	} else {
		s.slots[c.Slot].state.A = begun
	}
}
