package e2e

import (
	"io"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/proxyweir/weir/core/advice"
)

// metric is a metric of Weir.
type metric struct {
	name      string
	kind      dto.MetricType
	labels    map[string][]string // with the values that each may have; nil if those depend on the configuration or the machine
	caddyOnly bool
}

// knownMetrics returns the metrics of Weir, which are the same in Caddy and in the plugin. Tests compare them with the dashboard
// and the alerts in docs/grafana, and with what the proxies expose: see checkScrape.
func knownMetrics() []metric {
	outcomes := []string{"allowed", "allowed_soft", "delayed", "rejected", "shadow_rejected", "shadow_delayed", "error_open", "error_closed", "fallback"}
	decisions := []string{"allowed", "rejected"}
	const counter, gauge, histogram = dto.MetricType_COUNTER, dto.MetricType_GAUGE, dto.MetricType_HISTOGRAM
	type labels = map[string][]string
	return []metric{
		{name: "weir_requests_total", kind: counter, labels: labels{"rule": nil, "outcome": outcomes}},
		{name: "weir_candidate_decisions_total", kind: counter, labels: labels{"rule": nil, "limit": decisions, "candidate": decisions}},
		{name: "weir_decision_duration_seconds", kind: histogram, labels: labels{"store": {"memory", "redis", "storage"}}},
		{name: "weir_store_errors_total", kind: counter, labels: labels{"kind": {"timeout", "connection", "reply", "unavailable"}}},
		{name: "weir_breaker_open", kind: gauge, labels: labels{"server": nil}},
		{name: "weir_lease_units", kind: gauge, labels: labels{"rule": nil}},
		{name: "weir_lease_requests_total", kind: counter, labels: labels{"outcome": {"held", "rejected", "asked"}}},
		{name: "weir_lease_calls_total", kind: counter, labels: labels{"outcome": {"granted", "refused", "returned", "failed"}}},
		{name: "weir_sync_age_seconds", kind: gauge},
		{name: "weir_storage_instances", kind: gauge, labels: labels{"storage": nil, "state": {"readable", "damaged"}}, caddyOnly: true},
		{name: "weir_storage_rounds_total", kind: counter, labels: labels{"storage": nil, "round": {"write", "read"}, "outcome": {"ok", "failed"}}, caddyOnly: true},
		{name: "weir_storage_age_seconds", kind: gauge, labels: labels{"storage": nil}, caddyOnly: true},
		{name: "weir_storage_untold_total", kind: counter, labels: labels{"storage": nil}, caddyOnly: true},
		{name: "weir_storage_keys", kind: gauge, labels: labels{"storage": nil}, caddyOnly: true},
		{name: "weir_keys", kind: gauge, labels: labels{"rule": nil}},
		{name: "weir_max_keys", kind: gauge},
		{name: "weir_evictions_total", kind: counter},
		{name: "weir_waiting", kind: gauge, labels: labels{"rule": nil}},
		{name: "weir_penalties_total", kind: counter, labels: labels{"rule": nil}},
		{name: "weir_limit", kind: gauge, labels: labels{"rule": nil}},
		{name: "weir_limit_configured", kind: gauge, labels: labels{"rule": nil}},
		{name: "weir_limit_period_seconds", kind: gauge, labels: labels{"rule": nil}},
		{name: "weir_rules_last_reload_successful", kind: gauge, caddyOnly: true},
		{name: "weir_rules_last_reload_success_timestamp_seconds", kind: gauge, caddyOnly: true},
		{name: "weir_rules_reloads_total", kind: counter, labels: labels{"outcome": {"taken", "refused"}}, caddyOnly: true},
		{name: "weir_guard_limit", kind: gauge, labels: labels{"guard": nil}},
		{name: "weir_guard_under_way", kind: gauge, labels: labels{"guard": nil}},
		{name: "weir_guard_baseline_seconds", kind: gauge, labels: labels{"guard": nil}},
		{name: "weir_guard_fair_share", kind: gauge, labels: labels{"guard": nil}},
		{name: "weir_guard_rejected_total", kind: counter, labels: labels{"guard": nil, "reason": {"full", "unfair", "tightened"}}},
		{name: "weir_key_demand", kind: histogram, labels: labels{"guard": nil, "rule": nil}},
		{name: "weir_active_keys", kind: gauge, labels: labels{"guard": nil, "rule": nil}},
		{name: "weir_rejected_keys", kind: gauge, labels: labels{"guard": nil, "rule": nil}},
		{name: "weir_top_keys_share", kind: gauge, labels: labels{"guard": nil, "rule": nil, "keys": {"1", "10"}}},
		{name: "weir_time_to_first_byte_seconds", kind: histogram, labels: labels{"guard": nil, "rule": nil}},
		{name: "weir_key_demand_usual", kind: gauge, labels: labels{"guard": nil, "rule": nil, "share": {"0.99", "0.9999"}}},
		{name: "weir_guard_tightened_limit", kind: gauge, labels: labels{"guard": nil, "rule": nil}},
		{name: "weir_advice_age_seconds", kind: gauge},
		{name: "weir_advice_serial", kind: gauge},
		{name: "weir_advice_applied", kind: gauge, labels: labels{"rule": nil}},
		{name: "weir_advice_polls_total", kind: counter},
		{name: "weir_advice_refused_total", kind: counter, labels: labels{"reason": advice.Reasons}},
		{name: "weir_advice_clamped_total", kind: counter, labels: labels{"rule": nil, "kind": advice.ClampKinds}},
		{name: "weir_deferred_jobs", kind: gauge, labels: labels{"rule": nil, "state": {"waiting", "running", "dead"}}, caddyOnly: true},
		{name: "weir_deferred_oldest_seconds", kind: gauge, labels: labels{"rule": nil}, caddyOnly: true},
		{name: "weir_deferred_max_wait_seconds", kind: gauge, labels: labels{"rule": nil}, caddyOnly: true},
		{name: "weir_deferred_max_jobs", kind: gauge, labels: labels{"rule": nil}, caddyOnly: true},
		{name: "weir_deferred_bytes", kind: gauge, labels: labels{"rule": nil}, caddyOnly: true},
		{name: "weir_deferred_max_bytes", kind: gauge, labels: labels{"rule": nil}, caddyOnly: true},
		{name: "weir_deferred_accepting", kind: gauge, labels: labels{"rule": nil}, caddyOnly: true},
		{name: "weir_deferred_total", kind: counter, labels: labels{"rule": nil, "outcome": {"accepted", "done", "dead", "cancelled"}}, caddyOnly: true},
		{name: "weir_deferred_attempts_total", kind: counter, labels: labels{"rule": nil}, caddyOnly: true},
		{name: "weir_deferred_retaken_total", kind: counter, labels: labels{"rule": nil}, caddyOnly: true},
		{name: "weir_deferred_refused_total", kind: counter, labels: labels{"rule": nil, "reason": {"jobs", "key", "bytes", "wait", "drain", "store", "unsafe"}}, caddyOnly: true},
	}
}

