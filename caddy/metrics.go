package ratelimit

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/proxyweir/weir/core"
)

// requestsTotal counts what becomes of requests, and candidatesTotal what becomes of those that a candidate is compared on. There is
// one of each a process, which every configuration enters in its registry, so that they go on over reloads. Of a rule they have no more
// series than there are outcomes.
var (
	requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_requests_total",
		Help: "Requests that came under a rule, by what the rule had become of them.",
	}, []string{"rule", "outcome"})
	candidatesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_candidate_decisions_total",
		Help: "Requests that came under a rule with a candidate, by what the limit and the candidate have decided.",
	}, []string{"rule", "limit", "candidate"})
)

// enter enters metrics in a configuration's registry.
func enter(registry *prometheus.Registry, collectors ...prometheus.Collector) error {
	if registry == nil {
		return nil
	}
	for _, c := range collectors {
		if err := registry.Register(c); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return err
		}
	}
	return nil
}

// outcome is what a rule has become of a request.
type outcome int

// The outcomes. A rule that would have allowed a request that another rejects counts none.
const (
	allowed outcome = iota
	allowedSoft
	delayed
	rejected
	shadowRejected
	errorOpen
	errorClosed
	fallback
	outcomes
)

var outcomeNames = [outcomes]string{"allowed", "allowed_soft", "delayed", "rejected", "shadow_rejected", "error_open", "error_closed", "fallback"}

// counters are the series of one rule. A series is made when it is first needed.
type counters struct {
	label      string
	requests   [outcomes]atomic.Pointer[prometheus.Counter]
	candidates [4]atomic.Pointer[prometheus.Counter]
}

func (c *counters) inc(o outcome) {
	counter := c.requests[o].Load()
	if counter == nil {
		made := requestsTotal.WithLabelValues(c.label, outcomeNames[o])
		counter = &made
		c.requests[o].Store(counter)
	}
	(*counter).Inc()
}

// compare counts what a limit and its candidate have decided.
func (c *counters) compare(limit, candidate bool) {
	which := 0
	words := [2]string{"rejected", "rejected"}
	if limit {
		which++
		words[0] = "allowed"
	}
	if candidate {
		which += 2
		words[1] = "allowed"
	}
	counter := c.candidates[which].Load()
	if counter == nil {
		made := candidatesTotal.WithLabelValues(c.label, words[0], words[1])
		counter = &made
		c.candidates[which].Store(counter)
	}
	(*counter).Inc()
}

// count counts what has become of a request, rule by rule. Where the store has failed that is how it was come to.
func (q *inquiry) count(failed bool) {
	if len(q.checks) == 1 && q.verdict.Outcome == core.Allow && !failed && !q.verdict.Soft && !q.checks[0].Rule.Shadow() { // as most are
		q.reporters[0].counters.inc(allowed)
		return
	}
	for i := range q.checks {
		c := &q.checks[i]
		d := &c.Decision
		if c.Rule.IsCandidate() {
			if !failed {
				q.reporters[i].counters.compare(q.checks[i-1].Decision.Allowed, d.Allowed)
			}
			continue
		}
		o := allowed
		switch {
		case failed && q.verdict.Outcome == core.Unavailable:
			o = errorClosed
		case failed && c.Uncounted:
			o = errorOpen
		case failed:
			o = fallback
		case c.Rule.Shadow():
			if !d.Allowed {
				o = shadowRejected
			}
		case !d.Allowed:
			o = rejected
		case q.verdict.Outcome == core.Reject:
			continue
		case d.Soft:
			o = allowedSoft
		case d.Delay > 0:
			o = delayed
		}
		if limit := q.besideOf(i); limit != nil && (d.Allowed || !limit.Decision.Allowed) {
			continue // the rule's limit has counted the request
		}
		q.reporters[i].counters.inc(o)
	}
}

// besideOf returns the check of the rule whose concurrency a check is about, nil where it is about something else, or the rule limits
// nothing else.
func (q *inquiry) besideOf(i int) *core.Check {
	if i == 0 || q.reporters[i] != q.reporters[i-1] || !q.checks[i].Rule.Limit().InFlight() {
		return nil
	}
	if q.checks[i-1].Rule.IsCandidate() {
		return &q.checks[i-2]
	}
	return &q.checks[i-1]
}

// fileMetrics tell whether the rule files that are there are those in force. There is one of them a process, which every
// configuration that has rule files enters in its registry.
type fileMetrics struct {
	successful prometheus.Gauge
	loaded     prometheus.Gauge
	reloads    *prometheus.CounterVec
}

var ruleFileMetrics = &fileMetrics{
	successful: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_rules_last_reload_successful",
		Help: "Whether the rule files, as they were last found, are in force: 1, or 0 where something is wrong with them and those before are.",
	}),
	loaded: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_rules_last_reload_success_timestamp_seconds",
		Help: "When rule files were last put in force, in seconds since the Unix epoch.",
	}),
	reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_rules_reloads_total",
		Help: "Changes of rule files, by whether they were taken or refused.",
	}, []string{"outcome"}),
}

// register enters the metrics in a configuration's registry.
func (m *fileMetrics) register(registry *prometheus.Registry) error {
	if err := enter(registry, m.successful, m.loaded, m.reloads); err != nil {
		return err
	}
	for _, outcome := range []string{"taken", "refused"} { // there from the beginning, so that the first is an increase
		m.reloads.WithLabelValues(outcome)
	}
	return nil
}

// started notes that files were read with a configuration that is in force now.
func (m *fileMetrics) started() {
	m.successful.Set(1)
	m.loaded.SetToCurrentTime()
	for _, outcome := range []string{"taken", "refused"} { // so that they are there before the first change
		m.reloads.WithLabelValues(outcome)
	}
}

// taken notes that a change was put in force, or was taken back.
func (m *fileMetrics) taken() {
	m.started()
	m.reloads.WithLabelValues("taken").Inc()
}

// refused notes that a change was not put in force.
func (m *fileMetrics) refused() {
	m.successful.Set(0)
	m.reloads.WithLabelValues("refused").Inc()
}
