package ratelimit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/proxyweir/weir/core/front"
)

// adviceCollector reports what has become of advice in the configuration that serves requests. Without an advisor there is nothing to report.
type adviceCollector struct{}

var adviceDescs = func() []*prometheus.Desc {
	var list []*prometheus.Desc
	for _, m := range front.AdviceMetrics {
		list = append(list, prometheus.NewDesc(m.Name, m.Help, adviceLabels(&m), nil))
	}
	return list
}()

func adviceLabels(m *front.AdviceMetric) []string {
	switch m.Name {
	case front.AdviceApplied.Name:
		return []string{"rule"}
	case front.AdviceRefused.Name:
		return []string{"reason"}
	case front.AdviceClamped.Name:
		return []string{"rule", "kind"}
	}
	return nil
}

// Describe implements prometheus.Collector.
func (adviceCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range adviceDescs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (adviceCollector) Collect(to chan<- prometheus.Metric) {
	app := appInForce()
	if app == nil || app.Advisor == nil {
		return
	}
	g := &app.memory.adapting
	g.mu.Lock()
	board, polls := g.board, int64(0)
	if g.poller != nil {
		polls = g.poller.Health().Polls
	}
	used := g.app == app
	g.mu.Unlock()
	if !used || board == nil { // it is about to begin
		return
	}
	for i, m := range front.AdviceMetrics {
		kind := prometheus.GaugeValue
		if m.Kind == "counter" {
			kind = prometheus.CounterValue
		}
		for _, s := range front.AdviceSamples(&m, board, polls, app.Advisor.Mode == "apply", adviceClock.now()) {
			var values []string
			if s.Rule != "" {
				values = append(values, s.Rule)
			}
			if s.Kind != "" {
				values = append(values, s.Kind)
			}
			to <- prometheus.MustNewConstMetric(adviceDescs[i], kind, s.Value, values...)
		}
	}
}
