package guard

import (
	"math"
	"math/rand"
	"runtime"
	"sort"
	"sync"
	"testing"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

func TestBucketsHaveTheirBounds(t *testing.T) {
	for i := 0; i < buckets; i++ {
		low := bound(i)
		must.Equal(t, bucketOf(low), i, "a key with %d requests is in bucket", low+1)
		if i > 0 {
			must.Equal(t, bucketOf(low-1), i-1, "a key with %d requests is in bucket", low)
			if width := float64(bound(i)-bound(i-1)) / float64(bound(i)); low > 8 && width > 0.21 {
				t.Errorf("bucket %d is from %d to %d", i-1, bound(i-1), bound(i))
			}
		}
	}
	for i, most := 0, int64(1); i < demands; i++ {
		must.Equal(t, bound(bucketOf(most)), most, "%d is no bound; the nearest", most)
		most *= 2
	}
	if n := bound(buckets-1) + 12345; bucketOf(n) != buckets-1 {
		t.Errorf("%d requests are in bucket %d", n, bucketOf(n))
	}
}

// TestQuantilesAreThoseOfWhatWasLearnt compares with sorting.
func TestQuantilesAreThoseOfWhatWasLearnt(t *testing.T) {
	underrace.OneGoroutine(t)
	random := rand.New(rand.NewSource(3))
	var all []float64
	var h History
	for w := 0; w < 100; w++ {
		exceeding := make([]int64, buckets)
		for k := 0; k < 50; k++ {
			n := 1 + int64(math.Exp(random.NormFloat64()*1.5))
			all = append(all, float64(n))
			for i := 0; i < buckets && bound(i) < n; i++ {
				exceeding[i]++
			}
		}
		h = Learn(h, exceeding, 1)
	}
	sort.Float64s(all)
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
		want := all[int(q*float64(len(all)))]
		if got := float64(Quantile(h, q)); got < want || got > 1.34*want {
			t.Errorf("quantile %v: %v, want %v or up to a third more", q, got, want)
		}
	}
	if got, most := float64(Greatest(h)), all[len(all)-1]; got < most || got > 1.34*most {
		t.Errorf("the greatest is %v, want %v", got, most)
	}
	must.Equal(t, h.Learnt, 100*Window, "%d µs were learnt", h.Learnt)
}

func TestWhatWasLearntIsForgottenInDays(t *testing.T) {
	busy, quiet := make([]int64, buckets), make([]int64, buckets)
	for i := 0; bound(i) < 100; i++ {
		busy[i] = 10
	}
	quiet[0] = 1
	var h History
	for i := 0; i < 100; i++ {
		h = Learn(h, busy, 1)
	}
	if got := Quantile(h, 0.5); got < 100 {
		t.Errorf("the median is %d, want 100 or a little more", got)
	}
	of := bucketOf(99)
	begun := h.keys[of]
	for i := int64(0); i < day/4/Window; i++ {
		h = Learn(h, quiet, 1)
	}
	if part := h.keys[of] / begun; math.Abs(part-math.Exp(-0.25)) > 0.01 {
		t.Errorf("after a quarter of a day %v of what was learnt is left, want %v", part, math.Exp(-0.25))
	}
	if before := h.Learnt; Learn(h, make([]int64, buckets), 1).Learnt != before {
		t.Error("time without demand is learnt")
	}
	if Quantile(History{}, 0.5) != 0 || Greatest(History{}) != 0 {
		t.Error("a history that knows nothing has quantiles")
	}
}

// town is a guard whose rule has keys that ask for so many requests each second.
type town struct {
	*scene
	rule    *Rule
	asks    []int // by the key, as is through
	through []int
}

func newTown(t *testing.T, c Config) *town {
	s := newScene(t, c)
	v := &town{scene: s, asks: make([]int, 41)}
	v.rule = Track(s.g, "api")
	for key := uint64(1); key <= 20; key++ {
		v.asks[key] = 1
	}
	v.asks[1] = 3
	return v
}

// second has all keys ask; of those that are let through so many are answered in 10 ms, the others still are under way.
func (v *town) second(answers int) {
	v.through = make([]int, len(v.asks))
	most := 0
	for _, n := range v.asks {
		if n > most {
			most = n
		}
	}
	for round := 0; round < most; round++ {
		for key := uint64(1); key <= 40; key++ {
			if round >= v.asks[key] {
				continue
			}
			if !Ask(v.g, v.rule, key, v.now) {
				Tighten(v.g, key, v.now)
			} else if v.begin(key, false) {
				v.through[key]++
			}
		}
	}
	if answers > len(v.begun) {
		answers = len(v.begun)
	}
	v.end(answers, 10_000)
	v.now += second
}

func (v *town) seconds(n, answers int) {
	for ; n > 0; n-- {
		v.second(answers)
	}
}

