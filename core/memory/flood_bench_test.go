package memory

import (
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// BenchmarkFlood is a request with a new key in a full store, so that another key is forgotten for it. The keys are invented in
// all zones in turn ("zones"), or in one zone beside others with as many keys ("beside").
func BenchmarkFlood(b *testing.B) {
	for _, bench := range []struct {
		name           string
		index          Index
		keys           int
		zones, flooded int
		algorithm      rate.Algorithm
	}{
		{"probing/keys=50000/zones=1", Probing, 50_000, 1, 1, rate.TokenBucket},
		{"probing/keys=50000/zones=8", Probing, 50_000, 8, 8, rate.TokenBucket},
		{"probing/keys=50000/beside=7", Probing, 50_000, 8, 1, rate.TokenBucket},
		{"probing/keys=50000/zones=1000", Probing, 50_000, 1000, 1000, rate.TokenBucket},
		{"probing/keys=1000000/zones=1", Probing, 1_000_000, 1, 1, rate.TokenBucket},
		{"probing/keys=1000000/zones=8", Probing, 1_000_000, 8, 8, rate.TokenBucket},
		{"probing/keys=50000/zones=1/log", Probing, 50_000, 1, 1, rate.SlidingWindowLog},
		{"mapped/keys=10000/zones=1", Mapped, 10_000, 1, 1, rate.TokenBucket},
		{"mapped/keys=10000/zones=8", Mapped, 10_000, 8, 8, rate.TokenBucket},
		{"mapped/keys=10000/zones=100", Mapped, 10_000, 100, 100, rate.TokenBucket},
	} {
		b.Run(bench.name, func(b *testing.B) {
			now := int64(1_772_452_820_000_000)
			m := New(Config{MaxKeys: bench.keys, Index: bench.index, Clock: func() int64 { return now }})
			var rules []*core.Rule
			for i := 0; i < bench.zones; i++ {
				r := mustRule(b, core.RuleConfig{Name: "zone." + strconv.Itoa(i), Limit: mustLimit(b, rate.LimitConfig{Algorithm: bench.algorithm, Requests: 5, Period: 24 * time.Hour})})
				_ = m.Open(r)
				rules = append(rules, r)
			}
			keys := make([]string, 1<<18) // when one is used again, it is hardly ever still in the store
			for i := range keys {
				keys[i] = strconv.Itoa(i)
			}
			if bench.keys > len(keys)/4 {
				for i := 0; i < bench.keys; i++ {
					_ = m.Decide([]core.Check{{Rule: rules[i%len(rules)], Key: "first " + strconv.Itoa(i), Cost: 1}}, false)
				}
			}
			checks := make([]core.Check, 1)
			next := 0
			take := func(rules []*core.Rule) {
				checks[0].Rule = rules[next%len(rules)]
				checks[0].Key = keys[(next*7919+next/len(keys))%len(keys)]
				checks[0].Cost = 1
				_ = m.Decide(checks, false)
				next++
			}
			for i := 0; i < bench.keys+bench.keys/2; i++ {
				take(rules)
			}
			evicted := m.Stats().Evictions
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				take(rules[:bench.flooded])
			}
			b.StopTimer()
			b.ReportMetric(float64(m.Stats().Evictions-evicted)/float64(b.N), "evictions/op")
		})
	}
}
