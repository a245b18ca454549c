package traefik

import (
	"net/http"

	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/ruleset"
)

// ownPaths answers the middleware's own paths.
type ownPaths struct {
	engine *engine
}

// ServeHTTP implements http.Handler.
func (a *ownPaths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuseMethod(w)
		return
	}
	if r.URL.Path == a.engine.monitoring.Metrics {
		servePage(w, r, a.engine.host.page)
		return
	}
	serveQuotas(a.engine, w, r)
}

// mostQuotas is the most limits in one answer. Rule files may have thousands.
const mostQuotas = 100

// serveQuotas answers with the client's quotas, at no cost.
func serveQuotas(e *engine, w http.ResponseWriter, r *http.Request) {
	q := front.Evaluations.Get().(*front.Evaluation)
	assembleQuotas(e, q, r)
	status := http.StatusOK
	body := []byte("{\"error\":\"the rate limits cannot be read\"}\n")
	if err := e.limiter.Look(q.Checks, &q.Verdict); err != nil {
		e.reportFailure(err)
		status = http.StatusServiceUnavailable
	} else {
		front.SetQuotasLater(q.Checks, r, e.jitter)
		body = answer.AppendQuotas(body[:0], q.Checks, &q.Verdict)
	}
	front.Free(q)
	header := w.Header()
	header["Content-Type"] = []string{"application/json"}
	header["Cache-Control"] = []string{"no-store"}
	if status != http.StatusOK {
		answer.SetRetryAfter(header, 0)
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// assembleQuotas adds a check for each rule that covers the client of a request, whatever the request is for. It leaves out rules whose keys or
// limits depend on the request's path or method.
func assembleQuotas(e *engine, q *front.Evaluation, r *http.Request) {
	s := e.inForce()
	address := ""
	if s.needsAddress {
		address = clientAddress(&e.addressing, r)
	}
	rules := make([]*front.Rule, 0, len(s.rules))
	for _, rule := range s.rules {
		if ruleset.OfTheCaller(rule.Ruled) {
			rules = append(rules, rule)
		}
	}
	front.Quotas(s.asked, rules, mostQuotas, q, r, address)
}
