package ratelimit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/proxyweir/weir/caddy/command"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/ruleset/yaml"
)

func init() {
	command.Register(tableOfRules, replayRules)
}

// tableOfRules returns the table of a configuration's rules.
func tableOfRules(config []byte) (describe.Table, error) {
	t := &ruleTable{}
	err := walkHandlers(config, t.handler)
	return t.Table, err
}

// ruleTable collects the rows of `caddy rate-limit rules`.
type ruleTable struct{ describe.Table }

// walkHandlers calls a function with each handler of a configuration.
func walkHandlers(config []byte, visit func(h *Handler, at place) error) error {
	var c struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return err
	}
	w := &walk{app: new(App), visit: visit}
	if raw := c.Apps["rate_limit"]; raw != nil {
		if err := json.Unmarshal(raw, w.app); err != nil {
			return fmt.Errorf("app rate_limit: %w", err)
		}
	}
	if raw := c.Apps["http"]; raw != nil {
		return w.servers(raw)
	}
	return nil
}

// walk finds handlers.
type walk struct {
	app   *App
	visit func(h *Handler, at place) error
}

// servers looks at the HTTP app.
func (w *walk) servers(raw []byte) error {
	var http struct {
		Servers map[string]map[string]any `json:"servers"`
	}
	if err := json.Unmarshal(raw, &http); err != nil {
		return fmt.Errorf("app http: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(http.Servers)) {
		server := http.Servers[name]
		hosts := strings.Join(valuesOf(server["listen"]), " ")
		routes := map[string]any{"": server["routes"], "in error routes": server["errors"]}
		named, _ := server["named_routes"].(map[string]any)
		for route := range named {
			routes["in route "+route] = named[route]
		}
		for _, where := range slices.Sorted(maps.Keys(routes)) {
			if err := w.look(routes[where], place{hosts: hosts, routes: where, outside: where}); err != nil {
				return err
			}
		}
	}
	return nil
}

// place is where in the configuration a handler is.
type place struct {
	hosts  string // the hosts of the routes around it
	routes string // which of their requests reach it, in words

	outside  string   // where it is, if not among the routes of a server
	around   [][]any  // the matcher sets of these routes
	unlogged []string // the matchers that see another path there than the client has sent
}

// look looks for handlers in a part of the configuration.
func (w *walk) look(part any, at place) error {
	switch part := part.(type) {
	case []any:
		taken := make(map[any][]any)      // by the routes of a group, of which a request takes the first that matches
		changed := make(map[any][]string) // by a group, what its routes change for those behind it
		for _, item := range part {
			inside := at
			route, _ := item.(map[string]any)
			group := route["group"]
			for other, names := range changed {
				if other == nil || other != group {
					inside.unlogged = append(slices.Clone(inside.unlogged), names...)
				}
			}
			if group != nil {
				if before := taken[group]; len(before) > 0 {
					inside.around = append(slices.Clone(at.around), []any{map[string]any{"not": inside.knowable(before)}})
				}
				sets, _ := route["match"].([]any)
				if len(sets) == 0 {
					sets = []any{map[string]any{"path": []any{"*"}}}
				}
				taken[group] = append(taken[group], sets...)
			}
			if err := w.look(item, inside); err != nil {
				return err
			}
			if route["terminal"] != true { // else nobody comes from there
				changed[group] = append(changed[group], changesPath(item)...)
			}
		}
	case map[string]any:
		if part["handler"] == "rate_limit" {
			h, err := handlerFrom(part)
			if err != nil {
				return err
			}
			h.app = w.app
			return w.visit(h, at)
		}
		if sets, isRoute := part["match"].([]any); isRoute {
			at = at.within(sets)
		}
		for _, name := range slices.Sorted(maps.Keys(part)) {
			if err := w.look(part[name], at); err != nil {
				return err
			}
		}
	}
	return nil
}

// changesPath returns the matchers that see another path behind a route or handler than the client has sent.
func changesPath(item any) (unlogged []string) {
	part, _ := item.(map[string]any)
	for _, name := range []string{"handle", "routes"} {
		list, _ := part[name].([]any)
		for _, inside := range list {
			unlogged = append(unlogged, changesPath(inside)...)
		}
	}
	if part["handler"] != "rewrite" {
		return unlogged
	}
	if part["strip_path_prefix"] != nil {
		return []string{"path", "sent_path"}
	}
	return []string{"path"}
}

// knowable returns matcher sets, in which those that see another path have another name.
func (p place) knowable(sets []any) []any {
	list := make([]any, 0, len(sets))
	for _, set := range sets {
		matchers, _ := set.(map[string]any)
		known := maps.Clone(matchers)
		for _, name := range p.unlogged {
			if value, there := known[name]; there {
				delete(known, name)
				known[name+" (behind a rewrite)"] = value
			}
		}
		list = append(list, known)
	}
	return list
}

// within returns the place inside a route with these matcher sets.
func (p place) within(sets []any) place {
	var hosts []string
	routes := coveredBy(sets, &hosts)
	if len(hosts) > 0 {
		p.hosts = strings.Join(hosts, " ")
	}
	if p.routes != "" && routes != "" {
		p.routes += "; "
	}
	p.routes += routes
	p.around = append(slices.Clone(p.around), p.knowable(sets))
	return p
}

// coveredBy describes what matcher sets match. If hosts is not nil, it adds hosts there, and not to the description.
func coveredBy(sets []any, hosts *[]string) string {
	var covers []string
	for _, set := range sets {
		matchers, _ := set.(map[string]any)
		var all []string
		for _, name := range slices.Sorted(maps.Keys(matchers)) {
			if values := valuesOf(matchers[name]); name == "host" && hosts != nil {
				*hosts = append(*hosts, values...)
			} else if not, ok := matchers[name].([]any); ok && name == "not" {
				what := coveredBy(not, nil)
				if len(not) > 1 || strings.Contains(what, "; ") {
					what = "(" + what + ")"
				}
				all = append(all, "not "+what)
			} else {
				all = append(all, name+" "+strings.Join(values, ","))
			}
		}
		if len(all) > 0 {
			covers = append(covers, strings.Join(all, "; "))
		}
	}
	return strings.Join(covers, " or ")
}

// valuesOf returns a matcher's values: the items of a list, or all of it as JSON.
func valuesOf(matcher any) []string {
	list, _ := matcher.([]any)
	values := make([]string, 0, len(list))
	for _, item := range list {
		if text, ok := item.(string); ok {
			values = append(values, text)
		}
	}
	if len(values) == len(list) && len(list) > 0 {
		return values
	}
	text, err := json.Marshal(matcher)
	if err != nil { // not reached: the value was read from JSON
		return nil
	}
	return []string{string(text)}
}

// parseFiles reads the rule files at patterns.
func parseFiles(patterns []string) ([]*ruleset.File, ruleset.Problems) {
	contents, problems := ruleset.Read(patterns)
	if problems != nil {
		return nil, problems
	}
	return ruleset.Parse(contents, yaml.Parse)
}

// handler adds the rules of a handler.
func (t *ruleTable) handler(h *Handler, at place) error {
	for _, name := range slices.Sorted(maps.Keys(h.RateLimits)) {
		if err := t.zone(at, name, h.Namespace, h.RateLimits[name]); err != nil {
			return err
		}
	}
	patterns, err := h.patterns()
	if err != nil || len(patterns) == 0 {
		return err
	}
	files, problems := parseFiles(patterns)
	if problems != nil {
		return problems
	}
	set, err := ruleset.NewSet(files, h.Namespace)
	if err != nil {
		return err
	}
	where := describe.Place{Site: at.hosts, Routes: at.routes}
	t.AddSet(where, h.Namespace, set)
	if len(h.Descriptors) == 0 {
		return nil
	}
	domain, err := set.Domain(h.Domain)
	if err != nil {
		return err
	}
	for _, file := range files {
		if file.Domain != nil && file.Domain.Name == domain.Name() {
			t.AddDescriptors(where, h.Namespace, file, domain)
		}
	}
	return nil
}

// zone adds a zone.
func (t *ruleTable) zone(at place, name, namespace string, z *syntax.Zone) error {
	c, err := z.Compile(name, namespace)
	if err != nil {
		return syntax.InJSON.Write(err)
	}
	var sets []any
	if raw, err := json.Marshal(z.MatcherSetsRaw); err != nil || json.Unmarshal(raw, &sets) != nil {
		return fmt.Errorf("zone %q: match: is no JSON", name) // not reached: the zone was read from JSON
	}
	what := coveredBy(sets, nil)
	if len(z.Except) > 0 {
		what += "; except " + strings.Join(z.Except, ",")
	}
	where := describe.Place{Site: at.hosts, Routes: at.routes}
	t.AddRule(where.Row(metrics.LabelOf(namespace, name), strings.TrimPrefix(what, "; "), z.KeyText()), c.Rule, c.Text)
	return nil
}
