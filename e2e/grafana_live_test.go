package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/proxyweir/weir/tools/must"
)

// exporter is an HTTP server with every metric of Weir and every value of its labels. Counters grow at each scrape.
type exporter struct {
	*httptest.Server
	rule    string // the value of that label
	scrapes atomic.Int64
	gone    atomic.Bool // it answers, but has no metrics any more
	value   func(name string, labels map[string]string) float64
}

// startExporter starts an exporter. value returns the value of a gauge, or by how much a counter or a bucket grows at each scrape.
func startExporter(t testing.TB, rule string, value func(name string, labels map[string]string) float64) *exporter {
	t.Helper()
	e := &exporter{rule: rule, value: value}
	e.Server = httptest.NewServer(http.HandlerFunc(e.serve))
	t.Cleanup(e.Close)
	return e
}

func (e *exporter) addr() string { return strings.TrimPrefix(e.URL, "http://") }

func (e *exporter) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	if e.gone.Load() {
		return
	}
	scrapes := float64(e.scrapes.Add(1))
	for _, m := range knownMetrics() {
		fmt.Fprintf(w, "# TYPE %s %s\n", m.name, strings.ToLower(m.kind.String()))
		for _, labels := range e.combinations(m) {
			switch m.kind {
			case dto.MetricType_GAUGE:
				fmt.Fprintf(w, "%s%s %g\n", m.name, labelText(labels), e.value(m.name, labels))
			case dto.MetricType_COUNTER:
				fmt.Fprintf(w, "%s%s %g\n", m.name, labelText(labels), scrapes*e.value(m.name, labels))
			case dto.MetricType_HISTOGRAM:
				e.serveHistogram(w, m.name, labels, scrapes)
			}
		}
	}
}

func (e *exporter) serveHistogram(w http.ResponseWriter, name string, labels map[string]string, scrapes float64) {
	sum := 0.0
	bounds := []string{"2.5e-07", "1e-05", "0.001", "0.025", "0.05", "0.25", "+Inf"} // of a time
	if name == "weir_key_demand" {
		bounds = []string{"1", "2", "16", "1024", "16384", "+Inf"}
	}
	for _, le := range bounds {
		bucket := maps.Clone(labels)
		bucket["le"] = le
		sum += scrapes * e.value(name, bucket)
		fmt.Fprintf(w, "%s_bucket%s %g\n", name, labelText(bucket), sum)
	}
	fmt.Fprintf(w, "%s_sum%s %g\n%s_count%s %g\n", name, labelText(labels), sum/1000, name, labelText(labels), sum)
}

// combinations returns the labels of all series that a metric can have.
func (e *exporter) combinations(m metric) []map[string]string {
	all := []map[string]string{{}}
	for _, label := range slices.Sorted(maps.Keys(m.labels)) {
		values := m.labels[label]
		switch label {
		case "rule":
			values = []string{e.rule}
		case "server":
			values = []string{"redis:6379"}
		case "guard":
			values = []string{"shop"}
		case "region":
			values = []string{"us"}
		case "storage":
			values = []string{"FileStorage:/shared"}
		}
		var more []map[string]string
		for _, labels := range all {
			for _, value := range values {
				with := maps.Clone(labels)
				with[label] = value
				more = append(more, with)
			}
		}
		all = more
	}
	return all
}

