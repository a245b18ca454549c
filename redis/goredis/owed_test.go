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

// A request that ends while Redis is away is charged when it is back, once, and its reservation counts until then.
func TestAChargeThatRedisDidNotGetIsMadeLater(t *testing.T) {
	server := redistest.Start(t)
	client, err := goredis.New(goredis.Config{Addresses: []string{server.Addr()}})
	must.Succeed(t, err)
	store, err := redis.NewStore(redis.Config{Client: client, Prefix: "owed:", Lease: time.Second})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = store.Close() })
	limit, err := rate.NewLimit(rate.LimitConfig{Requests: 1000, Period: 366 * 24 * time.Hour, Algorithm: rate.FixedWindow, Owes: true})
	must.Succeed(t, err)
	bytes, err := core.ParseResponseCost([]string{"bytes"})
	must.Succeed(t, err)
	r, err := core.NewRule(core.RuleConfig{Name: "owed", Limit: limit, OverflowPolicy: core.OverflowPolicy{Response: bytes}})
	must.Succeed(t, err)
	must.Succeed(t, store.Open(r))
	limiter := core.NewLimiter(store)
	underWay := func() []core.Reservation {
		checks := []core.Check{{Rule: r, Key: "alice", Cost: 5}}
		var verdict core.Verdict
		must.Succeed(t, limiter.Decide(checks, false, &verdict))
		return core.AppendReservations(nil, checks)
	}
	remaining := func() int64 {
		checks := []core.Check{{Rule: r, Key: "alice", Cost: 5}}
		var verdict core.Verdict
		if limiter.Look(checks, &verdict) != nil {
			return -1
		}
		return checks[0].Decision.Remaining
	}
	first, second := underWay(), underWay()
	server.Kill()
	first[0].Measure(700)
	if err = limiter.Finish(first, 200); err == nil {
		t.Error("Redis is away, and nothing is said")
	}
	second[0].Measure(0) // a request that cost nothing gives its reservation back by not renewing it
	_ = limiter.Finish(second, 200)
	server.Restart()
	until(t, "the request is charged", func() bool { return remaining() == 300 })
	third := underWay()
	must.Succeed(t, limiter.Finish(third, 200))
	must.Equal(t, remaining(), int64(295), "it was charged once")
}
