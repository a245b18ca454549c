package memory

import (
	"math/rand"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// fewerRounds returns n, or under the interpreter a number that it manages in a second.
func fewerRounds(n int) int {
	if interpreted {
		return n / 40
	}
	if underrace.On {
		return n / 10
	}
	return n
}

// peek returns the decision that a request of a key would get.
func (s *overflowScene) peek(r *core.Rule, key string, cost int64) rate.Decision {
	s.t.Helper()
	checks := []core.Check{{Rule: r, Key: key, Cost: cost}}
	must.Succeed(s.t, s.store.Decide(checks, true))
	return checks[0].Decision
}

// For a defect: charging a rejected request moved keys in a table, and the next rule got the decision on another key.
func TestKeysThatARejectionMovesAreFoundAgain(t *testing.T) {
	for _, index := range []Index{Probing, Mapped} {
		for _, a := range []rate.Algorithm{rate.TokenBucket, rate.SlidingWindowLog} {
			s := newOverflowScene(t, Config{Index: index, MaxKeys: 50_000})
			tight := s.open(core.RuleConfig{Name: "tight", Limit: perHour(t, a, 1), CountRejected: true})
			// Many rules, so that some of their keys are in the table behind the new one.
			var wide []*core.Rule
			for n := 0; n < 8; n++ {
				penalty := core.OverflowPolicy{Penalties: []time.Duration{time.Minute}}
				wide = append(wide, s.open(core.RuleConfig{Name: "wide" + strconv.Itoa(n), Limit: perHour(t, a, 9), OverflowPolicy: penalty}))
			}
			n := fewerRounds(2000)
			for i := 0; i < n; i++ {
				for _, r := range wide {
					checks := []core.Check{{Rule: r, Key: strconv.Itoa(i), Cost: 1 + int64(i%7)}}
					must.Succeed(t, s.store.Decide(checks, false))
				}
			}
			for i := 0; i < n; i++ {
				checks := []core.Check{{Rule: tight, Key: "new " + strconv.Itoa(i), Cost: 2}}
				for _, r := range wide {
					checks = append(checks, core.Check{Rule: r, Key: strconv.Itoa(i), Cost: 2})
				}
				must.Succeed(t, s.store.Decide(checks, false))
				for _, c := range checks[1:] {
					if d := c.Decision; checks[0].Decision.Allowed || d.Remaining != 8-int64(i%7) {
						t.Fatalf("%s, key %d: %+v; want %d left", a.String(), i, d, 8-i%7)
					}
				}
			}
		}
	}
}

// flood makes a rule forget what it may: it invents keys, uses each of them up, and goes on until it is rejected.
func (s *overflowScene) flood(r *core.Rule, keys int) {
	s.t.Helper()
	for i := 0; i < keys; i++ {
		s.now += 10
		for n := 0; n < 3; n++ {
			s.ask("invented "+strconv.Itoa(i), r)
		}
	}
}

func TestAFloodDoesNotEndPenalties(t *testing.T) {
	for _, index := range []Index{Probing, Mapped} {
		for _, a := range []rate.Algorithm{rate.TokenBucket, rate.FixedWindow, rate.SlidingWindowLog} {
			s := newOverflowScene(t, Config{Index: index, MaxKeys: 200})
			limit := mustLimit(t, rate.LimitConfig{Algorithm: a, Requests: 1, Period: time.Second})
			penal := s.open(core.RuleConfig{Name: "penal", Limit: limit, OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Hour}}})
			plain := s.open(core.RuleConfig{Name: "plain", Limit: perHour(t, a, 2)})
			for i := 0; i < 3; i++ { // few, so that samples of keys have others
				s.ask("victim "+strconv.Itoa(i), penal)
				s.ask("victim "+strconv.Itoa(i), penal)
			}
			s.flood(plain, fewerRounds(4000))
			for i := 0; i < 3; i++ {
				if d := s.peek(penal, "victim "+strconv.Itoa(i), 1); d.Allowed || d.RetryAfter < 3500*inSeconds {
					t.Fatalf("%s: after a flood %d has no penalty: %+v", a.String(), i, d)
				}
			}
			// If all keys of a flood have a penalty, the newest go.
			s.flood(penal, fewerRounds(4000))
			if d := s.peek(penal, "victim 0", 1); d.Allowed {
				t.Fatalf("%s: after a flood of offenders: %+v", a.String(), d)
			}
		}
	}
}

