package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// Rules are the compiled rules of rule files, for one replay.
type Rules struct {
	set    *ruleset.Set
	texts  []*ruleset.RuleText // of set.Rules
	asks   []asking            // of set.Rules
	alone  []*front.Set        // each of set.Rules by itself, without its matcher
	mayNot []int               // places of the rules for which a line may not show whether they cover it
	fields *fieldTable
}

// newRules compiles the rules of files, whose names may have a namespace before them. All rules of a replay share fields.
func newRules(files []*ruleset.File, fields *fieldTable) (*Rules, error) {
	set, err := newSet(files)
	if err != nil {
		return nil, err
	}
	if len(set.Rules) == 0 {
		return nil, fmt.Errorf("%s: has no rules that could be replayed: %s", files[0].Name, noDescriptors)
	}
	s := &Rules{set: set, fields: fields}
	for _, f := range files {
		for i := range f.Rules {
			text := &f.Rules[i].RuleText
			a, err := fields.asks(text)
			if err != nil {
				return nil, fmt.Errorf("%s: rule %q: %w", f.Name, text.Name, err)
			}
			if len(a.match) > 0 {
				s.mayNot = append(s.mayNot, len(s.asks))
			}
			rule := front.NewRule(set.Rules[len(s.texts)])
			rule.Matcher = nil
			s.alone = append(s.alone, front.NewSet([]*front.Rule{rule}, nil, nil, nil, nil))
			s.texts = append(s.texts, text)
			s.asks = append(s.asks, a)
		}
	}
	return s, nil
}

// newSet compiles the rules of files. A name with a namespace before it is none to ruleset, and is put back behind it.
func newSet(files []*ruleset.File) (*ruleset.Set, error) {
	names := make(map[*ruleset.RuleText]string)
	for _, f := range files {
		for i := range f.Rules {
			if t := &f.Rules[i].RuleText; strings.Contains(t.Name, "/") {
				names[t] = t.Name
				t.Name = words.NameFor(t.Name, t.Name)
			}
		}
	}
	set, err := ruleset.NewSet(files, "")
	at := 0
	for _, f := range files {
		for i := range f.Rules {
			if name, changed := names[&f.Rules[i].RuleText]; changed {
				f.Rules[i].Name = name
				if err == nil {
					set.Rules[at].Name = name
				}
			}
			at++
		}
	}
	return set, err
}

// noDescriptors says why a replay leaves out the limits of a domain.
const noDescriptors = "descriptors are left out, since a rule file does not say how a request becomes one; write those limits as rules to replay them"

// delays reports whether any rule makes requests wait.
func (s *Rules) delays() bool {
	for _, r := range s.set.Rules {
		if r.Limits.Delays() {
			return true
		}
	}
	return false
}

// check is the check of one rule for one request, or says which field it needs that the log lacks.
type check struct {
	rule  int32 // place in Rules.set.Rules
	field int32 // which is in doubt, or lacking; -1: none
	lack  lack
	begin int // of the key, in the batch's keys, until they are made
	end   int
	limit *core.Rule // nil: none, or the log lacks the field that chooses it
	key   string
	cost  int64
}

// asks reports whether the log has the fields that the rule needs. seen are the fields that it is known to have.
func (c *check) asks(seen []bool) bool {
	return c.lack == known || c.lack == doubtful && seen[c.field]
}

// sorter finds the rules that cover requests, and their keys. It is not safe for concurrent use.
type sorter struct {
	fields     []field
	lacks      []lack // of fields, in the line; -1: not looked yet
	places     []int
	begun      int // how many checks of other requests there are in the list
	evaluation front.Evaluation
	request    http.Request
	url        url.URL
	header     http.Header
}

func newSorter(fields *fieldTable) *sorter {
	return &sorter{fields: fields.list, lacks: make([]lack, len(fields.list)), header: make(http.Header)}
}

