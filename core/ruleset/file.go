package ruleset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// File has the rules and descriptors of a file.
type File struct {
	Name   string
	Rules  []FileRule
	Domain *FileDomain // nil: no descriptors
}

// FileRule is a rule in a file.
type FileRule struct {
	RuleText
	Line, Column int
}

// Decode reads a file's rules and descriptors, and returns all problems in them. root is the parsed file.
func Decode(file string, root *Node) (*File, Problems) {
	d := &decoder{file: file, limits: make(map[string]*rate.Limit)}
	f := &File{Name: file}
	if root.Kind == Null {
		d.fail(root, "is empty; write rules, or a domain with descriptors")
		return f, d.problems
	}
	fields := d.fields(root, "the file", fileFields)
	rules, domain, descriptors := fields["rules"], fields["domain"], fields["descriptors"]
	if rules != nil {
		f.Rules = d.rules(rules)
	}
	if domain != nil || descriptors != nil {
		f.Domain = d.domain(root, domain, descriptors)
	}
	if len(d.problems) == 0 && rules == nil && domain == nil {
		d.fail(root, "has neither rules nor a domain; write rules: and a list of them")
	}
	return f, d.problems.inOrder()
}

var fileFields = []string{"rules", "domain", "descriptors"}

// decoder gathers the problems in a file.
type decoder struct {
	file     string
	problems Problems
	misspelt int // how many of them are about names of fields

	limits map[string]*rate.Limit // of descriptors, of which thousands have the same
}

// longestText is the longest message, in bytes.
const longestText = 500

// mostKept is the most problems that are gathered. Nobody reads more.
const mostKept = 1000

func (d *decoder) fail(n *Node, text string) {
	if len(d.problems) < mostKept {
		if len(text) > longestText { // it has a value of the file, then
			text = strings.ToValidUTF8(text[:longestText/2], "") + "…" + strings.ToValidUTF8(text[len(text)-longestText/2:], "")
		}
		d.problems = append(d.problems, Problem{File: d.file, Line: n.Line, Column: n.Column, Text: text})
	}
}

// fields returns the members of a map by their keys, and refuses unknown keys. It leaves out members without a value. what names the map in
// messages.
func (d *decoder) fields(n *Node, what string, known []string) map[string]*Node {
	fields := make(map[string]*Node)
	if n.Kind != Map {
		d.fail(n, fmt.Sprintf("%s must be a map with some of %s, not %s", what, strings.Join(known, ", "), n.Kind.String()))
		return fields
	}
	for i := range n.Members {
		key := n.Members[i].Key
		value := n.Members[i].Value
		field := key.Value
		if !slices.Contains(known, field) {
			field = d.unknown(key, what, known)
			if fields[field] != nil {
				continue
			}
			if field != "" {
				key.Value = field // so that what else is wrong is found there
			}
		}
		if field != "" && value.Kind != Null {
			fields[field] = value
		}
	}
	return fields
}

// filled is fields for maps in which a member without a value is a mistake: it would be taken for a missing one, and so a rule without match
// for one that covers all.
func (d *decoder) filled(n *Node, what string, known []string) map[string]*Node {
	fields := d.fields(n, what, known)
	for i := range n.Members {
		key := n.Members[i].Key
		if n.Members[i].Value.Kind == Null && slices.Contains(known, key.Value) {
			d.fail(key, fmt.Sprintf("%s: has no value; write one, or take the line out", key.Value))
		}
	}
	return fields
}

// unknown refuses an unknown key. It returns the field that was most likely meant, and the value is read as that field, so that it is not
// reported as missing.
func (d *decoder) unknown(key *Node, what string, known []string) string {
	word := shorten(key.Value)
	d.misspelt++
	if why := refusals[key.Value]; why != "" {
		d.fail(key, word+": "+why)
		return ""
	}
	near := words.Nearest(key.Value, known)
	if near == "" {
		near = words.Nearest(strings.Replace(key.Value, "-", "_", -1), known)
	}
	if near != "" {
		d.fail(key, fmt.Sprintf("%q is not a field of %s (did you mean %s?)", word, what, near))
		return near
	}
	d.fail(key, fmt.Sprintf("%q is not a field of %s; there are %s", word, what, strings.Join(known, ", ")))
	return ""
}

