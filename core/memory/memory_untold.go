package memory

import (
	"sync"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// Untold is what this process has admitted of a key that other instances were not told yet: see package eventual. The fast path counts in it, too, so that
// requests of a busy key need nothing else; the first after each Collect goes to Note. The lock of the key's shard guards what may change.
type Untold struct {
	Rule, Key uint64 // what the other instances call them

	hash   uint64
	slot   rate.Slot // in which the units were admitted
	units  int64     // without those that the fast path has admitted
	last   int64     // what was collected last
	calm   bool      // so much is left that DecideCalm may admit more until the next Collect
	fast   int64     // what it has admitted
	listed bool      // it is in the list of what is to be collected

	reserved int64 // units of requests on which others still decide
}

// untolds is what is to be collected.
type untolds struct {
	mu    sync.Mutex
	list  []*Untold
	idle  []*Untold  // were collected last time
	ended []Admitted // in slots that the keys have left
}

// Admitted is what was admitted in a slot.
type Admitted struct {
	Rule, Key uint64
	Slot      rate.Slot
	Units     int64

	Fast bool // the fast path has admitted it: in the slot, or the next one, up to now
}

// Find returns what is untold of a check's key; nil: nothing was for a while. It also
// reports whether the store has a state of the key. It sets the
// check's Hash.
func (m *Store) Find(c *core.Check) (*Untold, bool) {
	s := m.lockKey(c)
	u := s.untold[c.Hash]
	known := c.Slot >= 0
	s.mu.Unlock()
	return u, known
}

// Note notes that units of a key were admitted in a slot; 0: that some may come. rule and key are what the other instances call them. If more than that,
// and than what is usual in an interval, is left, the fast path may admit more until the next Collect.
func (m *Store) Note(c *core.Check, rule, key uint64, slot rate.Slot, units, left int64) *Untold {
	s := m.lockKey(c)
	u := s.untold[c.Hash]
	if u == nil {
		u = &Untold{Rule: rule, Key: key, hash: c.Hash}
		if s.untold == nil {
			s.untold = make(map[uint64]*Untold)
		}
		s.untold[c.Hash] = u
	}
	list := !u.listed
	u.listed = true
	ended := Admitted{Rule: rule, Key: key, Slot: u.slot}
	if u.slot != slot {
		ended.Units = u.units
		u.slot = slot
		u.units = 0
	}
	u.units += units
	u.calm = c.Slot >= 0 && u.reserved == 0 && !c.Rule.Excepted && !c.Rule.CountsByResponse() && left > 2*u.last+c.Rule.Limit.Quota/32
	if u.calm && s.admitted != nil {
		s.fast[c.Hash] = c.Slot
	}
	s.mu.Unlock()
	if list || ended.Units > 0 {
		m.untolds.mu.Lock()
		if list {
			m.untolds.list = append(m.untolds.list, u)
		}
		if ended.Units > 0 {
			m.untolds.ended = append(m.untolds.ended, ended)
		}
		m.untolds.mu.Unlock()
	}
	return u
}

// DecideCalm decides on a check as Decide does, and charges it, if so much is left of the key that nothing else is to be asked, and the request is allowed.
// Otherwise it returns false, and nothing has changed.
func (m *Store) DecideCalm(c *core.Check) bool {
	s := m.lockKey(c)
	defer s.mu.Unlock()
	u := s.untold[c.Hash]
	if u == nil || !u.calm || c.Slot < 0 || rate.IsBlocked(&s.slots[c.Slot].state) {
		return false
	}
	now := m.clock()
	if l := c.Rule.Limit; l.IsLog {
		decideInLog(s, c.Slot, l, now, c.Cost, &c.Decision)
	} else {
		c.State = s.slots[c.Slot].state
		rate.Decide(l, &c.State, now, c.Cost, &c.Next, &c.Decision)
	}
	if !c.Decision.Allowed {
		return false
	}
	chargeKey(m, s, c, c.Slot, now)
	u.fast += c.Cost
	return true
}

// slow has the fast path and DecideCalm leave a key to others. It returns what they have admitted.
func (s *shard) slow(u *Untold) int64 {
	units := u.fast
	u.fast = 0
	u.calm = false
	if s.admitted == nil {
		return units
	}
	delete(s.fast, u.hash)
	if i, has := s.index[u.hash]; has {
		units += s.admitted[i]
		s.admitted[i] = 0
	}
	return units
}

// forgetFast is removeKey's part for a store that tells: the key in slot i goes, and that in the last slot takes its place.
func (s *shard) forgetFast(i, last int) {
	hash := s.slots[i].hash
	delete(s.fast, hash)
	if u := s.untold[hash]; u != nil {
		u.units += s.admitted[i]
	}
	s.admitted[i] = s.admitted[last]
	s.admitted = s.admitted[:last]
	moved := s.slots[last].hash
	if _, is := s.fast[moved]; is {
		s.fast[moved] = i
	}
}

// Reserve adds units to those that are kept for requests on which others still decide. The fast path leaves the key alone meanwhile.
func (m *Store) Reserve(u *Untold, units int64) {
	s := &m.shards[u.hash&m.mask]
	s.mu.Lock()
	u.reserved += units
	u.units += s.slow(u)
	s.mu.Unlock()
}

// Reserved returns the units that Reserve has added.
func (m *Store) Reserved(u *Untold) int64 {
	s := &m.shards[u.hash&m.mask]
	s.mu.Lock()
	units := u.reserved
	s.mu.Unlock()
	return units
}

// UntoldUnits returns what was admitted of the key since the last Collect.
func (m *Store) UntoldUnits(u *Untold) int64 {
	s := &m.shards[u.hash&m.mask]
	s.mu.Lock()
	units := u.units + u.fast
	if i, has := s.index[u.hash]; has && s.admitted != nil {
		units += s.admitted[i]
	}
	s.mu.Unlock()
	return units
}

// Collect returns what was admitted since the last Collect. The fast path leaves all keys alone until Note was called again.
func (m *Store) Collect() []Admitted {
	all := &m.untolds
	all.mu.Lock()
	list := all.list
	idle := all.idle
	admitted := all.ended
	all.list = nil
	all.ended = nil
	all.idle = list
	all.mu.Unlock()
	var s *shard
	for _, u := range idle {
		s = &m.shards[u.hash&m.mask]
		s.mu.Lock()
		if !u.listed && u.reserved == 0 && s.untold[u.hash] == u {
			delete(s.untold, u.hash)
		}
		s.mu.Unlock()
	}
	for _, u := range list {
		s = &m.shards[u.hash&m.mask]
		s.mu.Lock()
		u.listed = false
		fast := s.slow(u)
		u.last = u.units + fast
		if u.units > 0 {
			admitted = append(admitted, Admitted{Rule: u.Rule, Key: u.Key, Slot: u.slot, Units: u.units})
			u.units = 0
		}
		if fast > 0 {
			admitted = append(admitted, Admitted{Rule: u.Rule, Key: u.Key, Slot: u.slot, Units: fast, Fast: true})
		}
		s.mu.Unlock()
	}
	return admitted
}

// ForgetUntold forgets what was admitted of a key since the last Collect.
func (m *Store) ForgetUntold(r *core.Rule, key string) {
	c := core.Check{Rule: r, Key: key}
	s := m.lockKey(&c)
	if u := s.untold[c.Hash]; u != nil {
		u.units = 0
		s.slow(u)
	}
	s.mu.Unlock()
}