func TestNoKeyWithRequestsUnderWayIsForgotten(t *testing.T) {
	for _, index := range []Index{Probing, Mapped} {
		s := newOverflowScene(t, Config{Index: index, MaxKeys: 50})
		places := s.open(core.RuleConfig{Name: "places", Limit: mustConcurrency(t, 3)})
		count := s.open(core.RuleConfig{Name: "count", Limit: perHour(t, rate.SlidingWindowLog, 3), OverflowPolicy: core.OverflowPolicy{Count: mustStatuses(t, "401")}})
		slow := s.open(core.RuleConfig{Name: "slow", Limit: slowly(t, 1, time.Hour, time.Hour)})
		plain := s.open(core.RuleConfig{Name: "plain", Limit: perHour(t, rate.TokenBucket, 2)})
		var all [][]core.Reservation
		for i := 0; i < 60; i++ { // one of each of three rules: more than the store may hold
			key := "under way " + strconv.Itoa(i)
			s.ask(key, slow)
			v, reservations := s.ask(key, places, count, slow)
			if v.Outcome != core.Delay || len(reservations) != 3 {
				t.Fatalf("%d: %+v with the reservations %+v", i, v, reservations)
			}
			all = append(all, reservations)
		}
		s.flood(plain, fewerRounds(2000))
		s.store.Sweep()
		for i := range all {
			key := "under way " + strconv.Itoa(i)
			if d := s.peek(places, key, 1); d.Remaining != 1 {
				t.Fatalf("%s: %+v; want one in flight", key, d)
			}
			if d := s.peek(count, key, 1); d.Remaining != 1 {
				t.Fatalf("%s: %+v; want one reserved", key, d)
			}
			if d := s.peek(slow, key, 1); d.Allowed || d.RetryAfter < 3500*inSeconds {
				t.Fatalf("%s: %+v; want one that waits", key, d)
			}
			must.Succeed(t, s.limiter.Leave(all[i]))
		}
		s.now += 2 * 3600 * inSeconds
		s.store.Sweep()
		if err := leak(s.store); err != nil {
			t.Error(err)
		}
	}
}

// While other goroutines evict keys, no key has more requests in flight than its limit.
func TestEvictionsBesideRequestsInFlight(t *testing.T) {
	for _, index := range []Index{Probing, Mapped} {
		s := newOverflowScene(t, Config{Index: index, MaxKeys: 20})
		c := &busy{scene: s, each: fewerRounds(2000)}
		c.places = s.open(core.RuleConfig{Name: "places", Limit: mustConcurrency(t, 2)})
		c.plain = s.open(core.RuleConfig{Name: "plain", Limit: perHour(t, rate.TokenBucket, 2)})
		for i := 0; i < 8; i++ {
			c.done.Add(1)
			go beBusy(c, i)
		}
		c.done.Wait()
		s.now += 2 * 3600 * inSeconds
		s.store.Sweep()
		if err := leak(s.store); err != nil {
			t.Error(err)
		}
	}
}

// busy is a crowd, each of which is in flight together with some of the others.
type busy struct {
	scene         *overflowScene
	places, plain *core.Rule
	each          int
	done          sync.WaitGroup
	flying        [3]atomic.Int64 // of each key
}