// refusals say what to do about fields that belong to other programs, or to handlers.
var refusals = map[string]string{
	"store":         "belongs in the handler, not in a rule file",
	"namespace":     "belongs in the handler, not in a rule file",
	"headers":       "belongs in the handler, not in a rule file",
	"header_prefix": "belongs in the handler, not in a rule file",
	"header_reset":  "belongs in the handler, not in a rule file",
	"cors":          "belongs in the handler, not in a rule file",
	"on_rejected":   "there is no such field; on_limit says what happens past the limit",
}

// text returns a single value.
func (d *decoder) text(n *Node, field string) string {
	if n == nil {
		return ""
	}
	if n.Kind != String && n.Kind != Number && n.Kind != Boolean {
		d.fail(n, fmt.Sprintf("%s: must be a single value, not %s", field, n.Kind.String()))
		return ""
	}
	if n.Value == "" {
		d.fail(n, field+": is empty; write a value, or leave it out")
	}
	return n.Value
}

// needed returns a single value that is required.
func (d *decoder) needed(n *Node, field string) string {
	if n != nil && n.Kind == String && n.Value == "" {
		d.fail(n, field+": is empty; write a value")
		return ""
	}
	return d.text(n, field)
}

// texts returns a list of single values. One value may be written without the list.
func (d *decoder) texts(n *Node, field string) []string {
	if n == nil {
		return nil
	}
	if n.Kind != List {
		text := d.text(n, field)
		return []string{text}
	}
	if len(n.Items) == 0 {
		d.fail(n, field+": is empty; write a value, or leave it out")
	}
	list := make([]string, 0, len(n.Items))
	for _, item := range n.Items {
		list = append(list, d.text(item, field))
	}
	return list
}

// rules reads and checks the list of rules.
func (d *decoder) rules(n *Node) []FileRule {
	if n.Kind != List {
		d.fail(n, "rules: must be a list, each item with a dash in front: - name: …")
		return nil
	}
	if len(n.Items) == 0 {
		d.fail(n, "rules: is empty; write a rule, such as - {name: per-client, limit: 100/1m}, or leave rules out")
	}
	rules := make([]FileRule, 0, len(n.Items))
	lines := make(map[string]int)
	for _, item := range n.Items {
		wrong := len(d.problems) - d.misspelt
		text := d.rule(item)
		if wrong == len(d.problems)-d.misspelt { // else what could not be read would be said to be missing
			d.compile(item, text)
		}
		if first := lines[text.Name]; first > 0 && text.Name != "" {
			d.fail(item, fmt.Sprintf("rule %q: duplicate name, first in line %d; rename one", shorten(text.Name), first))
		}
		lines[text.Name] = item.Line
		rules = append(rules, FileRule{RuleText: *text, Line: item.Line, Column: item.Column})
	}
	return rules
}

// compile checks a rule independently of the proxy that it will be compiled for.
func (d *decoder) compile(item *Node, text *RuleText) {
	_, errors := Compile(text, Context{Prefixes: Standard})
	for _, e := range errors {
		if len(d.problems) >= mostKept { // finding the place takes its time
			break
		}
		if e.Path[0] != "name" || text.Name != "" {
			e = e.Within("rule", strconv.Quote(shorten(text.Name)))
		}
		d.fail(item.find(e.Path), e.Error())
	}
}

// find returns the node at a path of members and items, or the last node that exists on the way.
func (n *Node) find(path []string) *Node {
	at := n
	for _, step := range path {
		next := at.step(step)
		if next == nil {
			break
		}
		at = next
	}
	return at
}

