package core

import (
	"testing"
	"time"
)

// A mark tells a key with a rejected request from one that has only used up its limit: in a flood the latter goes first. A peek
// sets no mark.
func TestARejectedKeyIsMarkedHoweverItIsDecided(t *testing.T) {
	penalty := OverflowPolicy{Penalties: []time.Duration{time.Minute}}
	for name, c := range map[string]struct{ rules []RuleConfig }{
		"one rule":                           {[]RuleConfig{{Name: "r"}}},
		"one rule, which counts rejected":    {[]RuleConfig{{Name: "r", CountRejected: true}}},
		"several rules":                      {[]RuleConfig{{Name: "r"}, {Name: "wide", Limit: perHour(t, TokenBucket, 100)}}},
		"several rules, the other one first": {[]RuleConfig{{Name: "wide", Limit: perHour(t, TokenBucket, 100)}, {Name: "r"}}},
		"a rule with a penalty":              {[]RuleConfig{{Name: "r", OverflowPolicy: penalty}}},
		"beside a rule with a penalty":       {[]RuleConfig{{Name: "r"}, {Name: "wide", Limit: perHour(t, TokenBucket, 100), OverflowPolicy: penalty}}},
	} {
		for _, a := range []Algorithm{TokenBucket, SlidingWindowLog} {
			s := newOverflowScene(t, MemoryConfig{})
			var rules []*Rule
			var tight *Rule
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
				check := Check{Rule: tight, Key: "alice"}
				sh := s.store.lockKey(&check)
				defer sh.mu.Unlock()
				return sh.owners[check.slot]&rejected != 0
			}
			s.ask("alice", rules...)
			s.ask("alice", rules...)
			var v Verdict
			checks := make([]Check, len(rules))
			for i := range rules {
				checks[i] = Check{Rule: rules[i], Key: "alice", Cost: 1}
			}
			if err := s.limiter.Decide(checks, true, &v); err != nil || v.Outcome != Reject {
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
