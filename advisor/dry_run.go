package advisor

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/proxyweir/weir/core/ruleset"
)

// Report is what an advisor would have advised in a time that is over.
type Report struct {
	From     time.Time    `json:"from"`
	To       time.Time    `json:"to"`
	Interval float64      `json:"interval_seconds"`
	Horizon  float64      `json:"horizon_seconds"`
	Config   string       `json:"config"` // the digest of the rules
	Rules    []RuleReport `json:"rules"`
}

// RuleReport is the part of a report on one rule. Its summary is over the points whose horizon is over by the end of the report.
type RuleReport struct {
	Rule       string         `json:"rule"`
	Limit      string         `json:"limit"`    // as it is configured
	Requests   int64          `json:"requests"` // of it
	Advised    int            `json:"advised"`  // points with another limit
	Thresholds int            `json:"thresholds"`
	Abstained  map[string]int `json:"abstained"` // points, by the reason

	Judged         int     `json:"judged"`          // points with a forecast whose horizon is over
	InBand         float64 `json:"in_band"`         // the part of these in which the demand stayed below the band's upper end for the whole horizon
	OverConfigured float64 `json:"over_configured"` // the part in which it exceeded the configured limit
	OverAdvised    float64 `json:"over_advised"`    // the part in which it exceeded the limit as advised
	Points         []Point `json:"points"`
}

// Point is what would have been advised at a time, with what was known then.
type Point struct {
	Time     time.Time  `json:"time"`
	Demand   *float64   `json:"demand"` // at that time, in requests in the limit's period; null: not known
	Came     *float64   `json:"came"`   // the greatest demand in the horizon after it; null: not known yet
	Forecast *Band      `json:"forecast,omitempty"`
	Skill    float64    `json:"skill_vs_last,omitempty"`
	Limit    int64      `json:"limit"` // requests, as advised, or as configured
	Above    *Threshold `json:"above,omitempty"`
	Reason   string     `json:"reason"`
}

// DryRun says what would have been advised from a time to another, at each interval, with what was known at each.
func (a *Advisor) DryRun(ctx context.Context, from, to time.Time) (*Report, error) {
	c := a.config
	report := &Report{From: from, To: to, Interval: c.Interval.Seconds(), Horizon: c.Horizon.Seconds(), Config: a.digest}
	for i := range c.Rules {
		r := &c.Rules[i]
		report.Rules = append(report.Rules, RuleReport{Rule: r.Label, Limit: r.LimitText, Requests: r.Limit.Requests, Abstained: map[string]int{}})
		// All at once, from the first history to the end; the computations find it remembered.
		first := from.Truncate(c.Step).Add(c.Step - c.History.Truncate(c.Step))
		wanted := []Quantity{r.demandOf()}
		if r.Abuse {
			wanted = append(wanted, Quantity{Of: TotalDemand, Rule: r.Label}, Quantity{Of: TopShare, Rule: r.Label})
		}
		for _, q := range wanted {
			if _, err := a.source.Series(ctx, q, first, to.Truncate(c.Step), c.Step); err != nil {
				return nil, fmt.Errorf("rule %q: %w", r.Label, err)
			}
		}
	}
	for at := from; !at.After(to); at = at.Add(c.Interval) {
		for i, f := range a.Find(ctx, at) {
			if f.Err != nil && !errors.As(f.Err, new(pressureUnknown)) {
				return nil, fmt.Errorf("rule %q: %w", f.Rule, f.Err)
			}
			report.Rules[i].add(&f, at)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	for i := range report.Rules {
		r := &c.Rules[i]
		demand, err := a.source.Series(ctx, r.demandOf(), from.Truncate(c.Step), to.Truncate(c.Step), c.Step)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Label, err)
		}
		report.Rules[i].judge(demand, r.perPeriod(), c.Horizon)
	}
	return report, nil
}

// add adds a point.
func (r *RuleReport) add(f *Finding, at time.Time) {
	p := Point{Time: at, Limit: r.Requests, Reason: f.Reason, Above: f.Above}
	if !f.At.Time.IsZero() {
		band := f.Forecast.Band
		p.Forecast, p.Skill = &band, f.Forecast.Skill
	}
	switch {
	case f.Requests > 0:
		p.Limit = f.Requests
		r.Advised++
	case f.Above != nil:
		r.Thresholds++
	default:
		r.Abstained[f.Reason]++
	}
	r.Points = append(r.Points, p)
}

