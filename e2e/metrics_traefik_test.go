package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/proxyweir/weir/tools/must"
)

// metrics are the metrics of a scrape, as parsed by Prometheus's parser.
type metrics map[string]*dto.MetricFamily

// parseMetrics reads a page of metrics, which Prometheus must accept and promtool must not complain about.
func parseMetrics(page string) (metrics, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	found, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		return nil, fmt.Errorf("the page cannot be parsed: %w\n%s", err, page)
	}
	return found, nil
}

// promtool checks a page of metrics as `promtool check metrics` does.
func promtool(t *testing.T, page string) {
	t.Helper()
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(page)
	if out, err := check.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("promtool (apt-get install prometheus) says: %v\n%s", err, out)
	}
}

// value returns the value of a series, -1 if there is none. Labels come in pairs.
func (m metrics) value(name string, labels ...string) float64 {
	family := m[name]
	if family == nil {
		return -1
	}
	for _, metric := range family.Metric {
		if !hasLabels(metric, labels) {
			continue
		}
		switch family.GetType() {
		case dto.MetricType_COUNTER:
			return metric.GetCounter().GetValue()
		case dto.MetricType_GAUGE:
			return metric.GetGauge().GetValue()
		case dto.MetricType_HISTOGRAM:
			return float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return -1
}

func hasLabels(metric *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		if !slices.ContainsFunc(metric.Label, func(l *dto.LabelPair) bool { return l.GetName() == labels[i] && l.GetValue() == labels[i+1] }) {
			return false
		}
	}
	return true
}

// label returns the name of a middleware's only rule in metrics.
func (s *site) label(middleware string) string {
	return strings.ReplaceAll(s.qualified(middleware), "@", ".") + "/" + s.name + "-" + middleware
}

// metricsAt reads the metrics from an address.
func metricsAt(address string) (metrics, string, error) {
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("status %d, %w", answer.StatusCode, err)
	}
	if got := answer.Header.Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
		return nil, "", fmt.Errorf("the metrics are %s", got)
	}
	found, err := parseMetrics(string(page))
	return found, string(page), err
}

func mustMetricsAt(t *testing.T, address string) metrics {
	t.Helper()
	var found metrics
	var err error
	if !await(func() bool { found, _, err = metricsAt(address); return err == nil }) {
		t.Fatal(err)
	}
	return found
}

// Both ways serve the same text about the whole process, and Prometheus's own tools accept it.
func TestMetricsAreServedOnAnAddressAndOnAPath(t *testing.T) {
	s := newSite(t)
	address := freeAddr()
	s.limit("far", "{limit: 3/366d, metrics: {address: '"+address+"'}}")
	s.limit("near", "{limit: 2/366d, algorithm: token_bucket, metrics: {path: /_weir/metrics}}")
	s.limit("two", "metrics: {}\nrules: [{name: a, limit: 4/366d, candidate: {limit: 1/366d}}, {name: b, limit: 9/366d, enforcement: shadow}]")
	s.limit("uncounted", "{limit: 3/366d}")
	for _, name := range []string{"far", "near", "two", "uncounted"} {
		s.route("/"+name, name)
	}
	s.route("/_weir/metrics", "near")
	s.apply()
	s.exactly(3, "/far")
	s.exactly(2, "/near")
	s.exactly(4, "/two")
	s.exactly(3, "/uncounted")
	mustMetricsAt(t, address)
	_, page, err := metricsAt(address)
	must.Succeed(t, err)
	promtool(t, page)
	answer := s.do("/_weir/metrics")
	answer.want(t, "Content-Type", "text/plain; version=0.0.4; charset=utf-8", "X-Ratelimit-Limit", "-")
	promtool(t, answer.body)
	for where, text := range map[string]string{"address": page, "path": answer.body} {
		m, err := parseMetrics(text)
		must.Succeed(t, err)
		two := strings.TrimSuffix(s.label("two"), s.name+"-two")
		for _, c := range []struct {
			want   float64
			name   string
			labels []string
		}{
			{3, "weir_requests_total", []string{"rule", s.label("far"), "outcome", "allowed"}},
			{1, "weir_requests_total", []string{"rule", s.label("far"), "outcome", "rejected"}},
			{2, "weir_requests_total", []string{"rule", s.label("near"), "outcome", "allowed"}},
			{1, "weir_requests_total", []string{"rule", s.label("near"), "outcome", "rejected"}},
			{4, "weir_requests_total", []string{"rule", two + "a", "outcome", "allowed"}},
			{1, "weir_requests_total", []string{"rule", two + "a", "outcome", "rejected"}},
			{3, "weir_candidate_decisions_total", []string{"rule", two + "a", "limit", "allowed", "candidate", "rejected"}},
			{5, "weir_requests_total", []string{"rule", two + "b", "outcome", "allowed"}}, // a shadow decides on all requests
			{-1, "weir_requests_total", []string{"rule", s.label("uncounted")}},
			{1, "weir_keys", []string{"rule", s.label("far")}},
			{2, "weir_limit", []string{"rule", s.label("near")}},
			{366 * 24 * 3600, "weir_limit_period_seconds", []string{"rule", s.label("near")}},
			{0, "weir_waiting", []string{"rule", s.label("near")}},
			{1_000_000, "weir_max_keys", nil},
			{0, "weir_store_errors_total", []string{"kind", "timeout"}},
		} {
			if got := m.value(c.name, c.labels...); got != c.want {
				t.Errorf("%s: %s %v is %v, want %v", where, c.name, c.labels, got, c.want)
			}
		}
		if n := m.value("weir_decision_duration_seconds", "store", "memory"); n < 1 {
			t.Errorf("%s: %v decisions were timed", where, n)
		}
	}
}
