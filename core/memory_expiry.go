package core

// logBudgetFloor is the number of times that all logs together may hold in the smallest of stores: ten full logs of the
// largest limit, 4 MB.
const logBudgetFloor = 10 * MaxLogRequests

// logBudget returns how many times all logs together may hold.
func (m *Memory) logBudget() int64 {
	budget := 64 * m.maxKeys.Load()
	if budget < logBudgetFloor {
		return logBudgetFloor
	}
	return budget
}

// standing says what forgetting the key in slot i would cost.
type standing struct {
	space      *space
	class      int     // see below
	share      float64 // of the quota that is in use, by the strictest open limit
	population int64   // keys that its rule has
	offences   int     // of a key that is shut out; above all of them where it is by hand
	reset      int64   // microseconds until it is unused again
}

// The classes, from what costs nothing to forget to what costs most.
const (
	expired   = iota // unused, or of a rule that is gone
	inUse            // some of the quota is left
	exhausted        // a request would be rejected now
	rejecting        // and one was
	shutOut          // by a penalty, or by hand
	underWay         // requests have reserved something: it is not forgotten at all
)

// appraise says how the key in slot i stands.
func (m *Memory) appraise(s *shard, i int, now int64, st *standing) {
	owner := s.owners[i]
	sp := m.spaces.Load().([]*space)[owner&^marks]
	*st = standing{}
	if owner&accounted != 0 {
		m.fallDueIn(s, i, now)
	}
	limits := sp.limits.Load().([]*Limit)
	if left := shutFor(&s.slots[i].state, now); left > 0 && len(limits) > 0 {
		st.class = shutOut
		st.offences = MaxPenalties + 1
		st.reset = left
		limits = nil
	}
	for _, l := range limits {
		var d Decision
		if sp.isLog {
			decideInLog(s, i, l, now, 0, &d)
		} else {
			var next State
			decide(l, &s.slots[i].state, now, 0, &next, &d)
		}
		if d.ResetAfter == 0 {
			continue
		}
		if st.class < inUse {
			st.class = inUse
		}
		if d.Remaining == 0 && st.class < exhausted {
			st.class = exhausted
		}
		if share := 1 - float64(d.Remaining)/float64(d.Limit); share > st.share {
			st.share = share
		}
		if d.ResetAfter > st.reset {
			st.reset = d.ResetAfter
		}
	}
	if owner&accounted != 0 {
		m.appraiseAccount(s, i, now, st)
	}
	if st.class == expired {
		return
	}
	if st.class == exhausted && owner&rejected != 0 {
		st.class = rejecting
	}
	st.population = sp.keys.Load()
	st.space = sp
}

// isExpired reports whether the key in slot i is unused: appraise says more, and costs more.
func (m *Memory) isExpired(s *shard, i int, now int64) bool {
	owner := s.owners[i]
	if owner&accounted != 0 && !m.isIdle(s, i, now) {
		return false
	}
	sp := m.spaces.Load().([]*space)[owner&^marks]
	for _, l := range sp.limits.Load().([]*Limit) {
		if sp.isLog {
			var d Decision
			decideInLog(s, i, l, now, 0, &d)
			if d.ResetAfter != 0 {
				return false
			}
		} else if !unused(l, &s.slots[i].state, now) {
			return false
		}
	}
	return true
}

// cheaper reports whether a costs less to forget than b. What is unused goes first, and who is shut out goes last, by hand last of all. Then a rule pays that has far more keys
// than the other, whatever state they are in, so that a flood on one rule does not reset the counters of another; then the
// class decides, then the offences of who is shut out, or the share in use, then which recovers sooner. But of keys of one rule that would be rejected now the
// newest goes, which recovers last: a flood that is rejected is newer than those whom it is to wash away.
func cheaper(a, b *standing) bool {
	if a.class == expired || b.class == expired {
		return a.class < b.class
	}
	if a.class != b.class && (a.class >= shutOut || b.class >= shutOut) {
		return a.class < b.class
	}
	if byHand := a.offences > MaxPenalties; a.class == shutOut && byHand != (b.offences > MaxPenalties) {
		return !byHand
	}
	if a.population/8 > b.population || b.population/8 > a.population {
		return a.population > b.population
	}
	if a.class != b.class {
		return a.class < b.class
	}
	if a.class == inUse && a.share != b.share {
		return a.share < b.share
	}
	if a.class == shutOut && a.offences != b.offences {
		return a.offences < b.offences
	}
	if a.class != inUse && a.space == b.space {
		return a.reset > b.reset
	}
	return a.reset < b.reset
}

