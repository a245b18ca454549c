package memory

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// shared is a store that can fail, like one that nodes share. When it fails, each Decision is what known has for the check's key,
// or zero.
type shared struct {
	*Store
	failure error
	known   map[string]rate.Decision
	opened  int
}

func (s *shared) Open(r *core.Rule) error {
	s.opened++
	return s.Store.Open(r)
}

func (s *shared) Release(r *core.Rule) {
	s.opened--
	s.Store.Release(r)
}

func (s *shared) Decide(checks []core.Check, peek bool) error {
	if s.failure == nil {
		return s.Store.Decide(checks, peek)
	}
	for i := range checks {
		checks[i].Decision = s.known[checks[i].Key]
	}
	return s.failure
}

// fallen is a limiter whose store has failed.
type fallen struct {
	t       *testing.T
	now     int64
	store   *shared
	local   *Store
	limiter *core.Limiter
}

func newFallen(t *testing.T, nodes int) *fallen {
	f := &fallen{t: t, now: 1_772_452_820_000_000} // 12:00:20, in the middle of a minute's and an hour's window
	f.store = &shared{
		Store:   New(Config{Clock: f.clock}),
		failure: errors.New("down"),
		known:   make(map[string]rate.Decision),
	}
	f.local = New(Config{Clock: f.clock})
	f.limiter = core.NewLimiter(f.store)
	f.limiter.FallBack(f.local, nodes)
	return f
}

func (f *fallen) clock() int64 { return atomic.LoadInt64(&f.now) }

func (f *fallen) open(c core.RuleConfig) *core.Rule {
	r := mustRule(f.t, c)
	must.Succeed(f.t, f.limiter.Open(r))
	return r
}

// ask decides on a request under rules, at a cost for each.
func (f *fallen) ask(key string, cost int64, peek bool, rules ...*core.Rule) ([]core.Check, core.Verdict) {
	checks := make([]core.Check, len(rules))
	for i := range rules {
		checks[i] = core.Check{Rule: rules[i], Key: key, Cost: cost}
	}
	var v core.Verdict
	if err := f.limiter.Decide(checks, peek, &v); err != f.store.failure {
		f.t.Fatalf("the error is %v, want the store's, %v", err, f.store.failure)
	}
	return checks, v
}

// admits returns how many of that many requests are allowed.
func (f *fallen) admits(key string, requests int, rules ...*core.Rule) int {
	n := 0
	for i := 0; i < requests; i++ {
		if _, v := f.ask(key, 1, false, rules...); v.Outcome == core.Allow || v.Outcome == core.Delay {
			n++
		}
	}
	return n
}

func perHour(t *testing.T, a rate.Algorithm, requests int64) *rate.Limit {
	return mustLimit(t, rate.LimitConfig{Algorithm: a, Requests: requests, Period: time.Hour})
}

func TestWithoutItsStoreARuleDoesWhatItsOnErrorSays(t *testing.T) {
	f := newFallen(t, 1)
	open := f.open(core.RuleConfig{Name: "open", Limit: perHour(t, rate.FixedWindow, 1), OnError: core.LetPass})
	closed := f.open(core.RuleConfig{Name: "closed", Limit: perHour(t, rate.FixedWindow, 1), OnError: core.RejectAll})
	local := f.open(core.RuleConfig{Name: "local", Limit: perHour(t, rate.FixedWindow, 1)})
	pass := core.Verdict{Outcome: core.Allow, Reported: -1}
	refused := core.Verdict{Outcome: core.Unavailable, Reported: -1, RetryAfter: 1_000_000}
	nothing := rate.Decision{Allowed: true}
	for i := 0; i < 3; i++ {
		checks, v := f.ask("k", 1, false, open)
		if v != pass || !checks[0].Uncounted || checks[0].Decision != nothing {
			t.Errorf("open: %+v, %+v; want it to pass, and no rule reported", v, checks[0])
		}
		_, v = f.ask("k", 1, false, closed)
		if v != refused {
			t.Errorf("closed: %+v; want unavailable for a second", v)
		}
	}
	checks, v := f.ask("k", 1, false, local)
	if v.Outcome != core.Allow || v.Reported != 0 || checks[0].Uncounted || checks[0].Decision.Limit != 1 {
		t.Errorf("local: %+v, %+v", v, checks[0])
	}
	if _, v = f.ask("k", 1, false, local); v.Outcome != core.Reject || v.RetryAfter <= 0 {
		t.Errorf("local, used up: %+v", v)
	}

	f.store.failure = nil
	for _, r := range []*core.Rule{open, closed, local} {
		checks, v := f.ask("k", 1, false, r)
		if v.Outcome != core.Allow || v.Reported != 0 || checks[0].Uncounted || checks[0].Rule != r {
			t.Errorf("%s, with the store back: %+v, %+v", r.Name(), v, checks[0])
		}
		if _, v = f.ask("k", 1, false, r); v.Outcome != core.Reject {
			t.Errorf("%s, with the store back and used up: %+v", r.Name(), v)
		}
	}
}

