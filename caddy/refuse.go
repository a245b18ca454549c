package ratelimit

import (
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/rate"
)

// This file has what happens to a request that is not passed on at once. The handler or the site's error routes reject it, or it
// waits until its reservation is due; its client may leave before that.

var errExceeded = errors.New("rate limit exceeded")

// tooMany is the error for error routes. It is a literal, since caddyhttp.Error would look up its caller on each call.
var tooMany = caddyhttp.HandlerError{StatusCode: http.StatusTooManyRequests, Err: errExceeded}

// reject logs a rejection, emits its event, and answers it. The header fields must have been written. The error it returns is for
// the site's error routes; it is nil if reject has answered the request itself.
func (h *Handler) reject(w http.ResponseWriter, r *http.Request, q *front.Inquiry) error {
	v := &q.Verdict
	if dispatchOf(r).turnAway(v.RetryAfter) {
		return errTurnedAway
	}
	name := reporterOf(core.Reported(q.Checks, v)).name
	repl := syntax.ReplacerOf(r)
	repl.Set("http.rate_limit.exceeded.name", name)
	if v.RetryAfter != rate.Never {
		repl.Set("http.rate_limit.exceeded.retry_after", answer.RetrySeconds(v.RetryAfter))
	} else {
		repl.Set("http.rate_limit.exceeded.retry_after", "") // otherwise Caddy would show the placeholder as it is written
	}
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server != nil && server.Logs != nil {
		if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
			extra.Set(zap.String("rate_limit_rule", name))
		}
	}
	h.report(r, q)

	if h.leaveToErrorRoutes(r, server, tooMany) {
		return tooMany
	}
	front.Reject(w, r, q, h.Message, func(text string) string { return fillMessage(repl, text) })
	return nil
}

// fillMessage replaces the placeholders in a message. In a page their values, which clients may choose, are escaped.
func fillMessage(repl *caddy.Replacer, text string) string {
	if !answer.IsPage(text) {
		return repl.ReplaceKnown(text, "")
	}
	page, _ := repl.ReplaceFunc(text, func(name string, value any) (any, error) {
		if value == nil { // it is no placeholder, but the braces of a style
			return "{" + name + "}", nil
		}
		return html.EscapeString(caddy.ToString(value)), nil
	})
	return page
}

// leaveToErrorRoutes reports whether to return a rejection as an error, for error routes to answer.
func (h *Handler) leaveToErrorRoutes(r *http.Request, server *caddyhttp.Server, failure caddyhttp.HandlerError) bool {
	if h.Response == "direct" || r.Context().Value(caddyhttp.ErrorCtxKey) != nil {
		return false // no other error route follows a handler in an error route
	}
	if h.enclosed {
		// The routes of an enclosing subroute would get the error first. If none of them answered it, Caddy would go on behind the
		// subroute as if there were no error, to what the limit protects.
		return false
	}
	if h.Response == "error_routes" {
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

// fail answers a request for which no one can say whether it is covered.
func (h *Handler) fail(w http.ResponseWriter, err error) error {
	failed := caddyhttp.HandlerError{StatusCode: http.StatusInternalServerError, Err: err}
	if err == front.ErrEarly {
		failed.StatusCode = http.StatusTooEarly
	} else {
		errors.As(err, &failed)
	}
	return h.refuse(w, failed.StatusCode, failed.Err)
}

// refuse answers a request that is refused for another reason than a limit. It returns an error for Caddy to handle, or answers
// itself if an enclosing subroute would get the error.
func (h *Handler) refuse(w http.ResponseWriter, status int, err error) error {
	if !h.enclosed {
		return caddyhttp.HandlerError{StatusCode: status, Err: err}
	}
	w.WriteHeader(status)
	return nil
}

// wait waits until a request's reservation is due, and reports whether it is. If not, wait has answered the request, or returns the
// error for it. A client that leaves is not served. When the configuration is replaced or the server shuts down, waiting requests
// are answered at once with a 503, and a Retry-After that says when their reservations would have been due.
func (h *Handler) wait(w http.ResponseWriter, r *http.Request, delay time.Duration) (come bool, err error) {
	defer readAhead(r).Stop()
	due := time.Now().Add(delay)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-r.Context().Done():
		return false, h.refuse(w, front.StatusClientClosedRequest, r.Context().Err())
	case <-h.stopping:
	case <-h.ctx.Done():
	}
	front.Unavailable(w, r, time.Until(due).Microseconds(), "The server is restarting.")
	return false, nil
}

// stops reports whether the configuration is being replaced, or the server is shutting down.
func (h *Handler) stops() bool {
	select {
	case <-h.stopping:
	case <-h.ctx.Done():
	default:
		return false
	}
	return true
}

// readAhead begins to read the body of a waiting request, if another goroutine may read it: if net/http or Caddy's server has made
// the body's reader. Readers that modules add may act on the response while they read. The one of request_body does so when the
// body exceeds max_size. (It does not if the length is announced, since a length above max_size is refused before.)
//
// A server with an access log counts a body's bytes in a reader without a lock, and may log the count during a read. So readAhead
// inserts itself beneath that reader, which then counts what the service reads. It cannot insert itself beneath the reader of
// request_body.
//
// The request stays the same object, since Caddy's placeholders refer to the one that Caddy has made, which is not net/http's own.
func readAhead(r *http.Request) *front.Ahead {
	switch fmt.Sprintf("%T", r.Body) {
	case "*http.body", "*http.expectContinueReader", "*caddyhttp.IdleTimeoutReader":
	case "requestbody.errorWrapper":
		server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
		if !ok || server.Logs != nil || r.ContentLength < 0 {
			return nil
		}
	case "*caddyhttp.lengthReader":
		counted := r.Body
		source := reflect.ValueOf(counted).Elem().FieldByName("Source")
		body, ok := source.Interface().(io.ReadCloser)
		if !ok {
			return nil
		}
		r.Body = body
		defer func() {
			source.Set(reflect.ValueOf(r.Body))
			r.Body = counted
		}()
	default:
		return nil
	}
	same, ahead := front.ReadAhead(r)
	r.Body = same.Body
	r.Trailer = same.Trailer
	return ahead
}
