package replay

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed report.css
var css string

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"n": grouped, "plural": plural, "percent": percent, "clock": clock, "plots": plotsOf, "tradePlot": tradePlotOf, "choices": (*Trade).choices, "said": (*Trade).said, "periods": func(t *Trade) []string { one, long := t.periods(); return []string{one, long} }, "join": strings.Join, "shadowed": shadowed, "byRule": byRule,
	"now": func(s Suggestion) string { return s.now() }, "suggested": func(s Suggestion) string { return s.suggested() },
	"notes": func(r RuleReport) string { return r.notes() }, "touched": func(r RuleReport) int64 { return r.Rejected + r.ShadowRejected },
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

// The size of a plot, in its own units: it is as wide as the page.
const (
	plotWidth  = 720
	plotHeight = 160
)

// plots are the plots of a rule: its requests and rejections over time, as paths of an SVG image, and its clients' peak use, as bars.
type plots struct {
	Width, Height      int
	Requests, Rejected string
	Most               int64 // requests in a step
	Step, From, To     string
	Uses               []use
	Labels, Full       int // the heights of the labels of Uses, and of the whole
}

// use is a bar: how many clients have used how much of their limit.
type use struct {
	PeakUse
	X, Y, Middle, Width, Height float64
}

// plotsOf makes the plots of a rule. The bars of uses are as high as the square roots of their numbers, so that a few clients are visible
// beside many.
func plotsOf(r RuleReport) plots {
	s := r.Series
	p := plots{Width: plotWidth, Height: plotHeight, Labels: plotHeight + 22, Full: plotHeight + 28, Step: shortDuration(s.Step), From: clock(s.Start)}
	p.To = clock(s.Start.Add(time.Duration(s.Step * float64(len(s.Requests)) * float64(time.Second))))
	for _, n := range s.Requests {
		p.Most = max(p.Most, int64(n))
	}
	p.Requests = bars(s.Requests, p.Most)
	p.Rejected = bars(s.Rejected, p.Most)
	most := int64(1)
	for _, u := range r.PeakUse {
		most = max(most, u.Clients)
	}
	width := float64(plotWidth) / float64(len(r.PeakUse))
	for i, u := range r.PeakUse {
		height := float64(plotHeight-24) * math.Sqrt(float64(u.Clients)/float64(most))
		p.Uses = append(p.Uses, use{u, float64(i)*width + 3, plotHeight - height, (float64(i) + 0.5) * width, width - 6, height})
	}
	return p
}

// tradePlot is the picture of a trade: each way to count is a point. The further left it is, the less any client gets in a period; the lower, the less
// is rejected of legitimate clients.
type tradePlot struct {
	Width, Height  int
	MostX, MostY   int64
	Period         string
	Points         []tradePoint // those of choices last, so that they are on top
	Front          string       // the line along the ways of which none is better in both
	Limit          float64      // where the rule's own peak is
	Now, Suggested *tradePoint
}

// tradePoint is a way with its place.
type tradePoint struct {
	*Way
	X, Y  float64
	Class string
}

// tradePlotOf makes the picture of a trade. Heights are square roots, as in plotsOf.
func tradePlotOf(t *Trade) tradePlot {
	p := tradePlot{Width: plotWidth, Height: 2 * plotHeight, MostX: 1, MostY: 1}
	p.Period, _ = t.periods()
	for i := range t.Ways {
		p.MostX, p.MostY = max(p.MostX, t.Ways[i].Peak), max(p.MostY, t.Ways[i].Legitimate)
	}
	const edge = 10 // so that no point is cut off
	for i := range t.Ways {
		w := &t.Ways[i]
		x := edge + float64(w.Peak)/float64(p.MostX)*(plotWidth-2*edge)
		p.Points = append(p.Points, tradePoint{w, x, float64(p.Height) - edge - math.Sqrt(float64(w.Legitimate)/float64(p.MostY))*float64(p.Height-2*edge), "way"})
	}
	p.Limit = p.Points[0].X
	p.Points[0].Class = "now"
	slices.SortStableFunc(p.Points, func(a, b tradePoint) int {
		return cmp.Or(cmp.Compare(index(a.Now), index(b.Now)), cmp.Compare(a.X, b.X))
	})
	for i := range p.Points {
		point := &p.Points[i]
		if point.Front {
			p.Front += fmt.Sprintf("%c%.1f %.1f", "ML"[min(len(p.Front), 1)], point.X, point.Y)
		}
		switch {
		case point.Now:
			p.Now = point
		case point.Suggested:
			point.Class = "suggested"
			p.Suggested = point
		}
	}
	return p
}

// bars draws a bar for each number.
func bars(list []uint32, most int64) string {
	if most == 0 {
		return ""
	}
	var path strings.Builder
	width := float64(plotWidth) / float64(len(list))
	for i, n := range list {
		if n == 0 {
			continue
		}
		height := float64(n) / float64(most) * plotHeight
		fmt.Fprintf(&path, "M%.1f %dV%.1fH%.1fV%d", float64(i)*width, plotHeight, plotHeight-height, (float64(i)+1)*width, plotHeight)
	}
	return path.String()
}

// shortDuration writes a number of seconds.
func shortDuration(seconds float64) string {
	switch {
	case seconds >= 86400:
		return strings.TrimSuffix(strconv.FormatFloat(seconds/86400, 'f', 1, 64), ".0") + " d"
	case seconds >= 120:
		return strings.TrimSuffix(strconv.FormatFloat(seconds/60, 'f', 1, 64), ".0") + " min"
	}
	return strconv.FormatFloat(seconds, 'f', -1, 64) + " s"
}
