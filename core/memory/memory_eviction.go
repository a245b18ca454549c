package memory

import (
	"math/bits"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// logBudgetFloor is the least number of times that all logs together may hold, in however small a store: ten full logs of the
// largest limit, 4 MB.
const logBudgetFloor = 10 * rate.MaxLogRequests

// logBudget returns how many times all logs together may hold.
func (m *Store) logBudget() int64 {
	budget := 64 * m.maxKeys.Load()
	if budget < logBudgetFloor {
		return logBudgetFloor
	}
	return budget
}

// standing says what it would cost to forget a key. Here a zone is all keys of one space. When a key must go, one zone pays,
// which means that it loses the key.
type standing struct {
	class      int     // one of the classes below
	rank       int     // 0 for the zone that pays; the higher, the later a key goes: see levelBelow
	size       int     // the log's size as a power of two; 0 if keys are evicted for their number, not for the size of their logs
	share      float64 // the part of the quota that is in use, by the strictest open limit
	offences   int     // the number of offences, for a key with a penalty
	population int64   // the number of keys in its zone
	zone       uint32  // the number of its space
	charged    int64   // when a bucket was last charged: limits of one zone may differ in how long it takes to drain
	reset      int64   // microseconds until the key is unused again
}

// The classes, from the keys that cost nothing to forget to those that cost most.
const (
	expired   = iota // unused, or of a rule that was released
	inUse            // some of the quota is left
	exhausted        // a request would be rejected now
	rejecting        // exhausted, and a request was rejected
	penalized        // blocked by a penalty
	byHand           // blocked by hand
	underWay         // with requests under way: never forgotten
)

// appraise writes the standing of the key in slot i, except for its rank and size.
func (m *Store) appraise(s *shard, i int, now int64, st *standing) {
	owner := s.owners[i]
	sp := m.spaces.Load().([]*space)[owner&^marks]
	*st = standing{}
	if owner&accounted != 0 {
		m.fallDueIn(s, i, now)
	}
	limits := sp.limits.Load().([]*rate.Limit)
	cost := sp.cost.Load()
	if left := rate.BlockedFor(&s.slots[i].state, now); left > 0 && len(limits) > 0 {
		st.class = byHand
		st.reset = left
		limits = nil
	}
	for _, l := range limits {
		var d rate.Decision
		if sp.isLog {
			decideInLog(s, i, l, now, 0, &d)
		} else {
			var next rate.State
			rate.Decide(l, &s.slots[i].state, now, 0, &next, &d)
		}
		if d.ResetAfter == 0 {
			continue
		}
		if st.class < inUse {
			st.class = inUse
		}
		if (d.Remaining == 0 || d.Remaining < cost) && st.class < exhausted { // a quota that the cost does not divide is never used up
			st.class = exhausted
		} else if l.Queues && d.ResetAfter > l.MaxDelay && st.class < exhausted { // its queue has room, but is too long
			st.class = exhausted
		}
		if share := 1 - float64(d.Remaining)/float64(d.Limit); share > st.share {
			st.share = share
		}
		if d.ResetAfter > st.reset {
			st.reset = d.ResetAfter
		}
		if l.IsBucket {
			st.charged = s.slots[i].state.A & (1<<rate.TimeBits - 1)
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

// noteCost notes the cost of a rejected request: a key with less left than that is exhausted.
func noteCost(c *core.Check) {
	sp := c.Rule.InMemory.(*space)
	if c.Cost > 1 && c.Decision.RetryAfter != rate.Never && c.Cost > sp.cost.Load() {
		sp.cost.Store(c.Cost)
	}
}

// cheaper reports whether a costs less to forget than b. It is a strict weak order, so the result does not depend on the order in
// which keys are looked at: each line decides among keys that are equal by all lines before it.
//
// Unused keys go first, and keys blocked by hand go last. Between them the zone decides, whatever the class: a flood chooses the
// class of its own keys. Within a zone the class decides, then the share in use, or for blocked keys the number of offences.
// Among keys that are rejected the newest goes, which was charged last or recovers last: a flood is newer than the keys that it
// would push out.
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
	if a.class == penalized && a.offences != b.offences {
		return a.offences < b.offences
	}
	if a.population != b.population {
		return a.population > b.population
	}
	if a.zone != b.zone { // keys of different zones cannot be compared by age, since their periods differ
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

// levelBelow returns how far a zone's population, or its excess of logs, is below the largest: 0 down to an eighth of it, 1 down to an eighth of that,
// and so on. An excess may be negative.
func levelBelow(population, most int64) int {
	level := 0
	for most > 0 && most/8 > population {
		most /= 8
		level++
	}
	return level
}

// population returns how many keys the zone can lose. It leaves out keys with requests under way, to which MaxKeys does not
// apply, and keys blocked by hand. A key that is both is subtracted twice, which is very rare.
func (sp *space) population() int64 {
	return sp.keys.Load() - sp.kept.Load()
}

// evict brings the store back within its bounds after checks were charged. It spares the keys just charged. It may forget more
// keys than have come, so that a lowered bound is reached, but not so many that this delays a request. A try may find no key by
// chance; three in a row do not, unless most keys have requests under way. It holds one lock at a time.
func (m *Store) evict(checks []core.Check) {
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

// How many keys a try compares, and how many of one shard at most: some shards have fewer keys than others, and the only key of a
// shard must not go because it is alone there. A try looks at more keys than it compares, since most may be of zones that do not
// pay.
const (
	samples       = 8
	samplesAShard = 2
	mostLooks     = 256
	farLooks      = 4 * mostLooks // if fewer than enoughSeen are found of the zone that pays
	enoughSeen    = 6
	looksAShard   = 32
	freeLooks     = 16      // in a sparse table, so many free slots count as one look
	otherZones    = samples // for so many keys of other zones, a try compares their zone with the one that pays

	farSamples = 8 * samples // if all that were compared are over their limit: then whole shards are looked at
	mostInVain = 63          // evictions after which that is tried again, if it was in vain
)

// strictFrom is the divisor of the part of all keys from which a zone pays alone. If every zone has less than that, there are too
// many zones to find the largest by looking at some keys.
const strictFrom = 16

// steps are primes, so that walking through a table by one of them visits all its slots. They are for Mapped, where keys are in
// the order in which they came, so that neighbours have the same age.
var steps = []int{2147483647, 2147483629, 2147483587, 2147483579}

// victim is the key that costs least to forget among those considered.
type victim struct {
	standing
	hash  uint64
	shard int
	seen  int // how many keys were considered
}

// consider makes the key in slot i the victim if it costs less to forget than the victim so far.
func (m *Store) consider(v *victim, number, i int, st *standing) {
	if v.seen == 0 || cheaper(st, &v.standing) {
		v.standing = *st
		v.hash = m.shards[number].slots[i].hash
		v.shard = number
	}
	v.seen++
}

// forget removes the victim, unless it was blocked by hand or has got a request under way since it was considered.
func (m *Store) forget(v *victim) {
	s := &m.shards[v.shard]
	s.mu.Lock()
	i := find(s, v.hash)
	if i >= 0 && v.class != byHand && s.owners[i]&handMark != 0 { // it was blocked since
		i = -1
	}
	if i >= 0 && s.owners[i]&accounted != 0 { // it may have got a request since
		var now standing
		m.appraiseAccount(s, i, m.clock(), &now)
		if now.class == underWay {
			i = -1
		}
	}
	if i >= 0 {
		countKeys(m, removeKey(m, s, i), -1)
		if v.class != expired {
			m.evictions.Add(1)
		}
	}
	s.mu.Unlock()
}

// payerOfKeys returns the number and population of the zone with the most keys: the previous one, or that of a check. Zones grow
// by requests, so this finds a new one as soon as it is the largest.
func payerOfKeys(checks []core.Check, spaces []*space, before int64) (payer, most int64) {
	payer = before
	if payer < int64(len(spaces)) {
		most = spaces[payer].population()
	}
	for i := range checks {
		sp := checks[i].Rule.InMemory.(*space)
		if p := sp.population(); p > most {
			payer = int64(sp.number)
			most = p
		}
	}
	return payer, most
}

// wayThrough returns at which slot of a shard's table to start, by which steps to go on, and how many slots to look at.
func (m *Store) wayThrough(s *shard, random uint64) (from, step, looks int) {
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

// looksFar reports whether a try goes on that has found only keys over their limit. In a small store these may be a large part of all, and all of a few
// by chance, while a flood has brought others. If the flood's own keys are over their limit, to go on is in vain: so it is tried less and less often then.
func (m *Store) looksFar() bool {
	if m.spared.Load() > 0 {
		m.spared.Add(-1)
		return false
	}
	return true
}

func (m *Store) hasLookedFar(found bool) {
	next := int64(0)
	if !found {
		if next = 2*m.inVain.Load() + 1; next > mostInVain {
			next = mostInVain
		}
	}
	m.inVain.Store(next)
	m.spared.Store(next)
}

// evictKey forgets one key, and reports whether it found any. The zone with the most keys pays: of eight of its keys, sampled
// from all shards, it loses the one that costs least; of more, if all eight are over their limit. If an expired key is found on the way, that goes
// instead.
//
// Keys blocked by hand are forgotten only if they alone are more than MaxKeys.
func (m *Store) evictKey(checks []core.Check, try int) bool {
	now := m.clock()
	spaces := m.spaces.Load().([]*space)
	before := m.payer.Load()
	payer, most := payerOfKeys(checks, spaces, before)
	hands := m.byHand.Load()
	all := m.keys.Load() - m.underWay.Load() - hands
	strict := most*strictFrom >= all
	base := most
	spareHand := hands <= m.maxKeys.Load()
	random := scramble(checks[0].Hash ^ uint64(now) + uint64(try))
	first := random
	var v victim
	var st standing
	looked, others, appraised, free := 0, 0, 0, 0
	looks, compares, visits, far := mostLooks, samples, len(m.shards), false
	for visited := 0; visited < visits && v.seen < compares && looked < looks && appraised < 4*compares; visited++ {
		number := int((first + uint64(visited)) & m.mask)
		s := &m.shards[number]
		random = scramble(random)
		s.mu.Lock()
		owners := s.owners
		size := len(owners)
		i, step, left := m.wayThrough(s, random)
		sparse := s.n*4 < size // as in a store with few keys in many shards, or with fewer keys than it once had
		enough := v.seen + samplesAShard
		if far {
			left, enough = size, compares
		}
		for ; left > 0 && v.seen < enough && looked < looks && !(far && v.class <= exhausted); left-- {
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
			owner := owners[i] // for a free slot, that of an earlier key
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
				} else if strict && (spareHand || owner&handMark == 0) && !keyExpired(m, s, i, now) {
					continue
				}
			}
			m.appraise(s, i, now, &st)
			appraised++
			if owner&handMark != 0 && st.class < byHand {
				m.unmarkHand(s, i)
			} else if st.class == byHand { // blocked again, since the clock has stepped back
				m.markHand(s, i)
			}
			if st.class == underWay || st.class == byHand && spareHand {
				continue
			}
			if st.class == expired {
				v.seen = 0
				m.consider(&v, number, i, &st)
				v.seen = farSamples
				break
			}
			if !strict {
				st.rank = levelBelow(st.population, base)
			}
			m.consider(&v, number, i, &st)
		}
		s.mu.Unlock()
		if looked >= mostLooks && v.seen < enoughSeen && v.class > exhausted { // these few may all be costly by chance
			looks = farLooks
		}
		if far && v.class <= exhausted {
			break
		}
		if (v.seen >= compares || visited+1 == visits || looked >= looks) && v.class > exhausted && !far && m.looksFar() {
			looks, compares, visits, far = looked+farLooks, farSamples, visited+1+len(m.shards), true
		}
	}
	if far {
		m.hasLookedFar(v.class <= exhausted)
	}
	if payer != before {
		m.payer.Store(payer)
	}
	if v.seen == 0 {
		return false
	}
	if try == 0 && v.seen < enoughSeen && v.class > exhausted && most > samples { // try again
		return false
	}
	m.forget(&v)
	return true
}

// How many logs a try looks at, in all and in one shard.
const (
	logLooks       = 2048
	logLooksAShard = 256
)

// excess returns how many times a zone's logs hold above the share of its keys.
func (sp *space) excess(share int64) int64 {
	return sp.logTimes.Load() - share*sp.keys.Load()
}

// payerOfLogs is payerOfKeys for logs: it returns the zone with the largest excess.
func payerOfLogs(checks []core.Check, spaces []*space, before, share int64) (payer, most int64) {
	payer = before
	if payer < int64(len(spaces)) {
		most = spaces[payer].excess(share)
	}
	for i := range checks {
		sp := checks[i].Rule.InMemory.(*space)
		if e := sp.excess(share); sp.isLog && e > most {
			payer = int64(sp.number)
			most = e
		}
	}
	return payer, most
}

// evictLog forgets one of up to logLooks logs, and reports whether it found any. Only logs that hold more than a key's share of
// the budget may go. While the number of keys is within its bound, there is such a log whenever the budget is exceeded. The zone
// with the largest excess pays. In it a log of the largest size goes, in powers of two, so that one costly request costs one
// large log; among those, the key that costs least to forget.
func (m *Store) evictLog(checks []core.Check, try int) bool {
	now := m.clock()
	spaces := m.spaces.Load().([]*space)
	share := m.logBudget() / m.maxKeys.Load()
	before := m.logPayer.Load()
	payer, most := payerOfLogs(checks, spaces, before, share)
	all := m.logTimes.Load()
	strict := most*strictFrom >= all
	base := most
	random := scramble(checks[0].Hash ^ uint64(now) + uint64(try))
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
			n := len(s.logs[k].Times)
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
			if v.seen > 0 && (rank < v.rank || size > v.size) { // those considered so far no longer count
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

// scramble is one step of splitmix64 (Steele, Lea and Flood, 2014).
func scramble(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func charged(checks []core.Check, h uint64) bool {
	for i := range checks {
		if checks[i].Hash == h {
			return true
		}
	}
	return false
}
