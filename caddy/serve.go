package ratelimit

import (
	"cmp"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/deferred"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
)

// ServeHTTP decides on the request. It passes the request on, makes it wait, or rejects it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if h.cors != nil {
		return h.serveCORS(w, r, next)
	}
	return h.serve(w, r, next)
}

// serveCORS is ServeHTTP of a handler with cors.
func (h *Handler) serveCORS(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if h.cors.Enter(w.Header(), r) {
		behind := next
		next = caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			h.cors.Leave(w.Header())
			return behind.ServeHTTP(w, r)
		})
	}
	early := r.TLS != nil && !r.TLS.HandshakeComplete // anybody can have sent it, from any address
	if !early && h.cors.Uncounted(r, syntax.ClientIPOf(r)) {
		return h.pass(w, r, next)
	}
	return h.serve(w, r, next)
}

// pass passes a request on that comes under no rule.
func (h *Handler) pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	q := front.Evaluations.Get().(*front.Evaluation)
	of := h.guarded.Ask(q, r, false)
	front.Free(q)
	return h.guarded.Admit(w, r, next, of)
}

// limit serves a request as the handler's rules have it.
func (h *Handler) limit(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	h.expected.note(r)
	q := front.Evaluations.Get().(*front.Evaluation)
	shadows, err := h.assemble(q, r)
	if err != nil {
		front.Free(q)
		return h.fail(w, err)
	}
	if len(q.Checks) == 0 {
		front.Free(q)
		return h.pass(w, r, next)
	}
	decided := h.decide(w, r, q)
	if decided.Answered {
		front.Free(q)
		return decided.Err
	}
	h.writeFields(w, r, q)
	report.Count(q, decided.At, decided.Failed)
	if h.Trace {
		report.Trace(r, q, decided.Failed)
	}
	of := h.guarded.Ask(q, r, decided.Failed)
	if shadows && q.Verdict.Outcome != core.Unavailable {
		report.Shadows(r, q.Checks)
	}
	switch v := &q.Verdict; {
	case v.Outcome == core.Unavailable, v.Outcome == core.Reject:
		err = h.reject(w, r, q)
		front.Free(q)
		return err
	case q.Set.Respects:
		next = h.respecting(next, q)
		fallthrough
	case v.Reserved:
		err = h.serveUnderWay(w, r, next, q, of)
	default:
		front.Free(q)
		err = h.guarded.Admit(w, r, next, of)
	}
	h.noteDoubled(w)
	return err
}

// charge decides on a request, and charges it.
func (h *Handler) charge(_ http.ResponseWriter, _ *http.Request, q *front.Evaluation) (d deferred.Decided) {
	var failure error
	d.At, failure = h.limiter.Charge(q.Checks, &q.Verdict)
	d.Failed = failure != nil
	return d
}

// noteDoubled warns once of a service that sends quota fields, too.
func (h *Handler) noteDoubled(w http.ResponseWriter) {
	if h.fields.XRateLimit && len(w.Header()[answer.LimitName(h.fields)]) > 1 && h.doubled.CompareAndSwap(false, true) {
		prefix := cmp.Or(h.HeaderPrefix, "X-RateLimit")
		h.logger.Warn("the service behind this handler sends "+prefix+" fields, too, and answers have both: write header_down -"+prefix+"-* into reverse_proxy to leave them to the rate limit, or headers none into rate_limit to leave them to the service", zap.String("at", h.At))
	}
}

// writeFields sets the header fields that say what was decided.
func (h *Handler) writeFields(w http.ResponseWriter, r *http.Request, q *front.Evaluation) {
	v := &q.Verdict
	if v.Outcome == core.Unavailable {
		return
	}
	front.SetLater(q, r, h.jitter())
	answer.WriteHeaders(w.Header(), h.fields, q.Checks, v)
}

// jitter returns the handler's jitter; -1: it has none.
func (h *Handler) jitter() float64 {
	if h.Jitter == nil {
		return -1
	}
	return *h.Jitter
}

// rejectDecided rejects a request by the verdict on its checks, and counts it.
func (h *Handler) rejectDecided(w http.ResponseWriter, r *http.Request, q *front.Evaluation) error {
	h.writeFields(w, r, q)
	report.Count(q, time.Now().Unix(), false)
	if h.Trace {
		report.Trace(r, q, false)
	}
	h.guarded.Ask(q, r, false)
	return h.reject(w, r, q)
}

// assemble fills in the checks of a request, and reports whether any rule of the handler is a shadow or has a candidate.
func (h *Handler) assemble(q *front.Evaluation, r *http.Request) (shadows bool, err error) {
	asked, shadows := h.asked, h.shadows
	if files := h.files.Load(); files != nil {
		asked, shadows = files.asked, shadows || files.set.shadows
	}
	q.Early = r.TLS != nil && !r.TLS.HandshakeComplete
	if asked.Files != nil {
		if sent, stripped := syntax.Readings(r); sent != r {
			q.Sent, q.Stripped = sent, stripped
		}
	}
	address := ""
	if asked.NeedsAddress {
		address = syntax.ClientIPOf(r)
	}
	return shadows, front.Assemble(asked, q, r, address)
}
