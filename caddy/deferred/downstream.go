package deferred

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/deferral"
)

// Caddy gives a handler what comes behind it with each request. A deferred request may be done after a restart, when no other request has
// come yet. So what comes behind is looked up in the configuration.

// findDownstream finds the server of the handler, what comes behind the handler there, and which of the named placeholders are to be stored.
func (d *Deferral) findDownstream(named []string) error {
	if d.HTTP == nil {
		return errors.New("the handler is not in the HTTP app")
	}
	for _, server := range d.HTTP.Servers {
		s := search{handler: d.Self, server: server, path: d.Config.Path}
		if err := s.through(server.Routes, endOfChain); err != nil {
			return err
		}
		if s.downstream != nil {
			d.server, d.downstream = server, s.downstream
			d.named = slices.Clone(named)
			for _, route := range server.Routes {
				text, _ := json.Marshal(route.MatcherSets) // a matcher that cannot be written as JSON names nothing
				d.named = append(d.named, PlaceholdersIn(text)...)
			}
			return d.checkNamed()
		}
	}
	return errors.New("what comes behind this rate_limit cannot be found when Caddy restarts, since it is in a named route, in an error route or in a handler of responses; write it into the routes of a site")
}

// checkNamed sorts the placeholders to be stored, and refuses secrets that would not be encrypted.
func (d *Deferral) checkNamed() error {
	slices.Sort(d.named)
	d.named = slices.Compact(d.named)
	d.named = slices.DeleteFunc(d.named, fromRequest)
	if len(d.Config.Encrypt) > 0 {
		return nil
	}
	for _, name := range d.named {
		if deferral.IsSecret(name) {
			return fmt.Errorf("the configuration has the placeholder {%s}, which is a secret, and is stored with deferred requests; write encrypt with a key", name)
		}
	}
	return nil
}

// placeholderPattern finds placeholders in JSON.
var placeholderPattern = regexp.MustCompile(`\{([A-Za-z0-9_][^{}\s"\\]*)\}`)

// PlaceholdersIn returns the placeholders in a text.
func PlaceholdersIn(text []byte) []string {
	var names []string
	for _, found := range placeholderPattern.FindAllSubmatch(text, -1) {
		names = append(names, string(found[1]))
	}
	return names
}

// endOfChain is behind the last route.
var endOfChain caddyhttp.Handler = caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })

// search looks for a handler in the routes of a server.
type search struct {
	handler    caddyhttp.MiddlewareHandler
	server     *caddyhttp.Server
	path       string            // of jobs
	downstream caddyhttp.Handler // nil: not found yet
}

// through looks for the handler in a list of routes. end is what comes behind the list.
func (s *search) through(routes caddyhttp.RouteList, end caddyhttp.Handler) error {
	for i := range routes {
		route := &routes[i]
		for j, handler := range route.Handlers {
			sub, nested := handler.(*caddyhttp.Subroute)
			if handler != s.handler && !nested {
				continue
			}
			rest := chain(route.Handlers[j+1:], afterRoute(routes, i, end))
			if !nested {
				s.downstream = rest
			} else if err := s.through(sub.Routes, rest); err != nil {
				return err
			}
			if s.downstream != nil {
				return s.check(routes, i)
			}
		}
	}
	return nil
}

// check refuses surroundings of the handler, in the route at place i, in which a deferred request could not be done, or its client not ask for it.
func (s *search) check(routes caddyhttp.RouteList, i int) error {
	for _, behind := range routes[i+1:] {
		if behind.Group == "" || behind.Group == routes[i].Group {
			continue
		}
		if slices.ContainsFunc(routes[:i], func(front caddyhttp.Route) bool { return front.Group == behind.Group }) {
			return fmt.Errorf("the group %q has routes in front of this rate_limit and behind it, so what comes behind depends on which was taken; write rate_limit before all of them, or into one", behind.Group)
		}
	}
	url := "http://localhost" + s.path + "/" + deferral.NewID()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), nil, s.server)
	sets := routes[i].MatcherSets
	if len(sets) > 0 && !slices.ContainsFunc(sets, func(set caddyhttp.MatcherSet) bool { return mayMatch(set, r) }) {
		return fmt.Errorf("path %s: clients could not ask for their jobs, since this rate_limit gets no GET of it; write a path that its matcher has, or a matcher that has the path", s.path)
	}
	return nil
}

// mayMatch reports whether a request whose path and method alone are known may match.
func mayMatch(set caddyhttp.MatcherSet, r *http.Request) bool {
	for _, matcher := range set {
		switch matcher := matcher.(type) {
		case *syntax.MatchSentPath:
			if !matcher.Match(r) {
				return false
			}
		case *caddyhttp.MatchPath:
			if matches, err := matcher.MatchWithError(r); err != nil || !matches {
				return false
			}
		case *caddyhttp.MatchMethod:
			if matches, err := matcher.MatchWithError(r); err != nil || !matches {
				return false
			}
		}
	}
	return true
}

// afterRoute returns what comes behind a route that has been taken.
func afterRoute(routes caddyhttp.RouteList, i int, end caddyhttp.Handler) caddyhttp.Handler {
	if routes[i].Terminal {
		return endOfChain
	}
	var rest caddyhttp.RouteList
	for _, route := range routes[i+1:] {
		if route.Group == "" || route.Group != routes[i].Group { // of a group one route is taken
			rest = append(rest, route)
		}
	}
	return rest.Compile(end)
}

// chain returns handlers as one, in front of another.
func chain(handlers []caddyhttp.MiddlewareHandler, next caddyhttp.Handler) caddyhttp.Handler {
	for _, handler := range slices.Backward(handlers) {
		behind := next
		next = caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error { return handler.ServeHTTP(w, r, behind) })
	}
	return next
}
