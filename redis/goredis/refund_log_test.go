package goredis_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// Between a charge of three units and its refund others take units of the same key. If they have taken at most 1,024 units, the log then has
// exactly the times that it would have without the charge. Otherwise the charge stays.
func TestARefundFindsItsChargeInsideALog(t *testing.T) {
	underrace.OneGoroutine(t)
	server := redistest.Start(t, redistest.WithClock())
	for _, c := range []struct {
		before, since int64 // units that others take before and after the charge
		stays         bool
	}{
		{0, 0, false}, // the charge is the whole log
		{0, 1, false},
		{1, 0, false},
		{2, 2, false},
		{1, 1023, false}, // decisions read only parts of such a log
		{0, 1024, false},
		{2, 1024, false},
		{2, 1025, true},
	} {
		t.Run(fmt.Sprintf("%d before, %d since", c.before, c.since), func(t *testing.T) {
			conn, err := server.Dial()
			must.Succeed(t, err)
			defer conn.Close()
			clock := &storetest.Clock{}
			clock.Set(time.Date(2026, 3, 2, 12, 0, 20, 0, time.UTC).UnixMicro())
			clock.Follow(server.SetTime)
			prefix := "between" + strconv.FormatInt(stores.Add(1), 10) + ":"
			b := &between{conn: conn}
			b.server = redis.NewServer("between", b)
			denied, err := redis.NewStore(redis.Config{Client: b, Prefix: prefix, WallClock: clock.Now})
			must.Succeed(t, err)
			other := newStore(t, redis.Config{Prefix: prefix, WallClock: clock.Now}, goredis.Config{Addresses: []string{server.Addr()}})
			memory := memory.New(memory.Config{Clock: clock.Now})
			const most = 2000
			open := func(s core.Store, name string, requests int64) *core.Rule {
				limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: requests, Period: 2 * time.Hour})
				must.Succeed(t, err)
				r, err := core.NewRule(core.RuleConfig{Name: name, Limit: limit})
				must.Succeed(t, err)
				must.Succeed(t, s.Open(r))
				return r
			}
			ofDenied, ofOther, ofMemory := open(denied, "log", most), open(other, "log", most), open(memory, "log", most)
			tight := open(denied, "tight", 1)
			take := func(s core.Store, r *core.Rule, cost int64, peek bool) rate.Decision {
				t.Helper()
				checks := []core.Check{{Rule: r, Key: "k", Cost: cost}}
				must.Succeed(t, s.Decide(checks, peek))
				return checks[0].Decision
			}
			both := func(units int64) { // at different times: with a period of two hours a log has steps of 4 µs
				for range units {
					clock.Add(5)
					take(other, ofOther, 1, false)
					take(memory, ofMemory, 1, false)
				}
			}
			both(c.before)
			clock.Add(time.Second.Microseconds() + 1)
			if c.stays {
				take(memory, ofMemory, 3, false)
			}
			b.refund = func() { both(c.since) }
			checks := []core.Check{{Rule: ofDenied, Key: "k", Cost: 3}, {Rule: tight, Key: "another", Cost: 5}}
			if err := denied.Decide(checks, false); err != nil || checks[1].Decision.Allowed || b.refund != nil {
				t.Fatalf("%v, %+v; want it to be denied, and a charge given back", err, checks[1].Decision)
			}
			// A request for that many units more than are left waits until that many entries have expired.
			room := take(memory, ofMemory, 1, true).Remaining + 1
			for more := int64(0); more <= c.before+c.since+3 && room+more <= most; more++ {
				got, want := take(other, ofOther, room+more, true), take(memory, ofMemory, room+more, true)
				if got != want {
					t.Fatalf("%d more than are left: %+v, want %+v", more, got, want)
				}
			}
		})
	}
}
