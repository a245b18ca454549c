package core

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultMaxKeys is the default of MemoryConfig.MaxKeys.
const DefaultMaxKeys = 1_000_000

// Index chooses how a Memory finds a key.
type Index int

// Probing finds keys in open-addressing tables. That takes one cache miss, which is what matters for compiled code. Mapped finds
// them in a map of Go. That takes one operation, which is what matters for interpreted code. docs/performance.md has the figures.
const (
	Probing Index = iota
	Mapped
)

// MemoryConfig configures NewMemory. The zero value is ready to use.
type MemoryConfig struct {
	// MaxKeys bounds the number of keys over all rules; 0 means DefaultMaxKeys. Logs have a bound besides: all together they hold
	// at most 64 times as many times, of 4 bytes each, but never fewer than a million.
	MaxKeys int

	// Clock returns the time in microseconds since the Unix epoch; nil means the wall clock.
	Clock func() int64

	Index Index
}

// Memory is the Store of one process. NewMemory makes it. It is safe for concurrent use.
//
// Keys are kept as 64-bit hashes with a random seed, so that nobody can choose keys that collide. With n keys in memory, the
// probability that any two of them share a counter is below n²/2⁶⁴: one in 18 million for a million keys. (One bit of the hash
// says whether the key has a log, so that a log is never taken for another state.)
//
// Keys that are unused again (with their whole quota) are forgotten little by little as others come, and by Sweep. Above MaxKeys,
// new keys evict those that cost least to forget: see evict. No goroutine runs in the background.
type Memory struct {
	shards []shard // their number is a power of two
	mask   uint64
	mapped bool     // Index is Mapped
	ways   []*shard // the same as shards, for fast paths, which interpreted programs make many of; nil: not Mapped
	seed   maphash.Seed
	clock  func() int64

	ownClock func() int64 // MemoryConfig.Clock

	maxKeys atomic.Int64

	mu     sync.Mutex        // guards writes of what follows
	byName map[string]*space // by the rules' Identity
	spaces atomic.Value      // []*space, indexed by number; a number is never reused
	buried []*space          // replace spaces that were released: [0] without logs, [1] with

	_         [64]byte // keeps what is only read, above, out of the cache lines of what is written
	keys      atomic.Int64
	logTimes  atomic.Int64 // the capacity of all logs, in times of 4 bytes
	underWay  atomic.Int64 // keys with requests under way
	byHand    atomic.Int64 // keys that are blocked by hand
	evictions atomic.Int64
	payer     atomic.Int64  // number of the space that had the most keys at the last eviction
	logPayer  atomic.Int64  // the same for logs
	spared    atomic.Int64  // evictions that do not look far: see looksFar
	inVain    atomic.Int64  // spared, after it was in vain the last time
	tickets   atomic.Uint64 // the last ticket of a reservation
}

// space is the state of a rule. Its keys have its salt in their hashes, and its number as their owner.
type space struct {
	number uint32
	isLog  bool
	salt   uint64
	kind   uint64 // kindBit if isLog, else 0
	rules  []*Rule
	limits atomic.Value // []*Limit: the strictest of the rules' limits; a key is expired when all of them say so
	_      [64]byte     // as in Memory
	keys   atomic.Int64
	kept   atomic.Int64 // keys that population leaves out: counted in underWay or byHand
	cost   atomic.Int64 // the highest cost that was rejected, of those that the limit could allow; 0 means 1

	logTimes atomic.Int64 // as in Memory, for this rule's logs
}

