package traefik

import (
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/redis"
)

// meter counts the requests under one rule by outcome. Its counts survive reloads as long as any configuration has the rule. Functions of
// sync/atomic change the numbers, since they cost an interpreter less than methods.
type meter struct {
	waiting  int64   // requests that wait now; first, where 64 bits are aligned on every machine
	penalty  int64   // keys that were blocked for exceeding the limit
	allowed  *int64  // of requests: the most frequent outcome
	requests []int64 // by front.Outcome
	compared []int64 // by front.Comparison
	label    string  // the rule's: namespace/name
}

func newMeter(label string) *meter {
	m := &meter{label: label, requests: make([]int64, front.NotCounted), compared: make([]int64, front.Comparisons)}
	m.allowed = &m.requests[front.Allowed]
	return m
}

// labelOf returns the label of a rule in the metrics, as in Caddy's.
func labelOf(r *core.Rule) string {
	if r.Namespace() == "" {
		return r.Name()
	}
	return r.Namespace() + "/" + r.Name()
}

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
	i := 0
	for i < len(q.Checks) {
		m := s.meters[q.Checks[i].Rule.Name()]
		i = front.NextPart(q.Checks, i, &q.Verdict, failed, &part)
		if part.Compared != front.NotCompared {
			atomic.AddInt64(&m.compared[part.Compared], 1)
		}
		if part.Outcome == front.NotCounted {
			continue
		}
		atomic.AddInt64(&m.requests[part.Outcome], 1)
		if q.Checks[part.Check].Decision.Penalty {
			atomic.AddInt64(&m.penalty, 1)
		}
	}
}

// waitingOf returns the meters of the rules that make a request wait; none if they are not metered.
func waitingOf(e *engine, s *ruleSet, q *front.Inquiry) []*meter {
	var meters []*meter
	if !e.counts {
		return meters
	}
	for i := range q.Checks {
		if m := s.meters[q.Checks[i].Rule.Name()]; m != nil && q.Checks[i].Decision.Delay > 0 && !q.Checks[i].Rule.IsFormer() && !q.Checks[i].Rule.Shadow() {
			meters = append(meters, m)
		}
	}
	return meters
}

// processMetrics are the metrics that belong to no rule: one for all middlewares, so that they survive reloads.
type processMetrics struct {
	memory, redis *core.Durations
	failures      []int64          // by kind
	evicted       int64            // of memories that are closed; with the registry's lock
	leases        redis.LeaseStats // of stores that are closed; with the registry's lock
}

// failureKinds are the kinds of a store's failures, as redis.ErrorKind names them.
var failureKinds = []string{"timeout", "connection", "reply", "unavailable"}

func newProcessMetrics() *processMetrics {
	return &processMetrics{memory: core.NewDurations(), redis: core.NewDurations(), failures: make([]int64, len(failureKinds))}
}

// countFailure counts an error of the store.
func (p *processMetrics) countFailure(err error) {
	kind := redis.ErrorKind(err)
	for i := range failureKinds {
		if failureKinds[i] == kind {
			atomic.AddInt64(&p.failures[i], 1)
		}
	}
}

// decideTimed calls the limiter, and times it.
func decideTimed(e *engine, q *front.Inquiry) error {
	begun := time.Now()
	err := e.limiter.Decide(q.Checks, false, &q.Verdict)
	core.Observe(e.durations(), time.Since(begun))
	return err
}

// durations returns the histogram for the decisions of a middleware.
func (e *engine) durations() *core.Durations {
	if e.shared != nil {
		return e.registry.metrics.redis
	}
	return e.registry.metrics.memory
}

// series has the metrics of one rule: of one middleware, or in a snapshot of all that have the rule.
type series struct {
	meter     *meter
	own       *core.Rule   // its own limit, in a snapshot that of the newest middleware; nil: it has none
	all       *core.Limits // what own and limits are of; in a snapshot, of the newest middleware; nil: of a descriptor
	limits    []*core.Rule // all of them; in a snapshot those in memory, of which some may count in the same place
	inRedis   []*core.Rule // in a snapshot, those in Redis
	candidate bool         // there is one
	penalties bool         // there are any
	inMemory  bool         // in a snapshot: any of the middlewares counts there
}
