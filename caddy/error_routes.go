package ratelimit

import (
	"net/http"
	"net/url"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/answer"
)

// leaveToErrorRoutes reports whether a rejection is to be returned as an error, for error routes to answer.
func (h *Handler) leaveToErrorRoutes(r *http.Request, server *caddyhttp.Server) bool {
	if h.Response == "direct" || r.Context().Value(caddyhttp.ErrorCtxKey) != nil {
		return false // a handler that stands in an error route has no other behind it
	}
	if h.enclosed {
		// The routes of an enclosing subroute would get the error first. If none of them answers it, Caddy goes on behind
		// the subroute as if there had been no error, to what the limit is there to protect.
		return false
	}
	if h.Response == "error_routes" {
		return true
	}
	if answer.IsGRPC(r) || server == nil || server.Errors == nil {
		return false // a gRPC client understands no page
	}
	probe := errorProbe{request: r, restores: true}
	taken := probe.taken(server.Errors.Routes)
	if !taken {
		probe.forget()
	}
	return taken
}

// refuse answers a request that the handler does not pass on for another reason than a limit: with an error, for Caddy to
// handle, or by itself where an enclosing subroute would get the error.
func (h *Handler) refuse(w http.ResponseWriter, status int, err error) error {
	if !h.enclosed {
		return caddyhttp.HandlerError{StatusCode: status, Err: err}
	}
	w.WriteHeader(status)
	return nil
}

// errorProbe asks error routes whether they would handle a request that failed with a 429.
type errorProbe struct {
	request  *http.Request
	restores bool // before its error routes a server takes back how the request was rewritten
	failed   bool // the request has the error's placeholders, as error routes get it
}

// taken reports whether any of the routes would: one that matches and has a handler, in itself or in its subroutes.
func (p *errorProbe) taken(routes caddyhttp.RouteList) bool {
	var satisfied map[string]bool // groups of which a route has matched
	for i := range routes {
		route := &routes[i]
		if route.Group != "" && satisfied[route.Group] || !p.matches(route.MatcherSets) {
			continue
		}
		if route.Group != "" {
			if satisfied == nil {
				satisfied = make(map[string]bool)
			}
			satisfied[route.Group] = true
		}
		for _, handler := range route.Handlers {
			sub, ok := handler.(*caddyhttp.Subroute)
			if !ok || p.taken(sub.Routes) {
				return true
			}
		}
		if route.Terminal {
			return false
		}
	}
	return false
}

// matches asks the matchers of a route. Those that are not about the host alone may look at the error's placeholders or at
// the URI, which are costly to set and so set only for them.
func (p *errorProbe) matches(sets caddyhttp.MatcherSets) bool {
	for _, set := range sets {
		for _, matcher := range set {
			if _, host := matcher.(*caddyhttp.MatchHost); !host && !p.failed {
				p.fail()
			}
		}
	}
	matches, err := sets.AnyMatchWithError(p.request)
	return matches && err == nil
}

// fail makes the request what error routes would get.
func (p *errorProbe) fail() {
	p.failed = true
	original, ok := p.request.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	p.request = (*caddyhttp.HTTPErrorConfig)(nil).WithError(p.request, tooMany) // a copy
	if ok && p.restores {
		p.request.Method = original.Method
		p.request.RemoteAddr = original.RemoteAddr
		p.request.RequestURI = original.RequestURI
		p.request.URL = new(url.URL)
		*p.request.URL = *original.URL
	}
}

// forget takes the error's placeholders back, where no error is returned.
func (p *errorProbe) forget() {
	if !p.failed {
		return
	}
	repl := p.request.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	for _, name := range []string{"", ".status_code", ".status_text", ".id", ".trace", ".message"} {
		repl.Delete("http.error" + name)
	}
}
