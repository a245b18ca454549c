package front

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
)

func ruleOf(t *testing.T, c core.RuleConfig) *core.Rule {
	t.Helper()
	limit, err := core.NewLimit(core.LimitConfig{Requests: 10, Period: time.Minute, Algorithm: core.TokenBucket})
	if err != nil {
		t.Fatal(err)
	}
	if c.Limit == nil {
		c.Limit = limit
	}
	r, err := core.NewRule(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checksOf returns decided checks of rules and of their concurrencies and candidates.
func checksOf(rules []*core.Rule, decisions []core.Decision) []core.Check {
	var checks []core.Check
	for _, r := range rules {
		checks = append(checks, core.Check{Rule: r})
		for _, other := range r.Beside() {
			checks = append(checks, core.Check{Rule: other})
		}
	}
	for i := range checks {
		checks[i].Decision = decisions[i]
	}
	return checks
}

func TestEachRuleHasOneOutcomeOfARequest(t *testing.T) {
	candidate, err := core.NewLimit(core.LimitConfig{Requests: 5, Period: time.Minute, Algorithm: core.TokenBucket})
	if err != nil {
		t.Fatal(err)
	}
	plain := ruleOf(t, core.RuleConfig{Name: "plain"})
	other := ruleOf(t, core.RuleConfig{Name: "other"})
	shadow := ruleOf(t, core.RuleConfig{Name: "shadow", Shadow: true})
	open := ruleOf(t, core.RuleConfig{Name: "open", OnError: core.LetPass})
	closed := ruleOf(t, core.RuleConfig{Name: "closed", OnError: core.RejectAll})
	both := ruleOf(t, core.RuleConfig{Name: "both", Candidate: candidate, Concurrency: 2})
	places, err := core.NewConcurrency(2)
	if err != nil {
		t.Fatal(err)
	}
	alone := ruleOf(t, core.RuleConfig{Name: "alone", Limit: places})
	yes := core.Decision{Allowed: true}
	no := core.Decision{}
	allow := core.Verdict{Outcome: core.Allow}
	reject := core.Verdict{Outcome: core.Reject}
	for _, c := range []struct {
		name      string
		rules     []*core.Rule
		decisions []core.Decision
		verdict   core.Verdict
		failed    bool
		want      []Part
	}{
		{"allowed", []*core.Rule{plain}, []core.Decision{yes}, allow, false, []Part{{Allowed, 0, NotCompared}}},
		{"by tolerance", []*core.Rule{plain}, []core.Decision{{Allowed: true, Soft: true}}, allow, false, []Part{{AllowedSoft, 0, NotCompared}}},
		{"after a wait", []*core.Rule{plain}, []core.Decision{{Allowed: true, Delay: 1}}, allow, false, []Part{{Delayed, 0, NotCompared}}},
		{"one rejects, others count nothing", []*core.Rule{plain, other, shadow}, []core.Decision{yes, no, yes}, reject, false,
			[]Part{{NotCounted, 0, NotCompared}, {Rejected, 1, NotCompared}, {Allowed, 2, NotCompared}}},
		{"a shadow would make it wait", []*core.Rule{shadow}, []core.Decision{{Allowed: true, Delay: 1}}, allow, false, []Part{{ShadowDelayed, 0, NotCompared}}},
		{"a shadow would reject", []*core.Rule{shadow, plain}, []core.Decision{no, yes}, allow, false, []Part{{ShadowRejected, 0, NotCompared}, {Allowed, 1, NotCompared}}},
		{"a place is wanting", []*core.Rule{both, plain}, []core.Decision{yes, no, no, yes}, reject, false, []Part{{Rejected, 2, Stricter}, {NotCounted, 3, NotCompared}}},
		{"a limit and a place", []*core.Rule{both}, []core.Decision{no, yes, no}, reject, false, []Part{{Rejected, 0, Laxer}}},
		{"both reject", []*core.Rule{both}, []core.Decision{no, no, yes}, reject, false, []Part{{Rejected, 0, BothRejected}}},
		{"both allow", []*core.Rule{both}, []core.Decision{yes, yes, yes}, allow, false, []Part{{Allowed, 0, BothAllowed}}},
		{"concurrency alone is a rule of its own", []*core.Rule{plain, alone}, []core.Decision{yes, no}, reject, false, []Part{{NotCounted, 0, NotCompared}, {Rejected, 1, NotCompared}}},
		{"the store has failed", []*core.Rule{both, plain}, []core.Decision{yes, no, yes, no}, reject, true, []Part{{NotCounted, 0, NotCompared}, {Rejected, 3, NotCompared}}},
		{"memory counts", []*core.Rule{plain}, []core.Decision{yes}, allow, true, []Part{{Fallback, 0, NotCompared}}},
		{"nobody decides", []*core.Rule{open, closed}, []core.Decision{yes, yes}, core.Verdict{Outcome: core.Unavailable}, true,
			[]Part{{NotCounted, 0, NotCompared}, {ErrorClosed, 1, NotCompared}}},
	} {
		checks := checksOf(c.rules, c.decisions)
		at := 0
		for i, want := range c.want {
			var part Part
			at = NextPart(checks, at, &c.verdict, c.failed, &part)
			if part != want {
				t.Errorf("%s, rule %d: %+v, want %+v", c.name, i, part, want)
			}
		}
		if at != len(checks) {
			t.Errorf("%s: ended at %d of %d checks", c.name, at, len(checks))
		}
	}
}
