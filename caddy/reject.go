package ratelimit

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/answer"
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
	name := q.reporters[v.Told].name
	answer.WriteHeaders(w.Header(), h.fields, q.checks, v)

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
	h.answer(w, r, repl, q)
	return nil
}

// answer writes the response of a rejected request.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, repl *caddy.Replacer, q *inquiry) {
	header := w.Header()
	if answer.IsGRPC(r) {
		answer.GRPC(w, answer.GRPCResourceExhausted, errExceeded.Error())
		return
	}
	message := h.Message
	if message != "" {
		message = repl.ReplaceKnown(message, "")
	} else if q.lacking && q.verdict.RetryAfter == core.Never {
		message = "This request lacks what its limit tells clients apart by."
	}
	contentType, body := answer.Body(answer.WantsProblem(r.Header), message, q.checks, &q.verdict)
	header["Content-Type"] = []string{contentType}
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = w.Write(body) // the client may be gone; there is nobody to tell
}
