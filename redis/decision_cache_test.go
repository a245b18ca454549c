package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

const second = 1_000_000 // µs

// keys returns the number of keys in a cache.
func (c *decisionCache) keys() int {
	n := 0
	for i := range c.shards {
		n += len(c.shards[i].keys.Young) + len(c.shards[i].keys.Old)
	}
	return n
}

// spread makes hashes of numbers, as maphash makes them of keys.
func spread(n uint64) uint64 {
	n *= 0x9e3779b97f4a7c15
	return n ^ n>>29
}

func TestADecisionCacheHasTheKeysThatWereLearnedLast(t *testing.T) {
	var m decisionCache
	var k cachedDecision
	o := &openRule{}
	if m.find(1, &k) {
		t.Error("an empty cache knows something")
	}
	d := rate.Decision{Limit: 10, Remaining: 3, Allowed: true}
	most := 2 * cacheShards * shardKeys
	for i := 0; i < 3*most; i++ {
		m.put(spread(uint64(i)), o, 1, 1, 1, &d)
		if i%1000 == 0 && m.keys() > most {
			t.Fatalf("%d keys after %d were learned, want %d at most", m.keys(), i+1, most)
		}
	}
	if n := m.keys(); n > most || n < most/2 {
		t.Errorf("%d keys, want from %d to %d", n, most/2, most)
	}
	for i := 3*most - 1; i >= 3*most-cacheShards*shardKeys/2; i-- {
		if !m.find(spread(uint64(i)), &k) || k.remaining != 3 {
			t.Fatalf("what was learned %d keys ago is forgotten", 3*most-i)
		}
	}
	if m.find(spread(0), &k) {
		t.Error("the first is still there")
	}
}

// asks reports whether a request is sent to Redis, and returns the decision of its first rule.
func (s *scene) asks(peek bool, checks ...core.Check) (bool, rate.Decision) {
	s.t.Helper()
	s.forget()
	if err := s.store.Decide(checks, peek); err != nil {
		s.t.Fatal(err)
	}
	return len(s.calls) > 0, checks[0].Decision
}

func TestARejectionIsRememberedUntilARetrySucceeds(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{})
	s.answer = always([]int64{-3, 4 * second, 9 * second, 0})
	if asked, d := s.asks(false, check(r, "k", 4)); !asked || d.Allowed {
		t.Fatalf("the first: %v, %+v", asked, d)
	}
	for _, c := range []struct {
		after int64
		asked bool
	}{
		{0, false},
		{second, false},
		{4*second - 1, false},
	} {
		s.now = 1 + c.after
		asked, d := s.asks(false, check(r, "k", 4))
		if want := (rate.Decision{Limit: 10, Remaining: 2, RetryAfter: 4*second - c.after, ResetAfter: 9*second - c.after}); asked || d != want {
			t.Errorf("after %d µs: sent to Redis %v, %+v; want %+v from memory", c.after, asked, d, want)
		}
	}
	if asked, _ := s.asks(true, check(r, "k", 4)); asked {
		t.Error("a peek is sent to Redis")
	}
	for _, cost := range []int64{1, 3, 5} { // fewer units may be available, and more may never be
		s.now = 1
		s.answer = always([]int64{-3, 4 * second, 9 * second, 0})
		s.asks(false, check(r, "k", 4))
		if asked, _ := s.asks(false, check(r, "k", cost)); !asked {
			t.Errorf("a request that costs %d is not sent to Redis", cost)
		}
	}
	if asked, _ := s.asks(false, check(r, "another", 4)); !asked {
		t.Error("another key is not sent to Redis")
	}
	s.asks(false, check(r, "k", 4))
	s.now = 1 + 4*second
	s.answer = always(allowedWith(5))
	if asked, d := s.asks(false, check(r, "k", 4)); !asked || !d.Allowed {
		t.Errorf("after the wait: sent to Redis %v, %+v", asked, d)
	}
	if asked, _ := s.asks(false, check(r, "k", 4)); !asked {
		t.Error("after a request was admitted, the next is not sent to Redis")
	}
}

