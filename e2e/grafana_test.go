package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/tools/must"
)

var grafanaDir = filepath.Join("..", "docs", "grafana")

// givenByPrometheus are the labels that Prometheus adds to a scrape.
var givenByPrometheus = []string{"job", "instance"}

// interpolate replaces Grafana's variables as if everything were selected, over an hour.
func interpolate(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$job", ".+", "$instance", ".+", "$rule", ".+").Replace(expr)
}

// labelValues returns what a variable queries: a label, and the selector of its series.
func (v *variable) labelValues(t testing.TB) (selector, label string) {
	t.Helper()
	var query variableQuery
	if err := decodeStrictly(v.Query, &query); err != nil {
		t.Fatalf("the query of the variable %q: %v", v.Name, err)
	}
	if query.Query != v.Definition {
		t.Errorf("the variable %q has the query %s, and is shown as %s", v.Name, query.Query, v.Definition)
	}
	found := regexp.MustCompile(`^label_values\((\{.*\}), (\w+)\)$`).FindStringSubmatch(query.Query)
	if found == nil {
		t.Fatalf("the variable %q has the query %s", v.Name, query.Query)
	}
	return found[1], found[2]
}

// alertingRule is a rule of alerts.yaml.
type alertingRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func readAlerts(t testing.TB) []alertingRule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name     string         `yaml:"name"`
			Interval string         `yaml:"interval"`
			Rules    []alertingRule `yaml:"rules"`
		} `yaml:"groups"`
	}
	readYAML(t, filepath.Join(grafanaDir, "alerts.yaml"), &file)
	var rules []alertingRule
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

func readYAML(t testing.TB, path string, value any) {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Succeed(t, err)
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err = decoder.Decode(value); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestPromtoolTakesTheAlertsAndTheirTests(t *testing.T) {
	t.Parallel()
	promtool := debianProgram(t, "promtool")
	for _, arguments := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		check := exec.Command(promtool, arguments...)
		check.Dir = grafanaDir
		if text, err := check.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, text)
		}
	}
}

func TestEveryAlertIsTestedWhereItFiresAndWhereItDoesNot(t *testing.T) {
	var file struct {
		RuleFiles []string `yaml:"rule_files"`
		Interval  string   `yaml:"evaluation_interval"`
		Tests     []struct {
			Name     string              `yaml:"name"`
			Interval string              `yaml:"interval"`
			Series   []map[string]string `yaml:"input_series"`
			Exprs    []any               `yaml:"promql_expr_test"`
			Alerts   []struct {
				Alert string `yaml:"alertname"`
				At    string `yaml:"eval_time"`
				Fire  []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	readYAML(t, filepath.Join(grafanaDir, "alerts_test.yaml"), &file)
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if len(a.Fire) > 0 {
				fires[a.Alert] = true
			} else {
				silent[a.Alert] = true
			}
		}
	}
	for _, rule := range readAlerts(t) {
		if !fires[rule.Alert] || !silent[rule.Alert] {
			t.Errorf("%s: a test has it fire: %v, and one silent: %v", rule.Alert, fires[rule.Alert], silent[rule.Alert])
		}
	}
}

func TestEveryAlertSaysWhatToDo(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(grafanaDir, "README.md"))
	must.Succeed(t, err)
	described := regexp.MustCompile(`(?m)^### (Weir\w+)$`).FindAllStringSubmatch(string(text), -1)
	var names []string
	for _, rule := range readAlerts(t) {
		names = append(names, rule.Alert)
		if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) || rule.For == "" {
			t.Errorf("%s is for %q, and of severity %q", rule.Alert, rule.For, rule.Labels["severity"])
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s has the annotations %v", rule.Alert, rule.Annotations)
		}
		want := "https://github.com/proxyweir/weir/blob/main/docs/grafana/README.md#" + strings.ToLower(rule.Alert)
		must.Equal(t, rule.Annotations["runbook_url"], want, "%s has the runbook", rule.Alert)
	}
	var sections []string
	for _, section := range described {
		sections = append(sections, section[1])
	}
	slices.Sort(names)
	slices.Sort(sections)
	if !slices.Equal(names, sections) {
		t.Errorf("the README describes\n%v, and the alerts are\n%v", sections, names)
	}
}

func TestEveryExpressionIsOfMetricsThatThereAre(t *testing.T) {
	d := readDashboard(t)
	used := make(map[string]bool)
	for place, expr := range d.expressions(t) {
		for _, name := range checkExpression(t, place, interpolate(expr)) {
			used[name] = true
		}
	}
	for _, m := range knownMetrics() {
		if !used[m.name] {
			t.Errorf("no panel shows %s", m.name)
		}
	}
	for _, rule := range readAlerts(t) {
		checkExpression(t, rule.Alert, rule.Expr)
	}
}

