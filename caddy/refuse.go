package ratelimit

import (
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"go.uber.org/zap"
)

// This file has what happens to a request that is not passed on at once. The handler or the site's error routes reject it, or it
// waits until its reservation is due; its client may leave before that.

var errExceeded = errors.New("rate limit exceeded")

// tooMany is the error for error routes. It is a literal, since caddyhttp.Error would look up its caller on each call.
var tooMany = caddyhttp.HandlerError{StatusCode: http.StatusTooManyRequests, Err: errExceeded}

// reject logs a rejection, emits its event, and answers it. It answers a request, too, that a store which has failed cannot decide on. The header fields must have been written. The error it returns is for
// the site's error routes; it is nil if reject has answered the request itself.
func (h *Handler) reject(w http.ResponseWriter, r *http.Request, q *front.Inquiry) error {
	v := &q.Verdict
	if protect.DispatchOf(r).TurnAway(v.RetryAfter) {
		return protect.ErrTurnedAway
	}
	if v.Outcome == core.Unavailable {
		front.Unavailable(w, r, front.Jittered(v.RetryAfter, h.Jitter), front.CannotCheck)
		return nil
	}
	name := report.Of(core.Reported(q.Checks, v)).Name
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

	if h.errors.Take(r, server, tooMany) {
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

// fail answers a request for which no one can say whether it is covered.
func (h *Handler) fail(w http.ResponseWriter, err error) error {
	failed := caddyhttp.HandlerError{StatusCode: http.StatusInternalServerError, Err: err}
	if err == front.ErrEarly {
		failed.StatusCode = http.StatusTooEarly
	} else {
		errors.As(err, &failed)
	}
	return h.errors.Refuse(w, failed.StatusCode, failed.Err)
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
		return false, h.errors.Refuse(w, front.StatusClientClosedRequest, r.Context().Err())
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

// report logs a rejection and emits its event.
func (h *Handler) report(r *http.Request, q *front.Inquiry) {
	v := &q.Verdict
	c := core.Reported(q.Checks, v)
	rule := report.Of(c)
	wait := time.Duration(max(v.RetryAfter, 0)) * time.Microsecond // zero for rate.Never
	rule.Rejected(r, c.Key, wait)
	if h.events.ShouldEmit("rate_limit_exceeded") {
		h.events.Emit(h.ctx, "rate_limit_exceeded", map[string]any{
			"zone":      rule.Name,
			"wait":      wait,
			"remote_ip": match.HostOf(r.RemoteAddr),
			"client_ip": syntax.ClientAddress(r),
		})
	}
}