func TestChecksThatAreUsedAgainAreCountedWhenTheStoreIsBack(t *testing.T) {
	f := newFallen(t, 1)
	checks := []core.Check{{Rule: f.open(core.RuleConfig{Name: "r", Limit: perHour(t, rate.FixedWindow, 1), OnError: core.LetPass}), Key: "k"}}
	for i := 0; i < 3; i++ {
		var v core.Verdict
		if err := f.limiter.Decide(checks, false, &v); err == nil || !checks[0].Uncounted {
			t.Fatalf("%v, %+v", err, checks[0])
		}
	}
	f.store.failure = nil
	for i := 0; i < 3; i++ {
		var v core.Verdict
		err := f.limiter.Decide(checks, false, &v)
		want := core.Allow
		if i > 0 {
			want = core.Reject
		}
		if err != nil || v.Outcome != want || v.Reported != 0 || checks[0].Uncounted {
			t.Errorf("request %d: %v, %+v, %+v", i+1, err, v, checks[0])
		}
	}
}

func TestWithoutAMemoryToFallBackOnALocalRuleRejects(t *testing.T) {
	store := &shared{failure: errors.New("down"), Store: New(Config{})}
	l := core.NewLimiter(store)
	enforced, shadow := mustRule(t, core.RuleConfig{Name: "r"}), mustRule(t, core.RuleConfig{Name: "s", Shadow: true})
	for _, r := range []*core.Rule{enforced, shadow} {
		must.Succeed(t, l.Open(r))
	}
	var v core.Verdict
	if err := l.Decide([]core.Check{{Rule: enforced, Key: "k"}}, false, &v); err != store.failure || v.Outcome != core.Unavailable {
		t.Errorf("%+v, %v", v, err)
	}
	if err := l.Decide([]core.Check{{Rule: shadow, Key: "k"}}, false, &v); err != store.failure || v.Outcome != core.Allow {
		t.Errorf("a shadow: %+v, %v", v, err)
	}
}

func TestEachNodeAllowsItsShare(t *testing.T) {
	for a := rate.TokenBucket; a <= rate.SlidingWindowCounter; a++ {
		for _, c := range []struct {
			requests int64
			nodes    int
			want     int
		}{
			{12, 0, 12},
			{12, 1, 12},
			{12, 3, 4},
			{12, 5, 2},
			{12, 12, 1},
			{12, 100, 1},
			{1, 1, 1},
			{1, 10, 1},
		} {
			f := newFallen(t, c.nodes)
			config := rate.LimitConfig{Algorithm: a, Requests: c.requests, Period: time.Hour}
			want := c.want
			if a == rate.LeakyBucket { // one leaves at once, and a burst waits
				config.MaxDelay = time.Hour
				want++
			}
			r := f.open(core.RuleConfig{Name: "r", Limit: mustLimit(t, config)})
			if got := f.admits("k", 20, r); got != want {
				t.Errorf("%s, %d by %d nodes: %d are allowed, want %d", a.String(), c.requests, c.nodes, got, want)
			}
			if got := f.admits("another", 20, r); got != want {
				t.Errorf("%s, %d by %d nodes: of another key %d, want %d", a.String(), c.requests, c.nodes, got, want)
			}
		}
	}
}