func (v *town) state() RuleState { return LookAt(v.rule, v.now) }

const warm = 200 // seconds

func TestUnusualKeysAreTightenedUnderOverload(t *testing.T) {
	underrace.OneGoroutine(t)
	v := newTown(t, Config{Max: 40, WarmUp: warm * second})
	v.seconds(warm+20, 40)
	learnt := v.state()
	if learnt.Greatest != 32 || learnt.P99 != 32 || learnt.Edge != 40 {
		t.Fatalf("when it is warm: %+v; want 30 to be the greatest demand, whose bucket goes to 32", learnt)
	}
	if learnt.Limit != 0 || Look(v.g).Tightened != 0 {
		t.Fatalf("keys are tightened without overload: %+v", learnt)
	}

	v.asks[21] = 60
	v.asks[22] = 60
	v.seconds(20, 40)
	if got := v.state(); got.Limit < 32 || Look(v.g).Tightened == 0 {
		t.Errorf("under attack: %+v; want a limit of p99 or more", got)
	}
	for key := uint64(1); key <= 20; key++ {
		must.Equal(t, v.through[key], v.asks[key], "key %d got %d of %d through", key, v.through[key], v.asks[key])
	}
	// What an unusual key gets in ten seconds is its limit.
	got := 0
	for i := 0; i < 10; i++ {
		v.second(40)
		got += v.through[21]
	}
	if limit := v.state().Limit; float64(got) > 1.1*limit+2 {
		t.Errorf("an unusual key got %d through in ten seconds; its limit is %v", got, limit)
	}
	if now := v.state(); now.Greatest != learnt.Greatest {
		t.Errorf("the attack was learnt: %+v, before %+v", now, learnt)
	}

	v.asks[21] = 0
	v.asks[22] = 0
	v.seconds(15, 40)
	v.asks[1] = 5 // a little unusual, but there is room
	held := v.state().Limit
	v.seconds(10, 40)
	if held == 0 && v.through[1] != 5 {
		t.Errorf("key 1 got %d of 5 through although nothing is tightened", v.through[1])
	}
	v.seconds(60, 40)
	if now := v.state(); now.Limit != 0 || v.through[1] != 5 {
		t.Errorf("a minute after: %+v, and key 1 got %d of 5 through", now, v.through[1])
	}
	turnedAway := Look(v.g).Tightened
	Untrack(v.g, v.rule)
	if got := Look(v.g).Tightened; got != turnedAway {
		t.Errorf("without the rule %d were turned away, before it went %d", got, turnedAway)
	}
}

// TestAnUnusualKeyGetsItsLimitAtOnce, whether it has asked for as much before or not.
func TestAnUnusualKeyGetsItsLimitAtOnce(t *testing.T) {
	for _, limit := range []int64{50_000, 152_999, 400_000} {
		g := New(Config{})
		r := Track(g, "api")
		Ask(g, r, 1, begin)
		r.edge = 10
		r.limit = limit
		through := 0
		for i := 0; i < 1000; i++ {
			if Ask(g, r, 7, begin) && i >= 500 {
				through++
			}
		}
		// Of the n-th request the part of limit/n gets through.
		want := 0.0
		for n := 501.0; n <= 1000; n++ {
			want += float64(limit) / 1000 / n
		}
		if math.Abs(float64(through)-want) > 4 {
			t.Errorf("a limit of %v: %d of 500 get through, want %.1f", float64(limit)/1000, through, want)
		}
	}
}

func TestTighteningIsReleasedByDegrees(t *testing.T) {
	underrace.OneGoroutine(t)
	v := newTown(t, Config{Max: 40, WarmUp: warm * second})
	v.seconds(warm+20, 40)
	v.asks[21] = 60
	v.seconds(15, 40)
	if v.state().Limit == 0 {
		t.Fatal("nothing is tightened")
	}
	for key := 1; key <= 20; key++ {
		v.asks[key] = 0 // so there is room now, and the guard turns nobody away
	}
	v.asks[21] = 10
	v.second(40)
	begun := v.state().Limit
	for calmly := v.rule.calm + 1; calmly <= calm; calmly++ {
		v.second(1000)
		if got := v.state().Limit; got != begun {
			t.Fatalf("after %v s of calm the limit is %v, before %v", calmly, got, begun)
		}
	}
	for i := 0; i < 3; i++ {
		before := v.state().Limit
		v.second(1000)
		if after := v.state().Limit; math.Abs(after/before-releases) > 0.01 {
			t.Errorf("calm %v, guard %+v, after 30 s of calm the limit goes from %v to %v within a second", v.rule.calm, Look(v.g), before, after)
		}
	}
	v.seconds(30, 1000)
	if v.through[21] != 10 {
		t.Errorf("in the end the key gets %d of 10 through; %+v", v.through[21], v.state())
	}
}

