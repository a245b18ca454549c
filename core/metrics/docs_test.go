//go:build gc
// +build gc

package metrics

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

// docs/metrics.md is made from the families: go test ./core/metrics -run MetricsPage -update writes it.
func TestTheMetricsPageHasTheFamiliesThatThereAre(t *testing.T) {
	const page = "../../docs/metrics.md"
	if *update {
		if err := os.WriteFile(page, []byte(metricsPage()), 0o644); err != nil { //nolint:gosec // a page for all
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if want := metricsPage(); strings.ReplaceAll(string(got), "\r\n", "\n") != want {
		t.Errorf("docs/metrics.md is another page than the families make; go test ./core/metrics -run MetricsPage -update writes it:\n%s", want)
	}
}

// metricsPage returns docs/metrics.md: a line for each family, in three sections.
func metricsPage() string {
	sections := []struct {
		title string
		has   func(f *Family) bool
	}{
		{"Of rules, stores and advice", func(f *Family) bool { return !f.Caddy && !ofAGuard(f) }},
		{"In Caddy alone", func(f *Family) bool { return f.Caddy }},
		{"Of guards", ofAGuard},
	}
	page := "# Metrics\n\nEvery metric of both proxies, with its labels. [monitoring.md](monitoring.md#metrics) says what to look at first. " +
		"Counters end with `_total`, histograms\nare marked, and all others are gauges. No label has a client's key. Metrics of what is not configured are absent.\n\n"
	body := ""
	for _, s := range sections {
		page += "- [" + s.title + "](#" + strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(s.title), ",", ""), " ", "-") + ")\n"
		body += "\n## " + s.title + "\n\n"
		for _, f := range Families {
			if !s.has(f) {
				continue
			}
			var labels []string
			for _, l := range f.Labels {
				labels = append(labels, l.Name)
			}
			name := f.Name
			if labels != nil {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			mark := ""
			if f.Kind == "histogram" {
				mark = " (histogram)"
			}
			body += "- `" + name + "`" + mark + ": " + f.Help + "\n"
		}
	}
	return page + body
}

// ofAGuard reports whether a family's series are those of a guard.
func ofAGuard(f *Family) bool { return len(f.Labels) > 0 && f.Labels[0].Name == ofGuard.Name }