func TestCountingStartsFromWhatWasLastKnown(t *testing.T) {
	for a := rate.TokenBucket; a <= rate.SlidingWindowCounter; a++ {
		if a == rate.LeakyBucket {
			continue // see below
		}
		for _, c := range []struct {
			remaining int64 // of 10, the last that the store knew
			nodes     int
			want      int
		}{
			{10, 1, 10},
			{7, 1, 7},
			{1, 1, 1},
			{0, 1, 0},
			{5, 2, 2}, // half of a share of 5 is used: 2½, rounded up
			{9, 5, 1}, // a tenth of a share of 2 is used: 0.2, rounded up
			{1, 5, 0},
			{9, 10, 0},
			{10, 10, 1},
		} {
			f := newFallen(t, c.nodes)
			r := f.open(core.RuleConfig{Name: "r", Limit: perHour(t, a, 10)})
			f.store.known["k"] = rate.Decision{Limit: 10, Remaining: c.remaining}
			if got := f.admits("k", 15, r); got != c.want {
				t.Errorf("%s, %d of 10 left, %d nodes: %d are allowed, want %d", a.String(), c.remaining, c.nodes, got, c.want)
			}
			if got := f.admits("unknown", 15, r); got != int(r.Limit.Share(float64(c.nodes)).Quota) {
				t.Errorf("%s, a key of which nothing is known: %d are allowed", a.String(), got)
			}
		}
	}
}

// While a region's store fails, its nodes keep to the region's share of limits that hold across regions together.
func TestNodesOfARegionKeepToItsShare(t *testing.T) {
	f := newFallen(t, 2)
	f.limiter.InRegion(0.4)
	eventually := core.RuleConfig{Name: "e", Limit: perHour(t, rate.FixedWindow, 100), Consistency: core.Eventual, SyncEvery: time.Second, RegionsEvery: time.Second}
	lease := core.RuleConfig{Name: "l", Limit: perHour(t, rate.FixedWindow, 100), RegionsLease: true}
	for _, c := range []core.RuleConfig{eventually, lease} {
		if got := f.admits("k", 100, f.open(c)); got != 20 {
			t.Errorf("%s: %d are allowed", c.Name, got)
		}
	}
	if got := f.admits("k", 100, f.open(core.RuleConfig{Name: "r", Limit: perHour(t, rate.FixedWindow, 100)})); got != 50 {
		t.Errorf("of a limit of this region alone: %d are allowed", got)
	}
}

func TestAQueueStartsFromWhatWasLastKnown(t *testing.T) {
	f := newFallen(t, 2)
	r := f.open(core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 10, Burst: 10, Period: time.Minute, MaxDelay: time.Hour})})
	f.store.known["k"] = rate.Decision{Limit: 10, Remaining: 4}
	checks, v := f.ask("k", 1, false, r)
	// Six of ten places are taken, so three of this node's five: at five a minute, the fourth waits for 36 seconds.
	if v.Outcome != core.Delay || v.Delay != 36_000_000 || checks[0].Decision.Limit != 5 {
		t.Errorf("%+v, %+v", v, checks[0].Decision)
	}
	if got := f.admits("k", 15, r); got != 2 { // six in all: the one that leaves, and five that wait
		t.Errorf("%d more are allowed", got)
	}
}

