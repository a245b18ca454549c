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

// evictionScore says what it would cost to forget a key. Here a zone is all keys of one space. When a key must go, the victim zone loses it.
type evictionScore struct {
	class    int     // one of the classes below
	rank     int     // 0 for the victim zone; the higher, the later a key goes: see levelBelow
	size     int     // the log's size as a power of two; 0 if keys are evicted for their number, not for the size of their logs
	share    float64 // the part of the quota that is in use, by the strictest open limit
	offences int     // the number of offences, for a key with a penalty
	weight   int64   // of its zone: see weight
	zone     uint32  // the number of its space
	charged  int64   // when a bucket was last charged: limits of one zone may differ in how long it takes to drain
	reset    int64   // microseconds until the key is unused again
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

// scoreKey writes the score of the key in slot i, which is of the space sp, except for its rank, size and weight.
func (m *Store) scoreKey(s *shard, i int, sp *space, now int64, score *evictionScore) {
	owner := s.owners[i]
	*score = evictionScore{}
	if owner&accounted != 0 {
		m.fallDueIn(s, i, now)
	}
	limits := sp.limits.Load().([]*rate.Limit)
	cost := sp.cost.Load()
	if left := rate.BlockedFor(&s.slots[i].state, now); left > 0 && len(limits) > 0 {
		score.class = byHand
		score.reset = left
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
		if score.class < inUse {
			score.class = inUse
		}
		if (d.Remaining == 0 || d.Remaining < cost) && score.class < exhausted { // a quota that the cost does not divide is never used up
			score.class = exhausted
		} else if l.Queues && d.ResetAfter > l.MaxDelay && score.class < exhausted { // its queue has room, but is too long
			score.class = exhausted
		}
		if share := 1 - float64(d.Remaining)/float64(d.Limit); share > score.share {
			score.share = share
		}
		if d.ResetAfter > score.reset {
			score.reset = d.ResetAfter
		}
		if l.IsBucket {
			score.charged = s.slots[i].state.A & (1<<rate.TimeBits - 1)
		}
	}
	if owner&accounted != 0 {
		m.scoreAccount(s, i, now, score)
	}
	if score.class == expired {
		return
	}
	if score.class == exhausted && owner&rejected != 0 {
		score.class = rejecting
	}
	score.zone = owner &^ marks
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
func cheaper(a, b *evictionScore) bool {
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
	if a.weight != b.weight {
		return a.weight > b.weight
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
// shard must not go because it is alone there. A try looks at more keys than it compares, since most may be of zones that lose none.
const (
	samples       = 8
	samplesAShard = 2
	mostLooks     = 256
	farLooks      = 4 * mostLooks // if fewer than enoughSeen are found of the victim zone
	enoughSeen    = 6
	looksAShard   = 32
	freeLooks     = 16      // in a sparse table, so many free slots count as one look
	otherZones    = samples // for so many keys of other zones, a try compares their zone with the victim zone

	farSamples = 8 * samples // if all that were compared are over their limit: then whole shards are looked at
	mostInVain = 63          // evictions after which that is tried again, if it was in vain

	logLooks       = 2048 // the same for logs, in all and in one shard
	logLooksAShard = 256
)

// strictFrom is the divisor of the part of all keys from which a zone is the victim zone alone. If every zone has less than that, there are too
// many zones to find the largest by looking at some keys.
const strictFrom = 16

// steps are primes, so that walking through a table by one of them visits all its slots. They are for Mapped, where keys are in
// the order in which they came, so that neighbours have the same age.
var steps = []int{2147483647, 2147483629, 2147483587, 2147483579}

// eviction is the search for a key to forget, in samples of all shards.
type eviction struct {
	checks    []core.Check // their keys are spared
	spaces    []*space
	now       int64
	share     int64 // of a key in the times of all logs, if their size is the reason; 0: the number of keys is
	spareHand bool  // keys blocked by hand stay

	victimZone int64 // its number
	most       int64 // its weight
	first      int64 // the weight of the first victim zone
	all        int64 // the weight of all zones
	strict     bool  // the victim zone alone loses keys
	others     int   // keys of other zones that were found

	// The victim is the key that costs least to forget among those considered.
	victim evictionScore
	hash   uint64
	shard  int
	seen   int // how many keys were considered; farSamples: an expired one was found

	score  evictionScore // of the key that was looked at last
	scored int           // how many keys have got one
}

// weight returns how many keys a zone can lose, or, with a share, how many times its logs hold above the share of its keys. It leaves out keys with requests
// under way, to which MaxKeys does not apply, and keys blocked by hand. A key that is both is subtracted twice, which is very rare.
func weight(sp *space, share int64) int64 {
	if share > 0 {
		return sp.logTimes.Load() - share*sp.keys.Load()
	}
	return sp.keys.Load() - sp.kept.Load()
}

// beginEviction chooses the zone with the greatest weight: the previous victim zone, or that of a check. Zones grow by requests, so this
// finds a new one as soon as it is the heaviest.
func (m *Store) beginEviction(e *eviction, checks []core.Check, share, previous, all int64) {
	e.checks = checks
	e.spaces = m.spaces.Load().([]*space)
	e.now = m.clock()
	e.share = share
	e.spareHand = m.byHand.Load() <= m.maxKeys.Load()
	e.all = all
	e.victimZone = previous
	if previous < int64(len(e.spaces)) {
		e.most = weight(e.spaces[previous], share)
	}
	for i := range checks {
		sp := checks[i].Rule.InMemory.(*space)
		if w := weight(sp, share); w > e.most {
			e.victimZone = int64(sp.number)
			e.most = w
		}
	}
	e.strict = e.most*strictFrom >= all
	e.first = e.most
}

// spares reports whether the key in slot i of a shard, which is not of the victim zone, stays. If its zone weighs more, that is the victim zone from now on.
func (m *Store) spares(e *eviction, s *shard, i int) bool {
	zone := int64(s.owners[i] &^ marks)
	if zone >= int64(len(e.spaces)) {
		return true
	}
	e.others++
	if w := weight(e.spaces[zone], e.share); w > e.most {
		e.victimZone = zone
		e.most = w
		if e.strict || w*strictFrom >= e.all {
			e.strict = true
			e.seen = 0
		}
		return false
	}
	return e.strict && (e.spareHand || s.owners[i]&handMark == 0) && !keyExpired(m, s, i, e.now)
}

// consider makes the key in slot i of a shard the victim if it costs less to forget than the victim so far. With a share, size is that of its log.
func (m *Store) consider(e *eviction, s *shard, number, i, size int) {
	if charged(e.checks, s.slots[i].hash) {
		return
	}
	owner := s.owners[i]
	sp := e.spaces[owner&^marks]
	rank := 0
	w := e.most
	if !e.strict || int64(owner&^marks) != e.victimZone {
		w = weight(sp, e.share)
	}
	if !e.strict {
		rank = levelBelow(w, e.first)
	}
	if size > 0 && e.seen > 0 {
		if rank > e.victim.rank || rank == e.victim.rank && (size < e.victim.size || size == e.victim.size && e.seen >= samples) {
			return
		}
		if rank < e.victim.rank || size > e.victim.size { // those considered so far no longer count
			e.seen = 0
		}
	}
	score := &e.score
	m.scoreKey(s, i, sp, e.now, score)
	e.scored++
	if owner&handMark != 0 && score.class < byHand {
		m.unmarkHand(s, i)
	} else if score.class == byHand { // blocked again, since the clock has stepped back
		m.markHand(s, i)
	}
	if score.class == underWay || score.class == byHand && e.spareHand {
		return
	}
	score.rank = rank
	score.size = size
	score.weight = w
	if score.class == expired || e.seen == 0 || cheaper(score, &e.victim) {
		e.victim = *score
		e.hash = s.slots[i].hash
		e.shard = number
	}
	e.seen++
	if score.class == expired {
		e.seen = farSamples
	}
}

// endEviction forgets the victim, unless it was blocked by hand or has got a request under way since it was considered. It reports whether there is a victim.
func (m *Store) endEviction(e *eviction) bool {
	if e.seen == 0 {
		return false
	}
	s := &m.shards[e.shard]
	s.mu.Lock()
	i := find(s, e.hash)
	if i >= 0 && e.victim.class != byHand && s.owners[i]&handMark != 0 { // it was blocked since
		i = -1
	}
	if i >= 0 && s.owners[i]&accounted != 0 { // it may have got a request since
		var now evictionScore
		m.scoreAccount(s, i, m.clock(), &now)
		if now.class == underWay {
			i = -1
		}
	}
	if i >= 0 {
		countKeys(m, removeKey(m, s, i), -1)
		if e.victim.class != expired {
			m.evictions.Add(1)
		}
	}
	s.mu.Unlock()
	return true
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

// evictKey forgets one key, and reports whether it found any. The zone with the most keys is the victim zone: of eight of its keys, sampled
// from all shards, it loses the one that costs least; of more, if all eight are over their limit. If an expired key is found on the way, that goes
// instead.
//
// Keys blocked by hand are forgotten only if they alone are more than MaxKeys.
func (m *Store) evictKey(checks []core.Check, try int) bool {
	var e eviction
	previous := m.victimZone.Load()
	m.beginEviction(&e, checks, 0, previous, m.keys.Load()-m.underWay.Load()-m.byHand.Load())
	random := scramble(checks[0].Hash ^ uint64(e.now) + uint64(try))
	first := random
	looked, free, seen := 0, 0, 0
	zone, alone := e.victimZone, false // the victim zone, and whether keys of others need no look
	looks, compares, visits, far := mostLooks, samples, len(m.shards), false
	for visited := 0; visited < visits && seen < compares && looked < looks && e.scored < 4*compares; visited++ {
		number := int((first + uint64(visited)) & m.mask)
		s := &m.shards[number]
		random = scramble(random)
		s.mu.Lock()
		owners := s.owners
		size := len(owners)
		sparse := s.n*4 < size // as in a store with few keys in many shards, or with fewer keys than it once had
		i, step, left, enough := 0, 1, 0, seen+samplesAShard
		if s.n > 0 {
			left = looksAShard
			if far || left > size {
				left = size
			}
			i = int(random % uint64(size))
			if m.mapped {
				step = steps[int(random>>60)%len(steps)] % size
			}
		}
		if far {
			enough = compares
		}
		for ; left > 0 && seen < enough && looked < looks && !(far && e.victim.class <= exhausted); left-- {
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
			other := int64(owners[i]&^marks) != zone
			if other && alone { // or a free slot, which has the owner of an earlier key
				looked++
			} else if s.slots[i].hash != 0 {
				looked++
				if !other || !m.spares(&e, s, i) {
					m.consider(&e, s, number, i, 0)
					seen = e.seen
				}
				zone = e.victimZone
				alone = e.strict && e.others >= otherZones
			}
		}
		s.mu.Unlock()
		if looked >= mostLooks && seen < enoughSeen && e.victim.class > exhausted { // these few may all be costly by chance
			looks = farLooks
		}
		if far && e.victim.class <= exhausted {
			break
		}
		if (seen >= compares || visited+1 == visits || looked >= looks) && e.victim.class > exhausted && !far && m.looksFar() {
			looks, compares, visits, far = looked+farLooks, farSamples, visited+1+len(m.shards), true
		}
	}
	if far {
		m.hasLookedFar(e.victim.class <= exhausted)
	}
	if zone != previous {
		m.victimZone.Store(zone)
	}
	if try == 0 && seen < enoughSeen && e.victim.class > exhausted && e.most > samples { // try again
		return false
	}
	return m.endEviction(&e)
}

// evictLog forgets one of up to logLooks logs, and reports whether it found any. Only logs that hold more than a key's share of
// the budget may go. While the number of keys is within its bound, there is such a log whenever the budget is exceeded. The zone
// whose logs hold most above the share of its keys is the victim zone. In it a log of the largest size goes, in powers of two, so that one costly request
// costs one large log; among those, the key that costs least to forget.
func (m *Store) evictLog(checks []core.Check, try int) bool {
	var e eviction
	previous := m.logVictimZone.Load()
	m.beginEviction(&e, checks, m.logBudget()/m.maxKeys.Load(), previous, m.logTimes.Load())
	random := scramble(checks[0].Hash ^ uint64(e.now) + uint64(try))
	looked := 0
	for visited := 0; visited < len(m.shards) && looked < logLooks && e.seen < farSamples; visited++ {
		number := int((random + uint64(visited)) & m.mask)
		s := &m.shards[number]
		s.mu.Lock()
		for look := 0; look < logLooksAShard && look < len(s.logs); look++ {
			looked++
			k := int((random>>32 + uint64(look)) % uint64(len(s.logs)))
			n := len(s.logs[k].Times)
			if int64(n) <= e.share {
				continue
			}
			size := bits.Len(uint(n))
			if e.strict && e.seen >= samples && size <= e.victim.size {
				continue
			}
			if i := find(s, s.logHashes[k]); i >= 0 && (int64(s.owners[i]&^marks) == e.victimZone || !m.spares(&e, s, i)) {
				m.consider(&e, s, number, i, size)
			}
		}
		s.mu.Unlock()
	}
	if e.victimZone != previous {
		m.logVictimZone.Store(e.victimZone)
	}
	return m.endEviction(&e)
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
