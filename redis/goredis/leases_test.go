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

// A reload closes a store while requests with reservations are under way. The store renews their reservations, and charges them when the
// requests end.
func TestAStoreIsClosedWhenTheLastRequestEnds(t *testing.T) {
	server := redistest.Start(t)
	limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: 24 * time.Hour})
	must.Succeed(t, err)
	statuses, _ := core.ParseCounted([]string{"401"})
	open := func(lease time.Duration) (*redis.Store, *core.Rule) {
		client, err := goredis.New(goredis.Config{Addresses: []string{server.Addr()}, Timeout: patience})
		must.Succeed(t, err)
		s, err := redis.NewStore(redis.Config{Client: client, Prefix: "closing:", Lease: lease})
		must.Succeed(t, err)
		t.Cleanup(func() { _ = s.Close() }) // may be closed already
		r, err := core.NewRule(core.RuleConfig{Name: "login", Limit: limit, OverflowPolicy: core.OverflowPolicy{Count: statuses}})
		must.Succeed(t, err)
		must.Succeed(t, s.Open(r))
		return s, r
	}
	before, rule := open(300 * time.Millisecond)
	after, same := open(0)
	checks := []core.Check{{Rule: rule, Key: "a", Cost: 1}}
	if err := before.Decide(checks, false); err != nil || !checks[0].Decision.Allowed {
		t.Fatalf("%+v, %v", checks[0].Decision, err)
	}
	reservations := core.AppendReservations(nil, checks)
	must.Succeed(t, before.Close())
	conn, err := server.Dial()
	must.Succeed(t, err)
	defer conn.Close()
	keys, err := conn.Do("KEYS", "closing:*:h")
	if err != nil || len(keys.List) != 1 {
		t.Fatalf("%v, %v: want one key with a lease", keys, err)
	}
	score := func() string {
		r, err := conn.Do("ZRANGE", keys.List[0].Text, "0", "0", "WITHSCORES")
		if err != nil || len(r.List) != 2 {
			t.Fatalf("the lease: %v, %v", r, err)
		}
		return r.List[1].Text
	}
	for first, deadline := score(), time.Now().Add(patience); score() == first; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the lease is not renewed")
		}
	}
	checks = []core.Check{{Rule: same, Key: "a", Cost: 1}}
	if err := after.Decide(checks, false); err != nil || checks[0].Decision.Allowed {
		t.Errorf("while it is under way: %+v, %v; want a rejection", checks[0].Decision, err)
	}
	reservations[0].Keep(true)
	must.Succeed(t, before.Settle(reservations))
	if err := after.Decide(checks, false); err != nil || checks[0].Decision.Allowed || checks[0].Decision.RetryAfter <= 1_000_000 {
		t.Errorf("when it was charged: %+v, %v; want a rejection until the window ends", checks[0].Decision, err)
	}
	checks[0].Rule = rule
	if err := before.Decide(checks, false); err == nil {
		t.Error("the store still decides, though it was closed")
	}
}

// This is for a defect: when a node had stood still for longer than a lease, or Redis had lost it, the reservation was gone for good, and too
// many requests were under way until its request ended.
func TestALostLeaseIsTakenAgain(t *testing.T) {
	server := redistest.Start(t)
	limit, err := rate.NewConcurrency(2)
	must.Succeed(t, err)
	client, err := goredis.New(goredis.Config{Addresses: []string{server.Addr()}, Timeout: patience})
	must.Succeed(t, err)
	s, err := redis.NewStore(redis.Config{Client: client, Prefix: "lost:", Lease: 300 * time.Millisecond})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	r, err := core.NewRule(core.RuleConfig{Name: "places", Limit: limit})
	must.Succeed(t, err)
	must.Succeed(t, s.Open(r))
	var reservations []core.Reservation
	for range 2 {
		checks := []core.Check{{Rule: r, Key: "a", Cost: 1}}
		if err := s.Decide(checks, false); err != nil || !checks[0].Decision.Allowed {
			t.Fatalf("%+v, %v", checks[0].Decision, err)
		}
		reservations = append(reservations, core.AppendReservations(nil, checks)...)
	}
	server.MustDo(t, "FLUSHDB") // as if the leases had ended
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		checks := []core.Check{{Rule: r, Key: "a", Cost: 1}}
		must.Succeed(t, s.Decide(checks, true))
		if !checks[0].Decision.Allowed {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the two requests under way do not count again")
		}
	}
	must.Succeed(t, s.Settle(reservations))
	checks := []core.Check{{Rule: r, Key: "a", Cost: 1}}
	if err := s.Decide(checks, true); err != nil || checks[0].Decision.Remaining != 1 {
		t.Errorf("when they have ended: %+v, %v; want both places free", checks[0].Decision, err)
	}
}

// A request that a rule checks and does not count leaves nothing in Redis.
func TestWhatIsSparedLeavesNoKey(t *testing.T) {
	server := redistest.Start(t)
	limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: 24 * time.Hour})
	must.Succeed(t, err)
	n := &node{store: newStore(t, redis.Config{Prefix: "spared:"}, goredis.Config{Addresses: []string{server.Addr()}, Timeout: patience})}
	n.open(t, core.RuleConfig{Name: "some", Limit: limit, OverflowPolicy: core.OverflowPolicy{CountsSome: true}})
	checks := n.checks([]int{0}, "a")
	checks[0].Cost = core.Spared
	var verdict core.Verdict
	must.Succeed(t, core.NewLimiter(n.store).Decide(checks, false, &verdict))
	must.Equal(t, verdict.Outcome, core.Allow)
	if keys := server.MustDo(t, "KEYS", "spared:*").Strings(); len(keys) > 0 {
		t.Errorf("%q", keys)
	}
}

// If one of the keys for reservations has a foreign value, all leases are renewed nonetheless.
func TestALeaseIsRenewedOverAForeignValue(t *testing.T) {
	server := redistest.Start(t)
	limit, err := rate.NewConcurrency(2)
	must.Succeed(t, err)
	n := &node{store: newStore(t, redis.Config{Prefix: "foreign:", Lease: 300 * time.Millisecond}, goredis.Config{Addresses: []string{server.Addr()}, Timeout: patience})}
	n.open(t, core.RuleConfig{Name: "places", Limit: limit})
	var reservations []core.Reservation
	for _, key := range []string{"a", "b"} {
		checks := n.checks([]int{0}, key)
		if err := n.store.Decide(checks, false); err != nil || !checks[0].Decision.Allowed {
			t.Fatalf("%+v, %v", checks[0].Decision, err)
		}
		reservations = append(reservations, core.AppendReservations(nil, checks)...)
	}
	keys := server.MustDo(t, "KEYS", "foreign:*:h").Strings()
	if len(keys) != 2 {
		t.Fatalf("%q: want two keys with a lease", keys)
	}
	for _, key := range keys {
		server.MustDo(t, "SET", key, "something else")
	}
	for _, key := range keys {
		for deadline := time.Now().Add(patience); server.MustDo(t, "TYPE", key).Text != "zset" || server.MustDo(t, "PTTL", key).Int <= 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the lease under %q is not renewed", key)
			}
		}
	}
	must.Succeed(t, n.store.Settle(reservations))
}
