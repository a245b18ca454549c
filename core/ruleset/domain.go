package ruleset

import (
	"crypto/sha256"
	"encoding/hex"
	"sort"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/transition"
	"github.com/proxyweir/weir/core/words"
)

// Domain is a compiled tree of descriptors. It is immutable, except for the data that stores keep in its core.Rules, so it belongs to one
// store. It is safe for concurrent use.
type Domain struct {
	name  string
	root  level
	rules []*core.Rule

	active []*transition.Active // of each of rules
}

// level has the descriptors of one depth by their keys.
type level map[string]*values

// values has the descriptors of one key by their values.
type values struct {
	exact     map[string]*descriptor
	wildcards []*descriptor // in the order in which they are written; the first that fits counts
	any       *descriptor
}

// descriptor is a compiled Descriptor.
type descriptor struct {
	rule     *core.Rule // nil: it has no limit
	place    int        // of the rule, in Domain.Rules
	name     string
	replaces []string
	wild     bool   // its value is a wildcard
	prefix   string // what the values of a wildcard begin with
	more     *tail  // what else they have; nil: anything
	shared   bool   // all values of a wildcard count together
	below    level
}

// tail says what a value must have after the text in front of the wildcard's first *. (It is in this file, since the
// interpreter takes types that refer to each other only with those of their own file and of earlier ones.)
type tail struct {
	inner  []string // the texts between two *, in their order; none is empty
	suffix string   // the text behind the last *
}

// Entry is a key and its value in a request's descriptor.
type Entry struct {
	Key, Value string
}

// Found is a limit that covers a request, and the key that it counts the request by.
type Found struct {
	Rule  *core.Rule
	Place int // of the rule, in Domain.Rules
	Key   string
	Cost  int64 // how many of the request's descriptors have found it
}

// newDomain compiles a domain. names says how many rules and descriptors of the set have each name.
func newDomain(f *FileDomain, namespace string, names map[string]int) (*Domain, error) {
	d := &Domain{name: f.Name}
	b := &domainBuilder{domain: d, namespace: namespace, names: names}
	root, err := b.level(begin(f.Name), match.AppendKeyPart(nil, f.Name), f.Descriptors)
	d.root = root
	return d, err
}

// domainBuilder makes the rules of descriptors.
type domainBuilder struct {
	domain    *Domain
	namespace string
	names     map[string]int
}

// countNames counts the rules of each name, and the descriptors of each path as Envoy's service writes it: "a_b" is the key a_b,
// or the key a with the value b.
func countNames(files []*File) map[string]int {
	names := make(map[string]int)
	for _, f := range files {
		for i := range f.Rules {
			names[f.Rules[i].Name]++
		}
		if f.Domain != nil {
			countPaths(names, begin(f.Domain.Name), f.Domain.Descriptors)
		}
	}
	return names
}

func countPaths(names map[string]int, path string, list []*Descriptor) {
	for _, one := range list {
		name := pathTo(path, one)
		names[name]++
		countPaths(names, name, one.Descriptors)
	}
}

// longestSpec is the longest path that is kept; a hash replaces longer ones.
const longestSpec = 500

// level compiles the descriptors of a list. spec is the path in an unambiguous form.
func (b *domainBuilder) level(path string, spec []byte, list []*Descriptor) (level, error) {
	at := make(level)
	for _, one := range list {
		name := pathTo(path, one)
		own := match.AppendKeyPart(match.AppendKeyPart(append([]byte(nil), spec...), one.Key), one.Value)
		if len(own) > longestSpec { // thousands may be below it, and each has it in its own; others begin with a digit
			sum := sha256.Sum256(own)
			own = append([]byte("#"), hex.EncodeToString(sum[:])...)
		}
		made := &descriptor{name: one.Name, replaces: one.Replaces, shared: one.ShareThreshold}
		if one.Limit != nil {
			limits, err := b.limits(name, string(own), one)
			if err != nil {
				return nil, err
			}
			rule := limits.Own()
			made.rule = rule
			b.domain.active = append(b.domain.active, transition.NewActive(limits))
			made.place = len(b.domain.rules)
			b.domain.rules = append(b.domain.rules, rule)
		}
		below, err := b.level(name, own, one.Descriptors)
		if err != nil {
			return nil, err
		}
		made.below = below
		at.add(one, made)
	}
	return at, nil
}

// add enters a descriptor.
func (at level) add(one *Descriptor, made *descriptor) {
	v := at[one.Key]
	if v == nil {
		v = &values{exact: make(map[string]*descriptor)}
		at[one.Key] = v
	}
	if one.Value == "" {
		v.any = made
		return
	}
	v.exact[one.Value] = made // a wildcard is its own value, too
	if isWildcard(one.Value) {
		made.wild = true
		made.prefix, made.more = splitWildcard(one.Value)
		v.wildcards = append(v.wildcards, made)
	}
}

