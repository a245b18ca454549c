package ratelimit

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/core"
	"go.uber.org/zap"
)

var errExceeded = errors.New("rate limit exceeded")

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
	}
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server != nil && server.Logs != nil {
		if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
			extra.Set(zap.String("rate_limit_rule", name))
		}
	}
	h.report(r, zone, v)

	if h.Response == "error_routes" || h.Response != "direct" && h.errorRoutesTake(r, server) {
		return caddyhttp.HandlerError{StatusCode: http.StatusTooManyRequests, Err: errExceeded}
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
		message = repl.ReplaceAll(message, "")
	}
	contentType, body := core.Body(core.WantsProblem(r.Header), message, q.checks, &q.verdict)
	header["Content-Type"] = []string{contentType}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(http.StatusTooManyRequests)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone; there is nobody to tell
	}
}

// errorRoutesTake reports whether error routes would take a 429 of this request: those of the server, of which each site
// has its own behind a matcher, and those of subroutes around this handler.
func (h *Handler) errorRoutesTake(r *http.Request, server *caddyhttp.Server) bool {
	if len(h.outer) == 0 && (server == nil || server.Errors == nil || len(server.Errors.Routes) == 0) {
		return false
	}
	// Error routes match on the error's placeholders, so they are asked with the request that they would get.
	r = (*caddyhttp.HTTPErrorConfig)(nil).WithError(r, caddyhttp.HandlerError{StatusCode: http.StatusTooManyRequests, Err: errExceeded})
	for _, errs := range h.outer {
		if routesTake(errs.Routes, r) {
			return true
		}
	}
	return server != nil && server.Errors != nil && routesTake(server.Errors.Routes, r)
}

// routesTake reports whether any of the routes would handle the request: one that matches and has a handler, in itself or
// in its subroutes.
func routesTake(routes caddyhttp.RouteList, r *http.Request) bool {
	var satisfied map[string]bool // groups of which a route has matched
	for i := range routes {
		route := &routes[i]
		if route.Group != "" && satisfied[route.Group] {
			continue
		}
		if matches, err := route.MatcherSets.AnyMatchWithError(r); err != nil || !matches {
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
			if !ok || routesTake(sub.Routes, r) {
				return true
			}
		}
		if route.Terminal {
			return false
		}
	}
	return false
}
