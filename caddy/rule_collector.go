package ratelimit

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/redis"
)

// ruleCollector collects the metrics of the rules in force and of their stores. A rule has a bounded number of series, however many
// keys it has; a rule that is gone has none. It always reports on the configuration that serves requests, whichever has registered
// it: Caddy also shows the registry of a configuration that was refused.
type ruleCollector struct{}

var (
	requestsDesc = prometheus.NewDesc("weir_requests_total",
		"Requests that a rule covered, by outcome.", []string{"rule", "outcome"}, nil)
	candidatesDesc = prometheus.NewDesc("weir_candidate_decisions_total",
		"Requests that a rule with a candidate covered, by the decisions of its limit and of the candidate.", []string{"rule", "limit", "candidate"}, nil)
	penaltiesDesc = prometheus.NewDesc("weir_penalties_total",
		"Keys that were blocked for exceeding a rule's limit.", []string{"rule"}, nil)
	waitingDesc = prometheus.NewDesc("weir_waiting",
		"Requests that wait now until a rule's limit admits them.", []string{"rule"}, nil)
	limitDesc = prometheus.NewDesc("weir_limit",
		"The requests that a rule allows a key in a period, where it has no other limit.", []string{"rule"}, nil)
	configuredDesc = prometheus.NewDesc("weir_limit_configured",
		"The same as weir_limit, as the configuration has it, whatever advice has made of it.", []string{"rule"}, nil)
	periodDesc = prometheus.NewDesc("weir_limit_period_seconds",
		"The period of a rule's own limit; of the calendar, the day, week or month that it is.", []string{"rule"}, nil)
	keysDesc = prometheus.NewDesc("weir_keys",
		"Keys of a rule in this process's memory.", []string{"rule"}, nil)
	maxKeysDesc = prometheus.NewDesc("weir_max_keys",
		"Keys that this process's memory may hold, over all rules.", nil, nil)
	evictionsDesc = prometheus.NewDesc("weir_evictions_total",
		"Keys that were evicted from memory while they still counted, since it was full.", nil, nil)
	breakerDesc = prometheus.NewDesc("weir_breaker_open",
		"Whether the circuit breaker of a Redis server is open, so that it gets no requests: 1, or 0 if it is closed.", []string{"server"}, nil)
	syncAgeDesc = prometheus.NewDesc(redis.SyncAge, redis.SyncAgeHelp, nil, nil)
)

