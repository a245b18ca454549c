package memory

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// A mark tells a key with a rejected request from one that has only used up its limit: in a flood the latter goes first. A peek
// sets no mark.
func TestARejectedKeyIsMarkedHoweverItIsDecided(t *testing.T) {
	penalty := core.OverflowPolicy{Penalties: []time.Duration{time.Minute}}
	for name, c := range map[string]struct{ rules []core.RuleConfig }{
		"one rule":                           {[]core.RuleConfig{{Name: "r"}}},
		"one rule, which counts rejected":    {[]core.RuleConfig{{Name: "r", CountRejected: true}}},
		"several rules":                      {[]core.RuleConfig{{Name: "r"}, {Name: "wide", Limit: perHour(t, rate.TokenBucket, 100)}}},
		"several rules, the other one first": {[]core.RuleConfig{{Name: "wide", Limit: perHour(t, rate.TokenBucket, 100)}, {Name: "r"}}},
		"a rule with a penalty":              {[]core.RuleConfig{{Name: "r", OverflowPolicy: penalty}}},
		"beside a rule with a penalty":       {[]core.RuleConfig{{Name: "r"}, {Name: "wide", Limit: perHour(t, rate.TokenBucket, 100), OverflowPolicy: penalty}}},
	} {
		for _, a := range []rate.Algorithm{rate.TokenBucket, rate.SlidingWindowLog} {
			s := newOverflowScene(t, Config{})
			var rules []*core.Rule
			var tight *core.Rule
			for _, config := range c.rules {
				if config.Limit == nil {
					config.Limit = perHour(t, a, 2)
				}
				r := s.open(config)
				rules = append(rules, r)
				if r.Name() == "r" {
					tight = r
				}
			}
			marked := func() bool {
				check := core.Check{Rule: tight, Key: "alice"}
				sh := s.store.lockKey(&check)
				defer sh.mu.Unlock()
				return sh.owners[check.Slot]&rejected != 0
			}
			s.ask("alice", rules...)
			s.ask("alice", rules...)
			var v core.Verdict
			checks := make([]core.Check, len(rules))
			for i := range rules {
				checks[i] = core.Check{Rule: rules[i], Key: "alice", Cost: 1}
			}
			if err := s.limiter.Decide(checks, true, &v); err != nil || v.Outcome != core.Reject {
				t.Fatalf("%s, %s: %+v, %v; want the limit to be used up", name, a, v, err)
			}
			if marked() {
				t.Errorf("%s, %s: it is marked before it was rejected", name, a)
			}
			s.ask("alice", rules...)
			if !marked() {
				t.Errorf("%s, %s: it is not marked", name, a)
			}
		}
	}
}
