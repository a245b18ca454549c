package report

import (
	"slices"
	"strings"

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/transition"
	"github.com/proxyweir/weir/redis"
)

// ActiveRule is a rule in force, as the admin API, metrics and rate_limit_status see it.
type ActiveRule struct {
	Label       string // see metrics.LabelOf
	Namespace   string
	Name        string
	Enforcement string // as it is written
	Limiter     *stores.Limiter
	Stats       *Stats
	Own         *core.Rule   // the limit for requests without a tier or override; nil: none
	Rules       []*core.Rule // all limits
	Keys        describe.KeyForm
	Source      string // where the rule is written: "zone", or a file and a line
	Shadow      bool
	Notes       []string // what else it does, in a few words
	Limits      []NamedLimit

	Also []*ActiveRule // the same rule in other handlers, which may count it in another store

	Rule *ruleset.Rule // nil: the rule is of a descriptor
	Desc *core.Rule    // the limit of a descriptor; nil: the rule is of no descriptor

	Active *transition.Active // of the rule or descriptor
}

// NamedLimit is a limit that applies to only some requests under the rule.
type NamedLimit struct {
	Of    string // "tier gold", "key 192.0.2.7"
	Tier  bool
	Limit *core.Rule
	Value string // the tier's
}

// TierOf returns the name of a tier's limit.
func TierOf(value string) string { return "tier " + value }

// mostBrought is how many limits that requests have brought are listed.
const mostBrought = 20

// BroughtLimits returns the limits that requests under a rule have brought of late, by their values; of many, only the first.
func BroughtLimits(limits *core.Limits) []NamedLimit {
	if limits.Requested() == nil {
		return nil
	}
	values, _ := limits.Kinds()
	slices.Sort(values)
	list := make([]NamedLimit, 0, len(values))
	for _, value := range values[:min(len(values), mostBrought)] {
		list = append(list, NamedLimit{"value " + value, false, limits.Look(value, ""), value})
	}
	return list
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
	s := &ActiveRule{Name: r.Name, Enforcement: describe.EnforcementOf(text.Texts["enforcement"]), Rule: r, Active: r.Active, Own: r.Active.Limits().Own(), Rules: r.Active.Limits().All(), Keys: describe.KeysOf(r),
		Shadow: r.Shadow, Notes: describe.OverflowNotes(text)}
	if tiers := ruleset.One(text, "tiers"); tiers != nil {
		for _, tier := range tiers.Pairs["limits"] {
			value := ruleset.TierFor(r, tier.Name)
			s.Limits = append(s.Limits, NamedLimit{TierOf(tier.Name), true, r.Active.Of(value, ""), value})
		}
	}
	for _, o := range text.Objects["overrides"] {
		key := ruleset.KeyFor(r, o.Lists["key"])
		s.Limits = append(s.Limits, NamedLimit{"key " + strings.Join(s.Keys.Show(key), " "), false, r.Active.Of("", key), ""})
	}
	return s
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
