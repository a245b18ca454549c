package ruleset

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// QuickSet is Parse and NewSet for files in JSON, for interpreters: compiled code does most of the work, and each rule is compiled
// once. It returns nil if anything is wrong or unusual: Parse, which knows lines and columns, then reports it, or accepts it.
// The lines and columns in the set's files have no meaning. in is as in NewSet.
func QuickSet(c *Contents, in Context) *Set {
	files := make([]*File, 0, len(c.Names))
	for i, name := range c.Names {
		f := quickFile(name, c.data[i])
		if f == nil {
			return nil
		}
		files = append(files, f)
	}
	if len(Conflicts(files)) > 0 {
		return nil
	}
	s, err := newSet(files, in)
	if err != nil {
		return nil
	}
	return s
}

// quickFile reads a file.
func quickFile(name string, data []byte) *File {
	top := plainJSON(data)
	if top == nil {
		return nil
	}
	f := &File{Name: name}
	envoy := &Node{Kind: Map, Line: 1, Column: 1} // what has no short cut here
	for key, value := range top {
		switch key {
		case "rules":
			list, ok := value.([]interface{})
			if !ok || len(list) == 0 {
				return nil
			}
			f.Rules = quickRules(list)
			if f.Rules == nil {
				return nil
			}
		case "domain", "descriptors":
			n := nodeOf(value, 0)
			if n == nil {
				return nil
			}
			envoy.Members = append(envoy.Members, Member{Key: &Node{Kind: String, Line: 1, Column: 1, Value: key}, Value: n})
		default:
			return nil
		}
	}
	if len(envoy.Members) > 0 {
		decoded, wrong := Decode(name, envoy)
		if len(wrong) > 0 {
			return nil
		}
		f.Domain = decoded.Domain
		for i := range f.Domain.unheeded {
			f.Domain.unheeded[i].line = 0 // which is not known
		}
	}
	if f.Rules == nil && f.Domain == nil {
		return nil
	}
	return f
}

// plainJSON returns the contents of a file that is a map in JSON without duplicate keys; nil if that is not certain.
func plainJSON(data []byte) map[string]interface{} {
	if bytes.IndexByte(data, '\\') >= 0 || bytes.Contains(data, []byte("\u2028")) || bytes.Contains(data, []byte("\u2029")) || !utf8.Valid(data) || bytes.Count(data, []byte(",")) > MaxValues {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var top map[string]interface{}
	if err := decoder.Decode(&top); err != nil {
		return nil
	}
	// Since no value is escaped, all are written as they were. So the text is as long as it was, unless there was a duplicate key: then
	// encoding/json has kept the last.
	var was, is bytes.Buffer
	if err := json.Compact(&was, data); err != nil { // also where something stands behind the value
		return nil
	}
	encoder := json.NewEncoder(&is)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(top); err != nil || is.Len() != was.Len()+1 { // it ends the line
		return nil
	}
	return top
}

// nodeOf makes a node of a value; nil if it is nested too deep. All nodes are in line 1: 0 means no place.
func nodeOf(value interface{}, nesting int) *Node {
	n := &Node{Line: 1, Column: 1}
	if nesting > MaxNesting {
		return nil
	}
	if setSingle(n, value) {
		return n
	}
	if m, ok := value.(map[string]interface{}); ok {
		n.Kind = Map
		for key, v := range m {
			member := nodeOf(v, nesting+1)
			if member == nil {
				return nil
			}
			n.Members = append(n.Members, Member{Key: &Node{Kind: String, Line: 1, Column: 1, Value: key}, Value: member})
		}
		return n
	}
	if list, ok := value.([]interface{}); ok {
		n.Kind = List
		for i := range list {
			item := nodeOf(list[i], nesting+1)
			if item == nil {
				return nil
			}
			n.Items = append(n.Items, item)
		}
	}
	return n
}

// quickRules reads a list of rules.
func quickRules(list []interface{}) []FileRule {
	rules := make([]FileRule, len(list))
	names := make(map[string]bool, len(list))
	for i := range list {
		m, ok := list[i].(map[string]interface{})
		if !ok || !quickRule(m, &rules[i].RuleText) {
			return nil
		}
		name := rules[i].Name
		if name == "" || names[name] {
			return nil
		}
		names[name] = true
	}
	return rules
}

// quickRule reads a rule.
func quickRule(m map[string]interface{}, t *RuleText) bool {
	texts := make(map[string]string, len(m))
	t.Texts = texts
	known := byName["rule"]
	var f *Field
	var kind FieldKind
	for key, value := range m {
		f = known[key]
		if f == nil {
			return false
		}
		kind = f.Kind
		if text, ok := value.(string); ok && kind < ManyTexts { // as most are
			if text == "" {
				return false
			}
			texts[key] = text
		} else if kind < OneObject {
			if !quickField(kind, key, value, &t.Object) {
				return false
			}
		} else if !quickObjects(f, value, t) {
			return false
		}
	}
	t.Name = texts["name"]
	delete(texts, "name")
	return true
}

// quickField reads a field that is not an object.
func quickField(kind FieldKind, key string, value interface{}, into *Object) bool {
	if kind == ManyTexts {
		var list []string
		if !quickTexts(value, &list) {
			return false
		}
		SetList(into, key, list)
		return true
	}
	if kind != NamedTexts {
		text := ""
		if !quickText(value, &text) {
			return false
		}
		SetText(into, key, text)
		return true
	}
	m, ok := value.(map[string]interface{})
	if !ok {
		return false
	}
	pairs := make([]Pair, 0, len(m))
	for name, one := range m {
		text := ""
		if !quickText(one, &text) {
			return false
		}
		pairs = append(pairs, Pair{Name: name, Value: text})
	}
	SetPairs(into, key, pairs)
	return true
}

// quickObjects reads the object of a field, or a list of them.
func quickObjects(f *Field, value interface{}, t *RuleText) bool {
	list := []interface{}{value}
	if f.Kind == ManyObjects {
		many, ok := value.([]interface{})
		if !ok {
			return false
		}
		list = many
	}
	known := byName[f.Of]
	for i := range list {
		m, ok := list[i].(map[string]interface{})
		if !ok || len(m) == 0 {
			return false
		}
		o := &Object{}
		for key, one := range m {
			if known[key] == nil || !quickField(known[key].Kind, key, one, o) {
				return false
			}
		}
		AddObject(t, f.Name, o)
	}
	return true
}

// quickText reads a single value.
func quickText(value interface{}, into *string) bool {
	if text, ok := value.(string); ok {
		*into = text
		return text != ""
	}
	var n Node
	ok := setSingle(&n, value)
	*into = n.Value
	return ok
}

// quickTexts reads a list of single values. One value may be written without the list.
func quickTexts(value interface{}, into *[]string) bool {
	list, ok := value.([]interface{})
	if !ok {
		texts := make([]string, 1)
		*into = texts
		return quickText(value, &texts[0])
	}
	texts := make([]string, len(list))
	for i := range list {
		if !quickText(list[i], &texts[i]) {
			return false
		}
	}
	*into = texts
	return len(texts) > 0
}
