package advisor

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// At each moment a dry run finds what a computation at that moment would have found: it knows nothing of what comes.
func TestADryRunFindsWhatAnAdvisorWouldHaveFound(t *testing.T) {
	a := newTestAdvisor(t, new(steady))
	a.config.Interval = 15 * time.Minute
	from, to := noon, noon.Add(6*time.Hour)
	report, err := a.DryRun(t.Context(), from, to)
	must.Succeed(t, err)
	r := report.Rules[0]
	if len(r.Points) != 25 || r.Judged != 21 || r.Advised+r.Thresholds+r.Abstained[Unneeded] != 25 || r.OverConfigured != 1 || r.OverAdvised > 0 || r.InBand < 0.9 {
		t.Fatalf("the report is %+v", r)
	}
	fresh := newTestAdvisor(t, new(steady)) // each hour chooses anew, as at the beginning
	for _, p := range r.Points {
		f := fresh.Find(t.Context(), p.Time)[0]
		if f.Requests != p.Limit || f.Reason != p.Reason || f.Forecast.Band != *p.Forecast || f.At.Demand != *p.Demand {
			t.Errorf("at %s it advises %+v, and %+v at that time", p.Time, p, f)
		}
	}
	if last := r.Points[24]; last.Came != nil || *r.Points[0].Came <= *r.Points[0].Demand {
		t.Errorf("the first points are %+v, the last %+v", r.Points[0], last)
	}
	var text bytes.Buffer
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "\napi   60/1m  25       ") {
		t.Errorf("it says %s: %v", text.String(), err)
	}
}

func TestADryRunsPageIsSelfContained(t *testing.T) {
	hour := noon.Add(5 * time.Hour) // of which nothing is known
	a := newTestAdvisor(t, holed{new(steady), func(at time.Time) bool { return !at.Before(hour) && at.Before(hour.Add(time.Hour)) }})
	a.config.Interval = time.Minute
	report, err := a.DryRun(t.Context(), noon, noon.Add(13*time.Hour))
	must.Succeed(t, err)
	var page bytes.Buffer
	must.Succeed(t, report.WriteHTML(&page))
	text := page.String()
	for _, want := range []string{"Content-Security-Policy", "default-src &#39;none&#39;", `<path class="band" d="M`, `<path class="demand" d="M`, `<path class="advised" d="M`, "Of 781 moments"} {
		if !strings.Contains(text, want) && !strings.Contains(text, strings.ReplaceAll(want, "&#39;", "'")) {
			t.Errorf("the page has no %s", want)
		}
	}
	if strings.Contains(text, "NaN") || strings.Contains(text, "http://") || strings.Contains(text, "ZgotmplZ") || len(text) > 200_000 {
		t.Errorf("the page has %d bytes: %.2000s", len(text), text)
	}
	_, demand, _ := strings.Cut(text, `<path class="demand" d="`)
	if demand, _, _ = strings.Cut(demand, `"`); strings.Count(demand, "M") != 2 || strings.Count(demand, "L") < 300 {
		t.Errorf("the demand, with its gap, is drawn as %s", demand)
	}
	body := text[strings.Index(text, "<body>"):strings.Index(text, "</html>")]
	for d := xml.NewDecoder(strings.NewReader(body)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
	}
}
