package goredis_test

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// In a Cluster a request's keys may lie in several slots. When one slot denies the request, its reservations in the others are given back, and
// their leases are not renewed.
func TestADenialByOneSlotEndsReservationsInOthers(t *testing.T) {
	server := redistest.Start(t, redistest.WithClock())
	server.SetTime(1_700_000_000_000_000)
	s := newStoreOver(t, redis.Config{}, goredis.Config{Addresses: []string{server.Addr()}}, true)
	statuses, err := core.ParseStatuses([]string{"401"})
	must.Succeed(t, err)
	rule := func(c core.RuleConfig, l rate.LimitConfig) *core.Rule {
		if c.Limit == nil {
			l.Period = time.Minute
			if c.Limit, err = rate.NewLimit(l); err != nil {
				t.Fatal(err)
			}
		}
		r, err := core.NewRule(c)
		must.Succeed(t, err)
		must.Succeed(t, s.Open(r))
		return r
	}
	two, _ := rate.NewConcurrency(2)
	few := rule(core.RuleConfig{Name: "few", Limit: two}, rate.LimitConfig{})
	tries := rule(core.RuleConfig{Name: "tries", OverflowPolicy: core.OverflowPolicy{Count: statuses}}, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 3})
	queued := rule(core.RuleConfig{Name: "queued"}, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 60, Burst: 1, Delays: true})
	tight := rule(core.RuleConfig{Name: "tight"}, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 2})
	ask := func() []core.Check {
		checks := []core.Check{
			{Rule: few, Key: "a", Cost: 1}, {Rule: tries, Key: "b", Cost: 1}, {Rule: queued, Key: "c", Cost: 1}, {Rule: tight, Key: "d", Cost: 1},
		}
		must.Succeed(t, s.Decide(checks, false))
		return checks
	}
	for i := range 2 {
		for j, c := range ask() {
			if !c.Decision.Allowed {
				t.Fatalf("request %d is rejected by %s", i+1, []string{"few", "tries", "queued", "tight"}[j])
			}
		}
	}
	for range 3 { // denied by few and by tight, whichever goes first
		if checks := ask(); checks[0].Decision.Allowed || checks[3].Decision.Allowed && checks[0].Decision.Allowed {
			t.Fatalf("%+v", checks)
		}
	}
	checks := []core.Check{{Rule: tries, Key: "b", Cost: 1}}
	if err := s.Decide(checks, true); err != nil || !checks[0].Decision.Allowed || checks[0].Decision.Remaining != 0 {
		t.Errorf("tries, with two of three reserved: %+v, %v", checks[0].Decision, err)
	}
	checks = []core.Check{{Rule: queued, Key: "c", Cost: 1}}
	if err := s.Decide(checks, true); err != nil || checks[0].Decision.Delay != 2*time.Second.Microseconds() {
		t.Errorf("queued, where one request waits for a second: %+v, %v", checks[0].Decision, err)
	}
}

// This is the same when the slot that denies comes last, because another node has used its limit up. The other slots have reserved or charged
// something by then, and give all of it back.
func TestADenialByTheLastSlotIsGivenBackByTheOthers(t *testing.T) {
	server := redistest.Start(t, redistest.WithClock())
	server.SetTime(1_700_000_000_000_000)
	statuses, err := core.ParseStatuses([]string{"401"})
	must.Succeed(t, err)
	two, err := rate.NewConcurrency(2)
	must.Succeed(t, err)
	type node struct {
		store                     *redis.Store
		few, tries, queued, tight *core.Rule
	}
	newNode := func() node {
		client, err := goredis.New(goredis.Config{Addresses: []string{server.Addr()}, Timeout: patience})
		must.Succeed(t, err)
		s, err := redis.NewStore(redis.Config{Client: slotted{client}, Prefix: "last:", PlainKeys: true})
		must.Succeed(t, err)
		t.Cleanup(func() { _ = s.CloseNow() }) // may be closed already
		open := func(c core.RuleConfig, l rate.LimitConfig) *core.Rule {
			if c.Limit == nil {
				l.Period = time.Minute
				if c.Limit, err = rate.NewLimit(l); err != nil {
					t.Fatal(err)
				}
			}
			r, err := core.NewRule(c)
			must.Succeed(t, err)
			must.Succeed(t, s.Open(r))
			return r
		}
		return node{
			store:  s,
			few:    open(core.RuleConfig{Name: "few", Limit: two}, rate.LimitConfig{}),
			tries:  open(core.RuleConfig{Name: "tries", OverflowPolicy: core.OverflowPolicy{Count: statuses}}, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 5}),
			queued: open(core.RuleConfig{Name: "queued"}, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 60, Burst: 1, Delays: true}),
			tight:  open(core.RuleConfig{Name: "tight"}, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1}),
		}
	}
	asked, other := newNode(), newNode()
	one := func(n node, r *core.Rule, key string, cost int64, peek bool) rate.Decision {
		t.Helper()
		checks := []core.Check{{Rule: r, Key: key, Cost: cost}}
		must.Succeed(t, n.store.Decide(checks, peek))
		return checks[0].Decision
	}
	one(other, other.tight, "d", 1, false)
	one(other, other.queued, "c", 1, false) // the next request waits for a second
	checks := []core.Check{
		{Rule: asked.few, Key: "a", Cost: 1}, {Rule: asked.tries, Key: "b", Cost: 3}, {Rule: asked.queued, Key: "c", Cost: 1}, {Rule: asked.tight, Key: "d", Cost: 1},
	}
	if err := asked.store.Decide(checks, false); err != nil || checks[3].Decision.Allowed {
		t.Fatalf("%v, %+v; want tight to deny it", err, checks[3].Decision)
	}
	for i, remaining := range []int64{2, 5, 0} {
		if d := checks[i].Decision; !d.Allowed || d.Remaining != remaining || d.Delay != 0 {
			t.Errorf("check %d: %+v; want the state without the request, %d", i, d, remaining)
		}
	}
	if reservations := core.AppendReservations(nil, checks); len(reservations) != 0 {
		t.Errorf("the request has reserved %+v; want nothing", reservations)
	}
	for _, held := range []string{"few", "tries"} { // nothing is reserved, and to close the store nobody must wait
		for _, kind := range []string{"h", "m"} {
			if keys := server.MustDo(t, "KEYS", "last:*:"+held+":*:"+kind).List; len(keys) != 0 {
				t.Errorf("%s is left", keys[0].Text)
			}
		}
	}
	if d := one(other, other.few, "a", 1, true); !d.Allowed || d.Remaining != 1 {
		t.Errorf("few: %+v", d)
	}
	if d := one(other, other.tries, "b", 5, true); !d.Allowed {
		t.Errorf("tries: %+v", d)
	}
	if d := one(other, other.queued, "c", 1, true); d.Delay != time.Second.Microseconds() {
		t.Errorf("queued: %+v", d)
	}
	must.Succeed(t, asked.store.Close())
	if err := asked.store.Decide([]core.Check{{Rule: asked.tries, Key: "x", Cost: 1}}, false); err == nil {
		t.Error("the store is not closed yet, as if a request had a reservation")
	}
}
