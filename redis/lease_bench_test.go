//go:build gc
// +build gc

package redis

import (
	"slices"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// BenchmarkLease measures a decision from a lease, one in memory, and one that the decision cache rejects, in turns of a few thousand each. It reports the medians, and how
// many times a decision from a lease takes one in memory.
func BenchmarkLease(b *testing.B) {
	limit, err := rate.NewLimit(rate.LimitConfig{Requests: rate.MaxRequests, Period: time.Hour, Algorithm: rate.FixedWindow})
	if err != nil {
		b.Fatal(err)
	}
	rule := func(s core.Store, c core.Consistency) []core.Check {
		r, err := core.NewRule(core.RuleConfig{Name: "r", Limit: limit, Consistency: c})
		if err == nil {
			err = s.Open(r)
		}
		if err != nil {
			b.Fatal(err)
		}
		return []core.Check{{Rule: r, Key: "192.0.2.1", Cost: 1}}
	}
	l := newLender()
	l.units = rate.MaxRequests
	store, err := NewStore(Config{Client: l})
	if err != nil {
		b.Fatal(err)
	}
	memory := memory.New(memory.Config{})
	rejecting := &lender{rejects: true}
	rejecting.server = NewServer("rejecting", rejecting)
	strict, err := NewStore(Config{Client: rejecting})
	if err != nil {
		b.Fatal(err)
	}
	type way struct {
		name   string
		store  core.Store
		checks []core.Check
		took   []float64
	}
	ways := []*way{{name: "memory", store: memory, checks: rule(memory, core.Strict)}, {name: "lease", store: store, checks: rule(store, core.Leased)},
		{name: "strict", store: strict, checks: rule(strict, core.Strict)}}
	const turn = 5000
	for b.Loop() {
		for _, w := range ways {
			for range turn / 10 { // the lease may have ended meanwhile
				if err := w.store.Decide(w.checks, false); err != nil {
					b.Fatal(err)
				}
			}
			begun := time.Now()
			for range turn {
				if err := w.store.Decide(w.checks, false); err != nil {
					b.Fatal(err)
				}
			}
			w.took = append(w.took, float64(time.Since(begun).Nanoseconds())/turn)
		}
	}
	for _, w := range ways {
		slices.Sort(w.took)
		b.ReportMetric(w.took[len(w.took)/2], w.name+"-ns")
		b.ReportMetric(w.took[0], w.name+"-least-ns")
	}
	stats := store.LeaseStats()
	b.ReportMetric(float64(stats.Spent)/float64(stats.Spent+stats.Asked), "held/all")
	b.ReportMetric(ways[1].took[len(ways[1].took)/2]/ways[0].took[len(ways[0].took)/2], "lease/memory")
	b.ReportMetric(ways[1].took[0]/ways[0].took[0], "least/least")
}