func beBusy(c *busy, number int) {
	for i := 0; i < c.each; i++ {
		key := (number + i) % len(c.flying)
		checks := []core.Check{{Rule: c.places, Key: strconv.Itoa(key), Cost: 1}}
		if err := c.scene.store.Decide(checks, false); err != nil {
			c.scene.t.Error(err)
		}
		reservations := core.AppendReservations(nil, checks)
		if len(reservations) > 0 && c.flying[key].Add(1) > 2 {
			c.scene.t.Errorf("more than 2 of %d are in flight", key)
		}
		other := []core.Check{{Rule: c.plain, Key: strconv.Itoa(number*c.each + i), Cost: 1}}
		if err := c.scene.store.Decide(other, false); err != nil {
			c.scene.t.Error(err)
		}
		if len(reservations) > 0 {
			c.flying[key].Add(-1)
			if err := c.scene.store.Settle(reservations); err != nil {
				c.scene.t.Error(err)
			}
		}
	}
	c.done.Done()
}

// Sweep forgets an account as soon as it has no effect any more, and not a microsecond before.
func TestAccountsAreForgottenWhenTheyHaveNoEffect(t *testing.T) {
	short := mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 2, Period: time.Second})
	long := mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 2, Period: 20 * time.Second})
	soft := core.OverflowPolicy{SoftPercent: 50, SoftFor: 10 * time.Second}
	for _, c := range []struct {
		name   string
		config core.RuleConfig
		asks   int
		after  int64 // in seconds
	}{
		{"soft", core.RuleConfig{Limit: short, OverflowPolicy: soft}, 3, 10},
		{"soft, again", core.RuleConfig{Limit: long, OverflowPolicy: soft}, 3, 20},
		{"penalty", core.RuleConfig{Limit: short, OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{10 * time.Second, time.Minute}}}, 3, 70},
		{"delay", core.RuleConfig{Limit: slowly(t, 1, 10*time.Second, time.Minute)}, 3, 30},
	} {
		s := newOverflowScene(t, Config{})
		c.config.Name = "r"
		r := s.open(c.config)
		for i := 0; i < c.asks; i++ {
			s.ask("alice", r)
		}
		begin := s.now
		s.now = begin + c.after*inSeconds - 1
		s.store.Sweep()
		if err := leak(s.store); err == nil {
			t.Errorf("%s: forgotten a microsecond too early", c.name)
		}
		s.now++
		s.store.Sweep()
		if err := leak(s.store); err != nil {
			t.Errorf("%s, after %d s: %v", c.name, c.after, err)
		}
	}
}

// An account without reservations needs neither a sweep nor a clock to be forgotten.
func TestAccountsAreForgottenWithTheirLastReservation(t *testing.T) {
	s := newOverflowScene(t, Config{})
	places := s.open(core.RuleConfig{Name: "places", Limit: mustConcurrency(t, 2)})
	count := s.open(core.RuleConfig{Name: "count", Limit: perHour(t, rate.SlidingWindowLog, 2), OverflowPolicy: core.OverflowPolicy{Count: mustStatuses(t, "401")}})
	for i := 0; i < 100; i++ {
		_, reservations := s.ask(strconv.Itoa(i), places, count)
		must.Succeed(t, s.limiter.Finish(reservations, 401))
	}
	for i := range s.store.shards {
		if n := len(s.store.shards[i].accounts); n > 0 {
			t.Fatalf("%d accounts are left in shard %d", n, i)
		}
	}
}

// Nor do accounts stay when their keys are forgotten and other keys of the shard are not.
func TestAccountsAreForgottenWithTheirKeys(t *testing.T) {
	for _, index := range []Index{Probing, Mapped} {
		s := newOverflowScene(t, Config{Index: index})
		limit := mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: time.Second})
		penal := s.open(core.RuleConfig{Name: "penal", Limit: limit, OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Second}}})
		plain := s.open(core.RuleConfig{Name: "plain", Limit: perHour(t, rate.FixedWindow, 2)})
		n := fewerRounds(20_000)
		for i := 0; i < n; i++ {
			s.ask(strconv.Itoa(i), plain)
			s.ask(strconv.Itoa(i), penal)
			s.ask(strconv.Itoa(i), penal)
		}
		s.now += 10 * inSeconds
		s.store.Sweep()
		if keys := s.store.Stats().Keys; keys != int64(n) {
			t.Errorf("%d keys are left; want the %d of the plain rule", keys, n)
		}
		for i := range s.store.shards {
			if left := len(s.store.shards[i].accounts); left > 0 {
				t.Fatalf("%d accounts are left in shard %d", left, i)
			}
		}
	}
}

