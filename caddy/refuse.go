package ratelimit

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/answer"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/front"
	"go.uber.org/zap"
)

// What becomes of a request that is not passed on, or not at once: it is rejected, by this handler or by the site's error routes, or it
// waits for its turn, and may leave before that has come.

var errExceeded = errors.New("rate limit exceeded")

// tooMany is the error that error routes get. It is made by hand: caddyhttp.Error would look up where it was called from.
var tooMany = caddyhttp.HandlerError{StatusCode: http.StatusTooManyRequests, Err: errExceeded}

// reject tells the client, the log and whoever listens that the request is over a limit, when its header fields are written. The error it returns is for the
// site's error routes; where it has answered the request itself that is nil.
func (h *Handler) reject(w http.ResponseWriter, r *http.Request, q *front.Inquiry) error {
	v := &q.Verdict
	name := reporterOf(&q.Checks[v.Reported]).name
	repl := replacerOf(r)
	repl.Set("http.rate_limit.exceeded.name", name)
	if v.RetryAfter != core.Never {
		repl.Set("http.rate_limit.exceeded.retry_after", answer.RetrySeconds(v.RetryAfter))
	} else {
		repl.Set("http.rate_limit.exceeded.retry_after", "") // left unset, it would be shown as it is written
	}
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server != nil && server.Logs != nil {
		if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
			extra.Set(zap.String("rate_limit_rule", name))
		}
	}
	h.report(r, q)

	if h.leaveToErrorRoutes(r, server) {
		return tooMany
	}
	front.Reject(w, r, q, h.Message, func(text string) string { return repl.ReplaceKnown(text, "") })
	return nil
}

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

// fail answers a request of which nobody can say whether it is covered.
func (h *Handler) fail(w http.ResponseWriter, err error) error {
	failed := caddyhttp.HandlerError{StatusCode: http.StatusInternalServerError, Err: err}
	if err == front.ErrEarly {
		failed.StatusCode = http.StatusTooEarly
	} else {
		errors.As(err, &failed)
	}
	return h.refuse(w, failed.StatusCode, failed.Err)
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

// hold waits for the turn of a request, and reports whether it has come. If not, the request has been answered, or the error is. A client that leaves is not
// served. When the configuration is replaced or the server shuts down, those that wait are not kept: they are answered 503, and told
// when their turn would have come.
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

// stops reports whether the configuration is replaced, or the server shuts down.
func (h *Handler) stops() bool {
	select {
	case <-h.stopping:
	case <-h.ctx.Done():
	default:
		return false
	}
	return true
}

// readAhead begins to read the body of a request that waits, if another goroutine may: if net/http or Caddy's server has made its
// reader. Readers that a module has put around it may act on the response as they read, such as that of request_body where the body
// exceeds max_size. (It does not where the length is announced, since a length above max_size is refused beforehand.)
//
// A server with an access log counts a body's bytes with a reader that has no lock, and logs the count even while a read lasts. So what
// is read ahead is put beneath that reader, which then counts what the service gets. Beneath request_body it cannot be reached.
//
// The request stays the same, since Caddy's placeholders are of the one that it has made. It is not net/http's own.
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
