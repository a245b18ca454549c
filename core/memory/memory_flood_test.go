package memory

import (
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// floodedZone is a zone for floods: an algorithm, and an overflow policy.
type floodedZone struct {
	name   string
	manner string // how a flood uses its keys; "": there is no flood
	limit  rate.LimitConfig
	rule   core.RuleConfig
	r      *core.Rule
}

// pastTheLimit lists settings for what happens past the limit, and for what else a rule counts.
var pastTheLimit = []string{"reject", "soft", "shadow", "delay", "count", "penalty", "concurrency", "count_rejected", "candidate"}

// newFloodedZone returns a rule of that many requests in a period. It returns false if the algorithm cannot have the setting.
func newFloodedZone(t *testing.T, a rate.Algorithm, past string, requests int64, period time.Duration) (*floodedZone, bool) {
	t.Helper()
	z := &floodedZone{name: a.String() + " " + past}
	z.limit = rate.LimitConfig{Algorithm: a, Requests: requests, Period: period}
	switch past {
	case "soft":
		z.rule.OverflowPolicy.SoftPercent = 100
		z.rule.OverflowPolicy.SoftFor = time.Minute
	case "shadow":
		z.rule.Shadow = true
	case "delay":
		if a == rate.SlidingWindowCounter || a == rate.LeakyBucket {
			return nil, false
		}
		z.limit.Delays = true
		z.limit.MaxDelay = time.Hour // the longest possible
	case "count":
		if a == rate.LeakyBucket {
			return nil, false
		}
		z.rule.OverflowPolicy.Count = mustStatuses(t, "401")
	case "penalty":
		z.rule.OverflowPolicy.Penalties = []time.Duration{time.Hour}
	case "concurrency":
		if a != rate.TokenBucket { // it has no algorithm
			return nil, false
		}
		z.rule.Limit = mustConcurrency(t, requests)
		return z, true
	case "count_rejected":
		z.rule.CountRejected = true
	case "candidate":
		z.rule.Candidate = mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 2 * requests, Period: period})
	}
	if a == rate.LeakyBucket && past == "soft" {
		return nil, false
	}
	z.rule.Limit = mustLimit(t, z.limit)
	return z, true
}

// use sends n requests of a key. Unless underWay is set, it ends them all with a status that counts.
func (z *floodedZone) use(s *overflowScene, key string, n int, underWay bool) core.Verdict {
	s.t.Helper()
	rules := append([]*core.Rule{z.r}, z.r.Linked()...)
	var v core.Verdict
	for i := 0; i < n; i++ {
		var reservations []core.Reservation
		v, reservations = s.ask(key, rules...)
		if v.Outcome == core.Delay {
			s.limiter.Depart(reservations) // for the store, it goes on waiting
		}
		if !underWay && v.Outcome != core.Delay && len(reservations) > 0 {
			must.Succeed(s.t, s.limiter.Finish(reservations, 401))
		}
	}
	return v
}

// full reports whether a key has nothing left of its quota. It looks at the decision, since the verdict ignores shadows.
func (z *floodedZone) full(s *overflowScene, key string) bool {
	s.t.Helper()
	d := s.peek(z.r, key, 1)
	return !d.Allowed || d.Delay > 0
}

