package report

import (
	"slices"

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/byhand"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/redis"
)

// ActiveRule is a rule in force, as the admin API, metrics and rate_limit_status see it.
type ActiveRule struct {
	byhand.Subject
	Limiter *stores.Limiter
	Stats   *Stats
	Source  string   // where the rule is written: "zone", or a file and a line
	Notes   []string // what else it does, in a few words

	Also []*ActiveRule // the same rule in other handlers, which may count it in another store
}

// LabelsOf returns the labels of rules.
func LabelsOf(list []*ActiveRule) []string {
	labels := make([]string, 0, len(list))
	for _, s := range list {
		labels = append(labels, s.Label)
	}
	return labels
}

// ActiveRuleOf returns the description of a rule, from its compiled form and its text.
func ActiveRuleOf(r *ruleset.Rule, text *ruleset.RuleText) *ActiveRule {
	return &ActiveRule{Subject: byhand.SubjectOf(r, text), Notes: describe.OverflowNotes(text)}
}

// Leased returns how many units of a rule's limits this process holds; nil: the rule is not leased.
func (s *ActiveRule) Leased(stats *redis.LeaseStats) *int64 {
	if units, leased := stats.HeldOf(s.Rules); leased {
		return &units
	}
	return nil
}

// InMemory returns the limits of a rule that are counted in memory.
func (s *ActiveRule) InMemory() []*core.Rule {
	var rules []*core.Rule
	for _, one := range append([]*ActiveRule{s}, s.Also...) {
		if one.Limiter.Store == stores.MemoryName {
			rules = append(rules, one.Rules...)
		}
	}
	return rules
}

func (s *ActiveRule) HasCandidate() bool {
	return slices.ContainsFunc(s.Rules, func(r *core.Rule) bool { return slices.ContainsFunc(r.Linked(), (*core.Rule).IsCandidate) })
}

func (s *ActiveRule) HasPenalty() bool {
	return slices.ContainsFunc(s.Rules, func(r *core.Rule) bool {
		t, ok := r.Terms()
		return ok && len(t.Penalties) > 0
	})
}

func (s *ActiveRule) Measures() bool { return slices.ContainsFunc(s.Rules, (*core.Rule).Measures) }

// Waiting returns how many requests wait for the rule. In one handler, all limits of a rule share that count.
func (s *ActiveRule) Waiting() int64 {
	if len(s.Rules) == 0 {
		return 0
	}
	n := s.Rules[0].Waiting()
	for _, other := range s.Also {
		if len(other.Rules) > 0 && other.Rules[0] != s.Rules[0] {
			n += other.Rules[0].Waiting()
		}
	}
	return n
}

// KeysIn returns how many keys of rules are in memory. Rules with the same name, algorithm and period have the same keys.
func KeysIn(m *memory.Store, rules []*core.Rule) int64 {
	keys := int64(0)
	counted := make(map[string]bool)
	for _, r := range rules {
		if !counted[r.Identity] {
			counted[r.Identity] = true
			keys += m.Keys(r)
		}
	}
	return keys
}
