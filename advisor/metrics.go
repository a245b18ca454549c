package advisor

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/proxyweir/weir/core/advice"
)

// metrics are those of an advisor, in a registry of its own.
type metrics struct {
	registry *prometheus.Registry

	requests, computations                  *prometheus.CounterVec
	serial, issued                          prometheus.Gauge
	duration                                prometheus.Histogram
	demand, forecast, skill, limit, abstain *prometheus.GaugeVec
}

func newMetrics() *metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_advisor_" + name, Help: help}, []string{label})
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_advisor_" + name, Help: help}, append([]string{"rule"}, labels...))
	}
	m := &metrics{
		registry:     prometheus.NewRegistry(),
		requests:     counter("requests_total", "Requests for advice, by the status of the answer.", "status"),
		computations: counter("computations_total", "Computations, by outcome: ok, or error if the source did not answer for a rule.", "outcome"),
		serial:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_advisor_serial", Help: "The serial of the last document; 0: there is none yet."}),
		issued:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_advisor_issued_timestamp_seconds", Help: "When the last document was issued; 0: there is none yet."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_advisor_computation_duration_seconds", Help: "How long computations took, with what the source took.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 8)}),
		demand:   gauges("demand", "The last demand that the rule's limit is for, in requests in its period."),
		forecast: gauges("forecast", "The forecast of that demand in the horizon, at the time of the greatest upper bound: mean, lower and upper bound.", "bound"),
		skill:    gauges("skill", "1 - the forecast's error / that of the last value, and of the mean of the season before.", "versus"),
		limit:    gauges("limit", "The limit that is advised, in requests in its period; the configured one if none is."),
		abstain:  gauges("abstains", "1 for the reason for which no limit and no threshold is advised; else 0.", "reason"),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.requests, m.computations, m.serial, m.issued, m.duration, m.demand, m.forecast, m.skill, m.limit, m.abstain)
	m.computations.WithLabelValues("ok")
	m.computations.WithLabelValues("error")
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// computed tells what was found, and the document that is served.
func (m *metrics) computed(c *Config, findings []Finding, d *advice.Document, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.computations.WithLabelValues(outcome).Inc()
	m.duration.Observe(took.Seconds())
	if d != nil {
		m.serial.Set(float64(d.Serial))
		m.issued.Set(float64(d.IssuedAt.UnixMilli()) / 1000)
	}
	for i := range findings {
		f := &findings[i]
		for _, reason := range abstentions {
			m.abstain.WithLabelValues(f.Rule, reason).Set(0)
		}
		limit := f.Requests
		if limit == 0 {
			limit = c.Rules[i].Limit.Requests
			if f.Above == nil {
				m.abstain.WithLabelValues(f.Rule, f.Reason).Set(1)
			}
		}
		m.limit.WithLabelValues(f.Rule).Set(float64(limit))
		if f.At.Time.IsZero() { // there is no forecast
			for _, g := range []*prometheus.GaugeVec{m.demand, m.forecast, m.skill} {
				g.DeletePartialMatch(prometheus.Labels{"rule": f.Rule})
			}
			continue
		}
		m.demand.WithLabelValues(f.Rule).Set(f.At.Demand)
		m.forecast.WithLabelValues(f.Rule, "mean").Set(f.Forecast.Mean)
		m.forecast.WithLabelValues(f.Rule, "lower").Set(f.Forecast.Lower)
		m.forecast.WithLabelValues(f.Rule, "upper").Set(f.Forecast.Upper)
		m.skill.WithLabelValues(f.Rule, "last").Set(f.Forecast.Skill)
		m.skill.WithLabelValues(f.Rule, "mean").Set(f.Forecast.SkillVersusMean)
	}
}
