package syntax

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// The functions of this file find limits that cannot hold because of what is around them in the configuration: handlers that no request
// reaches, and paths that no request has where they are looked for. They go through a server's routes in JSON, as the first of our handlers
// that is provisioned finds them.

// site is what is known of the place of a handler in the routes of a server.
type site struct {
	named    map[string]*caddyhttp.Route // of the server
	dead     string                      // why no request comes here; "": some may
	hosts    []string                    // of the site; nil: any
	within   [][]string                  // the path that the client has sent matches one pattern of each
	rewrites []rewriting                 // what changes the path before
	met      []metZone                   // the zones that a request may have passed before
	matched  []string                    // the matchers of the routes around, in JSON
	warn     func(at, name, text string) // at is the place of the handler, name the zone's; either may be ""
	read     readHandler
	refuse   func(err error)
}

// metZone is a zone in front.
type metZone struct {
	id, at, group string // group of the route in which it is
	zone          any    // in JSON
	matched       []string
}

// jsonRoute is a route of Caddy.
type jsonRoute struct {
	Group    string                       `json:"group"`
	Match    []map[string]json.RawMessage `json:"match"`
	Handle   []json.RawMessage            `json:"handle"`
	Terminal bool                         `json:"terminal"`
}

// jsonHandler has the fields of all handlers that say where a request goes.
type jsonHandler struct {
	Handler         string          `json:"handler"`
	Routes          []jsonRoute     `json:"routes"`          // subroute
	HandleResponse  json.RawMessage `json:"handle_response"` // reverse_proxy
	PassThru        bool            `json:"pass_thru"`       // file_server
	Name            string          `json:"name"`            // invoke
	URI             string          `json:"uri"`             // rewrite, as the next ones
	StripPathPrefix string          `json:"strip_path_prefix"`
	StripPathSuffix string          `json:"strip_path_suffix"`
	URISubstring    json.RawMessage `json:"uri_substring"`
	PathRegexp      json.RawMessage `json:"path_regexp"`
}

// rewriting is a handler that changes the path.
type rewriting struct {
	jsonHandler
	of      []string // patterns of the paths that it changes; nil: any
	triesIn bool     // it is of a try_files that ends with a file for all other paths
}

// readHandler reads the place and the zones of a handler of ours from its JSON.
type readHandler func(object map[string]any) (at string, zones map[string]*Zone, err error)

// CheckSurroundings warns of limits of the servers that cannot hold where they stand. It returns an error for a zone that is written twice.
func CheckSurroundings(servers map[string]*caddyhttp.Server, read readHandler, logger *zap.Logger) (err error) {
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		server := servers[name]
		s := site{named: server.NamedRoutes, read: read, warn: func(at, zone, text string) {
			fields := make([]zap.Field, 0, 3)
			for _, f := range [][2]string{{"at", at}, {"zone", zone}} {
				if f[1] != "" {
					fields = append(fields, zap.String(f[0], f[1]))
				}
			}
			logger.Warn(text, append(fields, zap.String("server", name))...)
		}, refuse: func(e error) {
			if err == nil {
				err = e
			}
		}}
		lists := []caddyhttp.RouteList{server.Routes}
		if server.Errors != nil {
			lists = append(lists, server.Errors.Routes)
		}
		for _, name := range slices.Sorted(maps.Keys(server.NamedRoutes)) {
			if route := server.NamedRoutes[name]; route != nil {
				lists = append(lists, caddyhttp.RouteList{*route})
			}
		}
		for _, list := range lists {
			one := s
			one.through(jsonRoutes(list))
		}
	}
	return err
}

