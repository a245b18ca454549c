package advisor

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// holed is a source that knows nothing of some values.
type holed struct {
	Source
	unknown func(at time.Time) bool
}

func (h holed) Series(ctx context.Context, q Quantity, from, to time.Time, step time.Duration) (Series, error) {
	s, err := h.Source.Series(ctx, q, from, to, step)
	for i := range s.Values {
		if h.unknown(s.At(i)) {
			s.Values[i] = math.NaN()
		}
	}
	return s, err
}

// steady's limit would be 60, and its demand is between 50 and 110, of a history of six days.
func TestWhatIsNotKnownMakesAnAdvisorAbstain(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	for _, c := range []struct {
		name    string
		unknown func(at time.Time) bool
		want    string
	}{
		{"all is known", func(time.Time) bool { return false }, reasonGrowth},
		{"the proxy is three days old", func(at time.Time) bool { return at.Before(ago(3 * day)) }, reasonGrowth},
		{"the proxy is two days old, and one step", func(at time.Time) bool { return !at.After(ago(2 * day)) }, reasonGrowth},
		{"the proxy is two days old", func(at time.Time) bool { return !at.After(ago(2*day - 15*time.Minute)) }, WithoutHistory},
		{"the proxy is not there", func(time.Time) bool { return true }, WithoutHistory},
		{"a day of three is missing", func(at time.Time) bool { return at.Before(ago(3*day)) || at.Before(ago(day)) && at.After(ago(2*day)) }, WithGaps},
		{"the last hour is missing", func(at time.Time) bool { return at.After(ago(time.Hour)) }, reasonSchedule},
		{"a little more than the last hour is missing", func(at time.Time) bool { return !at.Before(ago(time.Hour)) }, Outdated},
	} {
		a := newTestAdvisor(t, holed{new(steady), c.unknown})
		if f := a.Find(t.Context(), noon)[0]; f.Reason != c.want || (f.Requests > 0) != (c.want == reasonGrowth || c.want == reasonSchedule) || f.Err != nil {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

// The source is asked once for each value, also where computations fail in between.
func TestEachValueIsAskedForOnce(t *testing.T) {
	asked := map[time.Time]int{}
	source := new(steady)
	r := remember(holed{source, func(at time.Time) bool { asked[at]++; return false }})
	q := Quantity{Of: KeyDemand, Rule: "api", Quantile: 0.99}
	for i := range 300 {
		to := noon.Add(time.Duration(i) * time.Minute)
		s, err := r.Series(t.Context(), q, to.Add(-100*time.Minute), to, time.Minute)
		if err != nil || len(s.Values) != 101 || !s.Start.Equal(to.Add(-100*time.Minute)) || !s.End().Equal(to) {
			t.Fatalf("%v: %v", s, err)
		}
		want, _ := source.Series(t.Context(), q, s.Start, to, time.Minute)
		for k := range want.Values {
			if s.Values[k] != want.Values[k] {
				t.Fatalf("at %s it is %v, not %v", s.At(k), s.Values[k], want.Values[k])
			}
		}
	}
	for at, n := range asked {
		if n != 1 {
			t.Errorf("%s is asked for %d times", at, n)
		}
	}
	if held := r.held[q]; len(asked) != 400 || len(held.Values) > 300 {
		t.Errorf("%d values are asked for, %d remembered", len(asked), len(held.Values))
	}
	// Another step, and what is further back or long after, is asked for anew.
	for _, c := range []struct {
		from, to time.Time
		step     time.Duration
	}{{noon, noon.Add(time.Hour), 2 * time.Minute}, {noon.Add(-24 * time.Hour), noon, time.Minute}, {noon.Add(48 * time.Hour), noon.Add(49 * time.Hour), time.Minute}} {
		if s, err := r.Series(t.Context(), q, c.from, c.to, c.step); err != nil || s.Step != c.step || !s.Start.Equal(c.from) || !s.End().Equal(c.to) {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// without is a source that has no answer to one query.
type without struct {
	Source
	query string
}

func (w without) Series(ctx context.Context, q Quantity, from, to time.Time, step time.Duration) (Series, error) {
	if q.Query == w.query {
		return Series{}, errors.New("no answer")
	}
	return w.Source.Series(ctx, q, from, to, step)
}

// TestPressureThatCannotBeReadIsToldAndHasNoEffect, and is asked for only where a limit would be raised.
func TestPressureThatCannotBeReadIsToldAndHasNoEffect(t *testing.T) {
	a := newTestAdvisor(t, without{new(steady), "max(cpu)"})
	a.SetClock(func() time.Time { return noon })
	must.Succeed(t, a.Compute(t.Context()))
	before := a.latest.document.Rules[0].Limit.Requests
	a.config.PressureQuery = "max(cpu)"
	if f := a.Find(t.Context(), noon)[0]; f.Err == nil || f.Requests == 0 || f.Reason != reasonGrowth {
		t.Errorf("%+v", f)
	}
	if err := a.Compute(t.Context()); err == nil || !strings.Contains(err.Error(), `rule "api": the pressure is not known, and has no effect: no answer`) {
		t.Errorf("the error is %v", err)
	}
	must.Equal(t, a.latest.document.Rules[0].Limit.Requests, before, "the limit that is advised")
}

// counting is a source that counts the questions for the pressure, which has no value.
type counting struct {
	Source
	asked *int
}

func (c counting) Series(ctx context.Context, q Quantity, from, to time.Time, step time.Duration) (Series, error) {
	if q.Query == "max(cpu)" {
		*c.asked++
		return unknown(from, to, step), nil
	}
	return c.Source.Series(ctx, q, from, to, step)
}

func TestThePressureIsAskedForOnceForAllRules(t *testing.T) {
	asked := 0
	a := newTestAdvisor(t, counting{new(steady), &asked})
	a.config.Rules = append(a.config.Rules, a.config.Rules[0])
	a.kept = make([]memory, len(a.config.Rules))
	a.config.PressureQuery = "max(cpu)"
	found := a.Find(t.Context(), noon)
	if err := found[0].Err; err == nil || !strings.Contains(err.Error(), "max(cpu): has no series, or no finite value") {
		t.Errorf("a pressure without a value: %v", err)
	}
	if last := found[len(found)-1]; last.Err != nil || last.Requests == 0 || asked != 1 {
		t.Errorf("%d questions, then %+v", asked, last)
	}
	if _, err := a.DryRun(t.Context(), noon.Add(-time.Hour), noon); err != nil {
		t.Errorf("a dry run over a time without a pressure: %v", err)
	}
}
