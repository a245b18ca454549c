package front

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func ruleOf(t *testing.T, c core.RuleConfig) *core.Rule {
	t.Helper()
	limit, err := rate.NewLimit(rate.LimitConfig{Requests: 10, Period: time.Minute, Algorithm: rate.TokenBucket})
	must.Succeed(t, err)
	if c.Limit == nil {
		c.Limit = limit
	}
	r, err := core.NewRule(c)
	must.Succeed(t, err)
	return r
}

// checksOf returns decided checks of rules: each rule takes a decision, and one more for its candidate and for its concurrency.
func checksOf(rules []*core.Rule, decisions []rate.Decision) []core.Check {
	checks := make([]core.Check, len(rules))
	take := func(r *core.Rule) *core.Check {
		c := &core.Check{Rule: r, Decision: decisions[0]}
		decisions = decisions[1:]
		return c
	}
	for i, r := range rules {
		checks[i] = *take(r)
		for _, other := range r.Linked() {
			if other.IsCandidate() {
				checks[i].Candidate = take(other)
			} else {
				checks[i].InFlight = take(other)
			}
		}
	}
	return checks
}

func TestEachRuleHasOneOutcomeOfARequest(t *testing.T) {
	candidate, err := rate.NewLimit(rate.LimitConfig{Requests: 5, Period: time.Minute, Algorithm: rate.TokenBucket})
	must.Succeed(t, err)
	plain := ruleOf(t, core.RuleConfig{Name: "plain"})
	other := ruleOf(t, core.RuleConfig{Name: "other"})
	shadow := ruleOf(t, core.RuleConfig{Name: "shadow", Shadow: true})
	open := ruleOf(t, core.RuleConfig{Name: "open", OnError: core.LetPass})
	closed := ruleOf(t, core.RuleConfig{Name: "closed", OnError: core.RejectAll})
	both := ruleOf(t, core.RuleConfig{Name: "both", Candidate: candidate, Concurrency: 2})
	places, err := rate.NewConcurrency(2)
	must.Succeed(t, err)
	alone := ruleOf(t, core.RuleConfig{Name: "alone", Limit: places})
	yes := rate.Decision{Allowed: true}
	no := rate.Decision{}
	allow := core.Verdict{Outcome: core.Allow}
	reject := core.Verdict{Outcome: core.Reject}
	type part struct {
		outcome  Outcome
		inFlight bool // the concurrency has decided
		compared Comparison
	}
	for _, c := range []struct {
		name      string
		rules     []*core.Rule
		decisions []rate.Decision
		verdict   core.Verdict
		failed    bool
		want      []part
	}{
		{"allowed", []*core.Rule{plain}, []rate.Decision{yes}, allow, false, []part{{Allowed, false, NotCompared}}},
		{"by tolerance", []*core.Rule{plain}, []rate.Decision{{Allowed: true, Soft: true}}, allow, false, []part{{AllowedSoft, false, NotCompared}}},
		{"after a wait", []*core.Rule{plain}, []rate.Decision{{Allowed: true, Delay: 1}}, allow, false, []part{{Delayed, false, NotCompared}}},
		{"one rejects, others count nothing", []*core.Rule{plain, other, shadow}, []rate.Decision{yes, no, yes}, reject, false,
			[]part{{NotCounted, false, NotCompared}, {Rejected, false, NotCompared}, {Allowed, false, NotCompared}}},
		{"a shadow would make it wait", []*core.Rule{shadow}, []rate.Decision{{Allowed: true, Delay: 1}}, allow, false, []part{{ShadowDelayed, false, NotCompared}}},
		{"a shadow would reject", []*core.Rule{shadow, plain}, []rate.Decision{no, yes}, allow, false, []part{{ShadowRejected, false, NotCompared}, {Allowed, false, NotCompared}}},
		{"a place is wanting", []*core.Rule{both, plain}, []rate.Decision{yes, no, no, yes}, reject, false, []part{{Rejected, true, Stricter}, {NotCounted, false, NotCompared}}},
		{"a limit and a place", []*core.Rule{both}, []rate.Decision{no, yes, no}, reject, false, []part{{Rejected, false, Laxer}}},
		{"both reject", []*core.Rule{both}, []rate.Decision{no, no, yes}, reject, false, []part{{Rejected, false, BothRejected}}},
		{"both allow", []*core.Rule{both}, []rate.Decision{yes, yes, yes}, allow, false, []part{{Allowed, false, BothAllowed}}},
		{"concurrency alone is a rule of its own", []*core.Rule{plain, alone}, []rate.Decision{yes, no}, reject, false, []part{{NotCounted, false, NotCompared}, {Rejected, false, NotCompared}}},
		{"the store has failed", []*core.Rule{both, plain}, []rate.Decision{yes, no, yes, no}, reject, true, []part{{NotCounted, false, NotCompared}, {Rejected, false, NotCompared}}},
		{"memory counts", []*core.Rule{plain}, []rate.Decision{yes}, allow, true, []part{{Fallback, false, NotCompared}}},
		{"nobody decides", []*core.Rule{open, closed}, []rate.Decision{yes, yes}, core.Verdict{Outcome: core.Unavailable}, true,
			[]part{{NotCounted, false, NotCompared}, {ErrorClosed, false, NotCompared}}},
	} {
		checks := checksOf(c.rules, c.decisions)
		for i, want := range c.want {
			var got Part
			PartOf(&checks[i], &c.verdict, c.failed, &got)
			if (part{got.Outcome, got.Check == checks[i].InFlight, got.Compared}) != want || got.Check != &checks[i] && got.Check != checks[i].InFlight {
				t.Errorf("%s, rule %d: %+v, want %+v", c.name, i, got, want)
			}
		}
	}
}
