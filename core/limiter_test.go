package core

import (
	"errors"
	"testing"
	"time"
)

// decided returns a check with a decision, of a rule with that name and quota a minute.
func decided(t *testing.T, name string, quota int64, d Decision) Check {
	d.Limit = quota
	return Check{
		Rule:     mustRule(t, RuleConfig{Name: name, Limit: mustLimit(t, LimitConfig{Requests: quota, Period: time.Minute})}),
		Decision: d,
	}
}

func TestVerdictReportsTheLongestWaitAmongRulesThatReject(t *testing.T) {
	shadow := Check{Rule: mustRule(t, RuleConfig{Name: "s", Shadow: true}), Decision: Decision{Limit: 10, RetryAfter: 99_000_000}}
	allowed := decided(t, "a", 10, Decision{Allowed: true, Remaining: 0, Delay: 5})
	short := decided(t, "b", 10, Decision{RetryAfter: 1_000_000})
	long := decided(t, "c", 10, Decision{RetryAfter: 2_000_000})
	never := decided(t, "d", 10, Decision{RetryAfter: Never})
	for _, c := range []struct {
		name   string
		checks []Check
		want   Verdict
	}{
		{"nobody", nil, Verdict{Reported: -1}},
		{"a shadow alone", []Check{shadow}, Verdict{Reported: -1}},
		{"one", []Check{shadow, short}, Verdict{Outcome: Reject, Reported: 1, RetryAfter: 1_000_000}},
		{"the long one first", []Check{long, short}, Verdict{Outcome: Reject, Reported: 0, RetryAfter: 2_000_000}},
		{"the long one last", []Check{short, long}, Verdict{Outcome: Reject, Reported: 1, RetryAfter: 2_000_000}},
		{"never last", []Check{long, never}, Verdict{Outcome: Reject, Reported: 1, RetryAfter: Never}},
		{"never first", []Check{never, long}, Verdict{Outcome: Reject, Reported: 0, RetryAfter: Never}},
		{"after one that allows and delays", []Check{allowed, short}, Verdict{Outcome: Reject, Reported: 1, RetryAfter: 1_000_000}},
		{"before it", []Check{short, allowed}, Verdict{Outcome: Reject, Reported: 0, RetryAfter: 1_000_000}},
	} {
		got := Verdict{Outcome: Reject, Reported: 7, RetryAfter: 7, Delay: 7} // left from an earlier request
		conclude(c.checks, &got)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestVerdictReportsTheTightestAmongRulesThatAllow(t *testing.T) {
	half := decided(t, "half", 10, Decision{Allowed: true, Remaining: 5})
	most := decided(t, "most", 1_000_000_000, Decision{Allowed: true, Remaining: 999_999_999})
	few := decided(t, "few", 1000, Decision{Allowed: true, Remaining: 100})
	soon := decided(t, "soon", 10, Decision{Allowed: true, Remaining: 9, Delay: 5})
	late := decided(t, "late", 10, Decision{Allowed: true, Remaining: 9, Delay: 8})
	for _, c := range []struct {
		name   string
		checks []Check
		want   Verdict
	}{
		{"one", []Check{half}, Verdict{Reported: 0}},
		{"the share counts, not the number", []Check{half, few}, Verdict{Reported: 1}},
		{"whichever comes first", []Check{few, half, most}, Verdict{Reported: 0}},
		{"of equals the first", []Check{half, half}, Verdict{Reported: 0}},
		{"the longest delay", []Check{soon, late, soon}, Verdict{Outcome: Delay, Reported: 0, Delay: 8}},
		{"a delay and the tightest", []Check{late, half}, Verdict{Outcome: Delay, Reported: 1, Delay: 8}},
	} {
		var got Verdict
		conclude(c.checks, &got)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if s := Allow.String() + Delay.String() + Reject.String(); s != "allowdelayreject" {
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

func (r *recorder) Open(*Rule) error                        { return nil }
func (r *recorder) Release(*Rule)                           {}
func (r *recorder) Settle(reservations []Reservation) error { return r.err }

func (r *recorder) Block(rule *Rule, key string, duration int64) error { return r.err }

func (r *recorder) Carry(from, to *Rule, done func()) { done() }

func (r *recorder) Now() int64 { return 0 }

func (r *recorder) Reset(rule *Rule, key string) error { return r.err }

func (r *recorder) Decide(checks []Check, peek bool) error {
	for i := range checks {
		r.costs = append(r.costs, checks[i].Cost)
		checks[i].Decision = Decision{Allowed: true, Limit: 1}
		if r.limitless {
			checks[i].Decision = Decision{}
		}
	}
	if peek {
		r.peeks++
	}
	return r.err
}

func TestLimiterAsksTheStoreOnceWithSaneCosts(t *testing.T) {
	store := &recorder{}
	l := NewLimiter(store)
	rule := mustRule(t, RuleConfig{Name: "r"})
	checks := []Check{{Rule: rule, Cost: -5}, {Rule: rule}, {Rule: rule, Cost: 7}, {Rule: rule, Cost: 1<<63 - 1}}
	var v Verdict
	if err := l.Decide(checks, true, &v); err != nil || store.peeks != 1 || v.Outcome != Allow || v.Reported != 0 {
		t.Errorf("%+v, %d peeks, %v", v, store.peeks, err)
	}
	want := []int64{1, 1, 7, Unaffordable}
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
	store := NewMemory(MemoryConfig{Clock: func() int64 { return 1_700_000_000_000_000 }})
	for a := TokenBucket; a <= SlidingWindowCounter; a++ {
		rule := mustRule(t, RuleConfig{Name: "r", Limit: mustLimit(t, LimitConfig{Algorithm: a, Requests: MaxLogRequests, Period: MinPeriod})})
		if err := store.Open(rule); err != nil {
			t.Fatal(err)
		}
		var v Verdict
		if err := NewLimiter(store).Decide([]Check{{Rule: rule, Key: "k", Cost: 1 << 62}}, false, &v); err != nil {
			t.Fatal(err)
		}
		if v.Outcome != Reject || v.RetryAfter != Never {
			t.Errorf("%s: %+v", a.String(), v)
		}
	}
}
