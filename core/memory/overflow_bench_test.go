//go:build gc
// +build gc

package memory

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// BenchmarkOverflow is a request under a rule with each overflow policy, in memory, from the decision to its end; "none" is a
// rule without. bytes/account is the size of an account in addition to the key itself.
func BenchmarkOverflow(b *testing.B) {
	statuses, err := core.ParseCounted([]string{"401"})
	must.Succeed(b, err)
	plain := rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: rate.MaxRequests, Period: time.Second}
	delaying := plain
	delaying.Delays = true
	for _, bench := range []struct {
		name  string
		rule  core.RuleConfig
		limit rate.LimitConfig
	}{
		{"none", core.RuleConfig{}, plain},
		{"soft", core.RuleConfig{OverflowPolicy: core.OverflowPolicy{SoftPercent: 1, SoftFor: time.Minute}}, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: rate.MaxRequests / 2, Period: time.Second}},
		{"delay", core.RuleConfig{}, delaying},
		{"penalty", core.RuleConfig{OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Minute}}}, plain},
		{"count", core.RuleConfig{OverflowPolicy: core.OverflowPolicy{Count: statuses}}, plain},
		{"concurrency", core.RuleConfig{Concurrency: 1000}, plain},
		{"candidate", core.RuleConfig{Candidate: mustLimit(b, rate.LimitConfig{Requests: rate.MaxRequests, Period: time.Second})}, plain},
	} {
		b.Run(bench.name, func(b *testing.B) {
			m := New(Config{})
			l := core.NewLimiter(m)
			bench.rule.Name = "r"
			bench.rule.Limit = mustLimit(b, bench.limit)
			r, err := core.NewRule(bench.rule)
			must.Succeed(b, err)
			must.Succeed(b, l.Open(r))
			checks := []core.Check{{Rule: r, Key: "192.0.2.1", Cost: 1}}
			var v core.Verdict
			var reservations []core.Reservation
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Decide(checks, false, &v); err != nil || v.Outcome != core.Allow {
					b.Fatal(v, err)
				}
				if v.Reserved {
					reservations = core.AppendReservations(reservations[:0], checks)
					_ = l.Finish(reservations, 200)
				}
			}
		})
	}
	b.Run("bytes of a blocked key", func(b *testing.B) {
		const keys = 200_000
		for b.Loop() {
			m := New(Config{MaxKeys: 2 * keys})
			r := mustRule(b, core.RuleConfig{Name: "r", OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Hour}}})
			_ = m.Open(r)
			before := heap()
			for i := 0; i < keys; i++ {
				_ = m.Block(r, strconv.Itoa(i), 3_600_000_000)
			}
			b.ReportMetric(float64(heap()-before)/keys, "bytes/key")
			runtime.KeepAlive(m)
		}
	})
}

func heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc) // in a test
}
