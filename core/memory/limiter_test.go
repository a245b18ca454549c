package memory

import (
	"errors"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// decided returns a check with a decision, of a rule with that name and quota a minute.
func decided(t *testing.T, name string, quota int64, d rate.Decision) core.Check {
	d.Limit = quota
	return core.Check{
		Rule:     mustRule(t, core.RuleConfig{Name: name, Limit: mustLimit(t, rate.LimitConfig{Requests: quota, Period: time.Minute})}),
		Decision: d,
	}
}

func TestVerdictReportsTheLongestWaitAmongRulesThatReject(t *testing.T) {
	shadow := core.Check{Rule: mustRule(t, core.RuleConfig{Name: "s", Shadow: true}), Decision: rate.Decision{Limit: 10, RetryAfter: 99_000_000}}
	allowed := decided(t, "a", 10, rate.Decision{Allowed: true, Remaining: 0, Delay: 5})
	short := decided(t, "b", 10, rate.Decision{RetryAfter: 1_000_000})
	long := decided(t, "c", 10, rate.Decision{RetryAfter: 2_000_000})
	never := decided(t, "d", 10, rate.Decision{RetryAfter: rate.Never})
	for _, c := range []struct {
		name   string
		checks []core.Check
		want   core.Verdict
	}{
		{"nobody", nil, core.Verdict{Reported: -1}},
		{"a shadow alone", []core.Check{shadow}, core.Verdict{Reported: -1}},
		{"one", []core.Check{shadow, short}, core.Verdict{Outcome: core.Reject, Reported: 1, RetryAfter: 1_000_000}},
		{"the long one first", []core.Check{long, short}, core.Verdict{Outcome: core.Reject, Reported: 0, RetryAfter: 2_000_000}},
		{"the long one last", []core.Check{short, long}, core.Verdict{Outcome: core.Reject, Reported: 1, RetryAfter: 2_000_000}},
		{"never last", []core.Check{long, never}, core.Verdict{Outcome: core.Reject, Reported: 1, RetryAfter: rate.Never}},
		{"never first", []core.Check{never, long}, core.Verdict{Outcome: core.Reject, Reported: 0, RetryAfter: rate.Never}},
		{"after one that allows and delays", []core.Check{allowed, short}, core.Verdict{Outcome: core.Reject, Reported: 1, RetryAfter: 1_000_000}},
		{"before it", []core.Check{short, allowed}, core.Verdict{Outcome: core.Reject, Reported: 0, RetryAfter: 1_000_000}},
	} {
		got := core.Verdict{Outcome: core.Reject, Reported: 7, RetryAfter: 7, Delay: 7} // left from an earlier request
		core.Conclude(c.checks, &got)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestVerdictReportsTheTightestAmongRulesThatAllow(t *testing.T) {
	half := decided(t, "half", 10, rate.Decision{Allowed: true, Remaining: 5})
	most := decided(t, "most", 1_000_000_000, rate.Decision{Allowed: true, Remaining: 999_999_999})
	few := decided(t, "few", 1000, rate.Decision{Allowed: true, Remaining: 100})
	soon := decided(t, "soon", 10, rate.Decision{Allowed: true, Remaining: 9, Delay: 5})
	late := decided(t, "late", 10, rate.Decision{Allowed: true, Remaining: 9, Delay: 8})
	for _, c := range []struct {
		name   string
		checks []core.Check
		want   core.Verdict
	}{
		{"one", []core.Check{half}, core.Verdict{Reported: 0}},
		{"the share counts, not the number", []core.Check{half, few}, core.Verdict{Reported: 1}},
		{"whichever comes first", []core.Check{few, half, most}, core.Verdict{Reported: 0}},
		{"of equals the first", []core.Check{half, half}, core.Verdict{Reported: 0}},
		{"the longest delay", []core.Check{soon, late, soon}, core.Verdict{Outcome: core.Delay, Reported: 0, Delay: 8}},
		{"a delay and the tightest", []core.Check{late, half}, core.Verdict{Outcome: core.Delay, Reported: 1, Delay: 8}},
	} {
		var got core.Verdict
		core.Conclude(c.checks, &got)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if s := core.Allow.String() + core.Delay.String() + core.Reject.String(); s != "allowdelayreject" {
		t.Error(s)
	}
}

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
		if err := store.Open(rule); err != nil {
			t.Fatal(err)
		}
		var v core.Verdict
		if err := core.NewLimiter(store).Decide([]core.Check{{Rule: rule, Key: "k", Cost: 1 << 62}}, false, &v); err != nil {
			t.Fatal(err)
		}
		if v.Outcome != core.Reject || v.RetryAfter != rate.Never {
			t.Errorf("%s: %+v", a.String(), v)
		}
	}
}
