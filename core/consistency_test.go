package core

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core/rate"
)

// Limits and intervals that do not go together are refused, or warned of.
func TestIntervalsOfReplicas(t *testing.T) {
	for text, want := range map[string]time.Duration{"eventual": time.Second, " eventual  50ms": 50 * time.Millisecond, "eventual 1m": time.Minute, "lease": 0, "strict": 0} {
		if _, every, err := ParseConsistency(text); err != nil || every != want {
			t.Errorf("%q: %v, %v", text, every, err)
		}
	}
	for _, text := range []string{"eventually", "eventual 1", "eventual 1s 2s", "eventual 9ms", "eventual 61s", "lease 1s", "eventual 10000001ns"} {
		if _, _, err := ParseConsistency(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	for _, one := range []struct {
		c       rate.LimitConfig
		advised bool
	}{
		{rate.LimitConfig{Requests: 100, Period: 20 * time.Second}, false},
		{rate.LimitConfig{Requests: 100, Period: 19 * time.Second}, true},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 100, Burst: 10, Period: time.Minute}, true},
	} {
		l, err := rate.NewLimit(one.c)
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewRule(RuleConfig{Name: "r", Limit: l, Consistency: Eventual, SyncEvery: time.Second})
		if err != nil || (r.SyncAdvice() != "") != one.advised {
			t.Errorf("%s: %q, %v", l, r.SyncAdvice(), err)
		}
	}
	if text := (&Rule{}).SyncAdvice(); text != "" {
		t.Error(text)
	}
}