// A reload opens the new rule and releases the old one. Requests under way by the old one end all the same.
func TestRequestsUnderWaySurviveAReload(t *testing.T) {
	s := newOverflowScene(t, Config{})
	count := core.OverflowPolicy{Count: mustStatuses(t, "401")}
	old := []*core.Rule{
		s.open(core.RuleConfig{Name: "places", Limit: mustConcurrency(t, 2)}),
		s.open(core.RuleConfig{Name: "count", Limit: perHour(t, rate.FixedWindow, 2), OverflowPolicy: count}),
	}
	_, first := s.ask("alice", old...)
	_, second := s.ask("alice", old...)
	places := s.open(core.RuleConfig{Name: "places", Limit: mustConcurrency(t, 3)})
	counts := s.open(core.RuleConfig{Name: "count", Limit: perHour(t, rate.FixedWindow, 3), OverflowPolicy: count})
	for _, r := range old {
		s.limiter.Release(r)
	}
	s.store.Sweep()
	if d := s.peek(places, "alice", 1); d.Remaining != 0 || !d.Allowed {
		t.Errorf("2 of 3 in flight: %+v", d)
	}
	must.Succeed(t, s.limiter.Finish(first, 401))
	if d := s.peek(places, "alice", 1); d.Remaining != 1 {
		t.Errorf("1 of 3 in flight: %+v", d)
	}
	if d := s.peek(counts, "alice", 1); d.Remaining != 0 {
		t.Errorf("1 of 3 charged, and 1 reserved: %+v", d)
	}

	// If no rule takes its place, requests under way still end, and then nothing is left.
	s.limiter.Release(places)
	s.limiter.Release(counts)
	s.store.Sweep()
	must.Succeed(t, s.limiter.Finish(second, 401))
	s.now += 2 * 3600 * inSeconds
	s.store.Sweep()
	if err := leak(s.store); err != nil {
		t.Error(err)
	}
}

// If the clock steps back, nothing lasts longer than planned.
func TestAClockThatStepsBackMakesNoBlockLonger(t *testing.T) {
	s := newOverflowScene(t, Config{})
	limit := mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 2, Period: time.Second})
	penal := s.open(core.RuleConfig{Name: "penal", Limit: limit, OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Minute}}})
	soft := s.open(core.RuleConfig{Name: "soft", Limit: limit, OverflowPolicy: core.OverflowPolicy{SoftPercent: 50, SoftFor: 10 * time.Second}})
	for i := 0; i < 3; i++ {
		s.ask("alice", penal)
		s.ask("alice", soft)
	}
	s.now -= 3600 * inSeconds
	v, _ := s.ask("alice", penal)
	s.wants("an hour before it was blocked", v, core.Reject, 60*inSeconds, 0)
	s.peek(soft, "alice", 1)
	s.now += 99 * inSeconds / 10
	for i := 0; i < 2; i++ {
		s.ask("alice", soft)
	}
	if v, _ = s.ask("alice", soft); !v.Soft {
		t.Errorf("10 seconds since an hour before tolerance began are not over: %+v", v)
	}
	s.now += 6 * inSeconds / 10
	for i := 0; i < 2; i++ {
		s.ask("alice", soft)
	}
	if v, _ = s.ask("alice", soft); v.Outcome != core.Reject {
		t.Errorf("they are over, and no second was quiet: %+v", v)
	}
	s.now += 50 * inSeconds
	if v, _ = s.ask("alice", penal); v.Outcome != core.Allow {
		t.Errorf("a minute later: %+v", v)
	}
}

