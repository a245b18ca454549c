package ratelimit

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
)

// decisionSeconds and storeErrors exist once in a process, and are registered in the registry of every configuration, so that they
// survive reloads. The counts of each rule are in a ruleStats, and a ruleCollector reports them.
var (
	decisionSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "weir_decision_duration_seconds",
		Help:    "How long the decision on a request took, by the store that its rules count in.",
		Buckets: durationBuckets(),
	}, []string{"store"})
	storeErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_store_errors_total",
		Help: "Decisions that the store failed to make, by cause: timeout, connection, reply, or unavailable if its circuit breaker was open.",
	}, []string{"kind"})
)

// durationBuckets returns the bounds of the buckets in seconds. The plugin for Traefik has the same.
func durationBuckets() []float64 {
	buckets := make([]float64, 0, len(core.DurationBounds))
	for _, bound := range core.DurationBounds {
		buckets = append(buckets, float64(bound)/1e9)
	}
	return buckets
}

// storeErrorKinds are the values of redis.ErrorKind.
var storeErrorKinds = []string{"timeout", "connection", "reply", "unavailable"}

func init() {
	for _, kind := range storeErrorKinds { // present from the start, so that the first error is an increase
		storeErrors.WithLabelValues(kind)
	}
	rulesReloads.WithLabelValues("taken")
	rulesReloads.WithLabelValues("refused")
}

// enter registers metrics in a configuration's registry.
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

// count counts the outcome of a request in each of its rules, at a time in seconds since the Unix epoch. failed says that the store
// has failed, so that the rules' on_error decided.
func count(q *front.Inquiry, at int64, failed bool) {
	if len(q.Checks) == 1 && q.Verdict.Outcome == core.Allow && !failed && !q.Verdict.Soft && !q.Checks[0].Rule.Shadow() { // the most common case
		stats := reporterOf(&q.Checks[0]).stats
		stats.inc(front.Allowed)
		stats.requests.add(q.Checks[0].Key, at)
		return
	}
	var part front.Part
	for i := 0; i < len(q.Checks); {
		stats := reporterOf(&q.Checks[i]).stats
		i = front.NextPart(q.Checks, i, &q.Verdict, failed, &part)
		if part.Compared != front.NotCompared {
			stats.candidates[part.Compared].Add(1)
		}
		if part.Outcome == front.NotCounted {
			continue
		}
		c := &q.Checks[part.Check]
		stats.inc(part.Outcome)
		stats.requests.add(c.Key, at)
		if part.Outcome == front.Rejected || part.Outcome == front.ShadowRejected {
			stats.rejections.add(c.Key, at)
		}
		if c.Decision.Penalty {
			stats.penalties.Add(1)
		}
	}
}

// These metrics say whether the rules in force are those of the rule files on disk. Every configuration with rule files registers
// them.
var (
	rulesSuccessful = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_rules_last_reload_successful",
		Help: "Whether the rule files as last read are in force: 1, or 0 if they were refused and the previous rules stay in force.",
	})
	rulesLoaded = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_rules_last_reload_success_timestamp_seconds",
		Help: "When rule files were last put in force, in seconds since the Unix epoch.",
	})
	rulesReloads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_rules_reloads_total",
		Help: "Changes of rule files, by outcome: taken or refused.",
	}, []string{"outcome"})
)

// noteRulesStarted records that a configuration came into force with its rule files.
func noteRulesStarted() {
	rulesSuccessful.Set(1)
	rulesLoaded.SetToCurrentTime()
}

// noteRulesTaken records that a change of rule files came into force, or was undone.
func noteRulesTaken() {
	noteRulesStarted()
	rulesReloads.WithLabelValues("taken").Inc()
}

// noteRulesRefused records that a change of rule files was refused.
func noteRulesRefused() {
	rulesSuccessful.Set(0)
	rulesReloads.WithLabelValues("refused").Inc()
}
