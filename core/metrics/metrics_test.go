package metrics

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/pressure"
)

func TestFamiliesAreNamedAsPrometheusWants(t *testing.T) {
	known := make(map[string]bool)
	for _, f := range Families {
		if known[f.Name] {
			t.Errorf("duplicate family %s", f.Name)
		}
		known[f.Name] = true
		if !strings.HasPrefix(f.Name, "weir_") || strings.HasSuffix(f.Name, "_total") != (f.Kind == "counter") || !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s, a %s: %q", f.Name, f.Kind, f.Help)
		}
	}
	if len(Families) < 50 {
		t.Errorf("there are %d families", len(Families))
	}
}

// values returns the numbers of a family's series, by their labels.
func values(p *Page, f *Family) map[string]float64 {
	found := make(map[string]float64)
	for _, s := range Of(p, f) {
		labels := strings.Join(s.Labels, " ")
		if s.Values == nil {
			found[labels] = s.Value
		}
		for i, n := range s.Values {
			found[strings.TrimSpace(labels+" "+Last(f).Values[i])] = float64(n)
		}
	}
	return found
}

// An alert on increase() misses the first of what was not there before.
func TestRareOutcomesAreThereFromTheStart(t *testing.T) {
	p := NewPage()
	r := Rule{Meter: NewMeter("r"), Candidate: true, Blocks: true, Measures: true, Keys: Absent, Units: Absent}
	AddRule(p, &r, 0)
	g := guard.New(guard.Config{})
	at := guard.Look(g)
	AddGuard(p, "g", &at)
	asks := pressure.Renew(nil, pressure.Config{
		Source: pressure.Source{URL: "http://127.0.0.1:1/", Interval: time.Minute}, Press: func(until int64) {}, Warn: func(string) {}, Inform: func(string) {},
		Now: func() int64 { return 0 }, Wait: func(ctx context.Context, d time.Duration) { <-ctx.Done() },
	})
	AddPressure(p, "g", &at, asks, 0)
	pressure.Renew(asks, pressure.Config{})
	state := advice.NewState(advice.StateConfig{}, nil)
	AddAdvice(p, []Advice{{State: state}}, 0)
	for _, c := range []struct {
		family *Family
		series int
	}{
		{Requests, len(front.OutcomeNames)}, {Candidates, 4}, {Penalties, 1}, {Measured, 3}, {MeasuredUnits, 1}, {Waiting, 1}, {Keys, 0}, {LeaseUnits, 0}, {Limit, 0},
		{GuardRejected, 3}, {GuardShadowRejected, 0}, {Pressure, 0}, {PressureHigh, 1}, {PressureActs, 1}, {PressureFailures, 4}, {AdviceRefused, len(advice.Reasons)}, {AdvicePolls, 1}, {AdviceAge, 0},
	} {
		found := values(p, c.family)
		if len(found) != c.series {
			t.Errorf("%s has the series %v, want %d", c.family.Name, found, c.series)
		}
	}
	none := NewPage()
	r = Rule{Meter: NewMeter("r"), Waiting: Absent, Keys: Absent, Units: Absent}
	AddRule(none, &r, 0)
	AddAdvice(none, nil, 0)
	for _, f := range Families {
		if found := values(none, f); f != Requests && len(found) > 0 {
			t.Errorf("a rule that limits nothing has %s: %v", f.Name, found)
		}
	}
}

func TestCountsAreThoseOfTheirValues(t *testing.T) {
	counts := NewCounts(StoreErrors)
	for _, kind := range []string{"timeout", "unavailable", "", "unavailable"} {
		Count(counts, StoreErrors, kind)
	}
	if by := ByValue(StoreErrors, Read(counts)); len(by) != 4 || by["timeout"] != 1 || by["unavailable"] != 2 {
		t.Errorf("%v", by)
	}
}
