package ratelimit

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// fileMetrics tell whether the rule files that are there are those in force. There is one of them a process, which every
// configuration that has rule files enters in its registry.
type fileMetrics struct {
	successful prometheus.Gauge
	loaded     prometheus.Gauge
	reloads    *prometheus.CounterVec
}

var ruleFileMetrics = &fileMetrics{
	successful: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_rules_last_reload_successful",
		Help: "Whether the rule files, as they were last found, are in force: 1, or 0 where something is wrong with them and those before are.",
	}),
	loaded: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_rules_last_reload_success_timestamp_seconds",
		Help: "When rule files were last put in force, in seconds since the Unix epoch.",
	}),
	reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_rules_reloads_total",
		Help: "Changes of rule files, by whether they were taken or refused.",
	}, []string{"outcome"}),
}

// register enters the metrics in a configuration's registry.
func (m *fileMetrics) register(ctx caddy.Context) error {
	registry := ctx.GetMetricsRegistry()
	if registry == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{m.successful, m.loaded, m.reloads} {
		if err := registry.Register(c); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return err
		}
	}
	for _, outcome := range []string{"taken", "refused"} { // there from the beginning, so that the first is an increase
		m.reloads.WithLabelValues(outcome)
	}
	return nil
}

// started notes that files were read with a configuration that is in force now.
func (m *fileMetrics) started() {
	m.successful.Set(1)
	m.loaded.SetToCurrentTime()
	for _, outcome := range []string{"taken", "refused"} { // so that they are there before the first change
		m.reloads.WithLabelValues(outcome)
	}
}

// taken notes that a change was put in force, or was taken back.
func (m *fileMetrics) taken() {
	m.started()
	m.reloads.WithLabelValues("taken").Inc()
}

// refused notes that a change was not put in force.
func (m *fileMetrics) refused() {
	m.successful.Set(0)
	m.reloads.WithLabelValues("refused").Inc()
}