func TestWhatWasLastKnownIsChargedOnce(t *testing.T) {
	f := newFallen(t, 1)
	r := f.open(core.RuleConfig{Name: "r", Limit: perHour(t, rate.FixedWindow, 10)})
	f.store.known["k"] = rate.Decision{Limit: 10, Remaining: 6}
	if got := f.admits("k", 3, r); got != 3 {
		t.Fatalf("%d are allowed, want 3", got)
	}
	f.store.known["k"] = rate.Decision{Limit: 10, Remaining: 5} // memory has already used seven
	if got := f.admits("k", 1, r); got != 1 {
		t.Fatal("what memory has counted is charged again")
	}
	f.store.known["k"] = rate.Decision{Limit: 10, Remaining: 1} // the store was back meanwhile, and others have used more
	if got := f.admits("k", 3, r); got != 1 {
		t.Fatalf("%d are allowed, want the one that remained", got)
	}
}

func TestAPeekWithoutTheStoreChargesNothing(t *testing.T) {
	f := newFallen(t, 1)
	r := f.open(core.RuleConfig{Name: "r", Limit: perHour(t, rate.FixedWindow, 10)})
	f.store.known["k"] = rate.Decision{Limit: 10, Remaining: 0}
	for i := 0; i < 20; i++ {
		f.ask("k", 1, true, r)
	}
	must.Equal(t, f.local.Stats().Keys, 0, "keys were charged")
}

func TestAMixtureOfRulesWithoutTheStore(t *testing.T) {
	f := newFallen(t, 2)
	open := f.open(core.RuleConfig{Name: "open", Limit: perHour(t, rate.FixedWindow, 1), OnError: core.LetPass})
	closed := f.open(core.RuleConfig{Name: "closed", Limit: perHour(t, rate.FixedWindow, 100), OnError: core.RejectAll})
	closedShadow := f.open(core.RuleConfig{Name: "closedShadow", Limit: perHour(t, rate.FixedWindow, 1), OnError: core.RejectAll, Shadow: true})
	wide := f.open(core.RuleConfig{Name: "wide", Limit: perHour(t, rate.FixedWindow, 8)})
	tight := f.open(core.RuleConfig{Name: "tight", Limit: perHour(t, rate.TokenBucket, 4)})
	shadow := f.open(core.RuleConfig{Name: "shadow", Limit: perHour(t, rate.SlidingWindowLog, 2), Shadow: true})

	for i := 0; i < 5; i++ {
		if _, v := f.ask("k", 1, false, wide, open, closed); v.Outcome != core.Unavailable || v.Reported != -1 {
			t.Fatalf("one that rejects among others: %+v", v)
		}
	}
	if keys := f.local.Stats().Keys; keys != 0 {
		t.Fatalf("a rejected request has charged %d keys", keys)
	}

	for i := 0; i < 2; i++ { // the share of the tight rule is 2, that of the shadow 1
		checks, v := f.ask("k", 1, false, open, wide, closedShadow, tight, shadow)
		if v.Outcome != core.Allow || v.Reported != 3 {
			t.Fatalf("request %d: %+v; want the tightest reported", i, v)
		}
		if !checks[0].Uncounted || !checks[2].Uncounted || checks[1].Uncounted || checks[3].Uncounted || checks[4].Uncounted {
			t.Fatalf("request %d: uncounted are %+v", i, checks)
		}
		if checks[0].Rule != open || checks[2].Rule != closedShadow {
			t.Fatalf("request %d: rules that are not counted were replaced", i)
		}
		for j, r := range []*core.Rule{1: wide, 3: tight, 4: shadow} {
			if r != nil && (checks[j].Rule != r.Local || checks[j].Rule.Name() != r.Name() || checks[j].Rule.Shadow != r.Shadow || checks[j].Key != "k") {
				t.Fatalf("request %d: check %d is of %s", i, j, checks[j].Rule.Identity)
			}
		}
		if checks[1].Decision.Remaining != int64(3-i) || checks[3].Decision.Remaining != int64(1-i) || checks[4].Decision.Allowed != (i == 0) {
			t.Fatalf("request %d: %+v", i, checks)
		}
	}
	checks, v := f.ask("k", 1, false, open, wide, closedShadow, tight, shadow)
	if v.Outcome != core.Reject || v.Reported != 3 || checks[1].Decision.Remaining != 2 {
		t.Fatalf("the third: %+v, %+v; want the tight one to reject, and the wide one not charged", v, checks)
	}
	if got := f.admits("k", 10, wide); got != 2 {
		t.Errorf("the wide one has let %d more through, want 2", got)
	}
}

