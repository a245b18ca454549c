package core

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core/rate"
)

// decided returns a check with a decision, of a rule with that name and quota a minute.
func decided(t *testing.T, name string, quota int64, d rate.Decision) Check {
	d.Limit = quota
	return Check{
		Rule:     mustRule(t, RuleConfig{Name: name, Limit: mustLimit(t, rate.LimitConfig{Requests: quota, Period: time.Minute})}),
		Decision: d,
	}
}

func TestVerdictReportsTheLongestWaitAmongRulesThatReject(t *testing.T) {
	shadow := Check{Rule: mustRule(t, RuleConfig{Name: "s", Shadow: true}), Decision: rate.Decision{Limit: 10, RetryAfter: 99_000_000}}
	allowed := decided(t, "a", 10, rate.Decision{Allowed: true, Remaining: 0, Delay: 5})
	short := decided(t, "b", 10, rate.Decision{RetryAfter: 1_000_000})
	long := decided(t, "c", 10, rate.Decision{RetryAfter: 2_000_000})
	never := decided(t, "d", 10, rate.Decision{RetryAfter: rate.Never})
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
		{"never last", []Check{long, never}, Verdict{Outcome: Reject, Reported: 1, RetryAfter: rate.Never}},
		{"never first", []Check{never, long}, Verdict{Outcome: Reject, Reported: 0, RetryAfter: rate.Never}},
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
	half := decided(t, "half", 10, rate.Decision{Allowed: true, Remaining: 5})
	most := decided(t, "most", 1_000_000_000, rate.Decision{Allowed: true, Remaining: 999_999_999})
	few := decided(t, "few", 1000, rate.Decision{Allowed: true, Remaining: 100})
	soon := decided(t, "soon", 10, rate.Decision{Allowed: true, Remaining: 9, Delay: 5})
	late := decided(t, "late", 10, rate.Decision{Allowed: true, Remaining: 9, Delay: 8})
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
