package memory

import (
	"math/rand"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// A state that is unused by the strictest limits of an identity is unused by all its limits, whatever they are and however they
// were used. So no key is forgotten that one of them still needs.
func TestWhatIsUnusedByTheStrictestIsUnusedByAll(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	rounds := 3000
	if interpreted {
		rounds = 40
	}
	configs := []rate.LimitConfig{
		{Algorithm: rate.TokenBucket}, {Algorithm: rate.TokenBucket, Interval: true}, {Algorithm: rate.LeakyBucket, MaxDelay: time.Hour}, {Algorithm: rate.FixedWindow}, {Algorithm: rate.SlidingWindowCounter},
	}
	unusedBySome, usedBySome := 0, 0
	for round := 0; round < rounds; round++ {
		c := configs[r.Intn(len(configs))]
		c.Period = time.Duration(1+r.Intn(20)) * time.Second
		limits := make([]*rate.Limit, 1+r.Intn(5))
		for i := range limits {
			c.Requests = 1 + r.Int63n(9)
			if c.Algorithm == rate.TokenBucket || c.Algorithm == rate.LeakyBucket {
				c.Burst = 1 + r.Int63n(9)
			}
			limits[i] = mustLimit(t, c)
		}
		var strictest []*rate.Limit
		for _, l := range limits {
			strictest = stricter(strictest, l)
		}
		checkStrictest(t, limits, strictest)
		var s, next rate.State
		var d rate.Decision
		now := int64(1_700_000_000_000_000)
		for i := 0; i < 20; i++ {
			l := limits[r.Intn(len(limits))]
			rate.Decide(l, &s, now, 1+r.Int63n(l.Capacity), &next, &d)
			if d.Allowed || r.Intn(4) == 0 { // else as with count_rejected
				s = next
			}
			now += r.Int63n(1 + int64(c.Period/time.Microsecond)*3/2)
			all := true
			for _, l := range strictest {
				rate.Decide(l, &s, now, 0, &next, &d)
				all = all && d.ResetAfter == 0
			}
			for _, l := range limits {
				rate.Decide(l, &s, now, 0, &next, &d)
				if d.ResetAfter != 0 {
					usedBySome++
				} else {
					unusedBySome++
				}
				if all && d.ResetAfter != 0 {
					t.Fatalf("round %d: %+v at %d is unused by %v, and by %s in %d µs", round, s, now, strictest, l.String(), d.ResetAfter)
				}
			}
		}
	}
	if unusedBySome == 0 || usedBySome == 0 {
		t.Errorf("%d unused, %d used", unusedBySome, usedBySome)
	}
}

// checkStrictest checks that each limit is among the strictest, or less strict than one of those, and that all of those are
// needed.
func checkStrictest(t *testing.T, limits, strictest []*rate.Limit) {
	t.Helper()
	for _, l := range limits {
		covered := false
		for _, s := range strictest {
			covered = covered || asStrict(s, l)
		}
		if !covered {
			t.Fatalf("none of %v is as strict as %s", strictest, l.String())
		}
	}
	for i, s := range strictest {
		known := false
		for _, l := range limits {
			known = known || l == s
		}
		if !known {
			t.Fatalf("%s is none of %v", s.String(), limits)
		}
		for j, other := range strictest {
			if i != j && asStrict(other, s) {
				t.Fatalf("of the strictest, %s is as strict as %s", other.String(), s.String())
			}
		}
	}
}

// A rule may have thousands of tiers, and one of them is stricter than all.
func TestOneTierIsTheStrictest(t *testing.T) {
	for _, burst := range []int64{0, 50} { // its requests, or one for all
		var limits []*rate.Limit
		for i := int64(0); i < 1000; i++ {
			limits = stricter(limits, mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1 + (i*37+11)%1000, Burst: burst, Period: time.Minute}))
		}
		if len(limits) != 1 || limits[0].Requests != 1 {
			t.Errorf("burst %d: %v", burst, limits)
		}
	}
}

// TestASmallerBucketDoesNotForgetALarger is for a defect: a tier's small bucket refills more slowly, but is full sooner. It made
// the store forget the key of a larger bucket, which then had its whole burst again.
func TestASmallerBucketDoesNotForgetALarger(t *testing.T) {
	now := int64(1_700_000_000_000_000)
	store := New(Config{Clock: func() int64 { return now }})
	small := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1, Burst: 1, Period: time.Hour})})
	large := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Burst: 100, Period: time.Hour})})
	for _, r := range []*core.Rule{small, large} {
		must.Succeed(t, store.Open(r))
	}
	checks := []core.Check{{Rule: large, Key: "k", Cost: 100}}
	if err := store.Decide(checks, false); err != nil || !checks[0].Decision.Allowed {
		t.Fatalf("%v, %+v", err, checks[0].Decision)
	}
	now += int64(time.Hour / time.Microsecond)
	store.Sweep()
	checks[0].Cost = 11
	if err := store.Decide(checks, false); err != nil || checks[0].Decision.Allowed || checks[0].Decision.Remaining != 10 {
		t.Errorf("after an hour: %v, %+v; want 10 tokens", err, checks[0].Decision)
	}
}

// When a rule is released, the strictest limits are found again, even if two had the same numbers.
func TestTheStrictestFollowWhatIsOpen(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	rounds := 200
	if interpreted {
		rounds = 20
	}
	for round := 0; round < rounds; round++ {
		store := New(Config{})
		keeper := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 9, Burst: 9, Period: time.Minute})})
		must.Succeed(t, store.Open(keeper))
		open := []*core.Rule{keeper}
		for i := 0; i < 30; i++ {
			if n := len(open); n > 1 && r.Intn(2) == 0 {
				at := 1 + r.Intn(n-1)
				store.Release(open[at])
				open = append(open[:at:at], open[at+1:]...)
			} else {
				rule := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1 + r.Int63n(4), Burst: 1 + r.Int63n(4), Period: time.Minute})})
				must.Succeed(t, store.Open(rule))
				open = append(open, rule)
			}
			limits := make([]*rate.Limit, 0, len(open))
			for _, rule := range open {
				limits = append(limits, rule.Limit)
			}
			checkStrictest(t, limits, keeper.InMemory.(*space).limits.Load().([]*rate.Limit))
		}
	}
}
