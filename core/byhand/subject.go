// Package byhand is what people do to single keys of rules: limits and blocks until a time, units back, and forgetting what was counted. It is behind the admin API
// of Caddy and the commands. Compiled programs alone use it.
package byhand

import (
	"slices"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/transition"
)

// Counters is where rules count, with what people have decided there.
type Counters struct {
	*core.Limiter
	Exceptions *excepted.Table
	InRedis    bool // other nodes count there, too, and remember what it has said of keys
	InStorage  bool // nodes tell each other by a storage what they count
}

// Standing returns what a limit would decide on a request of a key.
func (c *Counters) Standing(r *core.Rule, key string) (rate.Decision, error) {
	checks := []core.Check{{Rule: r, Key: key, Cost: 1}}
	var v core.Verdict
	err := c.Look(checks, &v)
	return checks[0].Decision, err
}

// Subject is a rule in force, as people see it.
type Subject struct {
	Label       string // see metrics.LabelOf
	Namespace   string
	Name        string
	Enforcement string       // as it is written
	Own         *core.Rule   // the limit for requests without a tier or override; nil: none
	Rules       []*core.Rule // all limits
	Keys        describe.KeyForm
	Shadow      bool
	Limits      []NamedLimit

	Rule *ruleset.Rule // nil: the rule is of a descriptor
	Desc *core.Rule    // the limit of a descriptor; nil: the rule is of no descriptor

	Active *transition.Active // of the rule or descriptor

	In     *Counters
	Others []*Subject // the same rule in other handlers, which may count it elsewhere
}

// NamedLimit is a limit that applies to only some requests under the rule.
type NamedLimit struct {
	Of    string // "tier gold", "key 192.0.2.7"
	Tier  bool
	Limit *core.Rule
	Value string // the tier's
}

// SubjectOf returns the subject of a rule, from its compiled form and its text, without its label, namespace and counters.
func SubjectOf(r *ruleset.Rule, text *ruleset.RuleText) Subject {
	s := Subject{Name: r.Name, Enforcement: describe.EnforcementOf(text.Texts["enforcement"]), Rule: r, Active: r.Active, Own: r.Active.Limits().Own(), Rules: r.Active.Limits().All(),
		Keys: describe.KeysOf(r), Shadow: r.Shadow}
	if tiers := ruleset.One(text, "tiers"); tiers != nil {
		for _, tier := range tiers.Pairs["limits"] {
			value := ruleset.TierFor(r, tier.Name)
			s.Limits = append(s.Limits, NamedLimit{tierOf(tier.Name), true, r.Active.Of(value, ""), value})
		}
	}
	for _, o := range text.Objects["overrides"] {
		key := ruleset.KeyFor(r, o.Lists["key"])
		s.Limits = append(s.Limits, NamedLimit{"key " + strings.Join(s.Keys.Show(key), " "), false, r.Active.Of("", key), ""})
	}
	return s
}

// SubjectOfDescriptor returns the subject of a descriptor's limit, without its label and counters. secret says that its values may be credentials.
func SubjectOfDescriptor(d *ruleset.Domain, i int, namespace string, secret bool) Subject {
	r := d.Rules()[i]
	return Subject{Namespace: namespace, Name: r.Name(), Enforcement: describe.EnforcementOf(map[bool]string{true: "shadow"}[r.Shadow]),
		Desc: r, Active: d.Active()[i], Own: r, Rules: []*core.Rule{r}, Shadow: r.Shadow, Keys: describe.KeyForm{Names: []string{"descriptor"}, Secret: []bool{secret}, Free: true}}
}

// tierOf returns the name of a tier's limit.
func tierOf(value string) string { return "tier " + value }

// mostBrought is how many limits that requests have brought are listed.
const mostBrought = 20

// brought returns the limits that requests under a rule have brought of late, by their values; of many, only the first.
func brought(limits *core.Limits) []NamedLimit {
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

// LimitsOf returns the limits that requests of a key may have: its override if there is one, else the rule's own limit and those of all tiers. A nil limit
// means unlimited.
func (s *Subject) LimitsOf(key string) []NamedLimit {
	if s.Desc != nil {
		return []NamedLimit{{Limit: s.Desc}}
	}
	if limits := s.Rule.Active.Limits(); limits.Overrides(key) { // overrides have priority over tiers
		return []NamedLimit{{Limit: limits.Of("", key)}}
	}
	list := []NamedLimit{{Limit: s.Own}}
	for _, l := range s.Limits {
		if l.Tier && l.Of != tierOf("*") { // the tier * is the rule's own limit
			list = append(list, l)
		}
	}
	return append(list, brought(s.Rule.Active.Limits())...)
}

// all returns the subject and the others.
func (s *Subject) all() []*Subject { return append([]*Subject{s}, s.Others...) }

// EachPlace calls f once for each place where a key has counters: for the rules of all tiers, so that a client cannot escape by
// changing its tier, and in all stores, if handlers keep the rule in several.
func (s *Subject) EachPlace(f func(*Counters, *core.Rule) error) error {
	type place struct {
		in       *Counters
		identity string
	}
	seen := make(map[place]bool)
	for _, one := range s.all() {
		for _, r := range one.counting() {
			here := place{one.In, r.Identity}
			if seen[here] {
				continue
			}
			seen[here] = true
			if err := f(one.In, r); err != nil {
				return s.errorf(nil, "%w", err)
			}
		}
	}
	return nil
}

// counting returns the rules under which keys are counted or blocked: the active ones, and before them the previous ones that requests must
// pass, too, which come first as transition.Active.PreviousRules says.
func (s *Subject) counting() []*core.Rule {
	var list []*core.Rule
	for _, previous := range s.Active.PreviousRules() {
		if !slices.ContainsFunc(s.Rules, func(r *core.Rule) bool { return r.Identity == previous.Identity }) {
			list = append(list, previous)
		}
	}
	return append(list, s.Rules...)
}

// Passes says why no handler counts requests of the key under the rule, so that they pass whatever is done to the key; "" if any
// handler counts them.
func (s *Subject) Passes(key string) string {
	why := ""
	for _, one := range s.all() {
		if why = one.passesHere(key); why == "" {
			return ""
		}
	}
	return why
}

func (s *Subject) passesHere(key string) string {
	var except *match.Matcher
	skips := false
	if s.Rule != nil {
		except, skips = s.Rule.Matcher, s.Rule.SkipMissing
	}
	parts := s.Keys.Parts(key)
	if len(parts) != len(s.Keys.Names) {
		return ""
	}
	for i, value := range parts {
		if value == "" && skips {
			return "requests without " + s.Keys.Names[i] + " pass uncounted (on_missing_key skip)"
		}
		if s.Keys.Names[i] != "client_ip" || except == nil {
			continue
		}
		if network, err := match.ParseNetwork(value); err == nil && except.Excepts(network) {
			return value + " is among the addresses that the rule exempts, whose requests pass uncounted"
		}
	}
	return ""
}