func TestNothingIsTightenedWithoutCause(t *testing.T) {
	underrace.OneGoroutine(t)
	for name, c := range map[string]struct {
		config Config
		attack func(v *town)
	}{
		"before it is warm": {Config{Max: 40, WarmUp: 2 * warm * second}, func(v *town) { v.asks[21] = 60 }},
		"if it is off":      {Config{Max: 40, WarmUp: -1}, func(v *town) { v.asks[21] = 60 }},
		"in a crowd": {Config{Max: 25, WarmUp: warm * second}, func(v *town) {
			for key := uint64(21); key <= 40; key++ {
				v.asks[key] = 3
			}
		}},
		"while there is room": {Config{Max: 1000, WarmUp: warm * second}, func(v *town) { v.asks[21] = 60 }},
	} {
		v := newTown(t, c.config)
		v.seconds(warm+20, 1000)
		c.attack(v)
		v.seconds(60, v.config().answers)
		if got := v.state(); got.Limit != 0 || Look(v.g).Tightened != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// config says how many requests the town's service answers in a second.
func (v *town) config() struct{ answers int } {
	return struct{ answers int }{int(Look(v.g).Limit)}
}

func TestARuleTellsOfItsKeys(t *testing.T) {
	v := newTown(t, Config{Max: 10_000})
	v.asks = make([]int, 41)
	for i, n := range []int{1, 1, 2, 10, 86} {
		v.asks[i+1] = n
	}
	v.now = begin + Window - second
	v.second(1000)
	Reject(v.g, v.rule, 4, v.now-1)
	Reject(v.g, v.rule, 4, v.now-1)
	Reject(v.g, v.rule, 5, v.now-1)
	Took(v.rule, 900)
	Took(v.rule, 2000)
	Took(v.rule, 2001)
	Took(v.rule, 99_000_000)
	Ask(v.g, v.rule, 1, v.now) // ends the Window
	got := v.state()
	if got.Keys != 5 || got.Refused != 2 || got.Requests != 100 || got.Asked != 5 || math.Abs(got.Top-0.86) > 0.001 || math.Abs(got.Ten-1) > 0.06 {
		t.Errorf("%+v", got)
	}
	for i, want := range []int64{2, 3, 3, 3, 4, 4, 4, 5, 5} { // at most 1, 2, 4, ...
		must.Equal(t, got.Demand[i], want, "%d keys asked for at most %d, want %d", got.Demand[i], 1<<i, want)
	}
	if got.Took[0] != 1 || got.Took[1] != 2 || got.Took[2] != 3 || got.Took[firstBytes-1] != 3 || got.Answers != 4 || got.Time != 99_004_901 {
		t.Errorf("times: %+v", got)
	}
	if later := LookAt(v.rule, v.now+10*Window); later.Keys != 0 || later.Requests != 100 {
		t.Errorf("much later: %+v", later)
	}
}

// TestOneThatStandsForManyCountsForThem: the demand is the same as if each had been counted.
func TestOneThatStandsForManyCountsForThem(t *testing.T) {
	g := New(Config{})
	each, some := Track(g, "each"), Track(g, "some")
	for key, n := range []int{8, 8, 16, 24, 40, 200, 1000} {
		for i := 0; i < n; i++ {
			Ask(g, each, uint64(key), begin)
			if i%8 == 0 {
				AskFor(g, some, uint64(key), begin, 8)
			}
		}
	}
	Ask(g, each, 1, begin+Window)
	a, b := LookAt(each, begin+Window), LookAt(some, begin+Window)
	if a.Requests != 1296 || a.Requests != b.Requests || a.Asked != b.Asked || a.Keys != 7 || a.Keys != b.Keys || a.Top != b.Top || a.Greatest != b.Greatest {
		t.Errorf("each: %+v, some: %+v", a, b)
	}
	for i := range a.Demand {
		must.Equal(t, a.Demand[i], b.Demand[i], "%d keys asked for at most %d, by samples %d", a.Demand[i], 1<<uint(i), b.Demand[i])
	}
}

func TestRulesHaveKeysOfTheirOwn(t *testing.T) {
	g := New(Config{Max: 10})
	one, other := Track(g, "one"), Track(g, "other")
	for i := 0; i < 20; i++ {
		Ask(g, one, 7, begin)
	}
	Ask(g, other, 7, begin)
	Ask(g, one, 7, begin+Window)
	if a, b := LookAt(one, begin+Window), LookAt(other, begin+Window); a.Requests != 20 || b.Requests != 1 || b.Top != 1 || b.Demand[0] != 1 || a.Demand[0] != 0 {
		t.Errorf("one: %+v, other: %+v", a, b)
	}
	Untrack(g, other)
	if len(g.rules) != 1 || g.rules[0] != one {
		t.Error("Untrack has not taken out its rule, or others")
	}
}

func TestRulesBearManyAtOnce(t *testing.T) {
	g := New(Config{Max: 1 << 20})
	r := Track(g, "api")
	var all sync.WaitGroup
	for w := uint64(0); w < 8; w++ {
		all.Add(1)
		go func(w uint64) {
			defer all.Done()
			for i := uint64(0); i < 500; i++ {
				now := begin + int64(i)*second/5
				Ask(g, r, (i+w)%50, now)
				Reject(g, r, i%50, now)
				Took(r, int64(i))
				LookAt(r, now)
				if i%100 == w {
					Untrack(g, Track(g, "more"))
				}
			}
		}(w)
	}
	all.Wait()
	Ask(g, r, 1, begin+30*Window)
	if got := LookAt(r, begin+30*Window); got.Requests != 4000 || got.Answers != 4000 {
		t.Errorf("%+v; want 4000 requests and answers", got)
	}
}

// TestAMillionKeysTakeNoMemory, and a greedy key among them is still told from the others.
func TestAMillionKeysTakeNoMemory(t *testing.T) {
	underrace.OneGoroutine(t)
	keys := 1_000_000
	if interpreted {
		keys = 10_000
	}
	g := New(Config{Max: 100})
	r := Track(g, "api")
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := used()
	for key := 0; key < keys; key++ {
		now := begin + int64(key)*Window/int64(keys)
		Ask(g, r, mix(uint64(key)), now)
		Ask(g, r, 7, now)
		if n := Begin(g, mix(uint64(key)), false, now); n > 0 {
			End(g, n, 1000)
		}
		Begin(g, 7, false, now)
		Reject(g, r, uint64(key), now)
	}
	if after := used(); after > before+100_000 {
		t.Errorf("%d keys have taken %d bytes", keys, after-before)
	}
	_, greedy := count(g.demand, 7^g.seed, begin+Window-1)
	_, other := count(g.demand, mix(5)^g.seed, begin+Window-1)
	if greedy < float64(keys) || other > float64(keys)/100 {
		t.Errorf("the greedy key is taken to ask for %v, another for %v", greedy, other)
	}
	runtime.KeepAlive(g)
}

// TestTheHistogramOfDemandNeverFalls where many keys share cells, so that some of their counts are passed over.
func TestTheHistogramOfDemandNeverFalls(t *testing.T) {
	underrace.OneGoroutine(t)
	g := New(Config{Cells: 16})
	r := Track(g, "api")
	random := rand.New(rand.NewSource(5))
	before := LookAt(r, begin)
	for w := int64(1); w <= 50; w++ {
		now := begin + w*Window
		for i := 0; i < 20*int(w); i++ {
			AskFor(g, r, random.Uint64(), now, 1+random.Int63n(2))
		}
		s := LookAt(r, now)
		least := int64(0)
		for i, n := range append(s.Demand, s.Asked) {
			if n < least {
				t.Fatalf("after %d windows: %d keys up to bound %d, and %d below it: %+v", w, n, i, least, s)
			}
			if least = n; i < demands && n < before.Demand[i] {
				t.Fatalf("after %d windows: %d keys up to bound %d, before there were %d", w, n, i, before.Demand[i])
			}
		}
		before = s
	}
	if before.Asked == 0 {
		t.Error("nothing was counted")
	}
}

// What advice says of keys that ask for much holds until its time, whatever the guard itself has found, and touches nobody else.
func TestAdviceLimitsKeysAboveAThreshold(t *testing.T) {
	g := New(Config{Max: 100, Min: 1, WarmUp: -1, Cells: 256})
	r := Track(g, "api")
	now := int64(1_000_000_000)
	// ask sends so many requests of a key over a Window, and returns how many get through.
	ask := func(key uint64, requests int) (through int) {
		for i := 0; i < requests; i++ {
			if Ask(g, r, key, now) {
				through++
			}
			now += Window / int64(requests)
		}
		return through
	}
	if through := ask(1, 100); through != 100 {
		t.Fatalf("%d of 100 requests get through without advice", through)
	}
	until := now + 20*Window
	Advise(r, 50, 20, until)
	ask(1, 100) // a Window in which its demand comes to be known
	if through := ask(1, 100); through < 10 || through > 35 {
		t.Errorf("%d of 100 requests get through, want about 20", through)
	}
	must.Equal(t, ask(2, 40), 40, "of 40 requests of a key below the threshold get through")
	if tight, advised := turnRules(g, now, 1, false, 0); tight || !advised {
		t.Error("requests may pass unseen while advice limits keys")
	}
	now = until
	must.Equal(t, ask(1, 100), 100, "of 100 requests get through after the advice")
	Advise(r, 50, 20, now+20*Window)
	Advise(r, 0, 0, 0)
	must.Equal(t, ask(1, 100), 100, "of 100 requests get through when the advice was ended")
}