// take makes an http.Request of a line, with the parts that rules use. It returns an error for a request that net/http would refuse.
func (s *sorter) take(e *entry) error {
	for i := range s.lacks {
		s.lacks[i] = -1
	}
	u, err := parseURI(e.method, e.uri)
	if err != nil {
		return errRequest
	}
	if u.Host != "" && !e.hasHost { // the line has it all the same
		e.host, e.hasHost = u.Host, true
	}
	clear(s.header)
	for i := range e.headers {
		if len(e.headers[i].values) > 0 {
			s.header[e.headers[i].name] = e.headers[i].values
		}
	}
	s.url = *u
	s.request.Method = e.method
	s.request.URL = &s.url
	s.request.Host = e.host
	s.request.RemoteAddr = e.remote
	s.request.Header = s.header
	return nil
}

// parseURI reads the URI of a request line, as net/http does.
func parseURI(method, uri string) (*url.URL, error) {
	if method == http.MethodConnect && !strings.HasPrefix(uri, "/") {
		return url.ParseRequestURI("http://" + uri)
	}
	if strings.HasPrefix(uri, "/") && !strings.ContainsFunc(uri, isSpecial) { // as most are: nothing is to be decoded
		path, query, _ := strings.Cut(uri, "?")
		return &url.URL{Path: path, RawQuery: query}, nil
	}
	return url.ParseRequestURI(uri)
}

func isSpecial(c rune) bool { return c < ' ' || c == '%' || c == '#' || c == '\x7f' }

// lackOf says whether the line has a field, and if not, why.
func (s *sorter) lackOf(place int, e *entry) lack {
	if s.lacks[place] < 0 {
		s.lacks[place] = s.fields[place].lackIn(e)
	}
	return s.lacks[place]
}

// worst returns which of the fields the line lacks most, and how.
func (s *sorter) worst(places []int, e *entry) (field int32, how lack) {
	field = -1
	for _, place := range places {
		if l := s.lackOf(place, e); l > how {
			field, how = int32(place), l
		}
	}
	return field, how
}

// sort appends the checks of the request of take to list, and their keys to keys.
func (s *sorter) sort(rules *Rules, e *entry, list []check, keys []byte) ([]check, []byte) {
	s.begun = len(list)
	r := &s.request
	path := match.CleanPath(r.URL.Path)
	s.places = rules.set.Covering(r, s.places[:0])
	for _, i := range s.places {
		rule := rules.set.Rules[i]
		a := &rules.asks[i]
		if _, how := s.worst(a.match, e); how != known { // below
			continue
		}
		if rule.Matcher != nil && !match.Covers(rule.Matcher, r, path, e.client) {
			continue
		}
		list, keys = s.ask(rules, i, e, list, keys)
	}
	for _, i := range rules.mayNot {
		a := &rules.asks[i]
		if field, how := s.worst(a.match, e); how != known && match.Covers(a.relaxed, r, path, e.client) {
			list = append(list, check{rule: int32(i), field: field, lack: how})
		}
	}
	return list, keys
}

// longestKey is the longest key that is kept whole. A digest replaces longer ones, which come from hostile clients.
const longestKey = 1024

// ask appends the check of a rule that covers the request.
func (s *sorter) ask(rules *Rules, i int, e *entry, list []check, keys []byte) ([]check, []byte) {
	field, how := s.worst(rules.asks[i].rest, e)
	c := check{rule: int32(i), field: field, lack: how}
	if how > doubtful {
		return append(list, c), keys
	}
	q := &s.evaluation
	q.Checks = q.Checks[:0]
	_ = front.Assemble(rules.alone[i], q, &s.request, e.client) // it fails only in a proxy's own matchers
	if len(q.Checks) == 0 {
		if how == known {
			return list, keys
		}
		return append(list, c), keys
	}
	key := q.Checks[0].Key
	if len(key) > longestKey {
		sum := sha256.Sum256([]byte(key))
		key = "~" + hex.EncodeToString(sum[:])
	}
	c.limit, c.cost = q.Checks[0].Rule, q.Checks[0].Cost
	if last := len(list) - 1; last >= s.begun && string(keys[list[last].begin:list[last].end]) == key { // as with rules that are keyed alike
		c.begin, c.end = list[last].begin, list[last].end
		return append(list, c), keys
	}
	c.begin = len(keys)
	keys = append(keys, key...)
	c.end = len(keys)
	return append(list, c), keys
}
