//go:build gc
// +build gc

package redis

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// knownKey returns a store with a check whose replica is fresh.
func knownKey(t testing.TB) (*Store, []core.Check) {
	t.Helper()
	s, err := NewStore(Config{Client: newTally()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.CloseNow() })
	l, err := rate.NewLimit(rate.LimitConfig{Requests: 1000000000, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	r, err := core.NewRule(core.RuleConfig{Name: "r", Limit: l, Consistency: core.Eventual, SyncEvery: time.Minute})
	if err == nil {
		err = s.Open(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	checks := []core.Check{{Rule: r, Key: "192.0.2.1", Cost: 1}}
	if err = s.Decide(checks, false); err != nil {
		t.Fatal(err)
	}
	return s, checks
}

// A decision by a replica allocates nothing, whether it allows or rejects.
func TestADecisionByAReplicaAllocatesNothing(t *testing.T) {
	s, checks := knownKey(t)
	for _, cost := range []int64{1, rate.MaxRequests} {
		checks[0].Cost = cost
		if n := testing.AllocsPerRun(100, func() { _ = s.Decide(checks, false) }); n > 0 || checks[0].Decision.Allowed != (cost == 1) {
			t.Errorf("%v allocations, %+v", n, checks[0].Decision)
		}
	}
}

// BenchmarkReplica measures a decision by a replica, with the clock that it needs.
func BenchmarkReplica(b *testing.B) {
	s, checks := knownKey(b)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if err := s.Decide(checks, false); err != nil {
			b.Fatal(err)
		}
	}
}