// parseScrape reads a proxy's answer to a scrape, as text.
func parseScrape(text io.Reader) (map[string]*dto.MetricFamily, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	return p.TextToMetricFamilies(text)
}

// checkScrape checks that every metric of Weir in a scrape is known, with its type, its labels and their values. It returns their
// names.
func checkScrape(t testing.TB, scraped map[string]*dto.MetricFamily) []string {
	t.Helper()
	known := make(map[string]metric)
	for _, m := range knownMetrics() {
		known[m.name] = m
	}
	var names []string
	for name, family := range scraped {
		if !strings.HasPrefix(name, "weir_") {
			continue
		}
		names = append(names, name)
		m, is := known[name]
		if !is {
			t.Errorf("%s is scraped, but not known: the dashboard has nothing of it", name)
			continue
		}
		if family.GetType() != m.kind {
			t.Errorf("%s is a %v, and known as a %v", name, family.GetType(), m.kind)
		}
		for _, series := range family.GetMetric() {
			if len(series.GetLabel()) != len(m.labels) {
				t.Errorf("%s has the labels %v, and is known with %v", name, series.GetLabel(), m.labels)
			}
			for _, label := range series.GetLabel() {
				values, is := m.labels[label.GetName()]
				if !is || values != nil && !slices.Contains(values, label.GetValue()) {
					t.Errorf("%s has %s=%q, and is known with %v", name, label.GetName(), label.GetValue(), m.labels)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}
