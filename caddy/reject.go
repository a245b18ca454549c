package ratelimit

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/core"
	"go.uber.org/zap"
)

var errExceeded = errors.New("rate limit exceeded")

// tooMany is the error that error routes get. It is made by hand: caddyhttp.Error would look up where it was called from.
var tooMany = caddyhttp.HandlerError{StatusCode: http.StatusTooManyRequests, Err: errExceeded}

// reject tells the client, the log and whoever listens that the request is over a limit. The error it returns is for the
// site's error routes; where it has answered the request itself that is nil.
func (h *Handler) reject(w http.ResponseWriter, r *http.Request, q *inquiry) error {
	v := &q.verdict
	v.RetryAfter = h.jittered(v.RetryAfter)
	zone := q.zones[v.Told]
	name := zone.rule.Name()
	core.WriteHeaders(w.Header(), h.fields, q.checks, v)

	repl := replacerOf(r)
	repl.Set("http.rate_limit.exceeded.name", name)
	if v.RetryAfter != core.Never {
		repl.Set("http.rate_limit.exceeded.retry_after", core.RetrySeconds(v.RetryAfter))
	} else {
		repl.Set("http.rate_limit.exceeded.retry_after", "") // left unset, it would be shown as it is written
	}
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server != nil && server.Logs != nil {
		if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
			extra.Set(zap.String("rate_limit_rule", name))
		}
	}
	h.report(r, zone, v)

	if h.Response == "error_routes" || h.Response != "direct" && h.errorRoutesTake(r, server) {
		return tooMany
	}
	h.answer(w, r, repl, q)
	return nil
}

// answer writes the response of a rejected request.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, repl *caddy.Replacer, q *inquiry) {
	header := w.Header()
	if core.IsGRPC(r.Header) {
		// A response without messages: its status is in the header fields. Clients take the code of a gRPC response
		// only from one with HTTP status 200.
		header.Set("Content-Type", "application/grpc")
		header.Set("Grpc-Status", "8") // RESOURCE_EXHAUSTED
		header.Set("Grpc-Message", errExceeded.Error())
		w.WriteHeader(http.StatusOK)
		return
	}
	message := h.Message
	if message != "" {
		message = repl.ReplaceKnown(message, "")
	}
	contentType, body := core.Body(core.WantsProblem(r.Header), message, q.checks, &q.verdict)
	header["Content-Type"] = []string{contentType}
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = w.Write(body) // the client may be gone; there is nobody to tell
}

// errorRoutesTake reports whether error routes would take a 429 of this request: those of the server, of which each site
// has its own behind a matcher, and those of subroutes around this handler.
func (h *Handler) errorRoutesTake(r *http.Request, server *caddyhttp.Server) bool {
	if r.Context().Value(caddyhttp.ErrorCtxKey) != nil {
		return false // this handler stands in an error route itself, behind which there is no other
	}
	probe := errorProbe{request: r}
	for _, errs := range h.outer {
		if probe.taken(errs.Routes) {
			return true
		}
	}
	return server != nil && server.Errors != nil && probe.taken(server.Errors.Routes)
}

// errorProbe asks error routes whether they would handle a request that failed with a 429.
type errorProbe struct {
	request *http.Request
	failed  bool // the request has the error's placeholders, as error routes get it
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

// matches asks the matchers of a route. Those that are not about the host alone may look at the error's placeholders,
// which are costly to set and so set only for them.
func (p *errorProbe) matches(sets caddyhttp.MatcherSets) bool {
	for _, set := range sets {
		for _, matcher := range set {
			if _, host := matcher.(*caddyhttp.MatchHost); !host && !p.failed {
				p.request = (*caddyhttp.HTTPErrorConfig)(nil).WithError(p.request, tooMany)
				p.failed = true
			}
		}
	}
	matches, err := sets.AnyMatchWithError(p.request)
	return matches && err == nil
}