func TestWhatCostsMoreThanTheShareTakesAllOfIt(t *testing.T) {
	for a := rate.TokenBucket; a <= rate.SlidingWindowCounter; a++ {
		f := newFallen(t, 5)
		config := rate.LimitConfig{Algorithm: a, Requests: 10, Period: time.Hour}
		if a == rate.LeakyBucket {
			config.MaxDelay = time.Hour
		}
		limit := mustLimit(t, config)
		r := f.open(core.RuleConfig{Name: "r", Limit: limit})
		if _, v := f.ask("k", limit.Capacity+1, false, r); v.Outcome != core.Reject || v.RetryAfter != rate.Never {
			t.Errorf("%s, more than the whole capacity: %+v; want never", a.String(), v)
		}
		if checks, v := f.ask("k", limit.Capacity, false, r); v.Outcome != core.Allow || checks[0].Decision.Remaining != 0 {
			t.Errorf("%s, all of the limit: %+v, %+v; want it allowed", a.String(), v, checks[0].Decision)
		}
		if _, v := f.ask("k", limit.Capacity, false, r); v.Outcome != core.Reject || v.RetryAfter <= 0 {
			t.Errorf("%s, once more: %+v; want it to wait", a.String(), v)
		}
		if got := f.admits("k", 5, r); got != 0 {
			t.Errorf("%s: %d are allowed after that", a.String(), got)
		}
	}
}

func TestRejectedRequestsCountLocallyToo(t *testing.T) {
	f := newFallen(t, 1)
	r := f.open(core.RuleConfig{Name: "r", Limit: perHour(t, rate.SlidingWindowLog, 2), CountRejected: true})
	f.admits("k", 2, r)
	atomic.AddInt64(&f.now, 3_000_000_000)
	if _, v := f.ask("k", 1, false, r); v.Outcome != core.Reject || v.RetryAfter != 600_000_000 {
		t.Fatalf("%+v", v)
	}
	atomic.AddInt64(&f.now, 700_000_000) // the two have expired, and the rejected one has not
	if got := f.admits("k", 2, r); got != 1 {
		t.Errorf("%d are allowed, want 1", got)
	}
}

// yielding is a memory that lets other goroutines run after each decision.
type yielding struct{ *Store }

func (y *yielding) Decide(checks []core.Check, peek bool) error {
	err := y.Store.Decide(checks, peek)
	if peek {
		runtime.Gosched()
	}
	return err
}

// askFive asks five times for a key. (It is not a function literal: Yaegi may call one of an earlier iteration again.)
func askFive(f *fallen, r *core.Rule, admitted *atomic.Int64, wg *sync.WaitGroup) {
	for j := 0; j < 5; j++ {
		checks := []core.Check{{Rule: r, Key: "k"}}
		var v core.Verdict
		if err := f.limiter.Decide(checks, false, &v); err != f.store.failure {
			f.t.Error(err)
		}
		if v.Outcome == core.Allow {
			admitted.Add(1)
		}
	}
	wg.Done()
}

func TestManyAtOnceStartFromWhatWasLastKnownTogether(t *testing.T) {
	for round := 0; round < 20; round++ {
		f := newFallen(t, 2)
		f.limiter.FallBack(&yielding{f.local}, 2)
		r := f.open(core.RuleConfig{Name: "r", Limit: perHour(t, rate.FixedWindow, 40)})
		f.store.known["k"] = rate.Decision{Limit: 40, Remaining: 30} // five of this node's 20 are used
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for i := 0; i < 8; i++ {
			wg.Add(1)
			go askFive(f, r, &admitted, &wg)
		}
		wg.Wait()
		if n := admitted.Load(); n != 15 {
			t.Fatalf("%d are allowed, want 15", n)
		}
	}
}

