package ratelimit

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core/metrics"
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

// What belongs to no rule exists once in a process, so that it survives reloads. The counts of each rule are in a ruleStats.
var (
	rulesReloads = metrics.NewCounts(metrics.RulesReloads)
	rulesLoaded  atomic.Int64 // when rule files were last put in force, in microseconds since the Unix epoch
	rulesRefused atomic.Bool  // the rule files as last read are not in force
)

// addProcess adds what belongs to no configuration.
func addProcess(p *metrics.Page) {
	stores.AddDecisions(p)
	protect.AddGuards(p)
}

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