// kindBit is set in the hash of a key that has a log.
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
	shards := 16 // each for about 1000 keys, up to a million in all; a table of that size is copied in microseconds when it grows
	for shards < 1024 && shards*1024 < c.MaxKeys {
		shards *= 2
	}
	m.shards = make([]shard, shards)
	m.mask = uint64(shards - 1)
	if c.Index == Mapped {
		m.mapped = true
		for i := range m.shards {
			m.shards[i].index = make(map[uint64]int)
			m.ways = append(m.ways, &m.shards[i])
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
	r.inMemory = sp
	m.mu.Unlock()
	return nil
}

// newSpace makes the space of the rule's identity, with the next number.
func (m *Memory) newSpace(r *Rule) *space {
	spaces := m.spaces.Load().([]*space)
	number := len(spaces)
	sp := &space{number: uint32(number), isLog: r.limit.isLog}
	if sp.isLog {
		sp.kind = kindBit
	}
	// The salt is new each time, so that a rule does not find keys of a released space that are not swept yet.
	sp.salt = maphash.String(m.seed, r.identity) + uint64(number+1)*0x9e3779b97f4a7c15
	if m.mapped { // the rules of a namespace have each key in the same shard, so that a request under several of them needs one lock
		sp.salt = sp.salt&^m.mask | maphash.String(m.seed, r.namespace)&m.mask
	}
	sp.limits.Store([]*Limit(nil))
	m.spaces.Store(append(spaces, sp))
	m.byName[r.identity] = sp
	return sp
}

// Release implements Store.
func (m *Memory) Release(r *Rule) {
	m.mu.Lock()
	sp := r.inMemory.(*space)
	for i := range sp.rules {
		if sp.rules[i] == r {
			sp.rules = append(sp.rules[:i:i], sp.rules[i+1:]...)
			break
		}
	}
	for _, l := range sp.limits.Load().([]*Limit) {
		if l == r.limit { // else other limits are stricter
			sp.setLimits()
			break
		}
	}
	if len(sp.rules) == 0 && m.byName[r.identity] == sp {
		delete(m.byName, r.identity)
	}
	m.mu.Unlock()
}

// setLimits finds the strictest of the rules' limits.
func (sp *space) setLimits() {
	limits := make([]*Limit, 0, 2)
	for _, r := range sp.rules {
		limits = stricter(limits, r.limit)
	}
	sp.limits.Store(limits)
}

// stricter adds a limit to a list of the strictest: those of which none is as strict as another. A state that is unused by them
// is unused by all. The tiers of a rule either share one burst, or each have the burst that equals their requests; so the one
// with the fewest requests is usually the only one in the list.
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

// asStrict reports whether a limit a is at least as strict as b: a state that is in use by b is in use by a, and a never leaves
// more than b. Both count the same way, and differ only in their numbers.
func asStrict(a, b *Limit) bool {
	return a.requests <= b.requests && a.burst <= b.burst
}

// SetMaxKeys changes MaxKeys; 0 means DefaultMaxKeys. If there are more keys already, they are evicted as others come.
func (m *Memory) SetMaxKeys(n int) {
	if n <= 0 {
		n = DefaultMaxKeys
	}
	m.maxKeys.Store(int64(n))
}

// MemoryStats is the result of Memory.Stats.
type MemoryStats struct {
	Keys      int64 // over all rules
	MaxKeys   int64 // the bound on Keys
	LogBytes  int64 // reserved for the times of logs
	Evictions int64 // keys that were forgotten while they were in use
}

// Stats returns what the store holds.
func (m *Memory) Stats() MemoryStats {
	return MemoryStats{Keys: m.keys.Load(), MaxKeys: m.maxKeys.Load(), LogBytes: 4 * m.logTimes.Load(), Evictions: m.evictions.Load()}
}

// Keys returns how many keys of the rule the store holds.
func (m *Memory) Keys(r *Rule) int64 {
	return r.inMemory.(*space).keys.Load()
}

// Decide implements Store. It never fails.
func (m *Memory) Decide(checks []Check, peek bool) error {
	if len(checks) == 0 {
		return nil
	}
	if len(checks) == 1 && checks[0].Rule.overflow == nil {
		decideOne(m, &checks[0], peek)
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

// decideOne is decideAll for a single check, as most requests have.
func decideOne(m *Memory, c *Check, peek bool) {
	r := c.Rule
	sp := r.inMemory.(*space)
	h := (maphash.String(m.seed, c.Key)^sp.salt)&^kindBit | sp.kind
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
	if r.limit.isLog {
		decideInLog(s, i, r.limit, now, c.Cost, &c.Decision)
	} else {
		c.state = State{}
		if i >= 0 {
			c.state = s.slots[i].state
		}
		decide(r.limit, &c.state, now, c.Cost, &c.next, &c.Decision)
	}
	if !peek && (c.Decision.Allowed || r.countRejected) {
		chargeKey(m, s, c, i, now)
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

// decideAll locks the shards of all keys in ascending order, evaluates every check, and charges those that are to be charged.
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
		if c.Rule.limit.isLog {
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
	moved := false // a new key has come, so that others may have moved
	for i := range checks {
		c := &checks[i]
		s := &m.shards[c.hash&m.mask]
		if moved {
			c.slot = find(s, c.hash)
		}
		allowed := c.Decision.Allowed
		if allowed && admit && !peek && c.slot >= 0 && !c.Rule.limit.isLog { // as charge does
			s.slots[c.slot].state = c.next
			continue
		}
		if allowed && !admit { // the state of a rule that would have allowed what another rejects
			if c.Rule.limit.isLog {
				decideInLog(s, c.slot, c.Rule.limit, now, 0, &c.Decision)
			} else {
				decide(c.Rule.limit, &c.state, now, 0, &c.next, &c.Decision)
			}
		} else if !peek && (allowed || c.Rule.countRejected) {
			moved = moved || c.slot < 0
			chargeKey(m, s, c, c.slot, now)
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

// lockAll computes the checks' hashes, and locks their shards in ascending order.
func lockAll(m *Memory, checks []Check) {
	for i := range checks {
		c := &checks[i]
		sp := c.Rule.inMemory.(*space)
		c.hash = (maphash.String(m.seed, c.Key)^sp.salt)&^kindBit | sp.kind
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

// chargeKey writes the state after the request, for the key in slot i, or for a new one if i is negative. A rejected request is
// decided again by the new state, since count_rejected makes it wait longer.
func chargeKey(m *Memory, s *shard, c *Check, i int, now int64) {
	allowed := c.Decision.Allowed
	if i < 0 {
		i = insertKey(m, s, c.Rule.inMemory.(*space), c.hash, now)
	}
	if c.Rule.limit.isLog {
		chargeInLog(m, s, i, c.Rule.inMemory.(*space), c.Rule.limit, c.Cost, c.Rule.limit.requests)
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

// decideInLog decides by the log of the key in slot i, or by an empty one if i is negative. A log's state has its number in A,
// and in B the time of the last look at it. A key that is blocked by hand has no log.
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

// chargeInLog charges the log of the key in slot i at the time of the last look at it. For most see chargeLog.
func chargeInLog(m *Memory, s *shard, i int, sp *space, l *Limit, cost, most int64) {
	slot := &s.slots[i]
	if !isBlocked(&slot.state) {
		m.countTimes(sp, chargeLog(l, &s.logs[slot.state.A], slot.state.B, cost, int(most)))
	}
}

// readyLog makes the log of the key in slot i ready for take: it drops what has expired, and makes room for an entry. It returns false if take
// would give up even then: if the request is rejected, or if there would be more times in logs than there may be, among other rare cases.
func readyLog(m *Memory, s *shard, i int, sp *space, l *Limit, now int64) bool {
	state := &s.slots[i].state
	if state.A >= blockMark || state.B > now {
		return false
	}
	var d Decision
	decideInLog(s, i, l, now, 0, &d)
	log := &s.logs[state.A]
	if d.Remaining == 0 {
		return false
	}
	if log.n == len(log.times) {
		if m.logTimes.Load()+l.requests > logBudgetFloor {
			return false
		}
		m.countTimes(sp, growLog(log, 1, int(l.requests)))
	}
	return true
}