// jsonRoutes returns routes in JSON. What Caddy has provisioned already is made JSON again, without what is in subroutes.
func jsonRoutes(routes caddyhttp.RouteList) []jsonRoute {
	all := make([]jsonRoute, 0, len(routes))
	for _, route := range routes {
		one := jsonRoute{Group: route.Group, Handle: route.HandlersRaw, Terminal: route.Terminal}
		for _, set := range route.MatcherSetsRaw {
			one.Match = append(one.Match, set)
		}
		for _, set := range route.MatcherSets {
			matchers := make(map[string]json.RawMessage)
			for _, m := range set {
				if m, ok := m.(caddy.Module); ok {
					matchers[m.CaddyModule().ID.Name()], _ = json.Marshal(m)
				}
			}
			one.Match = append(one.Match, matchers)
		}
		for _, handler := range route.Handlers {
			if m, ok := handler.(caddy.Module); ok && len(route.HandlersRaw) == 0 {
				text, err := json.Marshal(handler)
				if err == nil && reflect.Indirect(reflect.ValueOf(handler)).Kind() == reflect.Struct {
					text = append([]byte(fmt.Sprintf(`{"handler":%q,`, m.CaddyModule().ID.Name())), text[1:]...)
					one.Handle = append(one.Handle, json.RawMessage(strings.Replace(string(text), ",}", "}", 1)))
				}
			}
		}
		all = append(all, one)
	}
	return all
}

// through looks at every handler of ours in a list of routes. It changes s, which has the rewrites and the zones that were met afterwards.
func (s *site) through(routes []jsonRoute) {
	ends := make(map[string]bool) // of a group: all its routes so far do
	var taken []endedRoute
	for _, route := range routes {
		in := *s
		if in.dead == "" {
			in.dead = passedOver(taken, route)
		}
		in.enter(route)
		in.met = slices.DeleteFunc(slices.Clone(s.met), func(m metZone) bool { return m.group != "" && m.group == route.Group }) // of which one route is taken
		before := len(in.met)
		ending := ""
		for _, raw := range route.Handle {
			var handler jsonHandler
			if json.Unmarshal(raw, &handler) != nil {
				continue
			}
			if in.dead == "" && ending != "" {
				in.dead = ending + " comes before it in the same route, and passes no request on"
			}
			switch {
			case handler.Handler == "rate_limit":
				in.check(raw, route, taken)
				in.meet(raw)
			case handler.Handler == "subroute":
				sub := in
				sub.through(handler.Routes)
				in.rewrites, in.met = sub.rewrites, sub.met
			case handler.rewrites():
				in.rewrites = append(slices.Clip(in.rewrites), rewriting{handler, patternsOf(route.Match), triesFiles(route.Match)})
			}
			if ending == "" {
				ending = s.endOf(handler)
			}
		}
		if ending == "" && route.Terminal {
			ending = "a terminal route"
		}
		s.rewrites = in.rewrites
		if ending == "" {
			for _, m := range in.met[before:] {
				m.group = cmp.Or(route.Group, m.group)
				s.met = append(s.met, m)
			}
		}
		if route.Group != "" {
			if before, found := ends[route.Group]; found && !before {
				ending = ""
			}
			ends[route.Group] = ending != ""
		}
		taken = append(taken, endedRoute{ending, route})
	}
}

// meet notes the zones of a handler of ours. It refuses those that a request has passed already, since it would count twice. Where the lines are the
// same, a snippet that is imported twice has them, which may be on purpose.
func (s *site) meet(raw json.RawMessage) {
	var h struct {
		At         string         `json:"at"`
		Namespace  string         `json:"namespace"`
		RateLimits map[string]any `json:"rate_limits"`
	}
	if json.Unmarshal(raw, &h) != nil || s.dead != "" {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(h.RateLimits)) {
		this := metZone{id: ZoneID(h.Namespace, name), at: h.At, zone: h.RateLimits[name], matched: s.matched}
		i := slices.IndexFunc(s.met, func(m metZone) bool {
			return m.id == this.id && reflect.DeepEqual(m.zone, this.zone) && meets(m.matched, this.matched)
		})
		switch {
		case i < 0:
		case lineOf(s.met[i].at) != lineOf(this.at) && s.met[i].at != "" && this.at != "":
			s.refuse(&ReportedError{fmt.Errorf("zone %q, at %s: is written twice, first at %s, so that a request would count twice in one counter; remove one, or write a zone with another name", name, this.at, s.met[i].at)})
		default:
			s.warn(this.at, name, "a request passes this zone twice, and counts twice in its counter: a snippet with it is imported twice, or two handlers have it; remove one, or have requests pass one of them")
		}
		s.met = append(slices.Clip(s.met), this)
	}
}

