package memory

import (
	"errors"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// recorder is a store that records the costs of checks.
type recorder struct {
	costs     []int64
	peeks     int
	err       error
	limitless bool // it knows no keys
}

func (r *recorder) Open(*core.Rule) error                        { return nil }
func (r *recorder) Release(*core.Rule)                           {}
func (r *recorder) Settle(reservations []core.Reservation) error { return r.err }

func (r *recorder) Block(rule *core.Rule, key string, duration int64) error { return r.err }

func (r *recorder) Carry(from, to *core.Rule, done func()) { done() }

func (r *recorder) Now() int64 { return 0 }

func (r *recorder) Reset(rule *core.Rule, key string) error { return r.err }

func (r *recorder) Credit(rule *core.Rule, key string, units int64) error { return r.err }

func (r *recorder) Decide(checks []core.Check, peek bool) error {
	for i := range checks {
		r.costs = append(r.costs, checks[i].Cost)
		checks[i].Decision = rate.Decision{Allowed: true, Limit: 1}
		if r.limitless {
			checks[i].Decision = rate.Decision{}
		}
	}
	if peek {
		r.peeks++
	}
	return r.err
}

func TestLimiterAsksTheStoreOnceWithSaneCosts(t *testing.T) {
	store := &recorder{}
	l := core.NewLimiter(store)
	rule := mustRule(t, core.RuleConfig{Name: "r"})
	checks := []core.Check{{Rule: rule, Cost: -5}, {Rule: rule}, {Rule: rule, Cost: 7}, {Rule: rule, Cost: 1<<63 - 1}}
	var v core.Verdict
	if err := l.Decide(checks, true, &v); err != nil || store.peeks != 1 || v.Outcome != core.Allow || v.Reported != 0 {
		t.Errorf("%+v, %d peeks, %v", v, store.peeks, err)
	}
	want := []int64{1, 1, 7, rate.Unaffordable}
	for i := range want {
		if i >= len(store.costs) || store.costs[i] != want[i] {
			t.Fatalf("the store was asked for %d, want %d", store.costs, want)
		}
	}
	if err := l.Decide(nil, false, &v); err != nil || v.Reported != -1 || len(store.costs) != len(want) {
		t.Errorf("no rules: %+v, %v, %d", v, err, store.costs)
	}
	store.err = errors.New("down")
	if err := l.Decide(checks, false, &v); err != store.err {
		t.Errorf("the store's error is %v", err)
	}
}

func TestACostAboveTheCapacityHasARetryAfterOfNever(t *testing.T) {
	store := New(Config{Clock: func() int64 { return 1_700_000_000_000_000 }})
	for a := rate.TokenBucket; a <= rate.SlidingWindowCounter; a++ {
		rule := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: a, Requests: rate.MaxLogRequests, Period: rate.MinPeriod})})
		must.Succeed(t, store.Open(rule))
		var v core.Verdict
		must.Succeed(t, core.NewLimiter(store).Decide([]core.Check{{Rule: rule, Key: "k", Cost: 1 << 62}}, false, &v))
		if v.Outcome != core.Reject || v.RetryAfter != rate.Never {
			t.Errorf("%s: %+v", a.String(), v)
		}
	}
}
