package front

import (
	"math/rand"
	"net/http"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/rate"
)

// StatusClientClosedRequest is the status that Caddy's reverse proxy and Traefik, too, log for a client that left before it was answered.
const StatusClientClosedRequest = 499

// Jittered returns a wait in microseconds with a random part of it added: from nothing to jitter, a fraction of the wait.
func Jittered(wait int64, jitter float64) int64 {
	if jitter == 0 || wait <= 0 {
		return wait
	}
	return wait + int64(rand.Float64()*jitter*float64(wait)) //nolint:gosec // spreads clients, keeps no secret
}

// LacksKey is the text of a rejection's body if the request has no key, and no text is configured.
const LacksKey = "This request lacks what its limit tells clients apart by."

// Reject answers a request that is over a limit, after answer.WriteHeaders. message is the configuration's text for the body if the reported rule
// has none; "": the default text. fill replaces placeholders in it; nil: there are none.
func Reject(w http.ResponseWriter, r *http.Request, q *Evaluation, message string, fill func(text string) string) {
	if answer.IsGRPC(r) {
		answer.GRPC(w, answer.GRPCResourceExhausted, answer.GRPCLimited)
		return
	}
	v := &q.Verdict
	if v.Reported >= 0 {
		if own := core.Reported(q.Checks, v).Rule.Message; own != "" {
			message = own
		}
	}
	if message != "" && fill != nil {
		message = fill(message)
	}
	if message == "" && q.Lacking && v.RetryAfter == rate.Never {
		message = LacksKey
	}
	contentType, body := answer.Body(answer.WantsProblem(r.Header), message, q.Checks, v)
	w.Header()["Content-Type"] = []string{contentType}
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = w.Write(body) // the client may be gone; there is nobody to tell
}

// Unavailable answers a request that can be served only after a while, in microseconds. message is a sentence that says why.
func Unavailable(w http.ResponseWriter, r *http.Request, after int64, message string) {
	header := w.Header()
	header["Cache-Control"] = []string{"no-store"}
	answer.SetRetryAfter(header, after)
	if answer.IsGRPC(r) {
		answer.GRPC(w, answer.GRPCUnavailable, message)
		return
	}
	header["Content-Type"] = []string{"text/plain; charset=utf-8"}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(message + " Try again.\n"))
}

// Overloaded answers a request that a guard turns away, which may come again after a while, in microseconds.
func Overloaded(w http.ResponseWriter, r *http.Request, after int64) {
	header := w.Header()
	if !answer.WantsProblem(r.Header) || answer.IsGRPC(r) {
		Unavailable(w, r, after, "The service has as much to do as it can.")
		return
	}
	header["Cache-Control"] = []string{"no-store"}
	answer.SetRetryAfter(header, after)
	header["Content-Type"] = []string{"application/problem+json"}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(answer.ReducedCapacityBody())
}

// CannotCheck is the message of Unavailable if the store has failed and a rule then turns requests away.
const CannotCheck = "The rate limit cannot be checked."
