package core

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxKeys is how many keys a Memory holds if it is not told.
const DefaultMaxKeys = 1_000_000

// Index says how a Memory finds a key.
type Index int

// Probing looks keys up in open-addressing tables: one cache miss, which is what compiled code pays for. Mapped looks
// them up in Go's map: one operation, which is what interpreted code pays for. docs/performance.md has the figures.
const (
	Probing Index = iota
	Mapped
)

// MemoryConfig is what NewMemory takes; the zero value is ready to use.
type MemoryConfig struct {
	// MaxKeys bounds the keys held, over all rules; 0 means DefaultMaxKeys. Logs are bounded besides: all together they
	// hold at most 64 times that many times of 4 bytes, but never fewer than a million.
	MaxKeys int

	// Clock returns the time in microseconds since the Unix epoch; nil means the wall clock.
	Clock func() int64

	Index Index
}

// Memory is the Store of one process: safe for concurrent use, made by NewMemory.
//
// Keys are kept as 64-bit hashes under a random seed, so that nobody can choose keys that collide. With n keys in memory
// the odds that any two of them share a counter are below n²/2⁶⁴: one in 18 million for a million keys. (One bit of the hash
// says whether the key has a log, so that a log is never taken for another state.)
//
// A key that is unused again (its quota whole) is forgotten bit by bit as others come, and by Sweep. Past MaxKeys, what
// costs least to forget makes way for the new: see evict. No goroutine runs in the background.
type Memory struct {
	shards []shard // a power of two of them
	mask   uint64
	mapped bool // Index is Mapped
	seed   maphash.Seed
	clock  func() int64

	ownClock func() int64 // MemoryConfig.Clock

	maxKeys atomic.Int64

	mu     sync.Mutex        // guards what follows, for writing
	byName map[string]*space // by the rules' identity
	spaces atomic.Value      // []*space, by number; a number is never given twice
	buried []*space          // what stands for those that were let go of: [0] without logs, [1] with

	_         [64]byte // what is only read, above, does not share a cache line with what is written
	keys      atomic.Int64
	logTimes  atomic.Int64 // the capacity of all logs, in times of 4 bytes
	underWay  atomic.Int64 // keys that requests under way hold
	byHand    atomic.Int64 // keys that are shut out by hand
	evictions atomic.Int64
	payer     atomic.Int64  // number of the space that had the most keys when last one was forgotten
	logPayer  atomic.Int64  // as payer, of logs
	tickets   atomic.Uint64 // of what requests have reserved
}

// space is where a rule's keys live: those with its salt, and its number as owner.
type space struct {
	number uint32
	isLog  bool
	salt   uint64
	kind   uint64 // isLog, as the bit of a hash
	rules  []*Rule
	limits atomic.Value // []*Limit: the strictest of rules; a key is expired when all of them say so
	_      [64]byte     // as in Memory
	keys   atomic.Int64
	kept   atomic.Int64 // of keys, as underWay and byHand in Memory
	cost   atomic.Int64 // the most that a request cost which was rejected, and might have been allowed; 0: 1

	logTimes atomic.Int64 // as in Memory, of this rule's logs
}

// kindBit is set in the hashes of keys that have logs.
const kindBit = 1 << 32

// NewMemory returns an empty store.
func NewMemory(c MemoryConfig) *Memory {
	m := &Memory{
		seed:  maphash.MakeSeed(),
		clock: c.Clock,

		ownClock: c.Clock,
		byName:   make(map[string]*space),
	}
	if m.clock == nil {
		m.clock = wallClock
	}
	if c.MaxKeys <= 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	m.maxKeys.Store(int64(c.MaxKeys))
	shards := 16 // of some 1000 keys each, up to a million, which are copied in microseconds when a table grows
	for shards < 1024 && shards*1024 < c.MaxKeys {
		shards *= 2
	}
	m.shards = make([]shard, shards)
	m.mask = uint64(shards - 1)
	if c.Index == Mapped {
		m.mapped = true
		for i := range m.shards {
			m.shards[i].index = make(map[uint64]int)
		}
	}
	m.spaces.Store([]*space{})
	for i := 0; i < 2; i++ {
		sp := &space{isLog: i == 1}
		sp.setLimits()
		m.buried = append(m.buried, sp)
	}
	return m
}

func wallClock() int64 {
	return time.Now().UnixMicro()
}

// Open implements Store. It never fails.
func (m *Memory) Open(r *Rule) error {
	m.mu.Lock()
	sp := m.byName[r.identity]
	if sp == nil {
		sp = m.newSpace(r)
	}
	for _, other := range sp.rules {
		if other.SeesWaiting() {
			r.Accompany()
		}
	}
	sp.rules = append(sp.rules, r)
	sp.limits.Store(stricter(sp.limits.Load().([]*Limit), r.limit))
	r.space = sp
	m.mu.Unlock()
	return nil
}

