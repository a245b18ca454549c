package memory

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// DefaultMaxKeys is the default of Config.MaxKeys.
const DefaultMaxKeys = 1_000_000

// Index chooses how a Store finds a key.
type Index int

// Probing finds keys in open-addressing tables. That takes one cache miss, which is what matters for compiled code. Mapped finds
// them in a map of Go. That takes one operation, which is what matters for interpreted code. bench/README.md has the figures.
const (
	Probing Index = iota
	Mapped
)

// Config configures New. The zero value is ready to use.
type Config struct {
	// MaxKeys bounds the number of keys over all rules; 0 means DefaultMaxKeys. Logs have a bound besides: all together they hold
	// at most 64 times as many times, of 4 bytes each, but never fewer than a million.
	MaxKeys int

	// Clock returns the time in microseconds since the Unix epoch; nil means the wall clock.
	Clock func() int64

	Index Index

	// Ahead is by how many microseconds another clock is ahead of the wall clock, which the store goes by then: see package eventual. It may change;
	// functions of sync/atomic read it. nil: the store goes by Clock.
	Ahead *int64
}

// Store is the Store of one process. New makes it. It is safe for concurrent use.
//
// Keys are kept as 64-bit hashes with a random seed, so that nobody can choose keys that collide. With n keys in memory, the
// probability that any two of them share a counter is below n²/2⁶⁴: one in 18 million for a million keys. (One bit of the hash
// says whether the key has a log, so that a log is never taken for another state.)
//
// Keys that are unused again (with their whole quota) are forgotten little by little as others come, and by Sweep. Above MaxKeys,
// new keys evict those that cost least to forget: see evict. No goroutine runs in the background.
type Store struct {
	shards []shard // their number is a power of two
	mask   uint64
	mapped bool     // Index is Mapped
	ways   []*shard // the same as shards, for fast paths, which interpreted programs make many of; nil: not Mapped
	seed   maphash.Seed
	clock  func() int64

	ownClock func() int64 // Config.Clock
	ahead    *int64       // Config.Ahead

	maxKeys atomic.Int64

	mu     sync.Mutex        // guards writes of what follows
	byName map[string]*space // by the rules' Identity
	spaces atomic.Value      // []*space, indexed by number; a number is never reused
	buried []*space          // replace spaces that were released: [0] without logs, [1] with

	_             [64]byte // keeps what is only read, above, out of the cache lines of what is written
	keys          atomic.Int64
	logTimes      atomic.Int64 // the capacity of all logs, in times of 4 bytes
	underWay      atomic.Int64 // keys with requests under way
	byHand        atomic.Int64 // keys that are blocked by hand
	evictions     atomic.Int64
	victimZone    atomic.Int64  // number of the space that had the most keys at the last eviction
	logVictimZone atomic.Int64  // the same for logs
	spared        atomic.Int64  // evictions that do not look far: see looksFar
	inVain        atomic.Int64  // spared, after it was in vain the last time
	tickets       atomic.Uint64 // the last ticket of a reservation

	untolds untolds
}

// space is the state of a rule. Its keys have its salt in their hashes, and its number as their owner.
type space struct {
	number uint32
	isLog  bool
	counts bool // the length of its logs never changes
	salt   uint64
	kind   uint64 // kindBit if isLog, else 0
	rules  []*core.Rule
	limits atomic.Value // []*Limit: the strictest of the rules' limits; a key is expired when all of them say so
	_      [64]byte     // as in Store
	keys   atomic.Int64
	kept   atomic.Int64 // keys that weight leaves out: counted in underWay or byHand
	cost   atomic.Int64 // the highest cost that was rejected, of those that the limit could allow; 0 means 1

	logTimes atomic.Int64 // as in Store, for this rule's logs
}

// kindBit is set in the hash of a key that has a log.
const kindBit = 1 << 32

