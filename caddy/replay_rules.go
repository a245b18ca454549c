package ratelimit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/ruleset"
)

// replayRules returns the zones and rules of a configuration's handlers as rules of files, for a replay, and says what it leaves out: what a log cannot
// show. name is the configuration's.
func replayRules(config []byte, name string) ([]*ruleset.File, []string, error) {
	l := &loggable{zones: &ruleset.File{Name: name}, read: make(map[string]*ruleset.File)}
	if err := walkHandlers(config, l.handler); err != nil {
		return nil, nil, err
	}
	l.shorten()
	var files []*ruleset.File
	for _, f := range append([]*ruleset.File{l.zones}, l.files...) {
		if len(f.Rules) > 0 || f.Domain != nil {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("%s: has no zone that could be replayed%s", name, strings.Join(append([]string{""}, l.notes...), "; "))
	}
	return files, l.notes, nil
}

// loggable collects the rules of handlers that a log can be replayed with.
type loggable struct {
	zones *ruleset.File // names have their namespaces before them
	files []*ruleset.File
	read  map[string]*ruleset.File // by name
	notes []string
}

// leaveOut says that a zone or rule is left out.
func (l *loggable) leaveOut(kind, name string, why error) {
	l.note("%s %q: is left out: %v", kind, name, why)
}

// note adds a sentence, once.
func (l *loggable) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(l.notes, text) {
		l.notes = append(l.notes, text)
	}
}

// handler adds the rules of a handler.
func (l *loggable) handler(h *Handler, at place) error {
	for _, name := range slices.Sorted(maps.Keys(h.RateLimits)) {
		z := h.RateLimits[name]
		c, err := z.Compile(name, h.Namespace)
		if err != nil {
			return syntax.InJSON.Write(err)
		}
		text, err := ruleOf(c)
		if err == nil {
			var sets any
			if raw, wrong := json.Marshal(z.MatcherSetsRaw); wrong == nil {
				err = json.Unmarshal(raw, &sets)
			}
			list, _ := sets.([]any)
			if err == nil {
				err = narrow(text, append(slices.Clone(at.around), at.knowable(list)), at)
			}
			if err == nil && len(z.CountMatcherSetsRaw) > 0 {
				err = counting(text, z.CountMatcherSetsRaw, at)
			}
		}
		if err != nil {
			l.leaveOut("zone", name, err)
			continue
		}
		l.add(l.zones, h.Namespace, "zone", ruleset.FileRule{RuleText: *text})
	}
	patterns, err := h.patterns()
	if err != nil || len(patterns) == 0 {
		return err
	}
	files, problems := parseFiles(patterns)
	if problems != nil {
		return problems
	}
	for _, f := range files {
		into := l.read[f.Name]
		if into == nil {
			into = &ruleset.File{Name: f.Name, Domain: f.Domain}
			l.read[f.Name] = into
			l.files = append(l.files, into)
		}
		for _, r := range f.Rules {
			r.RuleText = copyOf(&r.RuleText)
			if err := narrow(&r.RuleText, at.around, at); err != nil {
				l.leaveOut("rule", r.Name, err)
				continue
			}
			l.add(into, h.Namespace, "rule", r)
		}
	}
	return nil
}

// add adds a rule. Sites that share one, as by a snippet, share its counters: it then covers the hosts of all.
func (l *loggable) add(f *ruleset.File, namespace, kind string, r ruleset.FileRule) {
	_, wrong := ruleset.Compile(&r.RuleText, ruleset.Context{Prefixes: ruleset.Standard})
	r.Name = metrics.LabelOf(namespace, r.Name)
	for _, file := range append([]*ruleset.File{l.zones}, l.files...) {
		for i := range file.Rules {
			other := &file.Rules[i]
			if other.Name != r.Name {
				continue
			}
			mine, theirs := copyOf(&r.RuleText), copyOf(&other.RuleText)
			hosts := [2][]string{takeHosts(&mine), takeHosts(&theirs)}
			if file != f || !reflect.DeepEqual(mine, theirs) {
				l.leaveOut(kind, r.Name, errors.New("another of that name, with other settings, is replayed"))
				return
			}
			if len(hosts[0]) == 0 || len(hosts[1]) == 0 {
				other.RuleText = mine
				return
			}
			setMatch(&other.RuleText, "hosts", slices.Compact(slices.Sorted(slices.Values(append(hosts[1], hosts[0]...)))))
			return
		}
	}
	if len(wrong) > 0 {
		l.leaveOut(kind, r.Name, wrong[0])
		return
	}
	f.Rules = append(f.Rules, r)
}

