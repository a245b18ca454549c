package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// ownRules compiles the rules of a configuration, of either dialect.
func ownRules(c *Config, criterion *SourceCriterion, namespace, middleware string, each func(t *ruleset.RuleText, in ruleset.Context)) ([]*ruleset.Rule, error) {
	rules := make([]*ruleset.Rule, 0, len(c.Rules))
	if len(c.Rules) == 0 {
		if (len(c.RulesFile) > 0 || isOn(c.Guard)) && firstSet(c.Rule) == "" && !isDialect(c) {
			return rules, nil
		}
		r, err := onlyRule(c, criterion, namespace, middleware, each)
		if r != nil && len(r.Limits.Rules()) > 0 { // else nothing is limited
			rules = append(rules, r)
		}
		if field := firstSet(c.Rule); err != nil && c.Descriptors != nil && c.Limit == "" && field != "" {
			return nil, fmt.Errorf("%w; or remove %s, if it is for the descriptors: it is a rule's, and they have none", err, field)
		}
		return rules, err
	}
	if isDialect(c) {
		instead := ""
		if firstOfDialect(c) == "redis" {
			instead = ", or write store.redis"
		}
		return nil, fmt.Errorf("%s and rules are mutually exclusive: %[1]s is of Traefik's rateLimit and makes a rule of its own; remove one%s", firstOfDialect(c), instead)
	}
	if field := firstSet(c.Rule); field != "" {
		return nil, fmt.Errorf("%s and rules are mutually exclusive: a rule's fields are at the top only where it is the only rule; write it into the rules", field)
	}
	names := make(map[string]bool)
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Name == "" {
			return nil, fmt.Errorf("rules[%d]: name: is missing; write 1 to 64 of A-Z a-z 0-9 _ . -", i)
		}
		if names[r.Name] {
			return nil, fmt.Errorf("rule %q: duplicate name in this middleware; rename one", r.Name)
		}
		names[r.Name] = true
		compiled, err := compile(r, ruleset.Context{Namespace: namespace, Name: r.Name, Prefixes: ruleset.Standard}, each)
		if err != nil {
			return nil, err
		}
		rules = append(rules, compiled)
	}
	return rules, nil
}

// onlyRule compiles the rule of a middleware without a list of rules.
func onlyRule(c *Config, criterion *SourceCriterion, namespace, middleware string, each func(t *ruleset.RuleText, in ruleset.Context)) (*ruleset.Rule, error) {
	in := ruleset.Context{Namespace: namespace, Name: c.Name, Prefixes: ruleset.Standard}
	if in.Name == "" {
		in.Name = validName(withoutProvider(middleware))
	}
	r := &c.Rule
	if isDialect(c) {
		made, err := dialectRule(c, criterion)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", in.Name, err)
		}
		in.Prefixes.IPv6 = 128
		r = made
	}
	own := *r
	own.Jitter = "" // it is the middleware's, and Traefik has set both
	return compile(&own, in, each)
}

// compile checks and compiles a rule. The error is the first one in it.
func compile(r *Rule, in ruleset.Context, each func(t *ruleset.RuleText, in ruleset.Context)) (*ruleset.Rule, error) {
	text, err := textOf(r)
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", in.Name, err)
	}
	if each != nil {
		each(text, in)
	}
	compiled, wrong := ruleset.Compile(text, in)
	if len(wrong) == 0 {
		if err = ruleset.ReadAnswer(compiled); err != nil {
			return nil, InWords(words.Of(err).Within("rule", strconv.Quote(in.Name)))
		}
		return compiled, nil
	}
	if wrong[0].Path[0] == "name" {
		return nil, InWords(wrong[0].Named("rule name"))
	}
	return nil, InWords(wrong[0].Within("rule", strconv.Quote(in.Name)))
}

// rulePlaces are the indexes of a Rule's fields, in the order of the schema. They are found once: a rule has many, and an interpreter takes long.
var rulePlaces = placesOfRule()

func placesOfRule() []int {
	places := placesOf(reflect.TypeOf(Rule{}))
	var list []int
	for _, f := range ruleset.Schema["rule"] {
		list = append(list, places[ruleset.CamelCase(f.Name)])
	}
	return list
}

// textOf returns a rule as a RuleText.
func textOf(r *Rule) (*ruleset.RuleText, error) {
	text := &ruleset.RuleText{Name: r.Name}
	value := reflect.ValueOf(*r)
	schema := ruleset.Schema["rule"]
	for i, place := range rulePlaces {
		field := value.Field(place)
		if field.IsZero() { // as most are
			continue
		}
		f := schema[i]
		switch field.Kind() {
		case reflect.String:
			ruleset.SetText(&text.Object, f.Name, field.String())
		case reflect.Slice:
			if field.Len() > 0 { // an empty list is what some providers make of none
				ruleset.SetList(&text.Object, f.Name, trimmed(field.Interface().([]string)))
			}
		default:
			if err := addObjects(text, &f, field.Interface()); err != nil {
				return nil, err
			}
		}
	}
	return text, nil
}

// addObjects reads the object of a rule's field, or a list of them.
func addObjects(text *ruleset.RuleText, f *ruleset.Field, value interface{}) error {
	name := ruleset.CamelCase(f.Name)
	list := []interface{}{value}
	if f.Kind == ruleset.ManyObjects {
		many, err := listOf(name, value)
		if err != nil {
			return err
		}
		list = many
	}
	for i := range list {
		where := name
		if f.Kind == ruleset.ManyObjects {
			where = fmt.Sprintf("%s[%d]", name, i)
		}
		o, err := decodeText(where, list[i], f.Of)
		if err != nil {
			return err
		}
		if o == nil {
			continue
		}
		for _, pair := range o.Pairs["limits"] {
			if strings.HasPrefix(pair.Name, "<") && strings.HasSuffix(pair.Name, " Value>") { // what Traefik makes of it
				return fmt.Errorf("tiers: limits: a value is a number, or true or false, which Traefik does not read there; put it in quotes")
			}
		}
		ruleset.AddObject(text, f.Name, o)
	}
	return nil
}
