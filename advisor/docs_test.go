package advisor

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func readPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/advisor.md")
	must.Succeed(t, err)
	return string(page)
}

// firstCells returns the words in the first cells of a table after a text.
func firstCells(t *testing.T, page, after string) []string {
	t.Helper()
	_, rest, found := strings.Cut(page, after)
	_, table, divided := strings.Cut(rest, "| ---")
	if !found || !divided {
		t.Fatalf("the page has no table after %q", after)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var names []string
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`[^|]*"+`) \|`).FindAllStringSubmatch(table, -1) {
		names = append(names, strings.Split(strings.ReplaceAll(row[1], "`", ""), ", ")...)
	}
	return names
}

func TestThePageHasTheFieldsThatAreRead(t *testing.T) {
	for after, text := range map[string]string{
		"Unknown fields are errors.": "zzzzzzzzzz: 1" + least,
		"The fields of a rule.":      strings.Replace(least, "rule: api", "zzzzzzzzzz: 1, rule: api", 1),
	} {
		_, err := Parse("advisor.yaml", []byte(text))
		if err == nil {
			t.Fatal("unknown fields are read")
		}
		_, known, _ := strings.Cut(err.Error(), "; there are ")
		if got, want := firstCells(t, readPage(t), after), strings.Split(known, ", "); !slices.Equal(got, want) {
			t.Errorf("the page has\n%v\nand the code\n%v", got, want)
		}
	}
}

func TestThePageHasTheReasonsAndMetricsThatThereAre(t *testing.T) {
	if got := firstCells(t, readPage(t), "## When it abstains"); !slices.Equal(got, abstentions) {
		t.Errorf("the page has the reasons %v, the code %v", got, abstentions)
	}
	a := newTestAdvisor(t, new(steady))
	must.Succeed(t, a.Compute(t.Context()))
	a.metrics.requests.WithLabelValues("200").Inc()
	families, err := a.metrics.registry.Gather()
	must.Succeed(t, err)
	var names []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "weir_") {
			names = append(names, f.GetName())
		}
	}
	got := firstCells(t, readPage(t), "`GET /metrics` is for Prometheus:")
	slices.Sort(got)
	if !slices.Equal(got, names) {
		t.Errorf("the page has the metrics\n%v\nand the code\n%v", got, names)
	}
}