// shorten takes namespaces out of names that only one rule has, so that they are those of a candidate's rules.
func (l *loggable) shorten() {
	names := make(map[string][]*string)
	for _, file := range append([]*ruleset.File{l.zones}, l.files...) {
		for i := range file.Rules {
			name := &file.Rules[i].Name
			short := (*name)[strings.LastIndexByte(*name, '/')+1:]
			names[short] = append(names[short], name)
		}
	}
	for short, of := range names {
		if len(of) == 1 {
			*of[0] = short
		}
	}
}

// takeHosts removes the hosts of a rule, and returns them.
func takeHosts(t *ruleset.RuleText) []string {
	m := ruleset.One(t, "match")
	if m == nil {
		return nil
	}
	hosts := m.Lists["hosts"]
	delete(m.Lists, "hosts")
	if reflect.DeepEqual(*m, ruleset.Object{Lists: map[string][]string{}}) {
		delete(t.Objects, "match")
	}
	return hosts
}

// copyOf returns a copy of a rule whose match can be changed.
func copyOf(t *ruleset.RuleText) ruleset.RuleText {
	c := *t
	c.Texts, c.Lists, c.Objects = maps.Clone(t.Texts), maps.Clone(t.Lists), maps.Clone(t.Objects)
	if m := ruleset.One(t, "match"); m != nil {
		c.Objects["match"] = []*ruleset.Object{{Texts: m.Texts, Lists: maps.Clone(m.Lists), Pairs: maps.Clone(m.Pairs)}}
	}
	return c
}

// setMatch sets a list of a rule's match.
func setMatch(t *ruleset.RuleText, field string, values []string) {
	if ruleset.One(t, "match") == nil {
		ruleset.AddObject(t, "match", &ruleset.Object{})
	}
	ruleset.SetList(ruleset.One(t, "match"), field, values)
}

// ruleOf returns a zone as a rule of a file, without its matchers, which only Caddy has. The error says what a log does not have.
func ruleOf(c *syntax.CompiledZone) (*ruleset.RuleText, error) {
	t := copyOf(c.Text)
	delete(t.Objects, "answer")
	delete(t.Objects, "adapt")
	sources, err := loggedSources(c.Zone.KeyText())
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		sources = []string{"static:" + cmp.Or(c.Zone.KeyText(), "all")}
	}
	ruleset.SetList(&t.Object, "key", sources)
	if c.Zone.IPv6Prefix == 0 && ruleset.OfAddress(c.Rule) { // rules of files have /64
		ruleset.SetText(&t.Object, "ipv6_prefix", "128")
	}
	for _, chooser := range []string{"tiers", "limit_from"} {
		if of := ruleset.One(&t, chooser); of != nil {
			one := *of
			one.Texts = maps.Clone(of.Texts)
			if one.Texts["source"], err = loggedSource(of.Texts["source"]); err != nil {
				return nil, err
			}
			t.Objects[chooser] = []*ruleset.Object{&one}
		}
	}
	if strings.Contains(t.Texts["cost"], "{") {
		if t.Texts["cost"], err = loggedSource(t.Texts["cost"]); err != nil {
			return nil, err
		}
	}
	if len(sources) > 1 && len(t.Objects["overrides"]) > 0 {
		return nil, errors.New("its overrides name whole keys, and not the parts of which a key is made")
	}
	return &t, nil
}

// loggedSources returns the sources of a text's placeholders. The error names one that no log has.
func loggedSources(text string) (sources []string, err error) {
	t, err := syntax.NewTemplate(text)
	if err != nil {
		return nil, err
	}
	for _, s := range t.Sources {
		if segment, isSegment := strings.CutPrefix(s.String(), "{http.request.uri.path."); isSegment && syntax.IsCaddys(s) { // counted from 0
			n, err := strconv.Atoi(strings.TrimSuffix(segment, "}"))
			if source, wrong := match.ParseSource("path_segment:" + strconv.Itoa(n+1)); err == nil && wrong == nil {
				sources = append(sources, source.String())
				continue
			}
		}
		if syntax.IsCaddys(s) {
			return nil, fmt.Errorf("a replay does not know %s", s)
		}
		sources = append(sources, s.String())
	}
	return sources, nil
}

// loggedSource is loggedSources of a text that is one placeholder.
func loggedSource(text string) (string, error) {
	sources, err := loggedSources(text)
	if err == nil && (len(sources) != 1 || !strings.HasPrefix(text, "{") || strings.Count(text, "}") != 1 || !strings.HasSuffix(text, "}")) {
		err = fmt.Errorf("a replay does not know %s", text)
	}
	if err != nil {
		return "", err
	}
	return sources[0], nil
}

// fieldOfMatcher has the matchers of Caddy that are fields of a rule's match, too.
var fieldOfMatcher = map[string]string{"host": "hosts", "path": "paths", "sent_path": "paths", "method": "methods"}

