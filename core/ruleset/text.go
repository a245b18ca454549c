package ruleset

import "github.com/proxyweir/weir/core/match"

// Object is an object of the Schema as it is written, by the names of its fields: numbers, durations and the like are still texts, and
// a field that is not set is missing, or "".
type Object struct {
	Texts map[string]string   // the fields of one value
	Lists map[string][]string // of several
	Pairs map[string][]Pair   // of named values, in the order in which they are written
}

// Pair is a value with its name: a header field's, or the limit of a tier.
type Pair struct {
	Name, Value string
}

// RuleText is a rule as it is written. Compile checks it.
type RuleText struct {
	Name string
	Object
	Objects map[string][]*Object // the objects in it, by field: match, tiers and candidate have one at most
}

// SetText sets the value of a field.
func SetText(o *Object, field, value string) {
	if o.Texts == nil {
		o.Texts = make(map[string]string)
	}
	o.Texts[field] = value
}

// SetList sets the values of a field.
func SetList(o *Object, field string, values []string) {
	if o.Lists == nil {
		o.Lists = make(map[string][]string)
	}
	o.Lists[field] = values
}

// SetPairs sets the named values of a field.
func SetPairs(o *Object, field string, values []Pair) {
	if o.Pairs == nil {
		o.Pairs = make(map[string][]Pair)
	}
	o.Pairs[field] = values
}

// AddObject adds an object to a field.
func AddObject(t *RuleText, field string, o *Object) {
	if t.Objects == nil {
		t.Objects = make(map[string][]*Object)
	}
	t.Objects[field] = append(t.Objects[field], o)
}

// One returns the object of a field that has at most one; nil: there is none.
func One(t *RuleText, field string) *Object {
	list := t.Objects[field]
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// Only returns a rule without a name that has the same values of some fields, and sets no others.
func Only(t *RuleText, fields ...string) *RuleText {
	some := &RuleText{}
	for _, field := range fields {
		if text := t.Texts[field]; text != "" {
			SetText(&some.Object, field, text)
		}
		if list, said := t.Lists[field]; said {
			SetList(&some.Object, field, list)
		}
		if o := One(t, field); o != nil {
			AddObject(some, field, o)
		}
	}
	return some
}

// MatchOf returns a rule's match.
func MatchOf(o *Object) match.Match {
	m := match.Match{Methods: o.Lists["methods"], Hosts: o.Lists["hosts"], Paths: o.Lists["paths"], PathPrefixes: o.Lists["path_prefixes"], ExceptIPs: o.Lists["except_ips"]}
	m.Headers = valuesByName(o.Pairs["headers"])
	m.Query = valuesByName(o.Pairs["query"])
	m.Cookies = valuesByName(o.Pairs["cookies"])
	return m
}

// valuesByName returns named values as a map; nil: there are none.
func valuesByName(pairs []Pair) map[string]string {
	var values map[string]string
	for _, one := range pairs {
		if values == nil {
			values = make(map[string]string, len(pairs))
		}
		values[one.Name] = one.Value
	}
	return values
}

// Unlimited is the word for no limit: requests that it applies to are not counted.
const Unlimited = "unlimited"

// AnyTier is the name of the tier for all values without a tier of their own.
const AnyTier = "*"
