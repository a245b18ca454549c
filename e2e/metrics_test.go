package e2e

import (
	"io"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	weir "github.com/proxyweir/weir/core/metrics"
)

// metric is a metric of Weir.
type metric struct {
	name, help string
	kind       dto.MetricType
	labels     map[string][]string // with the values that each may have; nil if those depend on the configuration or the machine
	caddyOnly  bool
}

// knownMetrics returns the metrics of Weir, which are the same in Caddy and in the plugin. Tests compare them with the dashboard
// and the alerts in docs/grafana, and with what the proxies expose: see checkScrape.
func knownMetrics() []metric {
	var list []metric
	for _, f := range weir.Families {
		labels := make(map[string][]string)
		for _, l := range f.Labels {
			labels[l.Name] = l.Values
		}
		list = append(list, metric{f.Name, f.Help, dto.MetricType(dto.MetricType_value[strings.ToUpper(f.Kind)]), labels, f.Caddy})
	}
	return list
}

// parseScrape reads a proxy's answer to a scrape, as text.
func parseScrape(text io.Reader) (map[string]*dto.MetricFamily, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	return p.TextToMetricFamilies(text)
}

// checkScrape checks that every metric of Weir in a scrape is known, with its type, its help, its labels and their values. It returns their
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
		if family.GetType() != m.kind || family.GetHelp() != m.help {
			t.Errorf("%s is a %v, %q, and known as a %v, %q", name, family.GetType(), family.GetHelp(), m.kind, m.help)
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