// floodOf returns how many keys a flood has: n, or WEIR_FLOOD. A store keeps a fifth of them.
func floodOf(n int) int {
	if text := os.Getenv("WEIR_FLOOD"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	if interpreted {
		return n / 40
	}
	return n
}

// manners are the ways in which a flood uses its keys.
var manners = []string{"used once", "used up", "rejected", "under way"}

func (z *floodedZone) flood(s *overflowScene, key string, manner string, requests int) {
	s.t.Helper()
	switch manner {
	case "used once":
		z.use(s, key, 1, false)
	case "used up":
		z.use(s, key, requests, false)
	case "rejected":
		z.use(s, key, 2*requests+2, false)
	case "under way": // if the rule has reservations
		n := 1
		if z.limit.Delays {
			n = requests + 1
		}
		z.use(s, key, n, true)
	}
}

// exhaust makes that many victims of a zone exceed its limit.
func (z *floodedZone) exhaust(s *overflowScene, victims, requests int) {
	s.t.Helper()
	for i := 0; i < victims; i++ {
		z.use(s, "victim "+strconv.Itoa(i), 2*requests+2, z.r.Limit.Algorithm == rate.InFlight)
		if !z.full(s, "victim "+strconv.Itoa(i)) {
			s.t.Fatalf("%s: victim %d is not over its limit", z.name, i)
		}
	}
}

// readmitted returns how many victims no longer exceed the limit.
func (z *floodedZone) readmitted(s *overflowScene, victims int) int {
	s.t.Helper()
	n := 0
	for i := 0; i < victims; i++ {
		if !z.full(s, "victim "+strconv.Itoa(i)) {
			n++
		}
	}
	return n
}

// everyZone returns a zone of each algorithm with each setting.
func everyZone(t *testing.T, requests int64, period time.Duration) []*floodedZone {
	t.Helper()
	var list []*floodedZone
	for _, past := range pastTheLimit {
		for a := rate.TokenBucket; a <= rate.SlidingWindowCounter; a++ {
			if z, ok := newFloodedZone(t, a, past, requests, period); ok {
				list = append(list, z)
			}
		}
	}
	return list
}

func (z *floodedZone) openIn(s *overflowScene, name string) {
	z.rule.Name = name
	z.r = s.open(z.rule)
	for _, other := range z.r.Linked() {
		must.Succeed(s.t, s.limiter.Open(other))
	}
}

// For a defect: the keys of a zone with a penalty counted as costlier to forget than all others, so that a flood of them reset the counters
// of every other zone.
func TestAFloodOfOneZoneResetsNoCounterOfAnotherWhateverStateItsKeysAreIn(t *testing.T) {
	underrace.OneGoroutine(t)
	victims, keys := 20, floodOf(4_000)
	if interpreted { // as many as fit into a smaller store
		victims = 4
		keys = 300
	}
	for number, flooded := range everyZone(t, 2, time.Hour) {
		for which, manner := range manners {
			if interpreted && (number+which)%(7*len(manners)) != 0 { // some of them
				continue
			}
			s := newOverflowScene(t, Config{MaxKeys: keys / 5})
			flooded.openIn(s, "flooded")
			login, _ := newFloodedZone(t, rate.SlidingWindowCounter, "reject", 5, 30*24*time.Hour)
			login.openIn(s, "login")
			login.exhaust(s, victims, 5)
			for i := 0; i < victims; i++ {
				login.use(s, "partly "+strconv.Itoa(i), 3, false)
			}
			for i := 0; i < keys; i++ {
				s.now += 10
				flooded.flood(s, "invented "+strconv.Itoa(i), manner, 2)
			}
			if n := login.readmitted(s, victims); n > 0 {
				t.Errorf("%s, %s: %d of %d victims were reset", flooded.name, manner, n, victims)
			}
			n := 0
			for i := 0; i < victims; i++ {
				if d := s.peek(login.r, "partly "+strconv.Itoa(i), 1); d.Remaining != 1 {
					n++
				}
			}
			if n > 0 {
				t.Errorf("%s, %s: %d of %d counters were reset", flooded.name, manner, n, victims)
			}
		}
	}
}

// For a defect: if three zones or more shared memory, victims were forgotten for keys that were used once.
func TestAFloodOfManyZonesDoesNotResetKeysOverALimit(t *testing.T) {
	underrace.OneGoroutine(t)
	victims, keys := 20, floodOf(30_000)
	if interpreted {
		victims = 3
	}
	r := rand.New(rand.NewSource(1))
	for _, index := range []Index{Probing, Mapped} {
		for zones := 1; zones <= 8; zones++ {
			if interpreted && (zones%3 != 0 || index == Probing) {
				continue
			}
			s := newOverflowScene(t, Config{MaxKeys: keys / 5, Index: index})
			var list []*floodedZone
			for len(list) < zones {
				requests := []int64{5, 100, 1000}[len(list)%3]
				if interpreted && requests > 5 {
					requests /= 10
				}
				z, _ := newFloodedZone(t, rate.Algorithm(1+r.Intn(5)), "reject", requests, []time.Duration{10 * time.Hour, 24 * time.Hour, 1000 * time.Hour}[len(list)%3])
				z.openIn(s, "zone."+strconv.Itoa(len(list)))
				z.exhaust(s, victims, int(requests))
				list = append(list, z)
			}
			for i := 0; i < keys; i++ {
				s.now += 10
				list[i%zones].flood(s, "invented "+strconv.Itoa(i), "used once", 1)
			}
			for _, z := range list {
				if n := z.readmitted(s, victims); n > 0 {
					t.Errorf("index %d, %d zones: %s %s: %d of %d victims were reset", index, zones, z.r.Name(), z.r.Limit.String(), n, victims)
				}
			}
		}
	}
}

// For a defect: in a small store, the keys over their limit are a large part of those that a flood makes pay, and all that were compared were such by chance.
func TestASmallStoreForgetsNoKeysOverALimitForOthers(t *testing.T) {
	underrace.OneGoroutine(t)
	maxKeys, keys, several := []int{200, 300, 500, 1000}, 10_000, []int{1, 3, 5, 8}
	if interpreted {
		maxKeys, keys, several = []int{200}, 400, []int{5}
	}
	for _, index := range []Index{Probing, Mapped} {
		for _, most := range maxKeys {
			for _, zones := range several {
				s := newOverflowScene(t, Config{MaxKeys: most, Index: index})
				victims := 120 / zones
				var list []*floodedZone
				for len(list) < zones {
					z, _ := newFloodedZone(t, rate.Algorithm(1+len(list)%5), "reject", 5, 24*time.Hour)
					z.openIn(s, "zone."+strconv.Itoa(len(list)))
					z.exhaust(s, victims, 5)
					list = append(list, z)
				}
				for i := 0; i < keys; i++ {
					s.now += 10
					list[i%zones].flood(s, "invented "+strconv.Itoa(i), "used once", 1)
				}
				for _, z := range list {
					if n := z.readmitted(s, victims); n > 0 {
						t.Errorf("index %d, max_keys %d, %d zones, %s: %d of %d victims were reset", index, most, zones, z.name, n, victims)
					}
				}
			}
		}
	}
}

// Whatever zones there are, with whatever algorithms and settings, and whatever happens to them: victims of a zone without a
// flood, or with a flood of keys that are used once, stay over their limit. Counters of other keys in a zone without a flood
// survive. Keys that are blocked by hand stay blocked in all zones.
func TestFloodsOfMixedZonesKeepTheirPromises(t *testing.T) {
	underrace.OneGoroutine(t)
	const requests = 3
	rounds, keys, victims := 20, floodOf(10_000), 10
	if interpreted {
		rounds = 1
		victims = 2
	}
	for seed := 0; seed < rounds; seed++ {
		r := rand.New(rand.NewSource(int64(seed)))
		s := newOverflowScene(t, Config{MaxKeys: keys / 5, Index: Index((seed + 1) % 2)})
		all := everyZone(t, requests, 30*24*time.Hour)
		zones := 1 + r.Intn(8)
		var list []*floodedZone
		for len(list) < zones {
			z := all[r.Intn(len(all))]
			if z.r != nil {
				continue
			}
			z.openIn(s, "zone."+strconv.Itoa(len(list)))
			z.manner = append(manners, "")[r.Intn(len(manners)+1)]
			z.exhaust(s, victims, requests)
			for i := 0; i < victims; i++ {
				s.block(z.r, "blocked "+strconv.Itoa(i), 3600*inSeconds)
				z.use(s, "partly "+strconv.Itoa(i), 1, false)
			}
			list = append(list, z)
		}
		for i := 0; i < keys; i++ {
			s.now += 10
			z := list[r.Intn(zones)]
			if z.manner != "" {
				z.flood(s, "invented "+strconv.Itoa(i), z.manner, requests)
			}
		}
		for _, z := range list {
			says := func(what string, n int) {
				t.Helper()
				if n > 0 {
					t.Errorf("seed %d, %d zones: %s, flooded by keys %q: %d %s", seed, zones, z.name, z.manner, n, what)
				}
			}
			out, whole := 0, 0
			for i := 0; i < victims; i++ {
				if d := s.peek(z.r, "blocked "+strconv.Itoa(i), 1); d.Allowed {
					out++
				}
				if d := s.peek(z.r, "partly "+strconv.Itoa(i), 0); z.manner == "" && z.r.Limit.Algorithm != rate.InFlight && d.ResetAfter == 0 {
					whole++
				}
			}
			says("keys blocked by hand were unblocked", out)
			says("counters were reset", whole)
			if z.manner == "" || z.manner == "used once" {
				says("victims were reset", z.readmitted(s, victims))
			}
		}
		if n, most := s.store.Stats().Keys-s.store.underWay.Load(), s.store.maxKeys.Load(); n > most {
			t.Errorf("seed %d: %d keys without requests under way are kept; want at most %d", seed, n, most)
		}
	}
}

// With so many zones that none has many keys, keys over a limit stay in all of them.
func TestAFloodOfHundredsOfZonesDoesNotResetKeysOverALimit(t *testing.T) {
	underrace.OneGoroutine(t)
	victims, zones, keys := 2, 300, floodOf(50_000)
	if interpreted {
		victims = 1
		zones = 20
	}
	s := newOverflowScene(t, Config{MaxKeys: keys / 5})
	var list []*floodedZone
	for len(list) < zones {
		z, _ := newFloodedZone(t, rate.Algorithm(1+len(list)%5), "reject", 5, time.Hour)
		z.openIn(s, "zone."+strconv.Itoa(len(list)))
		z.exhaust(s, victims, 5)
		list = append(list, z)
	}
	for i := 0; i < keys; i++ {
		s.now += 10
		list[i%zones].flood(s, "invented "+strconv.Itoa(i), "used once", 5)
	}
	for _, z := range list {
		if n := z.readmitted(s, victims); n > 0 {
			t.Errorf("%s %s: %d of %d victims were reset", z.r.Name(), z.r.Limit.String(), n, victims)
		}
	}
}

// For three defects: a victim of a higher tier, whose bucket takes longer to drain than those of a flood under a lower one; a
// victim whose bucket was charged for its rejections; and a victim with less left than a request costs.
func TestAFloodWithinAZoneDoesNotResetKeysOverItsLimit(t *testing.T) {
	underrace.OneGoroutine(t)
	victims, keys := 20, 5000
	if interpreted {
		victims = 3
		keys = 200
	}
	for _, c := range []struct {
		name             string
		algorithm        rate.Algorithm
		victims, others  int64 // the limits of victims and flood
		cost             int64
		countRejected    bool
		requests, floods int // of each victim, and of each key of the flood
	}{
		{"a higher tier", rate.TokenBucket, 100, 5, 1, false, 103, 8},
		{"a higher tier, used once", rate.TokenBucket, 100, 5, 1, false, 103, 1},
		{"a higher tier", rate.SlidingWindowLog, 100, 5, 1, false, 103, 8},
		{"a higher tier", rate.LeakyBucket, 100, 5, 1, false, 103, 8},
		{"a queue that is too long", rate.LeakyBucket, 5, 5, 1, true, 15, 2},
		{"a queue that is too long", rate.LeakyBucket, 5, 5, 1, true, 15, 5},
		{"a cost of 6 of 10", rate.TokenBucket, 10, 10, 6, false, 5, 1},
		{"a cost of 6 of 10, rejected", rate.TokenBucket, 10, 10, 6, false, 5, 2},
		{"a cost of 3 of 10", rate.TokenBucket, 10, 10, 3, false, 9, 3},
		{"a cost of 6 of 10", rate.SlidingWindowLog, 10, 10, 6, false, 5, 1},
		{"a cost of 6 of 10", rate.FixedWindow, 10, 10, 6, false, 5, 1},
		{"a cost of 6 of 10", rate.SlidingWindowCounter, 10, 10, 6, false, 5, 1},
	} {
		s := newOverflowScene(t, Config{MaxKeys: keys / 5})
		rule := func(requests int64) *core.Rule {
			limit := mustLimit(t, rate.LimitConfig{Algorithm: c.algorithm, Requests: requests, Period: time.Hour})
			return s.open(core.RuleConfig{Name: "z", Limit: limit, CountRejected: c.countRejected})
		}
		high, low := rule(c.victims), rule(c.others)
		use := func(r *core.Rule, key string) bool {
			checks := []core.Check{{Rule: r, Key: key, Cost: c.cost}}
			var v core.Verdict
			must.Succeed(t, s.limiter.Decide(checks, false, &v))
			return v.Outcome == core.Allow
		}
		for i := 0; i < victims; i++ {
			for n := 0; n < c.requests; n++ {
				use(high, "victim "+strconv.Itoa(i))
			}
		}
		for i := 0; i < keys; i++ {
			s.now += 10
			for n := 0; n < c.floods; n++ {
				use(low, "invented "+strconv.Itoa(i))
			}
		}
		n := 0
		for i := 0; i < victims; i++ {
			if use(high, "victim "+strconv.Itoa(i)) {
				n++
			}
		}
		if n > 0 {
			t.Errorf("%s, %s: %d of %d victims were reset", c.name, c.algorithm.String(), n, victims)
		}
	}
}

// For a defect: if the window is longer than the penalty, all keys recover at once, so it was up to chance which were forgotten.
func TestAmongKeysWithPenaltiesTheOneWhosePenaltyEndsLastGoes(t *testing.T) {
	underrace.OneGoroutine(t)
	victims, keys := 20, 5000
	if interpreted {
		victims = 3
		keys = 200
	}
	for a := rate.TokenBucket; a <= rate.SlidingWindowCounter; a++ {
		for _, period := range []time.Duration{time.Minute, 24 * time.Hour, 30 * 24 * time.Hour} {
			if interpreted && period != 24*time.Hour {
				continue
			}
			s := newOverflowScene(t, Config{MaxKeys: keys / 5})
			z, _ := newFloodedZone(t, a, "penalty", 2, period) // of an hour
			z.openIn(s, "z")
			z.exhaust(s, victims, 2)
			for i := 0; i < keys; i++ {
				s.now += 10
				z.flood(s, "invented "+strconv.Itoa(i), "rejected", 2)
			}
			if n := z.readmitted(s, victims); n > 0 {
				t.Errorf("%s in %s: %d of %d victims were reset", z.name, period, n, victims)
			}
		}
	}
}

// For a defect: the tables of a store that was made for many keys but may keep few are mostly free, and keys were compared with
// hardly any others.
func TestAFloodOfAStoreWithFewKeysInManyShards(t *testing.T) {
	underrace.OneGoroutine(t)
	victims, most := 10, 1000
	if interpreted {
		victims = 2
		most = 300
	}
	for _, index := range []Index{Probing, Mapped} {
		s := newOverflowScene(t, Config{MaxKeys: 100_000_000, Index: index})
		s.store.SetMaxKeys(most)
		var list []*floodedZone
		for len(list) < 8 {
			z, _ := newFloodedZone(t, rate.Algorithm(1+len(list)%5), "reject", 5, 30*24*time.Hour)
			z.openIn(s, "zone."+strconv.Itoa(len(list)))
			z.exhaust(s, victims, 5)
			list = append(list, z)
		}
		for i := 0; i < 3*most; i++ {
			s.now += 10
			list[i%len(list)].flood(s, "invented "+strconv.Itoa(i), "used once", 5)
		}
		for _, z := range list {
			if n := z.readmitted(s, victims); n > 0 {
				t.Errorf("index %d: %s %s: %d of %d victims were reset", index, z.r.Name(), z.r.Limit.String(), n, victims)
			}
		}
	}
}

// anyScore returns a random score that scoreKey and its callers could make. Values are few, so that some are equal.
func anyScore(r *rand.Rand) evictionScore {
	score := evictionScore{class: expired + r.Intn(underWay+1)}
	if score.class == expired && r.Intn(2) == 0 {
		return score
	}
	score.rank = r.Intn(3)
	score.charged = r.Int63n(3)
	score.size = r.Intn(3)
	score.share = float64(r.Intn(3)) / 2
	score.offences = r.Intn(3)
	score.zone = uint32(r.Intn(3))
	score.weight = int64(r.Intn(3))
	score.reset = int64(r.Intn(3))
	return score
}

// For a defect: a cost less than b, b less than c, and c less than a.
func TestCheaperIsAStrictWeakOrder(t *testing.T) {
	underrace.OneGoroutine(t)
	r := rand.New(rand.NewSource(2))
	for i := 0; i < fewerRounds(400_000); i++ {
		a, b, c := anyScore(r), anyScore(r), anyScore(r)
		if cheaper(&a, &a) {
			t.Fatalf("%+v is cheaper than itself", a)
		}
		ab, ba, bc, cb, ac, ca := cheaper(&a, &b), cheaper(&b, &a), cheaper(&b, &c), cheaper(&c, &b), cheaper(&a, &c), cheaper(&c, &a)
		if ab && ba {
			t.Fatalf("each is cheaper than the other:\n%+v\n%+v", a, b)
		}
		if ab && bc && !ac {
			t.Fatalf("each is cheaper than the next, but the first not than the last:\n%+v\n%+v\n%+v", a, b, c)
		}
		if !ab && !ba && !bc && !cb && (ac || ca) {
			t.Fatalf("each is as cheap as the next, but the first not as the last:\n%+v\n%+v\n%+v", a, b, c)
		}
		if !ab && !ba && (a.class != b.class || a.class != expired && (a.rank != b.rank || a.zone != b.zone || a.reset != b.reset)) {
			t.Fatalf("neither is cheaper:\n%+v\n%+v", a, b)
		}
	}
}

// Keys with requests under way, and keys blocked by hand, are counted exactly, however they come and go.
func TestKeysThatAreNotEvictedAreCountedExactly(t *testing.T) {
	underrace.OneGoroutine(t)
	for seed := 0; seed < fewerRounds(200)+1; seed++ {
		r := rand.New(rand.NewSource(int64(seed)))
		s := newOverflowScene(t, Config{MaxKeys: 20 + r.Intn(40), Index: Index(seed % 2)})
		all := everyZone(t, 2, time.Minute)
		var list []*floodedZone
		for i := 0; i < 6; i++ {
			z := all[r.Intn(len(all))]
			if z.r == nil {
				z.openIn(s, "zone."+strconv.Itoa(i))
				list = append(list, z)
			}
		}
		var reserved [][]core.Reservation
		latestNow := s.now
		for i := 0; i < 400; i++ {
			latestNow = rate.Latest(latestNow, s.now)
			z := list[r.Intn(len(list))]
			key := "key " + strconv.Itoa(r.Intn(30))
			switch r.Intn(12) {
			case 0:
				s.block(z.r, key, inSeconds*int64(1+r.Intn(100)))
			case 1:
				_ = s.limiter.Unblock(z.r, key)
			case 2:
				_ = s.limiter.Reset(z.r, key)
			case 3:
				s.now += int64(r.Intn(20)) * inSeconds
			case 4:
				s.store.Sweep()
			case 5, 6:
				if len(reserved) > 0 {
					_ = s.limiter.Leave(reserved[0])
					reserved = reserved[1:]
				}
			case 7:
				s.now -= int64(r.Intn(5)) * inSeconds
			default:
				_, reservations := s.ask(key, z.r)
				if len(reservations) > 0 {
					reserved = append(reserved, reservations)
				}
			}
			if err := keptAsCounted(s.store, s.now >= latestNow); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
		}
		for i := range reserved {
			_ = s.limiter.Leave(reserved[i])
		}
		s.now += 24 * 3600 * inSeconds
		s.store.Sweep()
		if err := leak(s.store); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if under, hands := s.store.underWay.Load(), s.store.byHand.Load(); under != 0 || hands != 0 {
			t.Fatalf("seed %d: in the end %d keys have requests under way, and %d are blocked", seed, under, hands)
		}
	}
}

// keptAsCounted compares counters with the keys that must not be forgotten. A key loses its mark when somebody finds that its
// block is over, and does not get it back if the clock then steps back into the block.
func keptAsCounted(m *Store, marked bool) error {
	under, hands := int64(0), int64(0)
	kept := make(map[uint32]int64)
	for i := range m.shards {
		s := &m.shards[i]
		for k := range s.slots {
			if s.slots[k].hash == 0 {
				continue
			}
			if s.owners[k]&handMark != 0 {
				hands++
				kept[s.owners[k]&^marks]++
			} else if marked && rate.BlockedFor(&s.slots[k].state, m.clock()) > 0 {
				return fmt.Errorf("a blocked key has no mark")
			}
			if s.owners[k]&accounted != 0 && s.accounts[s.slots[k].hash].kept {
				under++
				kept[s.owners[k]&^marks]++
			} else if s.owners[k]&accounted != 0 && s.accounts[s.slots[k].hash].isUnderWay() {
				return fmt.Errorf("a key with requests under way is not counted")
			}
		}
	}
	if n := m.underWay.Load(); n != under {
		return fmt.Errorf("%d keys with requests under way are counted; there are %d", n, under)
	}
	if n := m.byHand.Load(); n != hands {
		return fmt.Errorf("%d keys blocked by hand are counted; there are %d", n, hands)
	}
	for number, sp := range m.spaces.Load().([]*space) {
		if n := sp.kept.Load(); n != kept[uint32(number)] {
			return fmt.Errorf("%d keys of a zone are counted that may not be evicted; there are %d", n, kept[uint32(number)])
		}
	}
	return nil
}