// judge compares the points with the demand that came.
func (r *RuleReport) judge(demand Series, times float64, horizon time.Duration) {
	for i := range r.Points {
		p := &r.Points[i]
		now := int(p.Time.Sub(demand.Start) / demand.Step)
		if y := demand.Values[now] * times; !math.IsNaN(y) {
			p.Demand = &y
		}
		end := now + int(horizon/demand.Step)
		if end >= len(demand.Values) {
			continue
		}
		came := math.Inf(-1)
		for _, y := range demand.Values[now+1 : end+1] {
			came = math.Max(came, y*times) // NaN stays
		}
		if math.IsNaN(came) {
			continue
		}
		p.Came = &came
		if p.Forecast == nil {
			continue
		}
		r.Judged++
		r.InBand += truth(came <= p.Forecast.Upper)
		r.OverConfigured += truth(came > float64(r.Requests))
		r.OverAdvised += truth(came > float64(p.Limit))
	}
	for _, part := range []*float64{&r.InBand, &r.OverConfigured, &r.OverAdvised} {
		*part /= float64(max(r.Judged, 1))
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// WriteText writes a summary of the report as a table.
func (r *Report) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RULE\tLIMIT\tMOMENTS\tADVISED\tTHRESHOLDS\tABSTAINED\tBELOW BAND'S END\tOVER LIMIT\tOVER ADVISED") // fails where Flush does
	for i := range r.Rules {
		rule := &r.Rules[i]
		parts := []string{"-", "-", "-"}
		if rule.Judged > 0 {
			parts = []string{percent(rule.InBand), percent(rule.OverConfigured), percent(rule.OverAdvised)}
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\n", rule.Rule, rule.Limit, len(rule.Points), rule.Advised, rule.Thresholds, rule.abstentions(), strings.Join(parts, "\t"))
	}
	return w.Flush()
}

// abstentions says how often nothing was advised, and why.
func (r *RuleReport) abstentions() string {
	var list []string
	for _, reason := range abstentions {
		if n := r.Abstained[reason]; n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, reason))
		}
	}
	if list == nil {
		return "0"
	}
	return strings.Join(list, ", ")
}

func percent(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }

//go:embed dry_run.css
var css string

//go:embed dry_run.html
var page string

var pageTemplate = template.Must(template.New("dry run").Funcs(template.FuncMap{
	"plot": plotOf, "percent": percent, "abstentions": func(r RuleReport) string { return r.abstentions() },
	"clock": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"span":  func(seconds float64) string { return ruleset.Shortly(time.Duration(seconds * float64(time.Second))) },
}).Parse(page))

// WriteHTML writes the report as one self-contained page with plots. Its content security policy allows only its own style.
func (r *Report) WriteHTML(out io.Writer) error {
	sum := sha256.Sum256([]byte(css))
	return pageTemplate.Execute(out, map[string]any{
		"R":      r,
		"CSS":    template.CSS(css), //nolint:gosec // it is ours
		"Policy": "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'",
	})
}

// plot has the curves of a rule as paths of an SVG image: the band, its mean, the demand, the limit as advised and as configured.
type plot struct {
	Width, Height               int
	Band, Mean, Demand, Advised string
	Configured                  float64
	Most                        string
}

// plotOf draws a rule. With more points than the plot has places, each place shows the greatest.
func plotOf(r RuleReport) plot {
	p := plot{Width: 720, Height: 240}
	each := (len(r.Points) + p.Width - 1) / p.Width
	if each == 0 {
		return p
	}
	columns := (len(r.Points) + each - 1) / each
	curves := make([][]float64, 5) // upper, lower, mean, demand, limit
	for k := range curves {
		curves[k] = make([]float64, columns)
		for i := range curves[k] {
			curves[k][i] = math.NaN()
		}
	}
	most := float64(r.Requests)
	for i, point := range r.Points {
		raise := func(k int, y float64) {
			if at := &curves[k][i/each]; math.IsNaN(*at) || y > *at {
				*at = y
			}
			most = math.Max(most, y)
		}
		if b := point.Forecast; b != nil {
			raise(0, b.Upper)
			raise(1, b.Lower)
			raise(2, b.Mean)
		}
		if point.Demand != nil {
			raise(3, *point.Demand)
		}
		raise(4, float64(point.Limit))
	}
	x := func(i int) float64 { return (float64(i) + 0.5) * float64(p.Width) / float64(columns) }
	y := func(v float64) float64 { return float64(p.Height) * (1 - v/(1.05*most)) }
	line := func(values []float64) string {
		var path strings.Builder
		for i, v := range values {
			if math.IsNaN(v) {
				continue
			}
			letter := "L"
			if i == 0 || math.IsNaN(values[i-1]) {
				letter = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", letter, x(i), y(v))
		}
		return path.String()
	}
	var band strings.Builder // a rectangle for each place
	half := 0.5 * float64(p.Width) / float64(columns)
	for i := range columns {
		if upper, lower := curves[0][i], curves[1][i]; !math.IsNaN(upper) {
			fmt.Fprintf(&band, "M%.2f %.1fV%.1fH%.2fV%.1fZ", x(i)-half, y(upper), y(lower), x(i)+half, y(upper))
		}
	}
	p.Band, p.Mean, p.Demand, p.Advised = band.String(), line(curves[2]), line(curves[3]), line(curves[4])
	p.Configured, p.Most = y(float64(r.Requests)), strconv.FormatFloat(rounded(most), 'f', -1, 64)
	return p
}
