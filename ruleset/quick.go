package ruleset

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/proxyweir/weir/match"
)

// QuickSet is Parse and NewSet for files in JSON, for interpreters: what is compiled there does most of the work, and a rule is made
// ready once. It returns nil where anything is wrong, or not plain: Parse, which knows the lines and columns, says what, or takes it.
// The lines and columns in the set's files say nothing. in is what the rules are made ready for, as NewSet has it.
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

// plainJSON returns what a file has that is a map in JSON, in which no key is there twice; nil where that is not sure.
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
	// All values are written as they were, now that none is escaped. So it is as long as it was, unless something was there twice: then
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

// nodeOf makes a node of a value; nil where it is nested too deep. All are in line 1: 0 would be nowhere.
func nodeOf(value interface{}, nesting int) *Node {
	n := &Node{Line: 1, Column: 1}
	if nesting > MaxNesting {
		return nil
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
		return n
	}
	if text, ok := value.(string); ok {
		n.Kind = String
		n.Value = text
	} else if number, ok := value.(json.Number); ok {
		n.Kind = Number
		n.Value = number.String()
	} else if truth, ok := value.(bool); ok {
		n.Kind = Boolean
		n.Value = "false"
		if truth {
			n.Value = "true"
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
	for key, value := range m {
		var into *string
		switch key {
		case "name":
			into = &t.Name
		case "limit":
			into = &t.Limit
		case "key":
			if !quickTexts(value, &t.Key) {
				return false
			}
			continue
		case "match":
			t.Match = &match.Match{}
			if !quickMatch(value, t.Match) {
				return false
			}
			continue
		case "tiers":
			t.Tiers = &Tiers{}
			if !quickTiers(value, t.Tiers) {
				return false
			}
			continue
		case "overrides":
			if !quickOverrides(value, t) {
				return false
			}
			continue
		case "time_zone":
			into = &t.TimeZone
		case "algorithm":
			into = &t.Algorithm
		case "burst":
			into = &t.Burst
		case "refill":
			into = &t.Refill
		case "cost":
			into = &t.Cost
		case "ipv4_prefix":
			into = &t.IPv4Prefix
		case "ipv6_prefix":
			into = &t.IPv6Prefix
		case "enforcement":
			into = &t.Enforcement
		case "on_limit":
			into = &t.OnLimit
		case "max_delay":
			into = &t.MaxDelay
		case "max_waiting":
			into = &t.MaxWaiting
		case "max_waiting_per_key":
			into = &t.MaxWaitingPerKey
		case "concurrency":
			into = &t.Concurrency
		case "count":
			if !quickTexts(value, &t.Count) {
				return false
			}
			continue
		case "penalty":
			if !quickTexts(value, &t.Penalty) {
				return false
			}
			continue
		case "candidate":
			t.Candidate = &Candidate{}
			if !quickCandidate(value, t.Candidate) {
				return false
			}
			continue
		case "on_error":
			into = &t.OnError
		case "on_missing_key":
			into = &t.OnMissingKey
		case "count_rejected":
			into = &t.CountRejected
		default:
			return false
		}
		if !quickText(value, into) {
			return false
		}
	}
	return true
}

// quickText reads a single value.
func quickText(value interface{}, into *string) bool {
	if text, ok := value.(string); ok {
		*into = text
		return text != ""
	}
	if number, ok := value.(json.Number); ok {
		*into = number.String()
		return true
	}
	truth, ok := value.(bool)
	*into = "false"
	if truth {
		*into = "true"
	}
	return ok
}

// quickTexts reads a list of single values, of which one may be written without the list.
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

// quickMatch reads which requests a rule covers.
func quickMatch(value interface{}, match *match.Match) bool {
	m, ok := value.(map[string]interface{})
	if !ok || len(m) == 0 {
		return false
	}
	for key, v := range m {
		var into *[]string
		switch key {
		case "hosts":
			into = &match.Hosts
		case "paths":
			into = &match.Paths
		case "path_prefixes":
			into = &match.PathPrefixes
		case "methods":
			into = &match.Methods
		case "except_ips":
			into = &match.ExceptIPs
		case "headers":
			headers, ok := v.(map[string]interface{})
			if !ok {
				return false
			}
			match.Headers = make(map[string]string, len(headers))
			for name, want := range headers {
				text := ""
				if !quickText(want, &text) {
					return false
				}
				match.Headers[name] = text
			}
			continue
		default:
			return false
		}
		if !quickTexts(v, into) {
			return false
		}
	}
	return true
}

// quickTiers reads the limits by a value.
func quickTiers(value interface{}, t *Tiers) bool {
	m, ok := value.(map[string]interface{})
	if !ok {
		return false
	}
	for key, v := range m {
		if key == "source" {
			if !quickText(v, &t.Source) {
				return false
			}
			continue
		}
		limits, ok := v.(map[string]interface{})
		if !ok || key != "limits" {
			return false
		}
		for name, limit := range limits {
			tier := Tier{Value: name}
			if !quickText(limit, &tier.Limit) {
				return false
			}
			t.Limits = append(t.Limits, tier)
		}
	}
	return true
}

// quickCandidate reads the limit that is compared with a rule's.
func quickCandidate(value interface{}, t *Candidate) bool {
	m, ok := value.(map[string]interface{})
	if !ok {
		return false
	}
	for key, v := range m {
		var into *string
		switch key {
		case "limit":
			into = &t.Limit
		case "algorithm":
			into = &t.Algorithm
		case "burst":
			into = &t.Burst
		case "refill":
			into = &t.Refill
		case "time_zone":
			into = &t.TimeZone
		default:
			return false
		}
		if !quickText(v, into) {
			return false
		}
	}
	return true
}

// quickOverrides reads the limits of single keys.
func quickOverrides(value interface{}, t *RuleText) bool {
	list, ok := value.([]interface{})
	if !ok {
		return false
	}
	t.Overrides = make([]Override, len(list))
	for i := range list {
		m, ok := list[i].(map[string]interface{})
		if !ok || len(m) != 2 {
			return false
		}
		if !quickTexts(m["key"], &t.Overrides[i].Key) || !quickText(m["limit"], &t.Overrides[i].Limit) {
			return false
		}
	}
	return true
}