// narrow has a rule cover only what matcher sets cover, too: those of the routes around a handler, and a zone's own.
func narrow(t *ruleset.RuleText, around [][]any, at place) error {
	if at.outside != "" {
		return errors.New("a replay does not know which requests come to a handler " + at.outside)
	}
	for _, sets := range around {
		if len(sets) == 0 {
			continue
		}
		if len(sets) > 1 {
			return errors.New("a replay does not know several matchers of which one must match")
		}
		set, _ := sets[0].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(set)) {
			if err := narrowBy(t, name, set[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// counting has a rule count only what matcher sets match.
func counting(t *ruleset.RuleText, sets caddyhttp.RawMatcherSets, at place) error {
	var list []any
	raw, err := json.Marshal(sets)
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	var counted ruleset.RuleText
	if err == nil {
		err = narrow(&counted, [][]any{at.knowable(list)}, at)
	}
	if t.Objects["count_match"] = counted.Objects["match"]; counted.Objects["match"] == nil { // it matches all
		delete(t.Objects, "count_match")
	}
	return err
}

// narrowBy is narrow for one matcher.
func narrowBy(t *ruleset.RuleText, name string, value any) error {
	unknown := fmt.Errorf("a replay does not know the matcher %s", coveredBy([]any{map[string]any{name: value}}, nil))
	switch field := fieldOfMatcher[name]; {
	case field != "":
		return narrowTo(t, field, valuesOf(value), unknown)
	case name == "not":
		list, _ := value.([]any)
		for _, set := range list {
			one, _ := set.(map[string]any)
			for inner, values := range one {
				if fieldOfMatcher[inner] == "" || len(one) > 1 {
					return unknown
				}
				without := valuesOf(values)
				for i := range without {
					without[i] = "!" + without[i]
				}
				if m := ruleset.One(t, "match"); m != nil {
					without = append(slices.Clone(m.Lists[fieldOfMatcher[inner]]), without...)
				}
				setMatch(t, fieldOfMatcher[inner], without)
			}
		}
		return nil
	case name == "header":
		fields, _ := value.(map[string]any)
		for field, values := range fields {
			list, _ := values.([]any)
			text, isText := "", false
			if len(list) == 1 {
				text, isText = list[0].(string)
			}
			if !isText || text == "" || strings.ContainsAny(text[:1], "!=") || strings.EqualFold(field, "Host") {
				return unknown
			}
			m := ruleset.One(t, "match")
			if m == nil {
				m = &ruleset.Object{}
				ruleset.AddObject(t, "match", m)
			}
			for _, pair := range m.Pairs["headers"] {
				if strings.EqualFold(pair.Name, field) {
					return unknown
				}
			}
			ruleset.SetPairs(m, "headers", append(slices.Clone(m.Pairs["headers"]), ruleset.Pair{Name: field, Value: text}))
		}
		return nil
	}
	return unknown
}

// narrowTo has a rule cover only some values. If it has others already, those inside must be some of those around.
func narrowTo(t *ruleset.RuleText, field string, values []string, unknown error) error {
	var there, without []string
	if m := ruleset.One(t, "match"); m != nil {
		for _, value := range m.Lists[field] {
			if strings.HasPrefix(value, "!") {
				without = append(without, value)
			} else {
				there = append(there, value)
			}
		}
		if field == "paths" && len(m.Lists["path_prefixes"]) > 0 {
			return unknown
		}
	}
	for _, value := range values {
		if strings.ContainsAny(value, "{%") || value == "" || strings.HasPrefix(value, "=") {
			return unknown
		}
	}
	if field == "paths" && slices.Contains(values, "*") || field == "paths" && slices.Contains(values, "/*") {
		return nil
	}
	if len(there) > 0 {
		inner, outer := values, there
		if !within(inner, outer) {
			inner, outer = there, values
		}
		if !within(inner, outer) {
			return unknown
		}
		values = inner
	}
	setMatch(t, field, append(slices.Clone(values), without...))
	return nil
}

// within reports whether each of some values is one of others, or is covered by one with a star: a path's beginning, or all names one level below.
func within(inner, outer []string) bool {
	for _, value := range inner {
		if !slices.ContainsFunc(outer, func(o string) bool {
			prefix, isPrefix := strings.CutSuffix(match.CleanPath(o), "*")
			name, below := strings.CutSuffix(strings.ToLower(value), strings.TrimPrefix(strings.ToLower(o), "*"))
			return strings.EqualFold(o, value) || isPrefix && !strings.Contains(prefix, "*") && strings.HasPrefix(match.CleanPath(value), prefix) ||
				below && strings.HasPrefix(o, "*.") && name != "" && !strings.ContainsAny(name, ".*")
		}) {
			return false
		}
	}
	return true
}
