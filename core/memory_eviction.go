package core

import "math/bits"

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

// standing says what forgetting a key would cost.
type standing struct {
	class      int     // see below
	rank       int     // 0: its zone pays; else the higher, the later: see levelBelow
	size       int     // of its log, by powers of two; 0 where keys are counted, and not times
	share      float64 // of the quota that is in use, by the strictest open limit
	offences   int     // of a key that has a penalty
	population int64   // of its zone
	zone       uint32  // number of its space
	charged    int64   // when a bucket was last charged: limits of one zone may differ in how long it takes to drain
	reset      int64   // microseconds until it is unused again
}

// The classes, from what costs nothing to forget to what costs most.
const (
	expired   = iota // unused, or of a rule that is gone
	inUse            // some of the quota is left
	exhausted        // a request would be rejected now
	rejecting        // and one was
	block            // by a penalty
	byHand           // shut out by hand
	underWay         // requests have reserved something: it is not forgotten at all
)

// appraise says how the key in slot i stands, but for its rank and size.
func (m *Memory) appraise(s *shard, i int, now int64, st *standing) {
	owner := s.owners[i]
	sp := m.spaces.Load().([]*space)[owner&^marks]
	*st = standing{}
	if owner&accounted != 0 {
		m.fallDueIn(s, i, now)
	}
	limits := sp.limits.Load().([]*Limit)
	cost := sp.cost.Load()
	if left := blockedFor(&s.slots[i].state, now); left > 0 && len(limits) > 0 {
		st.class = byHand
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
		if (d.Remaining == 0 || d.Remaining < cost) && st.class < exhausted { // what a cost does not divide is never used up
			st.class = exhausted
		} else if l.queues && d.ResetAfter > l.maxDelay && st.class < exhausted { // its queue has room, but is too long
			st.class = exhausted
		}
		if share := 1 - float64(d.Remaining)/float64(d.Limit); share > st.share {
			st.share = share
		}
		if d.ResetAfter > st.reset {
			st.reset = d.ResetAfter
		}
		if l.isBucket {
			st.charged = s.slots[i].state.A & (1<<timeBits - 1)
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
	st.population = sp.population()
	st.zone = owner &^ marks
}

// noteCost notes what a request cost that was rejected: with less than that a key has nothing left that is of use.
func noteCost(c *Check) {
	sp := c.Rule.space
	if c.Cost > 1 && c.Decision.RetryAfter != Never && c.Cost > sp.cost.Load() {
		sp.cost.Store(c.Cost)
	}
}

// cheaper reports whether a costs less to forget than b. It is a strict weak order, so that the choice does not depend on the order in
// which keys are looked at: each line decides among those that all lines before it hold for equal.
//
// What is unused goes first, and who is shut out by hand last. Else the zone decides, whatever state its keys are in, since
// it is up to a flood in which state they are. In the zone the class decides, and the share in use, or the offences of who
// is shut out. Of keys that are rejected, the newest goes, which was charged or recovers last: a flood is newer than those whom it is to
// wash away.
func cheaper(a, b *standing) bool {
	if a.class != b.class && (a.class == expired || b.class == expired || a.class >= byHand || b.class >= byHand) {
		return a.class < b.class
	}
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	if a.size != b.size {
		return a.size > b.size
	}
	if a.class != b.class {
		return a.class < b.class
	}
	if a.class == inUse && a.share != b.share {
		return a.share < b.share
	}
	if a.class == block && a.offences != b.offences {
		return a.offences < b.offences
	}
	if a.population != b.population {
		return a.population > b.population
	}
	if a.zone != b.zone { // their periods say nothing of who is newer
		return a.zone < b.zone
	}
	if a.class == inUse {
		return a.reset < b.reset
	}
	if a.charged != b.charged {
		return a.charged > b.charged
	}
	return a.reset > b.reset
}

// levelBelow returns how far a zone's population is below the largest: 0 down to an eighth of it, 1 to an eighth of that, and so on.
func levelBelow(population, most int64) int {
	level := 0
	for most/8 > population {
		most /= 8
		level++
	}
	return level
}

// population is how many of its keys a zone may have to pay with: not those that requests under way hold, which are not counted
// where keys are bounded, nor those that are shut out by hand. One that is both is left out twice, which is next to never.
func (sp *space) population() int64 {
	return sp.keys.Load() - sp.kept.Load()
}

// evict brings the store back within its bounds after checks were charged. The keys just charged are spared. More keys may
// go than have come, so that a lowered bound is reached, but not so many that a request would be held up by it. A try may miss by chance,
// and three do not in a row, unless most keys are under way. It holds one lock at a time.
func (m *Memory) evict(checks []Check) {
	missed := 0
	for try := 0; try < 4+len(checks) && missed < 3 && m.keys.Load()-m.underWay.Load() > m.maxKeys.Load(); try++ {
		if !m.evictKey(checks, try) {
			missed++
		}
	}
	budget := m.logBudget()
	missed = 0
	for try := 0; try < 8 && missed < 3 && m.logTimes.Load() > budget; try++ {
		if !m.evictLog(checks, try) {
			missed++
		}
	}
}

// How many keys are compared, and how many of one shard at most: shards differ in how full they are, and the only key of one
// must not go for want of others. They are looked for among more, since most may be of zones that do not pay.
const (
	samples       = 8
	samplesAShard = 2
	mostAppraised = 4 * samples // where many are under way
	mostLooks     = 256
	farLooks      = 4 * mostLooks // where fewer than enoughSeen of the zone that pays are found
	enoughSeen    = 6
	looksAShard   = 32
	freeLooks     = 16      // of free places, where most are free, so many count as one
	otherZones    = samples // of the keys that are looked at, so many have their zone compared with the one that is to pay
)

// strictFrom is what part of all keys a zone must have to pay alone. Where all have less, there are more zones than could be told
// apart by looking at some keys of each.
const strictFrom = 16

// steps are primes, so that steps of one through a table come by all of its slots. Where keys stand as they came, and not by their
// hashes, neighbours are of one time.
var steps = []int{2147483647, 2147483629, 2147483587, 2147483579}

// victim is the key that costs least to forget of those considered.
type victim struct {
	standing
	hash  uint64
	shard int
	seen  int // how many were considered
}

// consider compares the key in slot i with the victim so far, and reports whether it may be forgotten at all.
func (m *Memory) consider(v *victim, number, i int, st *standing) {
	if v.seen == 0 || cheaper(st, &v.standing) {
		v.standing = *st
		v.hash = m.shards[number].slots[i].hash
		v.shard = number
	}
	v.seen++
}

// forget removes the victim.
func (m *Memory) forget(v *victim) {
	s := &m.shards[v.shard]
	s.mu.Lock()
	i := find(s, v.hash)
	if i >= 0 && v.class != byHand && s.owners[i]&handMark != 0 { // since it was looked at
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
}

// payerOfKeys returns the zone with the most keys, and how many: the one that was it, or one of the checks. A zone grows by a request, so
// that this finds it as soon as it is that.
func payerOfKeys(checks []Check, spaces []*space, before int64) (payer, most int64) {
	payer = before
	if payer < int64(len(spaces)) {
		most = spaces[payer].population()
	}
	for i := range checks {
		sp := checks[i].Rule.space
		if p := sp.population(); p > most {
			payer = int64(sp.number)
			most = p
		}
	}
	return payer, most
}

// wayThrough returns from which place of a shard's table to look, by which steps, and at how many places.
func (m *Memory) wayThrough(s *shard, random uint64) (from, step, looks int) {
	size := len(s.owners)
	if s.n == 0 || size == 0 {
		return 0, 1, 0
	}
	looks = looksAShard
	if looks > size {
		looks = size
	}
	from = int(random % uint64(size))
	step = 1
	if m.mapped {
		step = steps[int(random>>60)%len(steps)] % size
	}
	return from, step, looks
}

// evictKey forgets one key, and reports whether it found any. The zone with the most keys pays, and in it the one that costs least of
// eight sampled from all shards. Something expired that is found on the way goes instead.
//
// Who is shut out by hand is forgotten only where those are too many all by themselves.
func (m *Memory) evictKey(checks []Check, try int) bool {
	now := m.clock()
	spaces := m.spaces.Load().([]*space)
	before := m.payer.Load()
	payer, most := payerOfKeys(checks, spaces, before)
	hands := m.byHand.Load()
	all := m.keys.Load() - m.underWay.Load() - hands
	strict := most*strictFrom >= all
	base := most
	spareHand := hands <= m.maxKeys.Load()
	random := scramble(checks[0].hash ^ uint64(now) + uint64(try))
	first := random
	var v victim
	var st standing
	looked, others, appraised, free := 0, 0, 0, 0
	looks := mostLooks
	for visited := 0; visited < len(m.shards) && v.seen < samples && looked < looks && appraised < mostAppraised; visited++ {
		number := int((first + uint64(visited)) & m.mask)
		s := &m.shards[number]
		random = scramble(random)
		s.mu.Lock()
		owners := s.owners
		size := len(owners)
		i, step, left := m.wayThrough(s, random)
		sparse := s.n*4 < size // as is the table of a store with few keys in many shards, or with fewer than it had
		enough := v.seen + samplesAShard
		for ; left > 0 && v.seen < enough; left-- {
			i += step
			if i >= size {
				i -= size
			}
			if sparse && s.slots[i].hash == 0 {
				free++
				if free%freeLooks == 0 {
					looked++
				}
				continue
			}
			owner := owners[i] // of a free slot that of a key that was there
			zone := int64(owner &^ marks)
			if zone != payer && others >= otherZones && strict {
				looked++
				continue
			}
			h := s.slots[i].hash
			if h == 0 || zone >= int64(len(spaces)) || charged(checks, h) {
				continue
			}
			looked++
			if zone != payer {
				others++
				if p := spaces[zone].population(); p > most {
					payer = zone
					most = p
					if strict || most*strictFrom >= all {
						strict = true
						v.seen = 0
					}
				} else if strict && (spareHand || owner&handMark == 0) && !m.isExpired(s, i, now) {
					continue
				}
			}
			m.appraise(s, i, now, &st)
			appraised++
			if owner&handMark != 0 && st.class < byHand {
				m.unmarkHand(s, i)
			} else if st.class == byHand { // again, since a clock has stepped back
				m.markHand(s, i)
			}
			if st.class == underWay || st.class == byHand && spareHand {
				continue
			}
			if st.class == expired {
				v.seen = 0
				m.consider(&v, number, i, &st)
				v.seen = samples
				break
			}
			if !strict {
				st.rank = levelBelow(st.population, base)
			}
			m.consider(&v, number, i, &st)
		}
		s.mu.Unlock()
		if looked >= mostLooks && v.seen < enoughSeen && v.class > exhausted { // those few may be all that are so dear
			looks = farLooks
		}
	}
	if payer != before {
		m.payer.Store(payer)
	}
	if v.seen == 0 {
		return false
	}
	if try == 0 && v.seen < enoughSeen && v.class > exhausted && most > samples { // look once more
		return false
	}
	m.forget(&v)
	return true
}

// How many logs a try looks at, and up to how many in one shard.
const (
	logLooks       = 2048
	logLooksAShard = 256
)

// excess returns how many times a zone's logs hold beyond what its keys have a share in.
func (sp *space) excess(share int64) int64 {
	return sp.logTimes.Load() - share*sp.keys.Load()
}

// payerOfLogs is payerOfKeys for the zone with the largest excess.
func payerOfLogs(checks []Check, spaces []*space, before, share int64) (payer, most int64) {
	payer = before
	if payer < int64(len(spaces)) {
		most = spaces[payer].excess(share)
	}
	for i := range checks {
		sp := checks[i].Rule.space
		if e := sp.excess(share); sp.isLog && e > most {
			payer = int64(sp.number)
			most = e
		}
	}
	return payer, most
}

// evictLog forgets one of some thousand logs, one that holds more than a key's share of the budget, and reports whether it found any:
// whose log is smaller never pays for the memory of the others, and while the bound on keys is kept there are larger ones
// whenever the budget is passed. The zone pays whose logs hold the most beyond the shares of its keys, and in it what is the largest
// log, by powers of two, so that one dear request makes one dear log go; then what costs least.
func (m *Memory) evictLog(checks []Check, try int) bool {
	now := m.clock()
	spaces := m.spaces.Load().([]*space)
	share := m.logBudget() / m.maxKeys.Load()
	before := m.logPayer.Load()
	payer, most := payerOfLogs(checks, spaces, before, share)
	all := m.logTimes.Load()
	strict := most*strictFrom >= all
	base := most
	random := scramble(checks[0].hash ^ uint64(now) + uint64(try))
	var v victim
	var st standing
	looked := 0
	for visited := 0; visited < len(m.shards) && looked < logLooks; visited++ {
		number := int((random + uint64(visited)) & m.mask)
		s := &m.shards[number]
		s.mu.Lock()
		for look := 0; look < logLooksAShard && look < len(s.logs); look++ {
			looked++
			k := int((random>>32 + uint64(look)) % uint64(len(s.logs)))
			n := len(s.logs[k].times)
			if int64(n) <= share || charged(checks, s.logHashes[k]) {
				continue
			}
			size := bits.Len(uint(n))
			if strict && v.seen >= samples && size <= v.size {
				continue
			}
			i := find(s, s.logHashes[k])
			if i < 0 {
				continue
			}
			zone := int64(s.owners[i] &^ marks)
			if zone >= int64(len(spaces)) {
				continue
			}
			rank := 0
			if zone != payer {
				e := spaces[zone].excess(share)
				if e > most {
					payer = zone
					most = e
					if strict || most*strictFrom >= all {
						strict = true
						v.seen = 0
					}
				} else if strict {
					continue
				}
				if !strict {
					rank = levelBelow(e, base)
				}
			}
			if v.seen > 0 && (rank > v.rank || rank == v.rank && size < v.size) {
				continue
			}
			if v.seen >= samples && rank == v.rank && size == v.size {
				continue
			}
			m.appraise(s, i, now, &st)
			if st.class == underWay {
				continue
			}
			st.rank = rank
			st.size = size
			if v.seen > 0 && (rank < v.rank || size > v.size) { // those so far count no more
				v.seen = 0
			}
			m.consider(&v, number, i, &st)
		}
		s.mu.Unlock()
	}
	if payer != before {
		m.logPayer.Store(payer)
	}
	if v.seen == 0 {
		return false
	}
	m.forget(&v)
	return true
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
