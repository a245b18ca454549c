package traefik

import (
	"fmt"
	"sort"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/match"
	"github.com/proxyweir/weir/ruleset"
)

// rule is a rule in force: one of the configuration, or of a file.
type rule struct {
	ruled *ruleset.Rule
	only  *core.Rule // the limit of all its requests; nil: there are several, or none, and ruleset.LimitOf says which

	beside bool // any of its limits has others that are decided with it
}

// noCount is why no rule can have count: a writer that is wrapped loses Flush, Hijack and Unwrap on the way through the interpreter.
const noCount = "cannot be had in Traefik, where a plugin cannot see a response's status without breaking streaming and upgrades; use the limit without it, or Caddy"

// newRule returns the rule of one that was made ready.
func newRule(ruled *ruleset.Rule) *rule {
	r := &rule{ruled: ruled}
	if ruled.Limits.Single() {
		r.only = ruled.Limits.Own()
	}
	for _, limit := range ruled.Limits.Rules() {
		r.beside = r.beside || len(limit.Beside()) > 0
	}
	return r
}

// ownRules makes the rules of a configuration ready, in whichever words they are written.
func ownRules(c *Config, criterion *SourceCriterion, namespace, middleware string) ([]*ruleset.Rule, error) {
	rules := make([]*ruleset.Rule, 0, len(c.Rules))
	if len(c.Rules) == 0 {
		if len(c.RulesFile) > 0 && firstSet(c.Rule) == "" && !isDialect(c) {
			return rules, nil
		}
		r, err := onlyRule(c, criterion, namespace, middleware)
		if r != nil && len(r.Limits.Rules()) > 0 { // else nothing is limited
			rules = append(rules, r)
		}
		return rules, err
	}
	if isDialect(c) {
		return nil, fmt.Errorf("%s: stands beside rules; it is of Traefik's rateLimit and makes a rule of its own, keep one", firstOfDialect(c))
	}
	if field := firstSet(c.Rule); field != "" {
		return nil, fmt.Errorf("%s: stands beside rules; a rule's fields are at the top only where it is the only one: write it into the rules", field)
	}
	names := make(map[string]bool)
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Name == "" {
			return nil, fmt.Errorf("rules[%d]: name: is missing; write 1 to 64 of A-Z a-z 0-9 _ . -", i)
		}
		if names[r.Name] {
			return nil, fmt.Errorf("rule %q: is there twice; a name is unique in its middleware", r.Name)
		}
		names[r.Name] = true
		compiled, err := compile(r, ruleset.Context{Namespace: namespace, Name: r.Name, Prefixes: ruleset.Standard, NoCount: noCount})
		if err != nil {
			return nil, err
		}
		rules = append(rules, compiled)
	}
	return rules, nil
}

// onlyRule makes the one rule of a middleware without a list ready.
func onlyRule(c *Config, criterion *SourceCriterion, namespace, middleware string) (*ruleset.Rule, error) {
	in := ruleset.Context{Namespace: namespace, Name: c.Name, Prefixes: ruleset.Standard, NoCount: noCount}
	if in.Name == "" {
		in.Name = validName(withoutProvider(middleware))
	}
	if !isDialect(c) {
		return compile(&c.Rule, in)
	}
	r, err := dialectRule(c, criterion)
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", in.Name, err)
	}
	in.Prefixes.IPv6 = 128
	return compile(r, in)
}

// compile checks a rule and makes it ready. The error is the first of what is wrong with it.
func compile(r *Rule, in ruleset.Context) (*ruleset.Rule, error) {
	text, err := textOf(r)
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", in.Name, err)
	}
	compiled, wrong := ruleset.Compile(text, in)
	if len(wrong) == 0 {
		return compiled, nil
	}
	told := ourWords.Replace(wrong[0].Text)
	if wrong[0].Path[0] == "name" {
		return nil, fmt.Errorf("rule %s", told)
	}
	return nil, fmt.Errorf("rule %q: %s", in.Name, told)
}