// expire looks at the next k slots of a shard, and forgets the keys in them that are unused again. It returns how many of
// those were uncounted's, which are left for the caller to count.
func (m *Memory) expire(s *shard, k int, now int64, uncounted *space) int64 {
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
		if !m.isExpired(s, i, now) {
			s.cursor++
			continue
		}
		if sp := m.remove(s, i); sp == uncounted { // another key may have moved to i
			forgotten++
		} else {
			m.count(sp, -1)
		}
	}
	return forgotten
}

// evict brings the store back within its bounds after checks were charged. The keys just charged are spared. More keys may
// go than have come, so that a lowered bound is reached, but not so many that a request would be held up by it. It holds one
// lock at a time.
func (m *Memory) evict(checks []Check) {
	budget := m.logBudget()
	for try := 0; try < 4+len(checks) && m.keys.Load() > m.maxKeys.Load() && m.evictKey(checks, try); try++ {
	}
	missed := 0
	for try := 0; try < 8 && missed < 3 && m.logTimes.Load() > budget; try++ {
		if !m.evictLog(checks, try) {
			missed++
		}
	}
}

// How many keys are compared, and how many of one shard at most: shards differ in how full they are, and the only key of one
// must not go for want of others.
const (
	samples       = 8
	samplesAShard = 2
	looks         = 4 * samplesAShard // in a shard, of which some find free slots
)

// victim is the key that costs least to forget of those considered.
type victim struct {
	standing
	hash  uint64
	shard int
	seen  int // how many were considered
}

// consider compares the key in slot i with the victim so far.
func (m *Memory) consider(v *victim, number, i int, now int64) {
	s := &m.shards[number]
	var st standing
	m.appraise(s, i, now, &st)
	if v.seen == 0 || cheaper(&st, &v.standing) {
		v.standing = st
		v.hash = s.slots[i].hash
		v.shard = number
	}
	v.seen++
}

// forget removes the victim, and reports whether there was any.
func (m *Memory) forget(v *victim) bool {
	if v.seen == 0 || v.class == underWay {
		return false
	}
	s := &m.shards[v.shard]
	s.mu.Lock()
	i := find(s, v.hash)
	if i >= 0 && v.class != shutOut && isShut(&s.slots[i].state) { // by hand, since it was looked at
		i = -1
	}
	if i >= 0 && s.owners[i]&accounted != 0 { // a request may have come since then
		var now standing
		m.appraiseAccount(s, i, m.clock(), &now)
		if now.class == underWay {
			i = -1
		}
	}
	if i >= 0 {
		m.count(m.remove(s, i), -1)
		if v.class != expired {
			m.evictions.Add(1)
		}
	}
	s.mu.Unlock()
	return true
}

// evictKey forgets one of eight keys sampled from all shards.
func (m *Memory) evictKey(checks []Check, try int) bool {
	now := m.clock()
	random := scramble(checks[0].hash ^ uint64(now) + uint64(try))
	first := random
	var v victim
	for visited := 0; visited < len(m.shards) && v.seen < samples; visited++ {
		number := int((first + uint64(visited)) & m.mask)
		s := &m.shards[number]
		s.mu.Lock()
		enough := v.seen + samplesAShard
		for look := 0; look < looks && s.n > 0 && v.seen < samples && v.seen < enough; look++ {
			random = scramble(random)
			i := int(random % uint64(len(s.slots)))
			// Only where nothing else was found is the next key behind a gap taken: it stays the next one for long if it is
			// worth keeping, so it would come up too often.
			for gap := 0; gap < 64 && look == looks-1 && v.seen == enough-samplesAShard && s.slots[i].hash == 0; gap++ {
				i++
				if i == len(s.slots) {
					i = 0
				}
			}
			if h := s.slots[i].hash; h != 0 && !charged(checks, h) {
				m.consider(&v, number, i, now)
			}
		}
		s.mu.Unlock()
	}
	return m.forget(&v)
}