func TestARejectionIsRememberedForTenSecondsAtMost(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{})
	for _, c := range []struct {
		name  string
		wait  int64
		until int64
	}{
		{"an hour", 3600 * second, 10 * second},
		{"a microsecond more", 10*second + 1, 10 * second},
		{"ten seconds", 10 * second, 10 * second},
		{"a microsecond", 1, 1},
		{"never", -1, second},
	} {
		start := s.now
		s.answer = always([]int64{-1, c.wait, 3600 * second, 0})
		s.asks(false, check(r, c.name, 1))
		s.now = start + c.until - 1
		asked, d := s.asks(false, check(r, c.name, 1))
		want := c.wait - (c.until - 1)
		if c.wait == -1 {
			want = rate.Never
		}
		if asked || d.Allowed || d.RetryAfter != want {
			t.Errorf("%s: sent to Redis %v, %+v a microsecond before", c.name, asked, d)
		}
		s.now++
		if asked, _ := s.asks(false, check(r, c.name, 1)); !asked {
			t.Errorf("%s: not sent to Redis after %d µs", c.name, c.until)
		}
		s.now = start - 1 // the node's clock was set back
		if asked, _ := s.asks(false, check(r, c.name, 1)); !asked {
			t.Errorf("%s: remembered by a clock that was set back", c.name)
		}
		s.now = start + 7200*second
	}
}

func TestARejectionThatIsCountedIsSentToRedis(t *testing.T) {
	s := newScene(t, false)
	counts, other := s.open(core.RuleConfig{Name: "counts", CountRejected: true}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "other"}, rate.LimitConfig{})
	s.answer = always(denied())
	for i := 0; i < 3; i++ {
		if asked, _ := s.asks(false, check(counts, "k", 1)); !asked {
			t.Error("it is not sent to Redis")
		}
		if asked, _ := s.asks(false, check(other, "k", 1), check(counts, "k", 1)); !asked {
			t.Error("with another rule that rejects it is not sent to Redis")
		}
	}
}

func TestARejectionByOneLimitIsNotRememberedForAnother(t *testing.T) {
	for i, changed := range []rate.LimitConfig{
		{Algorithm: rate.LeakyBucket, Requests: 10, Burst: 20},
		{Algorithm: rate.LeakyBucket, Requests: 20, Burst: 10},
		{Algorithm: rate.LeakyBucket, Requests: 10, Burst: 10, MaxDelay: time.Second},
	} {
		s := newScene(t, false)
		before := rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 10, Burst: 10}
		r := s.open(core.RuleConfig{Name: "r"}, before)
		s.answer = always(denied())
		s.asks(false, check(r, "k", 1))
		if asked, _ := s.asks(false, check(s.open(core.RuleConfig{Name: "r"}, before), "k", 1)); asked {
			t.Errorf("%d: a reload without changes has forgotten the rejection", i)
		}
		if asked, _ := s.asks(false, check(s.open(core.RuleConfig{Name: "r"}, changed), "k", 1)); !asked {
			t.Errorf("%d: a rejection is remembered for another limit", i)
		}
		if asked, _ := s.asks(false, check(s.open(core.RuleConfig{Name: "another"}, before), "k", 1)); !asked {
			t.Errorf("%d: a rejection is remembered for another rule", i)
		}
	}
}

// The units in use are those that were learned; the current limit says how many are left.
func TestTheLastKnownStateGoesByTheCurrentLimit(t *testing.T) {
	for _, c := range []struct{ requests, want int64 }{{10, 4}, {20, 14}, {7, 1}, {6, 0}, {3, 0}} {
		s := newScene(t, false)
		s.answer = always([]int64{4, 0, 60 * second, 9})
		s.asks(false, check(s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{}), "k", 1))
		s.answer = func(c *sentCall) ([]int64, error) { return nil, errDown }
		checks := []core.Check{check(s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{Requests: c.requests}), "k", 1)}
		want := rate.Decision{Limit: c.requests, Remaining: c.want}
		if err := s.store.Decide(checks, false); err == nil || checks[0].Decision != want {
			t.Errorf("6 used, and then %d a minute: %v, %+v, want %+v", c.requests, err, checks[0].Decision, want)
		}
	}
}