// checkExpression parses an expression as Prometheus does, and checks that its metrics and their labels exist. It returns the
// metrics that it names.
func checkExpression(t *testing.T, place, expr string) []string {
	t.Helper()
	if strings.Contains(expr, "$") {
		t.Errorf("%s: %s has a variable that is not there", place, expr)
		return nil
	}
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %s: %v", place, expr, err)
		return nil
	}
	var used []string
	all := slices.Clone(givenByPrometheus) // labels that all its metrics have
	parser.Inspect(parsed, func(node parser.Node, path []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		metrics := selectedMetrics(selector)
		if len(metrics) == 0 && selector.Name != "up" {
			t.Errorf("%s: %s selects no metric that is known", place, selector)
		}
		for _, m := range metrics {
			if selector.Name != "" { // rather than a variable's selector for all names like weir_…
				used = append(used, m.name)
			}
			checkKind(t, place, m, selector, path)
			for label := range m.labels {
				all = append(all, label)
			}
			if m.kind == dto.MetricType_HISTOGRAM {
				all = append(all, "le")
			}
		}
		for _, matcher := range selector.LabelMatchers {
			checkMatcher(t, place, metrics, matcher)
		}
		return nil
	})
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		var named []string
		switch n := node.(type) {
		case *parser.AggregateExpr:
			named = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				named = append(slices.Clone(n.VectorMatching.MatchingLabels), n.VectorMatching.Include...)
			}
		}
		for _, label := range named {
			if !slices.Contains(all, label) {
				t.Errorf("%s: no metric in %s has the label %s", place, expr, label)
			}
		}
		return nil
	})
	return used
}

// selectedMetrics returns the metrics that a selector can select, by a name or a regular expression for names.
func selectedMetrics(selector *parser.VectorSelector) []metric {
	var found []metric
	for _, m := range knownMetrics() {
		names := []string{m.name}
		if m.kind == dto.MetricType_HISTOGRAM {
			names = []string{m.name + "_bucket", m.name + "_sum", m.name + "_count"}
		}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name == model.MetricNameLabel && slices.ContainsFunc(names, matcher.Matches) {
				found = append(found, m)
			}
		}
	}
	return found
}

// checkKind checks that a rate is of a counter, and not of a gauge.
func checkKind(t *testing.T, place string, m metric, selector *parser.VectorSelector, path []parser.Node) {
	t.Helper()
	function := ""
	for _, above := range path {
		if call, is := above.(*parser.Call); is {
			function = call.Func.Name // the innermost
		}
	}
	rates := function == "rate" || function == "increase"
	if selector.Name != "" && rates != (m.kind != dto.MetricType_GAUGE) {
		t.Errorf("%s: %s is a %v, in %q", place, selector, m.kind, function)
	}
}

// checkMatcher checks that a matcher has a label of the metrics, and existing values.
func checkMatcher(t *testing.T, place string, metrics []metric, matcher *promlabels.Matcher) {
	t.Helper()
	if matcher.Name == model.MetricNameLabel || slices.Contains(givenByPrometheus, matcher.Name) {
		return
	}
	for _, m := range metrics {
		values, is := m.labels[matcher.Name]
		if !is {
			t.Errorf("%s: %s has no label %s", place, m.name, matcher.Name)
			continue
		}
		if values == nil {
			continue
		}
		for _, value := range strings.Split(matcher.Value, "|") {
			if !slices.Contains(values, value) {
				t.Errorf("%s: %s of %s is never %q", place, matcher.Name, m.name, value)
			}
		}
	}
}

func TestThePanelsOfTheDashboardFillTheGrid(t *testing.T) {
	d := readDashboard(t)
	ids := make(map[int]string)
	type cell struct{ x, y int }
	taken := make(map[cell]string)
	for _, p := range d.allPanels() {
		if other, is := ids[p.ID]; is || p.ID < 1 {
			t.Errorf("%q and %q have the id %d", p.Title, other, p.ID)
		}
		ids[p.ID] = p.Title
		at := p.GridPos
		if at.H < 1 || at.W < 1 || at.X < 0 || at.X+at.W > 24 {
			t.Errorf("%q is at %+v", p.Title, at)
		}
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other, is := taken[cell{x, y}]; is {
					t.Errorf("%q lies over %q", p.Title, other)
				}
				taken[cell{x, y}] = p.Title
			}
		}
	}
	last := 0
	for at := range taken {
		last = max(last, at.y)
	}
	must.Equal(t, len(taken), 24*(last+1), "of %d places in the grid %d are taken", 24*(last+1), len(taken))
}