// How many logs a try looks at, and up to how many in one shard.
const (
	logLooks       = 2048
	logLooksAShard = 256
)

// evictLog forgets one of some thousand logs, one that holds more than a key's share of the budget: whose log is smaller
// never pays for the memory of the others, and while the bound on keys is kept there are larger ones whenever the budget is
// passed. The rule pays whose logs take far the most, then what is far the largest, so that one dear request makes one dear
// log go; then what costs least.
func (m *Memory) evictLog(checks []Check, try int) bool {
	share := int(m.logBudget() / m.maxKeys.Load())
	spaces := m.spaces.Load().([]*space)
	now := m.clock()
	random := scramble(checks[0].hash ^ uint64(now) + uint64(try))
	var v victim
	ruleTimes, size := int64(0), 0 // of the victim so far
	looked := 0
	for visited := 0; visited < len(m.shards) && looked < logLooks; visited++ {
		number := int((random + uint64(visited)) & m.mask)
		s := &m.shards[number]
		s.mu.Lock()
		for look := 0; look < logLooksAShard && look < len(s.logs); look++ {
			looked++
			k := int((random>>32 + uint64(look)) % uint64(len(s.logs)))
			n := len(s.logs[k].times)
			if n <= share || charged(checks, s.logHashes[k]) {
				continue
			}
			i := find(s, s.logHashes[k])
			if i < 0 || int(s.owners[i]&^marks) >= len(spaces) {
				continue
			}
			times := spaces[s.owners[i]&^marks].logTimes.Load()
			switch {
			case v.seen == 0 || times/8 > ruleTimes || times >= ruleTimes/8 && n/2 > size:
				v.seen = 0
				m.consider(&v, number, i, now)
			case times < ruleTimes/8 || n < size/2 || v.seen >= samples:
				continue
			default:
				m.consider(&v, number, i, now)
			}
			if v.hash == s.logHashes[k] {
				ruleTimes = times
				size = n
			}
		}
		s.mu.Unlock()
	}
	return m.forget(&v)
}

// scramble is a step of splitmix64 (Steele, Lea and Flood, 2014).
func scramble(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func charged(checks []Check, h uint64) bool {
	for i := range checks {
		if checks[i].hash == h {
			return true
		}
	}
	return false
}

// Sweep forgets every key that is unused again, and gives back what memory the tables no longer need. It looks at
// some keys at a time under a shard's lock, for microseconds, and may run beside anything else.
func (m *Memory) Sweep() {
	batch := 256
	if m.mapped { // interpreted, each takes microseconds
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
			m.expire(s, batch, m.clock(), nil)
			left -= batch - (before - s.n) // where a key was forgotten there is another now, to be looked at
			if s.n == 0 || left <= 0 {
				m.shrink(s)
				left = -1
			}
			s.mu.Unlock()
		}
	}
	m.bury()
}

// bury lets go of the spaces that no rule and no key needs any more, but for their numbers. A request that is still under way
// by a released rule may yet charge a key under such a number: it finds a space in which every key is expired.
func (m *Memory) bury() {
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

// shrink gives back memory that a shard has no use for.
func (m *Memory) shrink(s *shard) {
	if s.n == 0 {
		s.slots = nil // one by one: Yaegi knows no `a, b = nil, nil`
		s.owners = nil
		s.logs = nil
		s.logHashes = nil
		s.freeLogs = nil
		s.accounts = nil
		s.home = 0
		s.cursor = 0
		if s.index != nil {
			s.index = make(map[uint64]int)
		}
		return
	}
	if s.index == nil && s.home > 4*minHome && s.n < s.home/3 {
		m.rebuild(s, s.n*3/2)
	}
	for i := range s.logs {
		log := &s.logs[i]
		if len(log.times) > 16 && log.n < len(log.times)/4 {
			before := len(log.times)
			resizeLog(log, before/2)
			if slot := find(s, s.logHashes[i]); slot >= 0 {
				m.countTimes(m.spaces.Load().([]*space)[s.owners[slot]&^marks], len(log.times)-before)
			}
		}
	}
}
