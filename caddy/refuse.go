package ratelimit

import (
	"errors"
	"html"
	"net/http"
	"regexp"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
)

// This file has what happens to a request that is not passed on: the handler answers it, or the site's error routes.

var errExceeded = errors.New("rate limit exceeded")

// tooMany is the error for error routes. It is a literal, since caddyhttp.Error would look up its caller on each call.
var tooMany = caddyhttp.HandlerError{StatusCode: http.StatusTooManyRequests, Err: errExceeded}

// reject logs a rejection, emits its event, and answers it. It answers a request, too, that a store which has failed cannot decide on. The header fields must have been written. The error it returns is for
// the site's error routes; it is nil if reject has answered the request itself.
func (h *Handler) reject(w http.ResponseWriter, r *http.Request, q *front.Evaluation) error {
	v := &q.Verdict
	if protect.DispatchOf(r).TurnAway(v.RetryAfter) {
		return protect.ErrTurnedAway
	}
	if v.Outcome == core.Unavailable {
		front.Unavailable(w, r, front.Jittered(v.RetryAfter, max(0, h.jitter())), front.CannotCheck)
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

	failure := tooMany
	own := front.OwnAnswer(w, r, q)
	failure.StatusCode = own.PlainStatus()
	if (h.Response == "error_routes" || !own.Complete()) && h.errors.Take(r, server, failure) {
		return failure
	}
	front.Reject(w, r, q, h.Message, func(text string, escape func(string) string) string { return fillText(repl, text, escape) })
	return nil
}

// placeholders are the innermost braces of a text: an answer may be JSON, or have a style or a script.
var placeholders = regexp.MustCompile(`\{[^{}]+\}`)

// fillText replaces the placeholders in an answer, and writes their values, which clients may choose, by escape; if that is nil, in a message.
func fillText(repl *caddy.Replacer, text string, escape func(value string) string) string {
	if escape == nil {
		return fillMessage(repl, text)
	}
	return placeholders.ReplaceAllStringFunc(text, func(found string) string {
		value, known := repl.Get(found[1 : len(found)-1])
		if !known {
			return found
		}
		return escape(caddy.ToString(value))
	})
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

// report logs a rejection and emits its event.
func (h *Handler) report(r *http.Request, q *front.Evaluation) {
	v := &q.Verdict
	c := core.Reported(q.Checks, v)
	rule := report.Of(c)
	wait := time.Duration(max(v.RetryAfter, 0)) * time.Microsecond // zero for rate.Never
	rule.Rejected(r, c.Key, wait)
	if blocked := h.app.memory.blocked; blocked.Wanted() {
		blocked.Note(r, q.Checks)
	}
	if h.events.ShouldEmit("rate_limit_exceeded") {
		h.events.Emit(h.ctx, "rate_limit_exceeded", map[string]any{
			"zone":      rule.Name,
			"wait":      wait,
			"remote_ip": match.HostOf(r.RemoteAddr),
			"client_ip": syntax.ClientAddress(r),
		})
	}
}