// Describe implements prometheus.Collector.
func (ruleCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{requestsDesc, candidatesDesc, penaltiesDesc, waitingDesc, limitDesc, configuredDesc, periodDesc, keysDesc, maxKeysDesc, evictionsDesc, breakerDesc,
		leaseUnitsDesc, leaseRequestsDesc, leaseCallsDesc, syncAgeDesc} {
		to <- d
	}
	for _, d := range append(slices.Clone(deferredDescs), storageDescs...) {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (ruleCollector) Collect(to chan<- prometheus.Metric) {
	app := appInForce()
	if app == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	servers := make(map[string]bool)
	now := time.Now().UnixMicro()
	lent, leased := leases.stats(), false
	for _, s := range app.subjects() {
		for o, name := range front.OutcomeNames {
			// Outcomes that most rules never have appear once they have happened. The others are present from the start, so that
			// the first is an increase.
			if n := s.stats.outcomes[o].Load(); n > 0 || front.Outcome(o) == front.Allowed || front.Outcome(o) == s.rejects() {
				counter(requestsDesc, n, s.label, name)
			}
		}
		if s.hasCandidate() {
			for i, words := range front.ComparisonWords {
				counter(candidatesDesc, s.stats.candidates[i].Load(), s.label, words[0], words[1])
			}
		}
		if s.hasPenalty() {
			counter(penaltiesDesc, s.stats.penalties.Load(), s.label)
		}
		if s.waits() {
			gauge(waitingDesc, float64(s.waiting()), s.label)
		}
		if s.own != nil {
			gauge(limitDesc, requestsOf(s.own), s.label)
			if period := lengthOf(s.own.Limit(), now); period > 0 {
				gauge(periodDesc, float64(period)/1e6, s.label)
			}
		}
		if own := s.all.Own(); own != nil {
			gauge(configuredDesc, requestsOf(own), s.label)
		}
		if rules := s.inMemory(); len(rules) > 0 {
			gauge(keysDesc, float64(app.keysOf(rules)), s.label)
		}
		if units := s.leased(&lent); units != nil {
			gauge(leaseUnitsDesc, float64(*units), s.label)
			leased = true
		}
	}
	if leased {
		for _, c := range lent.Requests() {
			counter(leaseRequestsDesc, c.N, c.Outcome)
		}
		for _, c := range lent.Calls() {
			counter(leaseCallsDesc, c.N, c.Outcome)
		}
	}
	for _, d := range app.queues() {
		d.collect(gauge, counter)
	}
	collectStorages(app.storages(), gauge, counter)
	var syncs redis.SyncStats
	for _, store := range app.redisStores() {
		syncs.Add(store.SyncStats())
		for _, server := range store.Servers() {
			servers[server.Name] = servers[server.Name] || server.Open
		}
	}
	for name, open := range servers { // several stores may share a server
		gauge(breakerDesc, map[bool]float64{true: 1}[open], name)
	}
	if syncs.Rounds > 0 {
		gauge(syncAgeDesc, float64(syncs.Age)/1e6)
	}
	stats := app.memory.store.Stats()
	gauge(maxKeysDesc, float64(stats.MaxKeys))
	counter(evictionsDesc, stats.Evictions)
}

// requestsOf returns the requests that a limit allows in a period; 0 if it rejects all.
func requestsOf(r *core.Rule) float64 {
	if r.Blocks() {
		return 0
	}
	return float64(r.Limit().Requests())
}

// lengthOf returns the period of a limit in microseconds: for a calendar period, the length of the current day, week or month; 0 if
// there is none.
func lengthOf(l *core.Limit, now int64) int64 {
	if w := l.Windows(now); w != nil {
		return w[2] - w[1]
	}
	if l.InFlight() {
		return 0
	}
	return l.Period()
}

// memoryName is the name of the store in this process's memory.
const memoryName = "memory"

// inMemory returns the limits of a rule that are counted in memory.
func (s *subject) inMemory() []*core.Rule {
	var rules []*core.Rule
	for _, one := range append([]*subject{s}, s.also...) {
		if one.limiter.store == memoryName {
			rules = append(rules, one.rules...)
		}
	}
	return rules
}

// keysOf returns how many keys of rules are in memory. Rules with the same name, algorithm and period have the same keys.
func (a *App) keysOf(rules []*core.Rule) int64 {
	keys := int64(0)
	counted := make(map[string]bool)
	for _, r := range rules {
		if !counted[r.Identity()] {
			counted[r.Identity()] = true
			keys += a.memory.store.Keys(r)
		}
	}
	return keys
}

// rejects returns the outcome of a request that is over the rule's limit.
func (s *subject) rejects() front.Outcome {
	if s.shadow {
		return front.ShadowRejected
	}
	return front.Rejected
}

func (s *subject) hasCandidate() bool {
	return slices.ContainsFunc(s.rules, func(r *core.Rule) bool { return slices.ContainsFunc(r.Beside(), (*core.Rule).IsCandidate) })
}

func (s *subject) hasPenalty() bool {
	return slices.ContainsFunc(s.rules, func(r *core.Rule) bool {
		t, ok := r.Terms()
		return ok && len(t.Penalties) > 0
	})
}

func (s *subject) waits() bool { return slices.ContainsFunc(s.rules, (*core.Rule).Waits) }

// waiting returns how many requests wait for the rule. In one handler, all limits of a rule share that count.
func (s *subject) waiting() int64 {
	if len(s.rules) == 0 {
		return 0
	}
	n := s.rules[0].Waiting()
	for _, other := range s.also {
		if len(other.rules) > 0 && other.rules[0] != s.rules[0] {
			n += other.rules[0].Waiting()
		}
	}
	return n
}