// New returns an empty store.
func New(c Config) *Store {
	m := &Store{
		seed:  maphash.MakeSeed(),
		clock: c.Clock,

		ownClock: c.Clock,
		ahead:    c.Ahead,
		byName:   make(map[string]*space),
	}
	if m.clock == nil {
		m.clock = wallClock
	}
	if own := m.clock; c.Ahead != nil {
		m.clock = func() int64 { return own() + atomic.LoadInt64(c.Ahead) }
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
			m.shards[i].fast = m.shards[i].index
			if c.Ahead != nil {
				m.shards[i].fast = make(map[uint64]int)
				m.shards[i].admitted = make([]int64, 0, 8)
			}
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
func (m *Store) Open(r *core.Rule) error {
	m.mu.Lock()
	sp := m.byName[r.Identity]
	if sp == nil {
		sp = m.newSpace(r)
	}
	for _, other := range sp.rules {
		if other.TracksReservations() {
			r.TrackReservations()
		}
	}
	sp.rules = append(sp.rules, r)
	sp.limits.Store(stricter(sp.limits.Load().([]*rate.Limit), r.Limit))
	r.InMemory = sp
	m.mu.Unlock()
	return nil
}

// newSpace makes the space of the rule's identity, with the next number.
func (m *Store) newSpace(r *core.Rule) *space {
	spaces := m.spaces.Load().([]*space)
	number := len(spaces)
	sp := &space{number: uint32(number), isLog: r.Limit.IsLog, counts: r.Limit.Algorithm.Row().Counts}
	if sp.isLog {
		sp.kind = kindBit
	}
	// The salt is new each time, so that a rule does not find keys of a released space that are not swept yet.
	sp.salt = maphash.String(m.seed, r.Identity) + uint64(number+1)*0x9e3779b97f4a7c15
	if m.mapped { // the rules of a namespace have each key in the same shard, so that a request under several of them needs one lock
		sp.salt = sp.salt&^m.mask | maphash.String(m.seed, r.Namespace)&m.mask
	}
	sp.limits.Store([]*rate.Limit(nil))
	m.spaces.Store(append(spaces, sp))
	m.byName[r.Identity] = sp
	return sp
}

// Release implements Store.
func (m *Store) Release(r *core.Rule) {
	m.mu.Lock()
	sp := r.InMemory.(*space)
	for i := range sp.rules {
		if sp.rules[i] == r {
			sp.rules = append(sp.rules[:i:i], sp.rules[i+1:]...)
			break
		}
	}
	for _, l := range sp.limits.Load().([]*rate.Limit) {
		if l == r.Limit { // else other limits are stricter
			sp.setLimits()
			break
		}
	}
	if len(sp.rules) == 0 && m.byName[r.Identity] == sp {
		delete(m.byName, r.Identity)
	}
	m.mu.Unlock()
}

// setLimits finds the strictest of the rules' limits.
func (sp *space) setLimits() {
	limits := make([]*rate.Limit, 0, 2)
	for _, r := range sp.rules {
		limits = stricter(limits, r.Limit)
	}
	sp.limits.Store(limits)
}

// stricter adds a limit to a list of the strictest: those of which none is as strict as another. A state that is unused by them
// is unused by all. The tiers of a rule either share one burst, or each have the burst that equals their requests; so the one
// with the fewest requests is usually the only one in the list.
func stricter(limits []*rate.Limit, l *rate.Limit) []*rate.Limit {
	for _, other := range limits {
		if asStrict(other, l) {
			return limits
		}
	}
	list := make([]*rate.Limit, 0, 2)
	for _, other := range limits {
		if !asStrict(l, other) {
			list = append(list, other)
		}
	}
	return append(list, l)
}

// asStrict reports whether a limit a is at least as strict as b: a state that is in use by b is in use by a, and a never leaves
// more than b. Both count the same way, and differ only in their numbers.
func asStrict(a, b *rate.Limit) bool {
	return a.Requests <= b.Requests && a.Burst <= b.Burst
}

// SetMaxKeys changes MaxKeys; 0 means DefaultMaxKeys. If there are more keys already, they are evicted as others come.
func (m *Store) SetMaxKeys(n int) {
	if n <= 0 {
		n = DefaultMaxKeys
	}
	m.maxKeys.Store(int64(n))
}

// Stats is the result of Store.Stats.
type Stats struct {
	Keys      int64 // over all rules
	MaxKeys   int64 // the bound on Keys
	LogBytes  int64 // reserved for the times of logs
	Evictions int64 // keys that were forgotten while they were in use
}

// Stats returns what the store holds.
func (m *Store) Stats() Stats {
	return Stats{Keys: m.keys.Load(), MaxKeys: m.maxKeys.Load(), LogBytes: 4 * m.logTimes.Load(), Evictions: m.evictions.Load()}
}

// Keys returns how many keys of the rule the store holds.
func (m *Store) Keys(r *core.Rule) int64 {
	return r.InMemory.(*space).keys.Load()
}

// Decide implements Store. It never fails.
func (m *Store) Decide(checks []core.Check, peek bool) error {
	if len(checks) == 0 {
		return nil
	}
	if len(checks) == 1 && checks[0].Rule.Overflow == nil {
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
func decideOne(m *Store, c *core.Check, peek bool) {
	r := c.Rule
	sp := r.InMemory.(*space)
	h := (maphash.String(m.seed, c.Key)^sp.salt)&^kindBit | sp.kind
	if h == 0 {
		h = 1
	}
	c.Hash = h
	s := &m.shards[h&m.mask]
	now := m.clock()
	s.mu.Lock()
	i := -1
	if s.index == nil {
		i = find(s, h)
	} else if at, ok := s.index[h]; ok {
		i = at
	}
	if r.Limit.Spread {
		decideSpread(s, c, i, r.Limit, now, c.Cost)
	} else if r.Limit.IsLog {
		decideInLog(s, i, r.Limit, now, c.Cost, &c.Decision)
	} else {
		c.State = rate.State{}
		if i >= 0 {
			c.State = s.slots[i].state
		}
		rate.Decide(r.Limit, &c.State, now, c.Cost, &c.Next, &c.Decision)
	}
	if !peek && (c.Decision.Allowed || r.CountRejected) {
		chargeKey(m, s, c, i, now)
	}
	if !c.Decision.Allowed && i >= 0 {
		if !peek {
			s.owners[i] |= rejected
			noteCost(c)
		}
		if s.slots[i].state.A >= rate.BlockMark {
			rate.StepBack(&s.slots[i].state, now)
		}
	}
	s.mu.Unlock()
}

// decideAll locks the shards of all keys in ascending order, evaluates every check, and charges those that are to be charged.
func (m *Store) decideAll(checks []core.Check, peek bool) {
	lockAll(m, checks)
	now := m.clock()
	admit := true
	for i := range checks {
		c := &checks[i]
		s := &m.shards[c.Hash&m.mask]
		slot := -1
		if s.index == nil {
			slot = find(s, c.Hash)
		} else if at, ok := s.index[c.Hash]; ok {
			slot = at
		}
		c.Slot = slot
		if c.Rule.Limit.Spread {
			decideSpread(s, c, slot, c.Rule.Limit, now, c.Cost)
		} else if c.Rule.Limit.IsLog {
			decideInLog(s, slot, c.Rule.Limit, now, c.Cost, &c.Decision)
		} else {
			c.State = rate.State{}
			if slot >= 0 {
				c.State = s.slots[slot].state
			}
			rate.Decide(c.Rule.Limit, &c.State, now, c.Cost, &c.Next, &c.Decision)
		}
		if !c.Decision.Allowed && !c.Rule.Shadow {
			admit = false
		}
	}
	moved := false // a new key has come, so that others may have moved
	for i := range checks {
		c := &checks[i]
		s := &m.shards[c.Hash&m.mask]
		if moved {
			c.Slot = find(s, c.Hash)
		}
		allowed := c.Decision.Allowed
		if allowed && admit && !peek && c.Slot >= 0 && !c.Rule.Limit.IsLog { // as chargeKey does
			s.slots[c.Slot].state = c.Next
			continue
		}
		if allowed && !admit { // the state of a rule that would have allowed what another rejects
			if c.Rule.Limit.Spread {
				decideSpread(s, c, c.Slot, c.Rule.Limit, now, 0)
			} else if c.Rule.Limit.IsLog {
				decideInLog(s, c.Slot, c.Rule.Limit, now, 0, &c.Decision)
			} else {
				rate.Decide(c.Rule.Limit, &c.State, now, 0, &c.Next, &c.Decision)
			}
		} else if !peek && (allowed || c.Rule.CountRejected) {
			moved = moved || c.Slot < 0
			chargeKey(m, s, c, c.Slot, now)
		}
		if !c.Decision.Allowed {
			if slot := find(s, c.Hash); slot >= 0 {
				if !peek {
					s.owners[slot] |= rejected
					noteCost(c)
				}
				rate.StepBack(&s.slots[slot].state, now)
			}
		}
	}
	for i := range checks {
		if checks[i].Locked {
			m.shards[checks[i].Hash&m.mask].mu.Unlock()
		}
	}
}

// lockAll computes the checks' hashes, and locks their shards in ascending order.
func lockAll(m *Store, checks []core.Check) {
	for i := range checks {
		c := &checks[i]
		sp := c.Rule.InMemory.(*space)
		c.Hash = (maphash.String(m.seed, c.Key)^sp.salt)&^kindBit | sp.kind
		if c.Hash == 0 {
			c.Hash = 1
		}
		c.Locked = false
	}
	last := -1
	for {
		next, which := -1, 0
		for i := range checks {
			s := int(checks[i].Hash & m.mask)
			if s > last && (next < 0 || s < next) {
				next = s
				which = i
			}
		}
		if next < 0 {
			return
		}
		m.shards[next].mu.Lock()
		checks[which].Locked = true
		last = next
	}
}

// chargeKey writes the state after the request, for the key in slot i, or for a new one if i is negative. A rejected request is
// decided again by the new state, since count_rejected makes it wait longer.
func chargeKey(m *Store, s *shard, c *core.Check, i int, now int64) {
	allowed := c.Decision.Allowed
	if i < 0 {
		i = insertFor(m, s, c, now)
	}
	if c.Rule.Limit.IsLog {
		chargeInLog(m, s, i, c.Rule.InMemory.(*space), c.Rule.Limit, c.Cost, c.Rule.Limit.Requests)
		if !allowed {
			decideInLog(s, i, c.Rule.Limit, now, c.Cost, &c.Decision)
		}
		return
	}
	s.slots[i].state = c.Next
	if !allowed {
		c.State = c.Next
		rate.Decide(c.Rule.Limit, &c.State, now, c.Cost, &c.Next, &c.Decision)
	}
}

// decideInLog decides by the log of the key in slot i, or by an empty one if i is negative. A log's state has its number in A,
// and in B the time of the last look at it, or the beginning of the segment then. A key that is blocked by hand has no log.
func decideInLog(s *shard, i int, l *rate.Limit, now, cost int64, d *rate.Decision) {
	if i < 0 {
		var none rate.EventLog
		rate.DecideLog(l, &none, 0, now, cost, d)
		return
	}
	slot := &s.slots[i]
	if slot.state.A >= rate.BlockMark {
		if left := rate.BlockedFor(&slot.state, now); left > 0 {
			rate.DecideBlocked(l, left, cost, d)
			return
		}
		startLog(s, i, now)
	}
	if l.Algorithm == rate.SlidingWindowLog { // not by DecideLog, since a call more costs an interpreter 3 %
		slot.state.B = rate.DecideSlidingWindowLog(l, &s.logs[slot.state.A], slot.state.B, now, cost, d)
		return
	}
	slot.state.B = rate.DecideLog(l, &s.logs[slot.state.A], slot.state.B, now, cost, d)
}

// startLog gives the key in slot i an empty log.
func startLog(s *shard, i int, now int64) {
	s.slots[i].state.A = int64(newLog(s, s.slots[i].hash))
	s.slots[i].state.B = now
}

// chargeInLog charges the log of the key in slot i at the time of the last look at it. For most see ChargeLog.
func chargeInLog(m *Store, s *shard, i int, sp *space, l *rate.Limit, cost, most int64) {
	slot := &s.slots[i]
	if rate.IsBlocked(&slot.state) {
		return
	}
	if l.Algorithm == rate.SlidingWindowLog { // as in decideInLog
		m.countTimes(sp, rate.ChargeSlidingWindowLog(l, &s.logs[slot.state.A], slot.state.B, cost, int(most)))
		return
	}
	m.countTimes(sp, rate.ChargeLog(l, &s.logs[slot.state.A], slot.state.B, cost, int(most)))
}

// readyLog makes the log of the key in slot i ready for take: it drops what has expired, and makes room for an entry. It returns false if take
// would give up even then: if the request is rejected, or if there would be more times in logs than there may be, among other rare cases.
func readyLog(m *Store, s *shard, i int, sp *space, l *rate.Limit, now int64) bool {
	state := &s.slots[i].state
	if state.A >= rate.BlockMark || state.B > now {
		return false
	}
	var d rate.Decision
	decideInLog(s, i, l, now, 0, &d)
	log := &s.logs[state.A]
	if d.Remaining == 0 {
		return false
	}
	if log.N == len(log.Times) {
		if m.logTimes.Load()+l.Requests > logBudgetFloor {
			return false
		}
		m.countTimes(sp, rate.GrowLog(log, 1, int(l.Requests)))
	}
	return true
}