// newSpace gives the rule's identity the next number.
func (m *Memory) newSpace(r *Rule) *space {
	spaces := m.spaces.Load().([]*space)
	number := len(spaces)
	sp := &space{number: uint32(number), isLog: r.limit.isLog}
	if sp.isLog {
		sp.kind = kindBit
	}
	// The salt is new each time, so that keys of a space that was let go of, and are still to be swept, are not found.
	sp.salt = maphash.String(m.seed, r.identity) + uint64(number+1)*0x9e3779b97f4a7c15
	sp.limits.Store([]*Limit(nil))
	m.spaces.Store(append(spaces, sp))
	m.byName[r.identity] = sp
	return sp
}

// Release implements Store.
func (m *Memory) Release(r *Rule) {
	m.mu.Lock()
	sp := r.space
	for i := range sp.rules {
		if sp.rules[i] == r {
			sp.rules = append(sp.rules[:i:i], sp.rules[i+1:]...)
			break
		}
	}
	for _, l := range sp.limits.Load().([]*Limit) {
		if l == r.limit { // else others are stricter
			sp.setLimits()
			break
		}
	}
	if len(sp.rules) == 0 && m.byName[r.identity] == sp {
		delete(m.byName, r.identity)
	}
	m.mu.Unlock()
}

// setLimits finds out which of the rules' limits the strictest are.
func (sp *space) setLimits() {
	limits := make([]*Limit, 0, 2)
	for _, r := range sp.rules {
		limits = stricter(limits, r.limit)
	}
	sp.limits.Store(limits)
}

// stricter returns the strictest of limits, which are that already, and one more: those of which none is as strict as another. What
// is unused by them is unused by all. The tiers of a rule have one burst, or each the burst that is its requests, so that the one
// with the fewest requests is stricter than all.
func stricter(limits []*Limit, l *Limit) []*Limit {
	for _, other := range limits {
		if asStrict(other, l) {
			return limits
		}
	}
	list := make([]*Limit, 0, 2)
	for _, other := range limits {
		if !asStrict(l, other) {
			list = append(list, other)
		}
	}
	return append(list, l)
}

// asStrict reports whether a state is used by a as long as it is by b, and never leaves less by b than by a. They count alike, and
// differ in their numbers.
func asStrict(a, b *Limit) bool {
	return a.requests <= b.requests && a.burst <= b.burst
}

// SetMaxKeys changes MaxKeys; 0 means DefaultMaxKeys. Where there are more keys already, they make way as others come.
func (m *Memory) SetMaxKeys(n int) {
	if n <= 0 {
		n = DefaultMaxKeys
	}
	m.maxKeys.Store(int64(n))
}

// MemoryStats is what a Memory holds.
type MemoryStats struct {
	Keys      int64 // over all rules
	MaxKeys   int64 // how many there may be
	LogBytes  int64 // reserved for the times of logs
	Evictions int64 // keys that were forgotten while they still counted
}

// Stats returns what the store holds.
func (m *Memory) Stats() MemoryStats {
	return MemoryStats{Keys: m.keys.Load(), MaxKeys: m.maxKeys.Load(), LogBytes: 4 * m.logTimes.Load(), Evictions: m.evictions.Load()}
}

// Keys returns how many keys of the rule the store holds.
func (m *Memory) Keys(r *Rule) int64 {
	return r.space.keys.Load()
}

// Decide implements Store. It never fails.
func (m *Memory) Decide(checks []Check, peek bool) error {
	if len(checks) == 0 {
		return nil
	}
	if len(checks) == 1 && checks[0].Rule.overflow == nil {
		m.decideOne(&checks[0], peek)
	} else if accountsNeeded(checks) {
		m.decideWithAccounts(checks, peek)
	} else {
		m.decideAll(checks, peek)
	}
	if m.keys.Load() > m.maxKeys.Load() || m.logTimes.Load() > logBudgetFloor {
		m.evict(checks)
	}
	return nil
}

// decideOne is decideAll for the one check that most requests have.
func (m *Memory) decideOne(c *Check, peek bool) {
	r := c.Rule
	h := (maphash.String(m.seed, c.Key)^r.space.salt)&^kindBit | r.space.kind
	if h == 0 {
		h = 1
	}
	c.hash = h
	s := &m.shards[h&m.mask]
	now := m.clock()
	s.mu.Lock()
	i := -1
	if s.index == nil {
		i = find(s, h)
	} else if at, ok := s.index[h]; ok {
		i = at
	}
	if r.space.isLog {
		decideInLog(s, i, r.limit, now, c.Cost, &c.Decision)
	} else {
		c.state = State{}
		if i >= 0 {
			c.state = s.slots[i].state
		}
		decide(r.limit, &c.state, now, c.Cost, &c.next, &c.Decision)
	}
	if !peek && (c.Decision.Allowed || r.countRejected) {
		m.charge(s, c, i, now)
	}
	if !c.Decision.Allowed && i >= 0 {
		if !peek {
			s.owners[i] |= rejected
			noteCost(c)
		}
		if s.slots[i].state.A >= blockMark {
			stepBack(&s.slots[i].state, now)
		}
	}
	s.mu.Unlock()
}