func TestReleasingARuleReleasesItsLocalOne(t *testing.T) {
	f := newFallen(t, 1)
	r := f.open(core.RuleConfig{Name: "r", Limit: perHour(t, rate.FixedWindow, 1)})
	if got := f.admits("k", 3, r); got != 1 {
		t.Fatalf("%d are allowed", got)
	}
	changed := f.open(core.RuleConfig{Name: "r", Limit: perHour(t, rate.FixedWindow, 3)}) // with the same identity, so that its counters survive
	f.limiter.Release(r)
	if got := f.admits("k", 3, changed); got != 2 {
		t.Errorf("%d are allowed by a raised limit, want 2", got)
	}
	f.limiter.Release(changed)
	f.local.Sweep()
	if f.store.opened != 0 || f.local.Stats().Keys != 0 {
		t.Errorf("%d rules are open, memory has %d keys", f.store.opened, f.local.Stats().Keys)
	}
}

// unopenable is a store whose Open fails.
type unopenable struct{ err error }

func (u *unopenable) Open(r *core.Rule) error { return u.err }

func (u *unopenable) Release(r *core.Rule) {}

func (u *unopenable) Settle(reservations []core.Reservation) error { return u.err }

func (u *unopenable) Block(r *core.Rule, key string, duration int64) error { return u.err }

func (u *unopenable) Carry(from, to *core.Rule, done func()) { done() }

func (u *unopenable) Now() int64 { return 0 }

func (u *unopenable) Reset(r *core.Rule, key string) error { return u.err }

func (u *unopenable) Credit(r *core.Rule, key string, units int64) error { return u.err }

func (u *unopenable) Decide(checks []core.Check, peek bool) error { return u.err }

func TestARuleThatCannotBeOpenedLocallyIsNotOpen(t *testing.T) {
	store := &shared{Store: New(Config{})}
	l := core.NewLimiter(store)
	l.FallBack(&unopenable{errors.New("no")}, 1)
	if err := l.Open(mustRule(t, core.RuleConfig{Name: "r"})); err == nil || store.opened != 0 {
		t.Errorf("%v, %d rules are open", err, store.opened)
	}
	if err := l.Open(mustRule(t, core.RuleConfig{Name: "r", OnError: core.LetPass})); err != nil || store.opened != 1 {
		t.Errorf("one that needs no memory: %v, %d rules are open", err, store.opened)
	}
}

// A request may have reservations in the store and local ones, if the store failed in between. Each ends where it is.
func TestReservationsEndWhereTheyAre(t *testing.T) {
	f := newFallen(t, 1)
	r := f.open(core.RuleConfig{Name: "login", Limit: perHour(t, rate.FixedWindow, 3), OverflowPolicy: core.OverflowPolicy{Count: mustStatuses(t, "401")}})
	down := f.store.failure
	f.store.failure = nil
	checks, _ := f.ask("k", 1, false, r)
	reservations := core.AppendReservations(nil, checks)
	f.store.failure = down
	checks, _ = f.ask("k", 1, false, r)
	reservations = core.AppendReservations(reservations, checks)
	if len(reservations) != 2 {
		t.Fatalf("%d reservations; want one in the store, and one that is local", len(reservations))
	}
	remain := func(failure error) int64 {
		f.store.failure = failure
		checks, _ := f.ask("k", 1, true, r)
		return checks[0].Decision.Remaining
	}
	if there, here := remain(nil), remain(down); there != 1 || here != 1 {
		t.Fatalf("%d and %d remain of 3 for one more, with one reserved in each", there, here)
	}
	must.Succeed(t, f.limiter.Finish(reservations, 200))
	if there, here := remain(nil), remain(down); there != 2 || here != 2 {
		t.Errorf("%d and %d remain of 3 for one more; want 2, nothing being reserved", there, here)
	}
}