func labelText(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", name, labels[name]))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// calm returns the metrics of a proxy that rejects a little, and whose Redis answers within a millisecond.
func calm(name string, labels map[string]string) float64 {
	switch name {
	case "weir_requests_total":
		return map[string]float64{"allowed": 90e3, "rejected": 5e3, "allowed_soft": 1e3, "delayed": 1e3, "shadow_rejected": 3e3}[labels["outcome"]]
	case "weir_candidate_decisions_total":
		if labels["limit"] == labels["candidate"] {
			return 50e3
		}
		return 1e3
	case "weir_decision_duration_seconds":
		if labels["le"] == "0.001" || labels["le"] == "1e-05" {
			return 50e3
		}
	case "weir_keys", "weir_lease_units", "weir_lease_requests_total":
		return 1000
	case "weir_lease_calls_total":
		return 10
	case "weir_max_keys":
		return 1e6
	case "weir_waiting":
		return 3
	case "weir_limit", "weir_limit_configured":
		return 100
	case "weir_limit_period_seconds":
		return 60
	case "weir_rules_last_reload_successful":
		return 1
	case "weir_rules_last_reload_success_timestamp_seconds":
		return 1.7e9
	case "weir_guard_limit":
		return 40
	case "weir_guard_under_way", "weir_guard_fair_share", "weir_key_demand_usual":
		return 20
	case "weir_guard_baseline_seconds", "weir_top_keys_share":
		return 0.02
	case "weir_guard_rejected_total":
		return map[string]float64{"full": 0.001}[labels["reason"]] // now and then
	case "weir_key_demand", "weir_active_keys":
		return 500
	case "weir_region_courier":
		return 1
	case "weir_region_age_seconds", "weir_region_clock_seconds":
		return 0.5
	case "weir_region_unheard_units":
		return 20
	case "weir_storage_instances":
		return map[string]float64{"readable": 2}[labels["state"]]
	case "weir_storage_rounds_total":
		return map[string]float64{"ok": 1}[labels["outcome"]]
	case "weir_storage_age_seconds":
		return 2
	case "weir_storage_keys":
		return 3000
	case "weir_deferred_jobs":
		return map[string]float64{"waiting": 12, "running": 1}[labels["state"]]
	case "weir_deferred_oldest_seconds":
		return 5
	case "weir_deferred_max_wait_seconds":
		return 3600
	case "weir_deferred_max_jobs":
		return 10e3
	case "weir_deferred_bytes":
		return 2e6
	case "weir_deferred_max_bytes":
		return 256 << 20
	case "weir_deferred_total":
		return map[string]float64{"accepted": 10, "done": 10}[labels["outcome"]]
	case "weir_deferred_attempts_total":
		return 10
	case "weir_deferred_accepting":
		return 1
	case "weir_advice_age_seconds":
		return 30
	case "weir_advice_serial", "weir_advice_polls_total":
		return 1
	case "weir_advice_clamped_total":
		return map[string]float64{"ceiling": 1}[labels["kind"]]
	case "weir_time_to_first_byte_seconds":
		if labels["le"] == "0.025" {
			return 50e3
		}
	}
	return 0
}

// sick returns the metrics of a proxy with every problem for which there is an alert.
func sick(name string, labels map[string]string) float64 {
	switch name {
	case "weir_requests_total":
		switch labels["outcome"] {
		case "rejected":
			return 2e6
		case "shadow_rejected":
			return 500e3
		}
		return 100e3
	case "weir_candidate_decisions_total", "weir_evictions_total", "weir_penalties_total", "weir_store_errors_total":
		return 50e3
	case "weir_decision_duration_seconds":
		if labels["le"] == "0.25" {
			return 50e3
		}
		return 10e3
	case "weir_breaker_open":
		return 1
	case "weir_storage_age_seconds":
		return 900
	case "weir_keys":
		return 999e3
	case "weir_waiting":
		return 950
	case "weir_rules_last_reload_successful":
		return 0
	case "weir_rules_reloads_total":
		return 1
	case "weir_guard_limit":
		return 8
	case "weir_guard_rejected_total":
		return 10e3
	case "weir_guard_tightened_limit":
		return 50
	case "weir_deferred_jobs":
		return 3
	case "weir_deferred_oldest_seconds":
		return 9000
	case "weir_deferred_refused_total":
		return 10e3
	case "weir_deferred_accepting":
		return 0
	case "weir_advice_age_seconds":
		return 3600
	case "weir_advice_polls_total", "weir_advice_refused_total":
		return 10
	}
	return calm(name, labels)
}

// hastyAlerts writes alerts.yaml with alerts that fire after a second, and returns the path.
func hastyAlerts(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(grafanaDir, "alerts.yaml"))
	must.Succeed(t, err)
	hasty := regexp.MustCompile(`(?m)^( *)(for|interval): \S+`).ReplaceAll(text, []byte("$1$2: 1s"))
	path := filepath.Join(t.TempDir(), "alerts.yaml")
	must.Succeed(t, os.WriteFile(path, hasty, 0o600))
	return path
}

// alertsOf returns the names of a job's alerts that are firing, or in other states if they are given.
func alertsOf(t testing.TB, p *prometheus, job string, states ...string) []string {
	t.Helper()
	var names []string
	for _, a := range p.alerts(t) {
		if a.Labels["job"] == job && slices.Contains(states, a.State) {
			names = append(names, a.Labels["alertname"])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// quiet checks that no alert of a job is firing or pending. If a scrape takes too long, one may be for a moment.
func quiet(t testing.TB, p *prometheus, job string) {
	t.Helper()
	var got []string
	if !await(func() bool { got = alertsOf(t, p, job, "firing", "pending"); return len(got) == 0 }) {
		t.Errorf("%s: nothing is wrong, and %v is", job, got)
	}
}

func TestARealPrometheusFiresTheAlertsAndFillsEveryPanel(t *testing.T) {
	t.Parallel()
	var limits atomic.Int64
	ill := startExporter(t, "sick", func(name string, labels map[string]string) float64 {
		if name == "weir_guard_limit" && limits.Add(1) == 1 {
			return 128 // before all that
		}
		return sick(name, labels)
	})
	well := startExporter(t, "calm", calm)
	other := startExporter(t, "calm", func(name string, labels map[string]string) float64 {
		if name == "weir_limit" {
			return 200 // during a deployment of the fleet, and not as configured
		}
		return calm(name, labels)
	})
	p := startPrometheus(t, hastyAlerts(t), target{"sick", ill.addr()}, target{"calm", well.addr()}, target{"calm", other.addr()})

	var want []string // all except those that need a history
	for _, rule := range readAlerts(t) {
		if rule.Alert != "WeirMetricsGone" && rule.Alert != "WeirRuleRejectsMoreThanUsual" {
			want = append(want, rule.Alert)
		}
	}
	slices.Sort(want)
	var got []string
	if !await(func() bool { got = alertsOf(t, p, "sick", "firing"); return slices.Equal(got, want) }) {
		t.Fatalf("firing are\n%v, and not\n%v", got, want)
	}
	for _, a := range p.alerts(t) {
		for name, text := range a.Annotations {
			if strings.Contains(text, "{{") || strings.Contains(text, "<error") || strings.Contains(text, "<no value>") {
				t.Errorf("%s has the %s %q", a.Labels["alertname"], name, text)
			}
		}
	}
	quiet(t, p, "calm")

	d := readDashboard(t)
	for place, expr := range d.expressions(t) {
		if !await(func() bool { return len(p.query(t, interpolate(expr))) > 0 }) {
			t.Errorf("%s shows nothing: %s", place, interpolate(expr))
		}
	}

	ill.gone.Store(true)
	eventually(t, "the alert says that the metrics are gone", func() bool {
		return slices.Contains(alertsOf(t, p, "sick", "firing"), "WeirMetricsGone")
	})
	quiet(t, p, "calm")
}
