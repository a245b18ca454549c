package traefik

import (
	"net/http"

	"github.com/proxyweir/weir/answer"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/match"
	"github.com/proxyweir/weir/ruleset"
)

// aside answers for the paths of a middleware's own.
type aside struct {
	engine *engine
}

// ServeHTTP implements http.Handler.
func (a *aside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuseMethod(w)
		return
	}
	if r.URL.Path == a.engine.watching.metrics {
		servePage(w, r, a.engine.registry.page)
		return
	}
	serveQuotas(a.engine, w, r)
}

// refuseMethod answers a request that would change what can only be read.
func refuseMethod(w http.ResponseWriter) {
	w.Header()["Allow"] = []string{"GET, HEAD"}
	w.Header()["Content-Type"] = []string{"text/plain; charset=utf-8"}
	w.WriteHeader(http.StatusMethodNotAllowed)
	_, _ = w.Write([]byte("Only GET and HEAD are answered here.\n")) // the client may be gone; there is nobody to tell
}

// mostQuotas is of how many limits a client is told at once. Of rule files there may be thousands.
const mostQuotas = 100

// serveQuotas tells the client how it stands, at no cost.
func serveQuotas(e *engine, w http.ResponseWriter, r *http.Request) {
	q := inquiries.Get().(*inquiry)
	inquireOfCaller(e, q, r)
	status := http.StatusOK
	body := []byte("{\"error\":\"the rate limits cannot be read\"}\n")
	if err := e.limiter.Look(q.checks, &q.verdict); err != nil {
		e.reportFailure(err)
		status = http.StatusServiceUnavailable
	} else {
		body = answer.AppendQuotas(body[:0], q.checks, &q.verdict)
	}
	free(q)
	header := w.Header()
	header["Content-Type"] = []string{"application/json"}
	header["Cache-Control"] = []string{"no-store"}
	if status != http.StatusOK {
		header["Retry-After"] = []string{"1"}
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// inquireOfCaller fills in a check for each rule that the client of a request comes under, whatever the request is for. Rules that only
// watch are left out, and those that tell apart what is asked for.
func inquireOfCaller(e *engine, q *inquiry, r *http.Request) {
	s := e.inForce()
	q.set = s
	address := ""
	if s.needsAddress {
		address = clientAddress(&e.addressing, r)
	}
	for _, rule := range s.rules {
		ruled := rule.ruled
		if ruled.Shadow || !ruleset.OfTheCaller(ruled) || ruled.Matcher != nil && !match.CoversCaller(ruled.Matcher, r, address) {
			continue
		}
		key, missing := ruleset.KeyOf(ruled, r, address, q.key)
		if missing && (ruled.SkipMissing || ruled.RejectMissing) {
			continue
		}
		limit := rule.only
		if limit == nil {
			limit = ruleset.LimitOf(ruled, r, address, key)
		}
		if limit == nil {
			continue
		}
		cost := ruleset.CostOf(ruled, r, address)
		q.checks = append(q.checks, core.Check{Rule: limit, Key: key, Cost: cost})
		for _, other := range limit.Beside() {
			if !other.IsCandidate() {
				q.checks = append(q.checks, core.Check{Rule: other, Key: key, Cost: cost})
			}
		}
		if len(q.checks) >= mostQuotas {
			return
		}
	}
	if s.domain != nil {
		describe(e, s.domain, q, r, address)
	}
}