func TestARejectionIsRememberedOnlyIfAllRulesAreKnown(t *testing.T) {
	s := newScene(t, false)
	a, b := s.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b"}, rate.LimitConfig{})
	shadow := s.open(core.RuleConfig{Name: "shadow", Shadow: true}, rate.LimitConfig{})
	s.answer = always(denied())
	s.asks(false, check(a, "k", 1))
	s.asks(false, check(shadow, "k", 1))
	s.answer = func(c *sentCall) ([]int64, error) {
		return []int64{-1, 20 * second, 60 * second, 0, 7, 0, 18 * second, 6 * second}, nil
	}
	if asked, _ := s.asks(false, check(a, "k", 1), check(b, "k", 1)); !asked {
		t.Error("with a rule that is not known it is not sent to Redis")
	}
	s.now += 5 * second
	checks := []core.Check{check(a, "k", 1), check(b, "k", 1)}
	asked, d := s.asks(false, checks...)
	if want := (rate.Decision{Limit: 10, RetryAfter: 15 * second, ResetAfter: 55 * second}); asked || d != want {
		t.Errorf("sent to Redis %v, %+v; want %+v from memory", asked, d, want)
	}
	if want := (rate.Decision{Allowed: true, Limit: 10, Remaining: 7, ResetAfter: 13 * second, MoreAfter: second}); checks[1].Decision != want {
		t.Errorf("the other rule's decision is %+v; want %+v, as it was", checks[1].Decision, want)
	}
	if asked, _ := s.asks(false, check(b, "k", 1), check(a, "k", 1)); asked {
		t.Error("in another order it is sent to Redis")
	}
	s.answer = always(allowedWith(3))
	if asked, _ := s.asks(false, check(b, "k", 1)); !asked {
		t.Error("for the rule that admits alone it is not sent to Redis")
	}
	s.now = 1
	if asked, _ := s.asks(false, check(shadow, "k", 1), check(b, "k", 1)); !asked {
		t.Error("a shadow rule's rejection decides on the request")
	}
	// The quota is whole at the time that was learned.
	s.now = 1
	s.answer = func(c *sentCall) ([]int64, error) {
		return []int64{-1, 9 * second, 60 * second, 0, 7, 0, 2 * second, second}, nil
	}
	s.asks(false, check(a, "j", 1), check(b, "j", 1))
	s.now += 3 * second
	checks = []core.Check{check(a, "j", 1), check(b, "j", 1)}
	if asked, _ := s.asks(false, checks...); asked || checks[1].Decision.ResetAfter != 0 || checks[1].Decision.MoreAfter != 0 {
		t.Errorf("sent to Redis %v, %+v", asked, checks[1].Decision)
	}
}

func TestAPeekThatIsAllowedIsNotRemembered(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{})
	s.answer = always(allowedWith(2))
	s.asks(true, check(r, "k", 8))
	s.answer = func(c *sentCall) ([]int64, error) { return nil, errDown }
	checks := []core.Check{check(r, "k", 1)}
	if err := s.store.Decide(checks, false); !errors.Is(err, errDown) || checks[0].Decision != (rate.Decision{}) {
		t.Errorf("%v, %+v; want nothing to be known", err, checks[0].Decision)
	}
	s.answer = always(denied())
	if asked, _ := s.asks(true, check(r, "j", 1)); !asked {
		t.Fatal("it is not sent to Redis")
	}
	if asked, _ := s.asks(false, check(r, "j", 1)); asked {
		t.Error("a peek that is rejected is not remembered")
	}
}

