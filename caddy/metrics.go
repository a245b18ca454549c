package ratelimit

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/redis"
)

// collector reports on the configuration that serves requests, whichever has registered it: Caddy also shows the registry of a configuration that was
// refused. A rule has a bounded number of series, however many keys it has; a rule that is gone has none.
type collector struct{}

var descs = func() map[*metrics.Family]*prometheus.Desc {
	list := make(map[*metrics.Family]*prometheus.Desc)
	for _, f := range metrics.Families {
		var labels []string
		for _, l := range f.Labels {
			labels = append(labels, l.Name)
		}
		list[f] = prometheus.NewDesc(f.Name, f.Help, labels, nil)
	}
	return list
}()

// register registers the metrics in a configuration's registry.
func register(registry *prometheus.Registry) error {
	if registry == nil {
		return nil
	}
	if err := registry.Register(collector{}); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		return err
	}
	return nil
}

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(to chan<- prometheus.Metric) {
	p := metrics.NewPage()
	addProcess(p)
	if app := appInForce(); app != nil {
		app.addMetrics(p)
	}
	for _, f := range metrics.Families {
		kind := prometheus.GaugeValue
		if f.Kind == "counter" {
			kind = prometheus.CounterValue
		}
		for _, s := range metrics.Of(p, f) {
			if f.Kind == "histogram" {
				within := make(map[float64]uint64, len(s.Bounds))
				for i, bound := range s.Bounds {
					within[bound] = uint64(max(s.Within[i], 0))
				}
				to <- prometheus.MustNewConstHistogram(descs[f], uint64(s.Count), s.Value, within, s.Labels...)
				continue
			}
			if s.Values == nil {
				to <- prometheus.MustNewConstMetric(descs[f], kind, s.Value, s.Labels...)
			}
			for i, n := range s.Values {
				to <- prometheus.MustNewConstMetric(descs[f], kind, float64(n), append(s.Labels[:len(s.Labels):len(s.Labels)], metrics.Last(f).Values[i])...)
			}
		}
	}
}

// addProcess adds what belongs to no configuration.
func addProcess(p *metrics.Page) {
	stores.AddDecisions(p)
	protect.AddGuards(p)
}

// addMetrics adds what the configuration's rules and their stores are at.
func (a *App) addMetrics(p *metrics.Page) {
	now := time.Now().UnixMicro()
	lent, leased := stores.Leases.Stats(), stores.Divide(a.limiters())
	for _, s := range a.activeRules() {
		r := metrics.Rule{Meter: s.Stats.Meter, Candidate: s.HasCandidate(), Blocks: s.HasPenalty(), Measures: s.Measures(), Brings: s.Active.Limits().Requested() != nil,
			Waiting: metrics.Absent, Keys: metrics.Absent, Units: metrics.Absent, Own: s.Own, Configured: s.Active.Configured().Own()}
		if len(s.Rules) > 0 {
			r.Waiting = s.Waiting()
		}
		if rules := s.InMemory(); len(rules) > 0 {
			r.Keys = report.KeysIn(a.memory.store, rules)
		}
		if units := s.Leased(&lent); units != nil {
			r.Units = *units
			leased = true
		}
		metrics.AddRule(p, &r, now)
	}
	if leased {
		metrics.Each(p, metrics.LeaseRequests, lent.Requests())
		metrics.Each(p, metrics.LeaseCalls, lent.Calls())
	}
	for _, d := range a.queues() {
		d.AddMetrics(p)
	}
	stores.AddStorages(p, stores.Storages(a.limiters()))
	servers := make(map[string]bool)
	var syncs redis.SyncStats
	for _, store := range stores.InRedis(a.limiters()) {
		syncs.Add(store.SyncStats())
		for _, server := range store.Servers() {
			servers[server.Name] = servers[server.Name] || server.Open
		}
	}
	if heard := stores.Regions(a.limiters()); heard.Used {
		metrics.AddIf(p, metrics.RegionCourier, heard.Leads)
		metrics.AddIf(p, metrics.RegionsDiffer, heard.Differs)
		for _, r := range heard.Peers {
			metrics.AddRegion(p, r.Name, r.Age.Seconds(), r.Ahead.Seconds(), r.Cut, r.Units)
		}
	}
	for name, open := range servers { // several stores may share a server
		metrics.AddIf(p, metrics.BreakerOpen, open, name)
	}
	if syncs.Used {
		metrics.Add(p, metrics.SyncAge, float64(syncs.Age)/1e6)
	}
	stats := a.memory.store.Stats()
	metrics.Add(p, metrics.MaxKeys, float64(stats.MaxKeys))
	metrics.Add(p, metrics.Evictions, float64(stats.Evictions))
	if len(a.files.inUse()) > 0 {
		metrics.AddIf(p, metrics.RulesSuccessful, !rulesRefused.Load())
		metrics.Add(p, metrics.RulesLoaded, float64(rulesLoaded.Load())/1e6)
		metrics.Each(p, metrics.RulesReloads, metrics.Read(rulesReloads))
	}
	metrics.AddAdvice(p, a.memory.adapting.Metrics(a.adviceSource), adapt.AdviceClock.Now())
}

// What belongs to no rule exists once in a process, so that it survives reloads. The counts of each rule are in a report.Stats.
var (
	rulesReloads = metrics.NewCounts(metrics.RulesReloads)
	rulesLoaded  atomic.Int64 // when rule files were last put in force, in microseconds since the Unix epoch
	rulesRefused atomic.Bool  // the rule files as last read are not in force
)

// noteRulesStarted records that a configuration came into force with its rule files.
func noteRulesStarted() {
	rulesRefused.Store(false)
	rulesLoaded.Store(time.Now().UnixMicro())
}

// noteRulesTaken records that a change of rule files came into force, or was undone.
func noteRulesTaken() {
	noteRulesStarted()
	metrics.Count(rulesReloads, metrics.RulesReloads, "taken")
}

// noteRulesRefused records that a change of rule files was refused.
func noteRulesRefused() {
	rulesRefused.Store(true)
	metrics.Count(rulesReloads, metrics.RulesReloads, "refused")
}
