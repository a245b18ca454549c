//go:build gc
// +build gc

package core

import (
	"runtime"
	"strconv"
	"testing"
	"time"
)

// BenchmarkOverflow is a request under a rule with each overflow policy, in memory, from the decision to its end; "none" is a
// rule without. bytes/account is the size of an account in addition to the key itself.
func BenchmarkOverflow(b *testing.B) {
	statuses, err := ParseStatuses([]string{"401"})
	if err != nil {
		b.Fatal(err)
	}
	plain := LimitConfig{Algorithm: TokenBucket, Requests: MaxRequests, Period: time.Second}
	delaying := plain
	delaying.Delays = true
	for _, bench := range []struct {
		name  string
		rule  RuleConfig
		limit LimitConfig
	}{
		{"none", RuleConfig{}, plain},
		{"soft", RuleConfig{OverflowPolicy: OverflowPolicy{SoftPercent: 1, SoftFor: time.Minute}}, LimitConfig{Algorithm: TokenBucket, Requests: MaxRequests / 2, Period: time.Second}},
		{"delay", RuleConfig{}, delaying},
		{"penalty", RuleConfig{OverflowPolicy: OverflowPolicy{Penalties: []time.Duration{time.Minute}}}, plain},
		{"count", RuleConfig{OverflowPolicy: OverflowPolicy{Count: statuses}}, plain},
		{"concurrency", RuleConfig{Concurrency: 1000}, plain},
		{"candidate", RuleConfig{Candidate: mustLimit(b, LimitConfig{Requests: MaxRequests, Period: time.Second})}, plain},
	} {
		b.Run(bench.name, func(b *testing.B) {
			m := NewMemory(MemoryConfig{})
			l := NewLimiter(m)
			bench.rule.Name = "r"
			bench.rule.Limit = mustLimit(b, bench.limit)
			r, err := NewRule(bench.rule)
			if err != nil {
				b.Fatal(err)
			}
			if err := l.Open(r); err != nil {
				b.Fatal(err)
			}
			checks := []Check{{Rule: r, Key: "192.0.2.1", Cost: 1}}
			var v Verdict
			var reservations []Reservation
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Decide(checks, false, &v); err != nil || v.Outcome != Allow {
					b.Fatal(v, err)
				}
				if v.Reserved {
					reservations = AppendReservations(reservations[:0], checks)
					_ = l.Finish(reservations, 200)
				}
			}
		})
	}
	b.Run("bytes of a blocked key", func(b *testing.B) {
		const keys = 200_000
		for b.Loop() {
			m := NewMemory(MemoryConfig{MaxKeys: 2 * keys})
			r := mustRule(b, RuleConfig{Name: "r", OverflowPolicy: OverflowPolicy{Penalties: []time.Duration{time.Hour}}})
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