// step returns the member with that name, or the item at that place; nil if there is none.
func (n *Node) step(name string) *Node {
	for i := range n.Members {
		if n.Members[i].Key.Value == name {
			return n.Members[i].Value
		}
	}
	place := 0
	for i := range name {
		if name[i] < '0' || name[i] > '9' || i > 8 {
			return nil
		}
		place = 10*place + int(name[i]-'0')
	}
	if name == "" || place >= len(n.Items) {
		return nil
	}
	return n.Items[place]
}

// rule reads one rule.
func (d *decoder) rule(n *Node) *RuleText {
	f := d.filled(n, "a rule", fieldNames["rule"])
	t := &RuleText{Name: d.needed(f["name"], "name")}
	if f["name"] == nil && n.Kind == Map {
		d.fail(n, "the rule has no name; write one of 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	delete(f, "name")
	in := fmt.Sprintf("rule %q: ", shorten(t.Name))
	d.fill(f, "rule", in, &t.Object)
	fields := Schema["rule"]
	for i := range fields {
		value := f[fields[i].Name]
		if value != nil && fields[i].Of != "" {
			d.objects(t, value, &fields[i], in+fields[i].Name)
		}
	}
	return t
}

// fill reads those fields of an object that are not objects. in is their path in messages.
func (d *decoder) fill(values map[string]*Node, object, in string, into *Object) {
	fields := Schema[object]
	for i := range fields {
		f := &fields[i]
		value := values[f.Name]
		if value == nil || f.Of != "" {
			continue
		}
		if f.Kind == ManyTexts {
			SetList(into, f.Name, d.texts(value, in+f.Name))
		} else if f.Kind == NamedTexts {
			SetPairs(into, f.Name, d.pairs(value, in+f.Name, f))
		} else if f.Needed {
			SetText(into, f.Name, d.needed(value, in+f.Name))
		} else {
			SetText(into, f.Name, d.text(value, in+f.Name))
		}
	}
}

// objects reads the object of a rule's field, or a list of them.
func (d *decoder) objects(t *RuleText, n *Node, f *Field, in string) {
	if f.Kind == OneObject {
		d.object(t, n, f, f.Of, in)
		return
	}
	if n.Kind != List {
		d.fail(n, in+": must be a list, such as "+f.Example)
		return
	}
	for _, item := range n.Items {
		d.object(t, item, f, "an "+f.Of, in)
	}
}

// object reads one object. what names the map in messages.
func (d *decoder) object(t *RuleText, n *Node, f *Field, what, in string) {
	values := d.filled(n, what, fieldNames[f.Of])
	if n.Kind == Map && len(n.Members) == 0 && !Schema[f.Of][0].Needed { // else Compile says what is missing
		d.fail(n, fmt.Sprintf("%s: is empty; write some of %s, or leave it out", in, strings.Join(fieldNames[f.Of], ", ")))
	}
	o := &Object{}
	d.fill(values, f.Of, in+": ", o)
	AddObject(t, f.Name, o)
}

// pairs reads named values.
func (d *decoder) pairs(n *Node, in string, f *Field) []Pair {
	if n.Kind != Map {
		d.fail(n, in+": must be a map, such as "+f.Example)
		return nil
	}
	list := make([]Pair, 0, len(n.Members))
	for i := range n.Members {
		name := n.Members[i].Key.Value
		value := n.Members[i].Value
		if value.Kind == Null {
			d.fail(n.Members[i].Key, fmt.Sprintf("%s: %q: has no value; write one, such as %s", in, shorten(name), f.Example))
			continue
		}
		if f.Empty && value.Kind == String && value.Value == "" {
			list = append(list, Pair{Name: name})
			continue
		}
		list = append(list, Pair{Name: name, Value: d.needed(value, fmt.Sprintf("%s: %q", in, shorten(name)))})
	}
	return list
}