func TestEveryPanelOfTheDashboardCanBeUnderstood(t *testing.T) {
	d := readDashboard(t)
	units := []string{"reqps", "cps", "percentunit", "short", "s", "none", "dateTimeFromNow"}
	variables := []string{"datasource", "job", "instance", "rule"}
	for i, v := range d.Templating.List {
		if i >= len(variables) || v.Name != variables[i] || v.Name != "datasource" && (!v.Multi || !v.IncludeAll) {
			t.Errorf("there is the variable %q", v.Name)
		}
	}
	required := []string{"grafana", "prometheus"}
	for _, p := range d.allPanels() {
		if p.Type == "row" {
			continue
		}
		if !slices.Contains(required, p.Type) {
			required = append(required, p.Type)
		}
		if p.Description == "" || p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("%q has the description %q and %d expressions", p.Title, p.Description, len(p.Targets))
		}
		if p.Type != "table" && p.Type != "state-timeline" && p.Type != "heatmap" && !slices.Contains(units, p.FieldConfig.Defaults.Unit) {
			t.Errorf("%q has the unit %q", p.Title, p.FieldConfig.Defaults.Unit)
		}
		checkSource(t, p.Title, p.Datasource)
		for i, target := range p.Targets {
			checkSource(t, p.Title, target.Datasource)
			must.Equal(t, target.RefID, string(rune('A'+i)), "%q has an expression with the refId", p.Title)
			if target.Instant == target.Range || (p.Type == "table") != (target.Format == "table") || (p.Type == "heatmap") != (target.Format == "heatmap") {
				t.Errorf("%q, %s: instant %v, range %v, format %q", p.Title, target.RefID, target.Instant, target.Range, target.Format)
			}
		}
		steps := p.FieldConfig.Defaults.Thresholds.Steps
		for i, step := range steps {
			if (step.Value == nil) != (i == 0) || i > 1 && *step.Value <= *steps[i-1].Value {
				t.Errorf("%q has thresholds that do not rise", p.Title)
			}
		}
	}
	var named []string
	for _, r := range d.Requires {
		named = append(named, r.ID)
	}
	slices.Sort(named)
	slices.Sort(required)
	if !slices.Equal(named, required) {
		t.Errorf("__requires has %v, and is used %v", named, required)
	}
}

func checkSource(t *testing.T, title string, source datasourceRef) {
	t.Helper()
	if source != (datasourceRef{Type: "prometheus", UID: "${datasource}"}) {
		t.Errorf("%q asks %v", title, source)
	}
}

// An outcome has the same color everywhere, and rejected requests can be distinguished from allowed ones without colors.
func TestOverridesOfTheDashboardAreOfSeriesThatThereAre(t *testing.T) {
	d := readDashboard(t)
	for _, p := range d.allPanels() {
		for _, override := range p.FieldConfig.Overrides {
			if !slices.Contains(p.seriesNames(), override.Matcher.Options) || override.Matcher.ID != "byName" {
				t.Errorf("%q has an override for %q, and the series %v", p.Title, override.Matcher.Options, p.seriesNames())
			}
		}
		if p.Title != "Requests by outcome" {
			continue
		}
		below := make(map[string]bool)
		for _, override := range p.FieldConfig.Overrides {
			for _, property := range override.Properties {
				below[override.Matcher.Options] = below[override.Matcher.Options] || property.ID == "custom.transform" && property.Value == "negative-Y"
			}
		}
		for _, outcome := range knownMetrics()[0].labels["outcome"] {
			rejected := outcome == "rejected" || outcome == "error_closed"
			if is, drawn := below[outcome]; !drawn || is != rejected {
				t.Errorf("%q draws %s below the line: %v", p.Title, outcome, is)
			}
		}
	}
}

// seriesNames returns the names that a panel's series can have, as far as the configuration does not determine them.
func (p *dashboardPanel) seriesNames() []string {
	var names []string
	for _, target := range p.Targets {
		names = append(names, target.LegendFormat)
		for _, m := range knownMetrics() {
			for label, values := range m.labels {
				if target.LegendFormat == "{{"+label+"}}" && strings.Contains(target.Expr, m.name) {
					names = append(names, values...)
				}
			}
		}
	}
	for _, transformation := range p.Transformations {
		renamed, _ := transformation.Options["renameByName"].(map[string]any)
		for _, name := range renamed {
			names = append(names, fmt.Sprint(name))
		}
	}
	return names
}

func TestTheTableOfRulesNamesEachOfItsColumns(t *testing.T) {
	d := readDashboard(t)
	for _, p := range d.allPanels() {
		for _, transformation := range p.Transformations {
			if transformation.ID != "organize" {
				continue
			}
			want := []string{"rule"}
			for _, target := range p.Targets {
				want = append(want, "Value #"+target.RefID)
			}
			for _, list := range []string{"indexByName", "renameByName"} {
				entries, _ := transformation.Options[list].(map[string]any)
				var got []string
				for name := range entries {
					got = append(got, name)
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%q: %s has %v, and the columns are %v", p.Title, list, got, want)
				}
			}
			return
		}
	}
	t.Error("there is no such table")
}