// lineOf returns the file and line of a handler's place, without the lines that import it.
func lineOf(at string) string {
	line, _, _ := strings.Cut(at, " import chain")
	return line
}

// meets reports whether requests that match all of one of two lists of matchers are certain to match the other. Both begin with those around both.
func meets(a, b []string) bool {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	return len(a) == 0 || len(b) == 0
}

// endedRoute is a route and the handler that ends it.
type endedRoute struct {
	by    string // "": it, or another of its group, may pass requests on
	route jsonRoute
}

// passedOver says why no request reaches a route behind others; "": some may.
func passedOver(before []endedRoute, route jsonRoute) string {
	for _, b := range before {
		switch {
		case !matchesAll(b.route.Match):
		case b.route.Group != "" && b.route.Group == route.Group:
			return "another block of its group takes every request"
		case b.by != "":
			return b.by + " comes before it, and answers every request"
		}
	}
	return ""
}

// enter adds what the matchers of a route say of the requests in it.
func (s *site) enter(route jsonRoute) {
	if hosts := matcherValues(route.Match, "host"); hosts != nil {
		s.hosts = hosts
	}
	if !matchesAll(route.Match) {
		text, _ := json.Marshal(route.Match)
		s.matched = append(slices.Clip(s.matched), string(text))
	}
	if patterns := patternsOf(route.Match); patterns != nil && len(s.rewrites) == 0 {
		s.within = append(slices.Clip(s.within), patterns)
	}
}

// endOf returns the handler at which requests end that come to a handler; "": it may pass some on.
func (s *site) endOf(h jsonHandler) string {
	switch h.Handler {
	case "reverse_proxy":
		if len(h.HandleResponse) == 0 || string(h.HandleResponse) == "null" {
			return "reverse_proxy"
		}
	case "file_server":
		if !h.PassThru {
			return "file_server"
		}
	case "static_response":
		return "respond, redir or abort"
	case "error", "metrics":
		return h.Handler
	case "subroute":
		return block(s.endOfRoutes(h.Routes))
	case "invoke":
		if route := s.named[h.Name]; route != nil {
			named := *s
			named.named = nil // one that invokes itself ends nowhere
			return block(named.endOfRoutes(jsonRoutes(caddyhttp.RouteList{*route})))
		}
	}
	return ""
}

// block names the end of a handle, a route block or the like.
func block(ending string) string {
	if ending == "" {
		return ""
	}
	return "a block that ends with " + strings.TrimPrefix(ending, "a block that ends with ")
}

// endOfRoutes returns the handler at which all requests end that come to some routes; "": some may pass.
func (s *site) endOfRoutes(routes []jsonRoute) string {
	quiet := *s
	quiet.warn = func(string, string, string) {}
	ends := make(map[string]bool)
	for _, route := range routes {
		ending := ""
		for _, raw := range route.Handle {
			var handler jsonHandler
			if json.Unmarshal(raw, &handler) == nil && ending == "" {
				ending = quiet.endOf(handler)
			}
		}
		if route.Group != "" {
			if before, found := ends[route.Group]; found && !before {
				ending = ""
			}
			ends[route.Group] = ending != ""
		}
		if ending != "" && matchesAll(route.Match) {
			return ending
		}
	}
	return ""
}