// decideAll locks the shards of all keys, in ascending order, evaluates every check, and charges what is to be charged.
func (m *Memory) decideAll(checks []Check, peek bool) {
	lockAll(m, checks)
	now := m.clock()
	admit := true
	for i := range checks {
		c := &checks[i]
		s := &m.shards[c.hash&m.mask]
		slot := -1
		if s.index == nil {
			slot = find(s, c.hash)
		} else if at, ok := s.index[c.hash]; ok {
			slot = at
		}
		c.slot = slot
		if c.Rule.space.isLog {
			decideInLog(s, slot, c.Rule.limit, now, c.Cost, &c.Decision)
		} else {
			c.state = State{}
			if slot >= 0 {
				c.state = s.slots[slot].state
			}
			decide(c.Rule.limit, &c.state, now, c.Cost, &c.next, &c.Decision)
		}
		if !c.Decision.Allowed && !c.Rule.shadow {
			admit = false
		}
	}
	moved := false // a new key has come, so that others may not be where they were
	for i := range checks {
		c := &checks[i]
		s := &m.shards[c.hash&m.mask]
		if moved {
			c.slot = find(s, c.hash)
		}
		allowed := c.Decision.Allowed
		if allowed && admit && !peek && c.slot >= 0 && !c.Rule.space.isLog { // as charge does
			s.slots[c.slot].state = c.next
			continue
		}
		if allowed && !admit { // how things stand for a rule that would have allowed what another rejects
			if c.Rule.space.isLog {
				decideInLog(s, c.slot, c.Rule.limit, now, 0, &c.Decision)
			} else {
				decide(c.Rule.limit, &c.state, now, 0, &c.next, &c.Decision)
			}
		} else if !peek && (allowed || c.Rule.countRejected) {
			moved = moved || c.slot < 0
			m.charge(s, c, c.slot, now)
		}
		if !c.Decision.Allowed {
			if slot := find(s, c.hash); slot >= 0 {
				if !peek {
					s.owners[slot] |= rejected
					noteCost(c)
				}
				stepBack(&s.slots[slot].state, now)
			}
		}
	}
	for i := range checks {
		if checks[i].locked {
			m.shards[checks[i].hash&m.mask].mu.Unlock()
		}
	}
}

// lockAll finds out the checks' hashes, and locks their shards in ascending order.
func lockAll(m *Memory, checks []Check) {
	for i := range checks {
		c := &checks[i]
		c.hash = (maphash.String(m.seed, c.Key)^c.Rule.space.salt)&^kindBit | c.Rule.space.kind
		if c.hash == 0 {
			c.hash = 1
		}
		c.locked = false
	}
	last := -1
	for {
		next, which := -1, 0
		for i := range checks {
			s := int(checks[i].hash & m.mask)
			if s > last && (next < 0 || s < next) {
				next = s
				which = i
			}
		}
		if next < 0 {
			return
		}
		m.shards[next].mu.Lock()
		checks[which].locked = true
		last = next
	}
}

// charge writes the state after the request, of a key in slot i, or of a new one where i is negative. The decision on a
// rejected request is taken again on what is kept of it: with count_rejected it puts off the retry.
func (m *Memory) charge(s *shard, c *Check, i int, now int64) {
	allowed := c.Decision.Allowed
	if i < 0 {
		i = m.insert(s, c, now)
	}
	if c.Rule.space.isLog {
		chargeInLog(m, s, i, c.Rule.space, c.Rule.limit, c.Cost, c.Rule.limit.requests)
		if !allowed {
			decideInLog(s, i, c.Rule.limit, now, c.Cost, &c.Decision)
		}
		return
	}
	s.slots[i].state = c.next
	if !allowed {
		c.state = c.next
		decide(c.Rule.limit, &c.state, now, c.Cost, &c.next, &c.Decision)
	}
}

// decideInLog has a limit decide by the log of the key in slot i, or of a new one where i is negative. A log's state holds its number
// in A, and in B the time that it was last looked at. A key that is shut out has no log.
func decideInLog(s *shard, i int, l *Limit, now, cost int64, d *Decision) {
	if i < 0 {
		var none eventLog
		decideLog(l, &none, 0, now, cost, d)
		return
	}
	slot := &s.slots[i]
	if slot.state.A >= blockMark {
		if left := blockedFor(&slot.state, now); left > 0 {
			decideBlocked(l, left, cost, d)
			return
		}
		startLog(s, i, now)
	}
	slot.state.B = decideLog(l, &s.logs[slot.state.A], slot.state.B, now, cost, d)
}

// startLog gives the key in slot i an empty log.
func startLog(s *shard, i int, now int64) {
	s.slots[i].state.A = int64(newLog(s, s.slots[i].hash))
	s.slots[i].state.B = now
}

// chargeInLog charges the log of the key in slot i, as it was last looked at. For most see chargeLog.
func chargeInLog(m *Memory, s *shard, i int, sp *space, l *Limit, cost, most int64) {
	slot := &s.slots[i]
	if !isBlocked(&slot.state) {
		m.countTimes(sp, chargeLog(l, &s.logs[slot.state.A], slot.state.B, cost, int(most)))
	}
}
