package ratelimit

import (
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/proxyweir/weir/deferral"
)

// The numbers of a queue are those of Redis: every node reports the same. Only refused requests are counted by each node. While Redis does not
// answer, the numbers of its queues are missing.
var (
	deferredJobsDesc = prometheus.NewDesc("weir_deferred_jobs",
		"Deferred requests that wait, run, or could not be done and are kept (dead), over all nodes.", []string{"rule", "state"}, nil)
	deferredOldestDesc = prometheus.NewDesc("weir_deferred_oldest_seconds",
		"How long ago the oldest deferred request that waits or runs was accepted; 0 if there is none. The same on all nodes.", []string{"rule"}, nil)
	deferredMaxWaitDesc = prometheus.NewDesc("weir_deferred_max_wait_seconds",
		"The longest that a deferred request may have to wait, as expected when it is accepted.", []string{"rule"}, nil)
	deferredMaxJobsDesc = prometheus.NewDesc("weir_deferred_max_jobs",
		"Deferred requests that may wait or run, over all nodes.", []string{"rule"}, nil)
	deferredBytesDesc = prometheus.NewDesc("weir_deferred_bytes",
		"Bytes that deferred requests and their results count for, over all nodes.", []string{"rule"}, nil)
	deferredMaxBytesDesc = prometheus.NewDesc("weir_deferred_max_bytes",
		"Bytes that deferred requests and their results may count for, over all nodes.", []string{"rule"}, nil)
	deferredAcceptingDesc = prometheus.NewDesc("weir_deferred_accepting",
		"Whether requests are deferred: 1, or 0 if Redis may lose them or does not answer, or an operator drains the queue.", []string{"rule"}, nil)
	deferredTotalDesc = prometheus.NewDesc("weir_deferred_total",
		"Deferred requests since the queue is in use, by what became of them: accepted, then done, dead or cancelled. Over all nodes.", []string{"rule", "outcome"}, nil)
	deferredAttemptsDesc = prometheus.NewDesc("weir_deferred_attempts_total",
		"Attempts at deferred requests, over all nodes.", []string{"rule"}, nil)
	deferredRetakenDesc = prometheus.NewDesc("weir_deferred_retaken_total",
		"Deferred requests whose node stood still or died while it did them, so that another does them again. Over all nodes.", []string{"rule"}, nil)
	deferredRefusedDesc = prometheus.NewDesc("weir_deferred_refused_total",
		"Requests over the limit that could have been deferred and were rejected, by reason: jobs, key, bytes (no room), wait (max_wait), drain, unsafe (Redis may lose it), or store (Redis did not answer).", []string{"rule", "reason"}, nil)

	deferredDescs = []*prometheus.Desc{deferredJobsDesc, deferredOldestDesc, deferredMaxWaitDesc, deferredMaxJobsDesc, deferredBytesDesc, deferredMaxBytesDesc,
		deferredAcceptingDesc, deferredTotalDesc, deferredAttemptsDesc, deferredRetakenDesc, deferredRefusedDesc}
)

// refusals are why requests that could be deferred are rejected; those before "wait" are the reasons of a deferral.FullError.
var refusals = [...]string{"jobs", "key", "bytes", "drain", "unsafe", "wait", "store"}

// refusalOf returns the place in refusals of an error of deferral.
func refusalOf(err error) int {
	reason := "store"
	full := new(deferral.FullError)
	switch {
	case errors.As(err, &full):
		reason = full.Why
	case errors.Is(err, deferral.ErrTooLate):
		reason = "wait"
	}
	return max(0, slices.Index(refusals[:], reason))
}

// collect reports on the queue.
func (d *deferring) collect(gauge func(d *prometheus.Desc, value float64, labels ...string), counter func(d *prometheus.Desc, value int64, labels ...string)) {
	rule := d.label()
	for i, reason := range refusals {
		counter(deferredRefusedDesc, d.zone.reporter.stats.refusals[i].Load(), rule, reason)
	}
	gauge(deferredMaxWaitDesc, d.desk.MaxWait.Seconds(), rule)
	gauge(deferredMaxJobsDesc, float64(d.config.MaxJobs), rule)
	gauge(deferredMaxBytesDesc, float64(d.config.MaxBytes), rule)
	sums := d.worker.Sums()
	gauge(deferredAcceptingDesc, map[bool]float64{true: 1}[sums != nil && !sums.Draining && d.worker.Obstacle() == ""], rule)
	if sums == nil {
		return
	}
	for state, n := range map[string]int64{"waiting": sums.Open - sums.Claimed, "running": sums.Claimed, "dead": sums.Letters} {
		gauge(deferredJobsDesc, float64(n), rule, state)
	}
	gauge(deferredOldestDesc, sums.Age().Seconds(), rule)
	gauge(deferredBytesDesc, float64(sums.Bytes), rule)
	for outcome, n := range map[string]int64{"accepted": sums.Accepted, "done": sums.Done, "dead": sums.Died, "cancelled": sums.Cancelled} {
		counter(deferredTotalDesc, n, rule, outcome)
	}
	counter(deferredAttemptsDesc, sums.Attempts, rule)
	counter(deferredRetakenDesc, sums.Retaken, rule)
}

// label returns the name of the zone in metrics and in the admin API.
func (d *deferring) label() string { return labelOf(d.h.Namespace, d.zone.rule.Name) }