// check warns of a handler of ours that no request reaches, and of its zones that cover none.
func (s *site) check(raw json.RawMessage, route jsonRoute, taken []endedRoute) {
	var object map[string]any
	_ = json.Unmarshal(raw, &object)
	at, zones, err := s.read(object)
	if err != nil {
		return // which provisioning reports
	}
	all := strings.Join(slices.Sorted(maps.Keys(zones)), ", ")
	if s.dead != "" {
		s.warn(at, all, "no request reaches this rate_limit, so it limits nobody: "+s.dead+
			"; Caddy runs directives in the order of the global option order, or inside a route block in the order in which they are written: "+
			"take the option out, since without it rate_limit runs early, or write order rate_limit before basic_auth; in a route block, write rate_limit above it")
		return
	}
	if sent := matcherValues(route.Match, "sent_path"); sent != nil {
		s.checkPaths(at, all, sent, taken)
	}
	if patterns := matcherValues(route.Match, "path"); patterns != nil {
		if hidden := s.hidden(patterns); hidden != "" {
			s.warn(at, all, fmt.Sprintf("the matcher path %s in front of this rate_limit sees the path as %s has changed it, so it may match no request: write sent_path %s in its place, or the path behind rate_limit, "+
				"which look at the path that the client has sent", strings.Join(patterns, " "), hidden, strings.Join(patterns, " ")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		if zone := zones[name]; zone != nil {
			for _, raw := range []caddyhttp.RawMatcherSets{zone.MatcherSetsRaw, zone.CountMatcherSetsRaw} {
				sets := make([]map[string]json.RawMessage, 0, len(raw))
				for _, set := range raw {
					sets = append(sets, set)
				}
				if paths := matcherValues(sets, "path"); paths != nil {
					s.checkPaths(at, name, paths, taken)
				}
				s.checkHosts(at, name, matcherValues(sets, "host"))
			}
		}
	}
}

// checkPaths warns of the paths of a limit that no request has there.
func (s *site) checkPaths(at, zone string, patterns []string, taken []endedRoute) {
	for _, p := range patterns {
		if !strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "*") && !HasPlaceholder(p) {
			s.warn(at, zone, fmt.Sprintf("no request has the path %q of this limit: write it with a slash at its beginning, such as /login*", p))
			return
		}
	}
	for _, t := range taken {
		if t.by != "" && len(s.rewrites) == 0 && covered(patterns, patternsOf(t.route.Match)) {
			s.warn(at, zone, fmt.Sprintf("no request reaches this limit of %s: %s comes before it, and answers them; "+
				"take the global option order out, or write order rate_limit before basic_auth; in a route block, write rate_limit above it", strings.Join(patterns, " "), t.by))
			return
		}
	}
	if slices.ContainsFunc(s.rewrites, func(r rewriting) bool { return r.StripPathPrefix != "" }) {
		return // either reading is possible
	}
	for _, within := range s.within {
		if !slices.ContainsFunc(patterns, func(p string) bool {
			return slices.ContainsFunc(within, func(w string) bool { return !disjoint(p, w) })
		}) {
			s.warn(at, zone, fmt.Sprintf("no request has the path %s of this limit, since only requests for %s come here: write the whole path, such as %s",
				strings.Join(patterns, " "), strings.Join(within, " "), strings.TrimRight(within[0], "/*")+patterns[0]))
			return
		}
	}
}

// checkHosts warns of the hosts of a limit that no request has there.
func (s *site) checkHosts(at, zone string, hosts []string) {
	if hosts == nil || s.hosts == nil {
		return
	}
	for _, host := range hosts {
		for _, of := range s.hosts {
			if strings.EqualFold(host, of) || strings.ContainsAny(host+of, "*{") {
				return
			}
		}
	}
	s.warn(at, zone, fmt.Sprintf("no request has the host %s of this limit, since only requests for %s come here", strings.Join(hosts, " "), strings.Join(s.hosts, " ")))
}

// hidden returns what changes all paths of some patterns to others; "": nothing may.
func (s *site) hidden(patterns []string) string {
	for _, r := range s.rewrites {
		if len(patterns) > 0 && !slices.ContainsFunc(patterns, func(p string) bool { return !r.hides(p) }) {
			if r.triesIn {
				return "try_files"
			}
			if r.StripPathPrefix != "" {
				return "strip_prefix " + r.StripPathPrefix
			}
			return "rewrite to " + r.URI
		}
	}
	return ""
}

// hides reports whether a rewrite changes the paths of a pattern to others. Where that is not sure it is false.
func (r rewriting) hides(pattern string) bool {
	if r.of != nil && !slices.ContainsFunc(r.of, func(of string) bool { return !disjoint(of, pattern) }) {
		return false
	}
	literal, _, more := strings.Cut(r.URI, "{")
	path, _, query := strings.Cut(literal, "?")
	switch {
	case r.triesIn:
		return strings.HasPrefix(pattern, "/") && !strings.Contains(pattern, ".")
	case r.StripPathPrefix != "":
		return strings.HasPrefix(pattern, strings.TrimSuffix(r.StripPathPrefix, "/")+"/")
	case !strings.HasPrefix(path, "/"):
		return false
	case more && !query:
		return disjoint(path+"*", pattern)
	}
	return disjoint(path, pattern)
}

// rewrites reports whether a handler changes the path.
func (h jsonHandler) rewrites() bool {
	return h.Handler == "rewrite" && (h.URI != "" || h.StripPathPrefix != "" || h.StripPathSuffix != "" || h.URISubstring != nil || h.PathRegexp != nil)
}

// triesFiles reports whether matchers are those of a try_files that has something for every path, such as /index.html.
func triesFiles(sets []map[string]json.RawMessage) bool {
	for _, set := range sets {
		var file struct {
			TryFiles []string `json:"try_files"`
		}
		if set["file"] == nil || json.Unmarshal(set["file"], &file) != nil {
			continue
		}
		if slices.ContainsFunc(file.TryFiles, func(name string) bool { return !strings.Contains(name, "{http.request.uri.path}") }) {
			return true
		}
	}
	return false
}

// matchesAll reports whether some matcher sets match every request.
func matchesAll(sets []map[string]json.RawMessage) bool {
	if len(sets) == 0 {
		return true
	}
	return slices.ContainsFunc(sets, func(set map[string]json.RawMessage) bool {
		paths := matcherValues([]map[string]json.RawMessage{set}, "path")
		return len(set) == 0 || len(set) == 1 && (slices.Contains(paths, "*") || slices.Contains(paths, "/*"))
	})
}

// patternsOf returns the patterns of paths which some matcher sets match, and no others do; nil: they do not depend on the path alone.
func patternsOf(sets []map[string]json.RawMessage) []string {
	for _, set := range sets {
		if len(set) != 1 {
			return nil
		}
	}
	return matcherValues(sets, "path")
}

// matcherValues returns the values of a matcher that all of some sets have; nil: one has it not.
func matcherValues(sets []map[string]json.RawMessage, matcher string) []string {
	var all []string
	for _, set := range sets {
		var values []string
		if json.Unmarshal(set[matcher], &values) != nil || len(values) == 0 {
			return nil
		}
		all = append(all, values...)
	}
	return all
}

// covered reports whether every path of some patterns is one of some others.
func covered(patterns, by []string) bool {
	return len(patterns) > 0 && !slices.ContainsFunc(patterns, func(p string) bool {
		return !slices.ContainsFunc(by, func(b string) bool {
			prefix, open := strings.CutSuffix(strings.ToLower(b), "*")
			p := strings.ToLower(p)
			return !strings.Contains(prefix, "*") && !strings.ContainsAny(b+p, "{%") && (p == strings.ToLower(b) || open && strings.HasPrefix(p, prefix))
		})
	})
}

// disjoint reports whether no path is of two patterns. Where that is not sure it is false.
func disjoint(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if strings.ContainsAny(a+b, "{%") {
		return false
	}
	before, _, openA := strings.Cut(a, "*")
	after, _, openB := strings.Cut(b, "*")
	switch {
	case openA && openB:
		return !strings.HasPrefix(before, after) && !strings.HasPrefix(after, before)
	case openA:
		return !strings.HasPrefix(b, before)
	case openB:
		return !strings.HasPrefix(a, after)
	}
	return a != b
}
