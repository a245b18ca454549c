package replay

import (
	"net/http"
	"net/url"
	"slices"
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
	there, hidden := true, false
	switch f.kind {
	case "client_ip":
		there = e.client != ""
	case "remote_ip":
		there = e.remote != ""
	case "host":
		there = e.hasHost
	case "query":
		hidden = f.isRedacted(e.uri)
	default:
		values, found := e.find(f.header)
		if !found {
			return e.absent
		}
		hidden = !f.any && slices.Contains(values, redacted)
	}
	switch {
	case hidden:
		return redactedL
	case there:
		return known
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
	list []field
}

// add appends the place of what a source says to places. any is as in field.
func (t *fieldTable) add(places []int, source string, any bool) []int {
	f, ok := newField(source)
	if !ok {
		return places
	}
	f.any = any
	place := slices.Index(t.list, f)
	if place < 0 {
		place = len(t.list)
		t.list = append(t.list, f)
	}
	return append(places, place)
}

// asks finds out what a rule asks for.
func (t *fieldTable) asks(r *ruleset.RuleText) (a asking, err error) {
	for _, source := range r.Lists["key"] {
		a.rest = t.add(a.rest, source, false)
	}
	if len(r.Lists["key"]) == 0 {
		a.rest = t.add(a.rest, "client_ip", false)
	}
	if tiers := ruleset.One(r, "tiers"); tiers != nil {
		a.rest = t.add(a.rest, tiers.Texts["source"], false)
	}
	a.rest = t.add(a.rest, r.Texts["cost"], false) // a number is no field
	match := ruleset.One(r, "match")
	if match == nil {
		return a, nil
	}
	m := ruleset.MatchOf(match)
	if len(m.Hosts) > 0 {
		a.match = t.add(a.match, "host", false)
	}
	for name, value := range m.Headers {
		a.match = t.add(a.match, "header:"+name, value == "*")
	}
	if len(m.ExceptIPs) > 0 {
		a.match = t.add(a.match, "client_ip", false)
	}
	m.Hosts, m.Headers = nil, nil
	a.relaxed, err = m.Compile()
	return a, err
}

// headers returns the names of the header fields that are asked for.
func (t *fieldTable) headers() []string {
	var names []string
	for _, f := range t.list {
		if f.header != "" && !slices.Contains(names, f.header) {
			names = append(names, f.header)
		}
	}
	return names
}