// A request that leaves the queue gives back nothing that others were charged while it waited.
func TestARequestThatLeavesTakesNoOtherChargeAlong(t *testing.T) {
	for _, a := range []rate.Algorithm{rate.TokenBucket, rate.SlidingWindowLog} {
		s := newOverflowScene(t, Config{})
		limit := mustLimit(t, rate.LimitConfig{Algorithm: a, Requests: 2, Period: 6 * time.Second, Delays: true, MaxDelay: time.Minute})
		quick := s.open(core.RuleConfig{Name: "quick", Limit: limit})
		slow := s.open(core.RuleConfig{Name: "slow", Limit: slowly(t, 1, 7*time.Second, time.Minute)})
		s.ask("alice", quick)
		s.ask("alice", quick, slow)
		v, _ := s.ask("alice", quick, slow) // departs when the slow rule lets it
		s.wants("the third", v, core.Delay, 0, 7*inSeconds)
		v, _ = s.ask("alice", quick)
		s.wants("the fourth", v, core.Delay, 0, 6*inSeconds)
		departure := 9 * inSeconds
		if a == rate.SlidingWindowLog {
			departure = 12 * inSeconds
		}
		v, last := s.ask("alice", quick)
		s.wants("the fifth", v, core.Delay, 0, departure)
		s.now += 15 * inSeconds / 2 // the third departs
		want := s.peek(quick, "alice", 1).Delay
		must.Succeed(t, s.limiter.Leave(last))
		if d := s.peek(quick, "alice", 1); d.Delay == 0 || d.Delay > want {
			t.Errorf("%s: %+v; before the fifth left a sixth was to wait for %d", a.String(), d, want)
		}
	}
}

// For a defect: if requests waited, a log was asked about a time before its last look, and returned a departure an hour ago.
func TestAClockThatStepsBackGivesNoDepartureInThePast(t *testing.T) {
	for _, a := range []rate.Algorithm{rate.TokenBucket, rate.FixedWindow, rate.SlidingWindowLog} {
		for _, back := range []int64{1, inSeconds, 9 * inSeconds, 11 * inSeconds, 100 * inSeconds} {
			s := newOverflowScene(t, Config{})
			limit := mustLimit(t, rate.LimitConfig{Algorithm: a, Requests: 2, Period: 10 * time.Second, Delays: true, MaxDelay: time.Minute})
			r := s.open(core.RuleConfig{Name: "r", Limit: limit})
			for i := 0; i < 3; i++ {
				s.ask("alice", r)
			}
			s.now -= back
			v, _ := s.ask("alice", r)
			if v.Outcome == core.Reject || v.Delay < 0 || v.Delay > 20*inSeconds+back {
				t.Errorf("%s, %d µs back: %+v", a.String(), back, v)
			}
			// A log's units count until ten seconds after they came, whatever the clock says; but after a step of more than a
			// period none do.
			if a == rate.SlidingWindowLog && back < 10*inSeconds && v.Delay != 10*inSeconds+back {
				t.Errorf("%s, %d µs back: %+v; want it to wait for 10 s and that", a.String(), back, v)
			}
		}
	}
}

