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

// slotsNode is a store whose rules lie in slots of their own: few for two requests in flight, tries by status, queued of one a second, tight.
type slotsNode struct {
	store                     *redis.Store
	few, tries, queued, tight *core.Rule
}

func newSlotsNode(t *testing.T, server *redistest.Server, tries, tight int64) slotsNode {
	t.Helper()
	client, err := goredis.New(goredis.Config{Addresses: []string{server.Addr()}, Timeout: patience})
	must.Succeed(t, err)
	s, err := redis.NewStore(redis.Config{Client: slotted{client}, Prefix: "slots:", PlainKeys: true})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.CloseNow() }) // may be closed already
	open := func(c core.RuleConfig, l rate.LimitConfig) *core.Rule {
		if c.Limit == nil {
			l.Period = time.Minute
			c.Limit, err = rate.NewLimit(l)
			must.Succeed(t, err)
		}
		r, err := core.NewRule(c)
		must.Succeed(t, err)
		must.Succeed(t, s.Open(r))
		return r
	}
	statuses, err := core.ParseCounted([]string{"401"})
	must.Succeed(t, err)
	two, err := rate.NewConcurrency(2)
	must.Succeed(t, err)
	return slotsNode{
		store:  s,
		few:    open(core.RuleConfig{Name: "few", Limit: two}, rate.LimitConfig{}),
		tries:  open(core.RuleConfig{Name: "tries", OverflowPolicy: core.OverflowPolicy{Count: statuses}}, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: tries}),
		queued: open(core.RuleConfig{Name: "queued"}, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 60, Burst: 1, Delays: true}),
		tight:  open(core.RuleConfig{Name: "tight"}, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: tight}),
	}
}

// checks are those of a request under all rules.
func (n slotsNode) checks(tries int64) []core.Check {
	return []core.Check{{Rule: n.few, Key: "a", Cost: 1}, {Rule: n.tries, Key: "b", Cost: tries}, {Rule: n.queued, Key: "c", Cost: 1}, {Rule: n.tight, Key: "d", Cost: 1}}
}

// one decides on a request under one rule.
func (n slotsNode) one(t *testing.T, r *core.Rule, key string, cost int64, peek bool) rate.Decision {
	t.Helper()
	checks := []core.Check{{Rule: r, Key: key, Cost: cost}}
	must.Succeed(t, n.store.Decide(checks, peek))
	return checks[0].Decision
}

// In a Cluster a request's keys may lie in several slots. When one slot denies the request, its reservations in the others are given back, and
// their leases are not renewed.
func TestADenialByOneSlotEndsReservationsInOthers(t *testing.T) {
	server := redistest.Start(t, redistest.WithClock())
	server.SetTime(1_700_000_000_000_000)
	n := newSlotsNode(t, server, 3, 2)
	ask := func() []core.Check {
		checks := n.checks(1)
		must.Succeed(t, n.store.Decide(checks, false))
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
	if d := n.one(t, n.tries, "b", 1, true); !d.Allowed || d.Remaining != 0 {
		t.Errorf("tries, with two of three reserved: %+v", d)
	}
	if d := n.one(t, n.queued, "c", 1, true); d.Delay != 2*time.Second.Microseconds() {
		t.Errorf("queued, where one request waits for a second: %+v", d)
	}
}

// This is the same when the slot that denies comes last, because another node has used its limit up. The other slots have reserved or charged
// something by then, and give all of it back.
func TestADenialByTheLastSlotIsGivenBackByTheOthers(t *testing.T) {
	server := redistest.Start(t, redistest.WithClock())
	server.SetTime(1_700_000_000_000_000)
	asked, other := newSlotsNode(t, server, 5, 1), newSlotsNode(t, server, 5, 1)
	other.one(t, other.tight, "d", 1, false)
	other.one(t, other.queued, "c", 1, false) // the next request waits for a second
	checks := asked.checks(3)
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
			if keys := server.MustDo(t, "KEYS", "slots:*:"+held+":*:"+kind).List; len(keys) != 0 {
				t.Errorf("%s is left", keys[0].Text)
			}
		}
	}
	if d := other.one(t, other.few, "a", 1, true); !d.Allowed || d.Remaining != 1 {
		t.Errorf("few: %+v", d)
	}
	if d := other.one(t, other.tries, "b", 5, true); !d.Allowed {
		t.Errorf("tries: %+v", d)
	}
	if d := other.one(t, other.queued, "c", 1, true); d.Delay != time.Second.Microseconds() {
		t.Errorf("queued: %+v", d)
	}
	must.Succeed(t, asked.store.Close())
	if err := asked.store.Decide([]core.Check{{Rule: asked.tries, Key: "x", Cost: 1}}, false); err == nil {
		t.Error("the store is not closed yet, as if a request had a reservation")
	}
}
