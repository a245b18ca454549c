package protect

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/core/answer"
)

// ErrorRoutes says who answers a request that a handler does not pass on: the handler, or error routes.
type ErrorRoutes struct {
	Response string // the handler's setting
	Enclosed bool   // a subroute around the handler has error routes of its own
}

// Take reports whether to return a rejection as an error, for error routes to answer.
func (e *ErrorRoutes) Take(r *http.Request, server *caddyhttp.Server, failure caddyhttp.HandlerError) bool {
	if e.Response == "direct" || r.Context().Value(caddyhttp.ErrorCtxKey) != nil {
		return false // no other error route follows a handler in an error route
	}
	if e.Enclosed {
		// The routes of an enclosing subroute would get the error first. If none of them answered it, Caddy would go on behind the
		// subroute as if there were no error, to what the limit protects.
		return false
	}
	if e.Response == "error_routes" {
		return true
	}
	if answer.IsGRPC(r) || server == nil || server.Errors == nil {
		return false // a gRPC client cannot read a page
	}
	probe := errorProbe{request: r, failure: failure, restores: true}
	taken := probe.taken(server.Errors.Routes)
	if !taken {
		probe.forget()
	}
	return taken
}

// errorProbe finds out whether error routes would handle a request that failed.
type errorProbe struct {
	request  *http.Request
	failure  caddyhttp.HandlerError
	restores bool // the server undoes rewrites of the request before its error routes
	failed   bool // the request has the placeholders of the error, as error routes get it
}

// taken reports whether any of the routes would handle the request: one that matches and has a handler, directly or in its
// subroutes.
func (p *errorProbe) taken(routes caddyhttp.RouteList) bool {
	var satisfied map[string]bool // groups with a route that has matched
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

// matches evaluates the matchers of a route. Only matchers that look at more than the host may need the error's placeholders or the
// original URI. Those are costly to set, so matches sets them only then.
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

// fail gives the request the state in which error routes would get it.
func (p *errorProbe) fail() {
	p.failed = true
	original, ok := p.request.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	p.request = (*caddyhttp.HTTPErrorConfig)(nil).WithError(p.request, p.failure) // a copy
	if ok && p.restores {
		p.request.Method = original.Method
		p.request.RemoteAddr = original.RemoteAddr
		p.request.RequestURI = original.RequestURI
		p.request.URL = new(url.URL)
		*p.request.URL = *original.URL
	}
}

// forget removes the error's placeholders, since no error is returned.
func (p *errorProbe) forget() {
	if !p.failed {
		return
	}
	repl := p.request.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	for _, name := range []string{"", ".status_code", ".status_text", ".id", ".trace", ".message"} {
		repl.Delete("http.error" + name)
	}
}

// Refuse answers a request that is refused for another reason than a limit. It returns an error for Caddy to handle, or answers
// itself if an enclosing subroute would get the error.
func (e *ErrorRoutes) Refuse(w http.ResponseWriter, status int, err error) error {
	if !e.Enclosed {
		return caddyhttp.HandlerError{StatusCode: status, Err: err}
	}
	w.WriteHeader(status)
	return nil
}

// StatusOf returns the response's status for a handler that has written nothing: that of the returned error, or 200 if there is
// none.
func StatusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	var failed caddyhttp.HandlerError
	if errors.As(err, &failed) && failed.StatusCode != 0 {
		return failed.StatusCode
	}
	return http.StatusInternalServerError
}

// Dispatch is a deferred request that is being done. It is in the request's context, where no client can put it.
type Dispatch struct {
	Wait time.Duration // not 0: a handler behind has turned it away for so long
}

type DispatchKey struct{}

// DispatchOf returns the dispatch of a request; nil: a client has sent it.
func DispatchOf(r *http.Request) *Dispatch {
	d, _ := r.Context().Value(DispatchKey{}).(*Dispatch)
	return d
}

// TurnAway has a deferred request wait for so many microseconds longer, rather than end with an answer of this program's. It reports whether it
// is one.
func (d *Dispatch) TurnAway(wait int64) bool {
	if d == nil {
		return false
	}
	if wait <= 0 { // rate.Never
		wait = time.Minute.Microseconds()
	}
	d.Wait = time.Duration(wait) * time.Microsecond
	return true
}

// ErrTurnedAway ends a request that was turned away.
var ErrTurnedAway = errors.New("the deferred request has to wait")
