package traefik

import (
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
)

// labelOf returns the label of a rule in the metrics.
func labelOf(r *core.Rule) string { return metrics.LabelOf(r.Namespace, r.Name()) }

// count counts the outcome of a request for each rule. failed: the store has failed, and the outcomes say so.
func count(s *ruleSet, q *front.Inquiry, failed bool) {
	var (
		i int
		v *core.Verdict
	)
	v = &q.Verdict
	if v.Outcome == core.Allow && s.enforced && !failed && !v.Soft { // as most are
		for i = range q.Checks {
			atomic.AddInt64(q.Checks[i].Rule.Allowed, 1)
		}
		return
	}
	countEach(s, q, failed)
}

// countEach is count for each rule by itself.
func countEach(s *ruleSet, q *front.Inquiry, failed bool) {
	var part front.Part
	for i := range q.Checks {
		m := s.meters[q.Checks[i].Rule.Name()]
		front.PartOf(&q.Checks[i], &q.Verdict, failed, &part)
		metrics.CountPart(m, &part)
	}
}

// waitingOf returns the meters of the rules that make a request wait; none if they are not metered.
func waitingOf(e *engine, s *ruleSet, q *front.Inquiry) []*metrics.Meter {
	var meters []*metrics.Meter
	if !e.counts {
		return meters
	}
	for i := range q.Checks {
		if m := s.meters[q.Checks[i].Rule.Name()]; m != nil && q.Checks[i].Decision.Delay > 0 && !q.Checks[i].Rule.Shadow {
			meters = append(meters, m)
		}
	}
	return meters
}

// processMetrics are the metrics that belong to no rule: one for all middlewares, so that they survive reloads.
type processMetrics struct {
	memory, redis *rate.Durations
	failures      []int64          // of metrics.StoreErrors
	evicted       int64            // of memories that are closed; with the registry's lock
	leases        redis.LeaseStats // of stores that are closed; with the registry's lock
}

func newProcessMetrics() *processMetrics {
	return &processMetrics{memory: rate.NewDurations(), redis: rate.NewDurations(), failures: metrics.NewCounts(metrics.StoreErrors)}
}

// decideTimed calls the limiter, and times it.
func decideTimed(e *engine, q *front.Inquiry) error {
	begun := time.Now()
	err := e.limiter.Decide(q.Checks, false, &q.Verdict)
	rate.Observe(e.durations(), time.Since(begun))
	return err
}

// durations returns the histogram for the decisions of a middleware.
func (e *engine) durations() *rate.Durations {
	if e.shared != nil {
		return e.registry.metrics.redis
	}
	return e.registry.metrics.memory
}

// series has the metrics of one rule: of one middleware, or in a snapshot of all that have the rule.
type series struct {
	of       metrics.Rule // in a snapshot, but for Own, Keys and Units, which are read when it is written
	all      *core.Limits // what the limits are of; in a snapshot, of the newest middleware; nil: of a descriptor
	limits   []*core.Rule // all of them; in a snapshot those in memory, of which some may count in the same place
	inRedis  []*core.Rule // in a snapshot, those in Redis
	inMemory bool         // in a snapshot: any of the middlewares counts there
}
