package replay

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
)

// field is a part of a request that a rule needs, and that a log may not have.
type field struct {
	text   string // written as a key's source: header:X-Api-Key
	kind   string
	name   string
	header string // the canonical name of its header field; "": it is in none
	any    bool   // only its presence matters
}

// newField reads a source. ok is false for a source that every line has. No line has one that is not named here.
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
	case "unverified_jwt_claim":
		f.header = "Authorization"
		if _, place, found := strings.Cut(f.name, "@header:"); found {
			f.header = http.CanonicalHeaderKey(place)
		} else if strings.Contains(f.name, "@cookie:") {
			f.header = "Cookie"
		}
	case "", "method", "path", "path_segment", "path_regexp", "static":
		return f, false
	}
	return f, true
}

// lack says why a log does not have the value of a field.
type lack int

const (
	known     lack = iota
	doubtful       // the request had none, or the log leaves the field out of all lines
	unlogged       // the line has no such thing
	redactedL      // the log has another text in its place
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
	case "client_cert":
		there = false
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

// isRedacted reports whether the parameter's (first) value is not in the log. The values of other parameters say nothing: a client can write
// anything there.
func (f *field) isRedacted(uri string) bool {
	if !strings.Contains(uri, redacted) {
		return false
	}
	_, query, _ := strings.Cut(uri, "?")
	query, _, _ = strings.Cut(query, "#")
	values, _ := url.ParseQuery(query)
	return values.Get(f.name) == redacted
}

// asking has the fields that one rule needs, as places in a side's fields.
type asking struct {
	match   []int          // to say whether it covers the request
	rest    []int          // key, tier, cost and count_match
	relaxed *match.Matcher // its matcher without the fields that a line may lack; only if it has any
}

// fieldTable has each field once.
type fieldTable struct {
	list []field
}

// add appends the place of a source's field to places. any is as in field.
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

// asks finds out which fields a rule needs.
func (t *fieldTable) asks(r *ruleset.RuleText) (a asking, err error) {
	for _, text := range match.Joined(r.Lists["key"]) {
		source, err := match.ParseKey(strings.TrimSpace(text))
		if err != nil || source.Alternatives() == nil {
			a.rest = t.add(a.rest, text, false)
		}
		for _, one := range source.Alternatives() {
			a.rest = t.add(a.rest, one.String(), false)
		}
	}
	if len(r.Lists["key"]) == 0 {
		a.rest = t.add(a.rest, "client_ip", false)
	}
	for _, chooser := range []string{"tiers", "limit_from"} {
		if o := ruleset.One(r, chooser); o != nil {
			a.rest = t.add(a.rest, o.Texts["source"], false)
		}
	}
	a.rest = t.add(a.rest, r.Texts["cost"], false) // a number is no field
	if counted := ruleset.One(r, "count_match"); counted != nil {
		a.rest = t.addMatch(a.rest, ruleset.MatchOf(counted))
	}
	covered := ruleset.One(r, "match")
	if covered == nil {
		return a, nil
	}
	m := ruleset.MatchOf(covered)
	a.match = t.addMatch(a.match, m)
	m.Hosts, m.Headers, m.Query, m.Cookies = nil, nil, nil, nil
	a.relaxed, err = m.Compile()
	return a, err
}

// addMatch appends the places of the fields of a match to places.
func (t *fieldTable) addMatch(places []int, m match.Match) []int {
	if len(m.Hosts) > 0 {
		places = t.add(places, "host", false)
	}
	for name, value := range m.Headers {
		places = t.add(places, "header:"+name, value == "*" || value == "!*" || value == "")
	}
	for name := range m.Query {
		places = t.add(places, "query:"+name, false)
	}
	for name, value := range m.Cookies {
		places = t.add(places, "cookie:"+name, value == "*" || value == "!*" || value == "")
	}
	if len(m.ExceptIPs) > 0 {
		places = t.add(places, "client_ip", false)
	}
	return places
}

// headers returns the names of the wanted header fields.
func (t *fieldTable) headers() []string {
	var names []string
	for _, f := range t.list {
		if f.header != "" && !slices.Contains(names, f.header) {
			names = append(names, f.header)
		}
	}
	return names
}