// On an error the store estimates how many units are left, from the last known state: used units come back evenly, or all at once when a
// window ends.
func TestTheLastKnownStateRecoversWithTime(t *testing.T) {
	for _, c := range []struct {
		name   string
		limit  rate.LimitConfig
		atHalf int64 // the units left after half of the time until the quota is whole
		almost int64
	}{
		{"token bucket", rate.LimitConfig{Algorithm: rate.TokenBucket}, 6, 9},
		{"leaky bucket", rate.LimitConfig{Algorithm: rate.LeakyBucket}, 6, 9},
		{"sliding window log", rate.LimitConfig{Algorithm: rate.SlidingWindowLog}, 6, 9},
		{"sliding window counter", rate.LimitConfig{}, 6, 9},
		{"fixed window", rate.LimitConfig{Algorithm: rate.FixedWindow}, 2, 2},
		{"calendar", rate.LimitConfig{Calendar: rate.Day}, 2, 2},
		{"interval refill", rate.LimitConfig{Algorithm: rate.TokenBucket, Interval: true}, 2, 2},
	} {
		s := newScene(t, false)
		r := s.open(core.RuleConfig{Name: "r"}, c.limit)
		s.answer = always([]int64{2, 0, 40 * second, second})
		s.asks(false, check(r, "k", 1))
		start := s.now
		s.answer = func(c *sentCall) ([]int64, error) { return nil, errDown }
		for _, v := range []struct{ after, want int64 }{
			{0, 2}, {20 * second, c.atHalf}, {39 * second, c.almost}, {40 * second, 10}, {400 * second, 10}, {-1, 10},
		} {
			s.now = start + v.after
			checks := []core.Check{check(r, "k", 1)}
			if err := s.store.Decide(checks, false); err == nil || checks[0].Decision != (rate.Decision{Limit: 10, Remaining: v.want}) {
				t.Errorf("%s, %d µs later: %v, %+v; want %d remaining", c.name, v.after, err, checks[0].Decision, v.want)
			}
		}
	}
}

// A node that has asked in vain, since others took the unit that it waited for, asks less often. One whose units were free asks as soon as they are.
func TestANodeThatAsksInVainAsksLessOften(t *testing.T) {
	const wait, hash = second / 100, 7
	var m decisionCache
	o := &openRule{longestBackoff: second / 2}
	rejected := rate.Decision{Limit: 10, RetryAfter: wait}
	now := int64(1)
	lasts := func(d rate.Decision, late int64) int64 { // learns of a decision so long after the last has ended, and returns how long it rejects
		t.Helper()
		now += late
		m.put(hash, o, now, now+100, 1, &d)
		var k cachedDecision
		if !m.find(hash, &k) {
			t.Fatal("nothing is known")
		}
		if !k.rejects(now, 1) {
			return 0
		}
		var told rate.Decision
		k.decision(now, 1, &told)
		now = k.until
		if told.RetryAfter != now-k.at {
			t.Errorf("rejects for %d µs, and tells %d", now-k.at, told.RetryAfter)
		}
		return told.RetryAfter
	}
	for range []int{1, 2, 3} {
		if got := lasts(rejected, 0); got != wait { // the node has asked too early, since the last answer took a while
			t.Errorf("a rejection counts for %d µs, want %d", got, wait)
		}
	}
	for i, want := range []int64{o.longestBackoff / 16, o.longestBackoff / 8, o.longestBackoff / 4, o.longestBackoff / 2, o.longestBackoff, o.longestBackoff} {
		if got := lasts(rejected, wait); got != want {
			t.Errorf("asked in vain %d times: the rejection counts for %d µs, want %d", i+1, got, want)
		}
	}
	lasts(rate.Decision{Limit: 10, Allowed: true}, 0)
	if got := lasts(rejected, 0); got != o.longestBackoff/2 {
		t.Errorf("after an admission a rejection counts for %d µs, want %d", got, o.longestBackoff/2)
	}
	lasts(rate.Decision{Limit: 10, Remaining: 5, Allowed: true}, 0)
	if got := lasts(rejected, 0); got != wait {
		t.Errorf("after the flood a rejection counts for %d µs, want %d", got, wait)
	}
}
