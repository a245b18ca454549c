package envoyagreement

import (
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// tree is the domain of a file.
type tree struct {
	domain string
	top    []*node
	stars  bool // some values have a * that is not at the end
	metric bool // some descriptors have value_to_metric
}

// node is a descriptor of a tree.
type node struct {
	key, value              string
	limit                   *limit
	shadow, detailed, share bool
	metric                  bool // value_to_metric
	quota                   bool // quota_mode
	below                   []*node
}

// limit is the limit of a descriptor.
type limit struct {
	unit      string
	requests  int
	unlimited bool
	name      string
	replaces  []string
}

// marked is the number of requests of the limits that replace unlimited: true in the marked text of a tree. No other limit has it.
const marked = 987_654_321

// The parts of trees. There are few of them, so that requests match descriptors of the tree, and many values have a common beginning. None has
// an underscore, since the service joins keys and values with it.
var (
	keys      = []string{"a", "b", "c"}
	values    = []string{"x", "xy", "xyz", "xyzzy", "y", "yx", "1", "1:x", "12", "true", "~", "x y", "é", "ée"}
	wildcards = []string{"*", "x*", "xy*", "xyz*", "y*", "1*", "é*"}
	stars     = []string{"*y", "x*y", "x*y*", "*x*", "x*x", "1*:*x", "x**y", "x**", "*z*y*", "x*y*z*", "**x", "xy*yx", "*é", "x*zz*y", "* *"}
	units     = []string{"second", "minute", "hour", "day", "week", "month", "year", "SECOND", "Minute"}
	names     = []string{"n1", "n2", "n3", "n4"}
)

func oneOf[T any](r *rand.Rand, list []T) T { return list[r.Intn(len(list))] }

// chance returns true in that many of 100 cases.
func chance(r *rand.Rand, percent int) bool { return r.Intn(100) < percent }

// newTree makes a tree of at most four levels, and newStarTree one with a * anywhere in values.
func newTree(r *rand.Rand, domain string) *tree {
	return newTreeWith(r, &tree{domain: domain, metric: chance(r, 30)})
}

func newStarTree(r *rand.Rand, domain string) *tree {
	return newTreeWith(r, &tree{domain: domain, metric: chance(r, 30), stars: true})
}

func newTreeWith(r *rand.Rand, t *tree) *tree {
	numbers := 0
	t.top = t.newNodes(r, 1+r.Intn(7), 1, &numbers)
	return t
}

// newNodes makes the descriptors of one level. No two have the same key and value. numbers is the last number of requests that was used, so
// that most limits have a different one.
func (t *tree) newNodes(r *rand.Rand, n, depth int, numbers *int) []*node {
	var list []*node
	taken := make(map[[2]string]bool)
	for range n {
		one := &node{key: oneOf(r, keys), shadow: chance(r, 15), detailed: chance(r, 10), metric: t.metric && chance(r, 20), quota: chance(r, 5)}
		switch kind := r.Intn(10); {
		case kind < 4:
			one.value = oneOf(r, values)
		case kind < 8:
			one.value = oneOf(r, wildcards)
			if t.stars && chance(r, 70) {
				one.value = oneOf(r, stars)
			}
			one.share = chance(r, 40)
		}
		if taken[[2]string{one.key, one.value}] {
			continue
		}
		taken[[2]string{one.key, one.value}] = true
		if chance(r, 70) {
			*numbers++
			one.limit = newLimit(r, *numbers)
		}
		if depth < 4 && chance(r, 55) {
			one.below = t.newNodes(r, 1+r.Intn(4), depth+1, numbers)
		}
		list = append(list, one)
	}
	return list
}

func newLimit(r *rand.Rand, requests int) *limit {
	l := &limit{unit: oneOf(r, units), requests: requests, unlimited: chance(r, 15)}
	if chance(r, 15) {
		l.requests = 0
	}
	if chance(r, 40) {
		l.name = oneOf(r, names)
	}
	for _, name := range names {
		if name != l.name && chance(r, 10) {
			l.replaces = append(l.replaces, name)
		}
	}
	return l
}

// newEntries makes a request's descriptor with at most five entries, most of which are in the tree.
func newEntries(r *rand.Rand, t *tree) [][2]string {
	var entries [][2]string
	at := t.top
	for len(entries) == 0 || len(entries) < 5 && len(at) > 0 && chance(r, 65) {
		if len(at) == 0 || chance(r, 10) {
			entries = append(entries, [2]string{oneOf(r, keys), newValue(r)})
			continue
		}
		one := oneOf(r, at)
		value := one.value
		if strings.Contains(value, "*") && chance(r, 80) {
			for strings.Contains(value, "*") {
				value = strings.Replace(value, "*", oneOf(r, []string{"", "x", "y", "z", "2", ":x", "zz", "\x00"}), 1)
			}
			value = strings.ReplaceAll(value, "\x00", "*")
		} else if value == "" || chance(r, 10) {
			value = newValue(r)
		}
		entries = append(entries, [2]string{one.key, value})
		at = one.below
	}
	for len(entries) < 5 && chance(r, 8) {
		entries = append(entries, [2]string{oneOf(r, keys), newValue(r)})
	}
	return entries
}

func newValue(r *rand.Rand) string {
	switch r.Intn(10) {
	case 0:
		return ""
	case 1:
		return oneOf(r, wildcards)
	case 2:
		return oneOf(r, stars)
	}
	return oneOf(r, values)
}

// text returns the tree as YAML, in block or flow style, with or without fields that have their default. In the marked text, every
// unlimited: true is a limit of marked requests. For the same r a tree has the same text.
func (t *tree) text(tb testing.TB, r *rand.Rand, unlimited bool) string {
	tb.Helper()
	return marshal(tb, t.node(r, unlimited))
}

func marshal(tb testing.TB, n *yaml.Node) string {
	tb.Helper()
	text, err := yaml.Marshal(n)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// node returns the tree as YAML's nodes.
func (t *tree) node(r *rand.Rand, unlimited bool) *yaml.Node {
	root := newMap("domain", text(t.domain))
	add(root, "descriptors", descriptors(r, t.top, unlimited))
	return root
}

func descriptors(r *rand.Rand, list []*node, unlimited bool) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if chance(r, 10) {
		n.Style = yaml.FlowStyle
	}
	for _, one := range list {
		n.Content = append(n.Content, one.node(r, unlimited))
	}
	return n
}

func (one *node) node(r *rand.Rand, unlimited bool) *yaml.Node {
	n := newMap("key", text(one.key))
	if one.value != "" || chance(r, 10) {
		add(n, "value", value(r, one.value))
	}
	if one.limit != nil {
		add(n, "rate_limit", one.limit.node(r, unlimited))
	}
	truth(r, n, "shadow_mode", one.shadow)
	truth(r, n, "detailed_metric", one.detailed)
	truth(r, n, "share_threshold", one.share)
	truth(r, n, "quota_mode", one.quota)
	truth(r, n, "value_to_metric", one.metric)
	if len(one.below) > 0 || chance(r, 5) {
		add(n, "descriptors", descriptors(r, one.below, unlimited))
	}
	return n
}

func (l *limit) node(r *rand.Rand, unlimited bool) *yaml.Node {
	n := newMap()
	extra := chance(r, 20) // drawn for both texts, which must be alike
	switch {
	case !l.unlimited:
		truth(r, n, "unlimited", false)
		add(n, "requests_per_unit", number(l.requests))
		add(n, "unit", text(l.unit))
	case unlimited:
		add(n, "unlimited", boolean(true))
		if extra {
			add(n, "requests_per_unit", number(l.requests))
		}
	default:
		add(n, "requests_per_unit", number(marked))
		add(n, "unit", text(l.unit))
	}
	if l.name != "" {
		add(n, "name", text(l.name))
	}
	if len(l.replaces) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, name := range l.replaces {
			list.Content = append(list.Content, newMap("name", text(name)))
		}
		add(n, "replaces", list)
	}
	return n
}

// truth adds a field with true, and sometimes one with false.
func truth(r *rand.Rand, n *yaml.Node, field string, is bool) {
	if said := chance(r, 10); is || said {
		add(n, field, boolean(is))
	}
}

func newMap(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i < len(pairs); i += 2 {
		add(n, pairs[i].(string), pairs[i+1].(*yaml.Node))
	}
	return n
}

func add(n *yaml.Node, field string, value *yaml.Node) {
	n.Content = append(n.Content, text(field), value)
}

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// value returns a value as a string, or as a number if it is one.
func value(r *rand.Rand, s string) *yaml.Node {
	n := text(s)
	if _, err := strconv.Atoi(s); err == nil && chance(r, 50) {
		n.Tag = "!!int"
	}
	return n
}

func number(i int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(i)}
}

func boolean(is bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(is)}
}
