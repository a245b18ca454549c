package traefik

import (
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/redis"
)

// meter counts what becomes of the requests under one rule. What it counts goes on over reloads, as long as any configuration has the
// rule. Numbers are changed with functions of sync/atomic, which an interpreter calls for less than methods.
type meter struct {
	waiting  int64   // requests that wait for their turn; first, since that is where 64 bits are aligned on every machine
	penalty  int64   // keys that were shut out for an offence
	allowed  *int64  // of requests: what most are
	requests []int64 // by outcome
	compared []int64 // by what the limit (1: allowed) and the candidate (2: allowed) have decided
	label    string  // the rule's: namespace/name
}

// The outcomes of a request under a rule, as places in outcomeNames. Each rule counts one of a request at most: a rule that would have
// allowed what another rejects counts none, unless it is a shadow. Where the store has failed what memory rejects is rejected as ever,
// and what it allows is a fallback.
const (
	outcomeAllowed = iota
	outcomeAllowedSoft
	outcomeDelayed
	outcomeRejected
	outcomeShadowRejected
	outcomeErrorOpen
	outcomeErrorClosed
	outcomeFallback
)

var outcomeNames = []string{"allowed", "allowed_soft", "delayed", "rejected", "shadow_rejected", "error_open", "error_closed", "fallback"}

func newMeter(label string) *meter {
	m := &meter{label: label, requests: make([]int64, len(outcomeNames)), compared: make([]int64, 4)}
	m.allowed = &m.requests[outcomeAllowed]
	return m
}

// labelOf returns what the metrics call a rule: as Caddy's do.
func labelOf(r *core.Rule) string {
	if r.Namespace() == "" {
		return r.Name()
	}
	return r.Namespace() + "/" + r.Name()
}

// count counts what has become of a request, rule by rule. Where the store has failed that is how it was come to.
func count(s *ruleSet, q *inquiry, failed bool) {
	var (
		i int
		v *core.Verdict
	)
	v = &q.verdict
	if v.Outcome == core.Allow && s.enforced && !failed && !v.Soft { // as most are
		for i = range q.checks {
			atomic.AddInt64(q.checks[i].Rule.Allowed, 1)
		}
		return
	}
	countEach(s, q, failed)
}

// countEach is count where rules are asked one by one.
func countEach(s *ruleSet, q *inquiry, failed bool) {
	i := 0
	for i < len(q.checks) {
		limit := &q.checks[i]
		c := limit                        // what decides for the rule
		m := s.meters[c.Rule.Name()]      // which the rule that counts in its place has, too
		for i++; i < len(q.checks); i++ { // what stands beside the limit
			other := &q.checks[i]
			if other.Rule.IsCandidate() {
				if !failed {
					m.compare(limit.Decision.Allowed, other.Decision.Allowed)
				}
				continue
			}
			if !isConcurrencyOf(limit.Rule, other.Rule) {
				break
			}
			if limit.Decision.Allowed && !other.Decision.Allowed {
				c = other
			}
		}
		outcome := outcomeOf(c, &q.verdict, failed)
		if outcome < 0 {
			continue
		}
		atomic.AddInt64(&m.requests[outcome], 1)
		if c.Decision.Penalty {
			atomic.AddInt64(&m.penalty, 1)
		}
	}
}

// outcomeOf returns what a rule has become of a request; -1: nothing that is counted.
func outcomeOf(c *core.Check, v *core.Verdict, failed bool) int {
	if v.Outcome == core.Unavailable {
		if c.Rule.TurnsAway() {
			return outcomeErrorClosed
		}
		return -1 // others do
	}
	d := &c.Decision
	shadow := c.Rule.Shadow()
	if !d.Allowed {
		if shadow {
			return outcomeShadowRejected
		}
		return outcomeRejected
	}
	if v.Outcome == core.Reject && !shadow {
		return -1
	}
	if c.Uncounted {
		return outcomeErrorOpen
	}
	if failed {
		return outcomeFallback
	}
	if shadow {
		return outcomeAllowed
	}
	if d.Soft {
		return outcomeAllowedSoft
	}
	if d.Delay > 0 {
		return outcomeDelayed
	}
	return outcomeAllowed
}

// isConcurrencyOf reports whether a rule is the concurrency that another has besides its limit: the check of it stands behind that of the
// limit.
func isConcurrencyOf(limit, other *core.Rule) bool {
	return other.Limit().InFlight() && !limit.Limit().InFlight() && other.Name() == limit.Name()
}

// compare counts what a limit and its candidate have decided.
func (m *meter) compare(limit, candidate bool) {
	which := 0
	if limit {
		which++
	}
	if candidate {
		which += 2
	}
	atomic.AddInt64(&m.compared[which], 1)
}

// waitingOf returns the meters of the rules that have a request wait; none where they are not counted.
func waitingOf(e *engine, q *inquiry) []*meter {
	var meters []*meter
	if !e.counts {
		return meters
	}
	s := q.set
	if s == nil {
		s = e.fixed
	}
	for i := range q.checks {
		if m := s.meters[q.checks[i].Rule.Name()]; m != nil && q.checks[i].Decision.Delay > 0 {
			meters = append(meters, m)
		}
	}
	return meters
}

// processMetrics are those that are of no rule: one for all middlewares, so that they go on over reloads.
type processMetrics struct {
	memory, redis *core.Durations
	failures      []int64 // by kind
	evicted       int64   // of memories that are no more; with the registry's lock
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

// decideTimed asks the limiter, and times it.
func decideTimed(e *engine, q *inquiry) error {
	begun := time.Now()
	err := e.limiter.Decide(q.checks, false, &q.verdict)
	core.Observe(e.durations(), time.Since(begun))
	return err
}

// durations returns where the decisions of a middleware are timed.
func (e *engine) durations() *core.Durations {
	if e.shared != nil {
		return e.registry.metrics.redis
	}
	return e.registry.metrics.memory
}

// series is what the metrics have of one rule of a middleware.
type series struct {
	meter     *meter
	own       *core.Rule   // its own limit; nil: it has none
	limits    []*core.Rule // all of them
	candidate bool         // there is one
	penalties bool         // there are any
}