// However the clock jumps, no wait is longer than allowed, and after a long silence a key is as new.
func TestAClockThatJumpsLeavesNothingBehind(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	configs := []core.RuleConfig{
		{OverflowPolicy: core.OverflowPolicy{SoftPercent: 100, SoftFor: 15 * time.Second}},
		{OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{5 * time.Second, 20 * time.Second}}},
		{OverflowPolicy: core.OverflowPolicy{Count: mustStatuses(t, "401")}},
		{Concurrency: 2},
		{},
	}
	for round := 0; round < fewerRounds(400)+10; round++ {
		a := []rate.Algorithm{rate.TokenBucket, rate.FixedWindow, rate.SlidingWindowLog}[r.Intn(3)]
		c := configs[r.Intn(len(configs))]
		lc := rate.LimitConfig{Algorithm: a, Requests: 3, Period: 10 * time.Second}
		if c.OverflowPolicy.SoftPercent == 0 && c.OverflowPolicy.Count == nil && r.Intn(2) == 0 {
			lc.Delays = true
			lc.MaxDelay = 30 * time.Second
		}
		c.Name = "r"
		c.Limit = mustLimit(t, lc)
		s := newOverflowScene(t, Config{})
		first := s.open(c)
		rules := append([]*core.Rule{first}, first.Linked()...)
		slow := s.open(core.RuleConfig{Name: "slow", Limit: slowly(t, 2, 10*time.Second, 30*time.Second)})
		var under [][]core.Reservation
		for i := 0; i < 40; i++ {
			s.now += r.Int63n(5 * inSeconds)
			if r.Intn(5) == 0 {
				s.now += r.Int63n(100*inSeconds) - 50*inSeconds
			}
			asked := rules
			if r.Intn(3) == 0 {
				asked = append(append([]*core.Rule{}, rules...), slow)
			}
			v, reservations := s.ask("alice", asked...)
			if v.Delay < 0 || v.Delay > 30*inSeconds || v.Outcome == core.Reject && (v.RetryAfter <= 0 || v.RetryAfter > 200*inSeconds) {
				t.Fatalf("round %d, %s, request %d: %+v", round, c.Limit, i+1, v)
			}
			if len(reservations) > 0 && v.Outcome != core.Reject {
				under = append(under, reservations)
			}
			if len(under) > 0 && r.Intn(2) == 0 {
				reservations = under[0]
				under = under[1:]
				if r.Intn(3) == 0 {
					must.Succeed(t, s.limiter.Leave(reservations))
					continue
				}
				s.limiter.Depart(reservations)
				must.Succeed(t, s.limiter.Finish(reservations, 200+r.Intn(2)*201))
			}
		}
		for _, reservations := range under {
			s.limiter.Depart(reservations)
			must.Succeed(t, s.limiter.Finish(reservations, 200))
		}
		s.now += 1000 * inSeconds
		if d := s.peek(first, "alice", 3); !d.Allowed || d.Delay != 0 || d.Soft {
			t.Fatalf("round %d, %s, after a long silence: %+v", round, c.Limit, d)
		}
		s.store.Sweep()
		if err := leak(s.store); err != nil {
			t.Fatalf("round %d, %s: %v", round, c.Limit, err)
		}
	}
}

// Among keys with penalties, those with more offences stay longer: a flood of first offenders does not make the store forget
// worse ones.
func TestTheWorstOffenderIsForgottenLast(t *testing.T) {
	now := int64(1_700_000_000_000_000)
	m := New(Config{MaxKeys: 100, Clock: func() int64 { return now }})
	r := mustRule(t, core.RuleConfig{
		Name:           "r",
		Limit:          mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1, Period: time.Second}),
		OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Minute, time.Hour}},
	})
	_ = m.Open(r)
	take := func(key string) bool {
		checks := []core.Check{{Rule: r, Key: key, Cost: 1}}
		_ = m.Decide(checks, false)
		return checks[0].Decision.Allowed
	}
	take("worst")
	take("worst")
	now += 61_000_000
	take("worst")
	take("worst")              // for an hour
	for i := 0; i < 400; i++ { // four times as many as there is room for
		key := "flood " + strconv.Itoa(i)
		take(key)
		take(key)
	}
	if take("worst") {
		t.Error("the worst offender was forgotten")
	}
}

// If as many requests wait as may, others are rejected, but their keys get no penalty.
func TestNobodyIsBlockedBecauseOthersWait(t *testing.T) {
	now := int64(1_700_000_000_000_000)
	l := core.NewLimiter(New(Config{Clock: func() int64 { return now }}))
	r := mustRule(t, core.RuleConfig{
		Name:           "r",
		Limit:          mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1, Period: time.Second, Delays: true}),
		OverflowPolicy: core.OverflowPolicy{MaxWaiting: 1, Penalties: []time.Duration{time.Hour}},
	})
	must.Succeed(t, l.Open(r))
	ask := func(key string) core.Verdict {
		var v core.Verdict
		_ = l.Decide([]core.Check{{Rule: r, Key: key, Cost: 1}}, false, &v)
		return v
	}
	ask("crowd")
	ask("crowd") // waits
	ask("alice")
	if v := ask("alice"); v.Outcome != core.Reject || v.RetryAfter != 1_000_000 {
		t.Errorf("%+v; want her rejected for a second", v)
	}
}
