package replay

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/proxyweir/weir/match"
	"github.com/proxyweir/weir/ruleset"
)

// field is something of a request that a rule asks for, and that a log may not have.
type field struct {
	text   string // as a key's source is written: header:X-Api-Key
	kind   string
	name   string
	header string // the field it is in, canonical; "" where it is in none
	any    bool   // it is enough to know whether it is there
}

// newField reads a source. ok is false for one that every line has.
func newField(source string) (f field, ok bool) {
	f.text = strings.TrimSpace(source)
	f.kind, f.name, _ = strings.Cut(f.text, ":")
	switch f.kind {
	case "client_ip", "remote_ip", "host", "query":
	case "header":
		f.header = http.CanonicalHeaderKey(f.name)
		if f.header == "Host" {
			f = field{text: f.text, kind: "host"}
		}
	case "cookie":
		f.header = "Cookie"
	default: // method, path, static
		return f, false
	}
	return f, true
}

// lack says why a log does not say what a field of a request is.
type lack int

const (
	known     lack = iota
	doubtful       // nothing was sent, or the log leaves the field out of all lines
	unlogged       // the line has no such thing
	redactedL      // something stands in its place
)

// lackIn says whether a line has the field.
func (f *field) lackIn(e *entry) lack {
	switch f.kind {
	case "client_ip":
		if e.client == "" {
			return unlogged
		}
		return known
	case "remote_ip":
		if e.remote == "" {
			return unlogged
		}
		return known
	case "host":
		if !e.hasHost {
			return unlogged
		}
		return known
	case "query":
		if f.isRedacted(e.uri) {
			return redactedL
		}
		return known
	}
	values, there := e.find(f.header)
	if there {
		for _, v := range values {
			if v == redacted && !f.any {
				return redactedL
			}
		}
		return known
	}
	switch e.fields {
	case allFields:
		return known
	case keptFields:
		return doubtful
	}
	return unlogged
}

// isRedacted reports whether the parameter's value, the first where it has several, is not in the log. What other parameters have says
// nothing: a client can write there what it likes.
func (f *field) isRedacted(uri string) bool {
	if !strings.Contains(uri, redacted) {
		return false
	}
	_, query, _ := strings.Cut(uri, "?")
	query, _, _ = strings.Cut(query, "#")
	values, _ := url.ParseQuery(query)
	return values.Get(f.name) == redacted
}

// asking is what one rule asks of requests: places in a side's fields.
type asking struct {
	match   []int          // to say whether it covers the request
	rest    []int          // key, tier and cost
	relaxed *match.Matcher // its matcher without what a line may lack, where it asks for that
}

// fieldTable has each field once.
type fieldTable struct {
	list  []field
	known map[string]int
}

// add returns the place of a field.
func (t *fieldTable) add(f field) int {
	id := f.text
	if f.any {
		id += " *"
	}
	if place, ok := t.known[id]; ok {
		return place
	}
	if t.known == nil {
		t.known = make(map[string]int)
	}
	t.list = append(t.list, f)
	t.known[id] = len(t.list) - 1
	return len(t.list) - 1
}

// asks finds out what a rule asks for.
func (t *fieldTable) asks(r *ruleset.RuleText) (asking, error) {
	var a asking
	rest := func(source string) {
		if f, ok := newField(source); ok {
			a.rest = append(a.rest, t.add(f))
		}
	}
	for _, source := range r.Lists["key"] {
		rest(source)
	}
	if len(r.Lists["key"]) == 0 {
		rest("client_ip")
	}
	if tiers := ruleset.One(r, "tiers"); tiers != nil {
		rest(tiers.Texts["source"])
	}
	rest(r.Texts["cost"]) // a number is no field
	match := ruleset.One(r, "match")
	if match == nil {
		return a, nil
	}
	m := ruleset.MatchOf(match)
	if len(m.Hosts) > 0 {
		f, _ := newField("host")
		a.match = append(a.match, t.add(f))
	}
	for name, value := range m.Headers {
		f, _ := newField("header:" + name)
		f.any = value == "*"
		a.match = append(a.match, t.add(f))
	}
	if len(m.ExceptIPs) > 0 {
		f, _ := newField("client_ip")
		a.match = append(a.match, t.add(f))
	}
	m.Hosts, m.Headers = nil, nil
	matcher, err := m.Compile()
	a.relaxed = matcher
	return a, err
}

// headers returns the names of the header fields that are asked for.
func (t *fieldTable) headers() []string {
	var names []string
	seen := make(map[string]bool)
	for _, f := range t.list {
		if f.header != "" && !seen[f.header] {
			seen[f.header] = true
			names = append(names, f.header)
		}
	}
	return names
}