// textOf returns a rule as package ruleset has it.
func textOf(r *Rule) (*ruleset.RuleText, error) {
	text := &ruleset.RuleText{
		Name:             r.Name,
		Key:              trimmed(r.Key),
		Limit:            r.Limit,
		TimeZone:         r.TimeZone,
		Algorithm:        r.Algorithm,
		Burst:            r.Burst,
		Refill:           r.Refill,
		Cost:             r.Cost,
		IPv4Prefix:       r.IPv4Prefix,
		IPv6Prefix:       r.IPv6Prefix,
		Enforcement:      r.Enforcement,
		OnLimit:          r.OnLimit,
		MaxDelay:         r.MaxDelay,
		MaxWaiting:       r.MaxWaiting,
		MaxWaitingPerKey: r.MaxWaitingPerKey,
		Concurrency:      r.Concurrency,
		OnError:          r.OnError,
		OnMissingKey:     r.OnMissingKey,
		CountRejected:    r.CountRejected,
	}
	var m Match
	present, err := decodeObject("match", r.Match, &m)
	if err != nil {
		return nil, err
	}
	if present {
		text.Match = &match.Match{
			Methods:      trimmed(m.Methods),
			Hosts:        trimmed(m.Hosts),
			Paths:        trimmed(m.Paths),
			PathPrefixes: trimmed(m.PathPrefixes),
			Headers:      m.Headers,
			ExceptIPs:    trimmed(m.ExceptIPs),
		}
	}
	if text.Tiers, err = tiersOf(r.Tiers); err != nil {
		return nil, err
	}
	if len(r.Count) > 0 { // an empty list is what some providers make of none
		text.Count = trimmed(r.Count)
	}
	if len(r.Penalty) > 0 {
		text.Penalty = trimmed(r.Penalty)
	}
	if text.Candidate, err = candidateOf(r.Candidate); err != nil {
		return nil, err
	}
	text.Overrides, err = overridesOf(r.Overrides)
	return text, err
}

// candidateOf reads the limit that is compared with a rule's.
func candidateOf(value interface{}) (*ruleset.Candidate, error) {
	var c Candidate
	present, err := decodeObject("candidate", value, &c)
	if err != nil || !present {
		return nil, err
	}
	return &ruleset.Candidate{Limit: c.Limit, Algorithm: c.Algorithm, Burst: c.Burst, Refill: c.Refill, TimeZone: c.TimeZone}, nil
}

// tiersOf reads the limits that a value chooses.
func tiersOf(value interface{}) (*ruleset.Tiers, error) {
	var t Tiers
	present, err := decodeObject("tiers", value, &t)
	if err != nil || !present {
		return nil, err
	}
	values := make([]string, 0, len(t.Limits))
	for v := range t.Limits {
		values = append(values, v)
	}
	sort.Strings(values)
	tiers := &ruleset.Tiers{Source: t.Source}
	for _, v := range values {
		if strings.HasPrefix(v, "<") && strings.HasSuffix(v, " Value>") { // what Traefik makes of it
			return nil, fmt.Errorf("tiers: limits: a value is a number, or true or false, which Traefik does not read there; put it in quotes")
		}
		tiers.Limits = append(tiers.Limits, ruleset.Tier{Value: v, Limit: t.Limits[v]})
	}
	return tiers, nil
}

// overridesOf reads the limits of single keys.
func overridesOf(value interface{}) ([]ruleset.Override, error) {
	list, err := listOf("overrides", value)
	if err != nil {
		return nil, err
	}
	overrides := make([]ruleset.Override, 0, len(list))
	for i := range list {
		field := fmt.Sprintf("overrides[%d]", i)
		var o Override
		if _, err := decodeObject(field, list[i], &o); err != nil {
			return nil, err
		}
		if o.Limit == "" {
			return nil, fmt.Errorf("%s: limit: is missing; write one such as 1000/1m", field)
		}
		overrides = append(overrides, ruleset.Override{Key: trimmed(o.Key), Limit: o.Limit})
	}
	return overrides, nil
}