// limits makes the rule of a descriptor's limit.
func (b *domainBuilder) limits(path, spec string, one *Descriptor) (*core.Limits, error) {
	return core.NewLimits(core.RuleConfig{
		Namespace: b.namespace,
		Name:      nameOf(path, spec, b.names[path] > 1),
		KeySpec:   "descriptor " + spec,
		Limit:     one.Limit,
		Shadow:    one.Shadow,
		Blocks:    one.Blocks,
	}, core.MoreLimits{})
}

// nameOf returns the name of a descriptor's rule: its path, as Envoy's service has it in its metrics, if that is a valid name and
// unique. Otherwise the name has what is valid of the path, and eight characters of its hash.
func nameOf(path, spec string, ambiguous bool) string {
	if !ambiguous && words.CheckName(path) == nil {
		return path
	}
	return words.NameFor(path, spec)
}

// Name returns the domain's name.
func (d *Domain) Name() string { return d.name }

// Rules returns all rules of the domain, for a store to open.
func (d *Domain) Rules() []*core.Rule { return d.rules }

// Active returns which limits of each of Rules are active, in the same order.
func (d *Domain) Active() []*transition.Active { return d.active }

// Knows reports whether descriptors with these keys can find a limit, whatever their values are. A descriptor that cannot has no effect,
// which is most likely a mistake.
func (d *Domain) Knows(keys []string) bool {
	found := false
	d.root.reach(keys, func(v *values) { found = true })
	return found
}

// Values returns the values, including wildcards, that descriptors with these keys have for the i-th: each once, in the order of their
// bytes.
func (d *Domain) Values(keys []string, i int) []string {
	seen := make(map[string]bool)
	d.root.reach(keys[:i+1], func(v *values) {
		for value := range v.exact {
			seen[value] = true
		}
	})
	list := make([]string, 0, len(seen))
	for value := range seen {
		list = append(list, value)
	}
	sort.Strings(list)
	return list
}

// reach calls visit with all values that descriptors with these keys have for the last key.
func (at level) reach(keys []string, visit func(v *values)) {
	v := at[keys[0]]
	if v == nil {
		return
	}
	if len(keys) == 1 {
		visit(v)
		return
	}
	if v.any != nil {
		v.any.below.reach(keys[1:], visit)
	}
	for _, one := range v.exact {
		one.below.reach(keys[1:], visit)
	}
}

// Lookup finds the limits of requests, one after the other. It is reused from one to the next, and not safe for concurrent use.
type Lookup struct {
	Found []Found // the result of Finish

	found    []*descriptor
	keys     []string
	key      []byte
	replaces bool
}

// find returns the descriptor of a value; nil: none.
func (v *values) find(value string) *descriptor {
	node := v.exact[value]
	if node != nil {
		return node
	}
	for _, w := range v.wildcards {
		if strings.HasPrefix(value, w.prefix) && (w.more == nil || fits(w.more, value[len(w.prefix):])) {
			return w
		}
	}
	return v.any
}

// Begin begins a request, and clears the results of the one before.
func (l *Lookup) Begin() {
	for i := range l.Found {
		l.Found[i] = Found{}
	}
	for i := range l.keys {
		l.keys[i] = ""
		l.found[i] = nil
	}
	l.Found = l.Found[:0]
	l.found = l.found[:0]
	l.keys = l.keys[:0]
	l.replaces = false
}

// Add looks up a descriptor of the request. At each depth it takes the most specific entry, and does not backtrack: the value itself, then
// the first wildcard that fits, then the key alone. There must be as many depths as entries.
func (l *Lookup) Add(d *Domain, entries []Entry) {
	at := d.root
	var node *descriptor
	varying := 0
	single := ""
	l.key = l.key[:0]
	for i := range entries {
		e := &entries[i]
		v := at[e.Key]
		if v == nil {
			return
		}
		node = v.find(e.Value)
		if node == nil {
			return
		}
		if !node.shared && (node.wild || node == v.any) {
			varying++
			single = e.Value
			l.key = match.AppendKeyPart(l.key, e.Value)
		}
		at = node.below
	}
	if node == nil {
		return
	}
	if len(node.replaces) > 0 {
		l.replaces = true
	}
	if node.rule == nil && len(node.replaces) == 0 {
		return
	}
	key := single
	if varying > 1 {
		key = string(l.key)
	}
	l.found = append(l.found, node)
	l.keys = append(l.keys, key)
}

// Finish sets Found: the limits that no other replaces, each once per key.
func (l *Lookup) Finish() {
	for i, node := range l.found {
		if node.rule == nil || l.replaces && node.name != "" && l.replaced(node.name) {
			continue
		}
		l.add(node, l.keys[i])
	}
}

func (l *Lookup) add(node *descriptor, key string) {
	for i := range l.Found {
		if l.Found[i].Rule == node.rule && l.Found[i].Key == key {
			l.Found[i].Cost++
			return
		}
	}
	l.Found = append(l.Found, Found{Rule: node.rule, Place: node.place, Key: key, Cost: 1})
}

// replaced reports whether another limit replaces the limits of that name.
func (l *Lookup) replaced(name string) bool {
	for _, node := range l.found {
		for _, other := range node.replaces {
			if other == name {
				return true
			}
		}
	}
	return false
}
