package advisor

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// partial is a Source that knows nothing before a time, and counts the values that it is asked for.
type partial struct {
	since time.Time
	asked int
	err   error
}

func (p *partial) Series(_ context.Context, _ Quantity, from, to time.Time, step time.Duration) (Series, error) {
	s := unknown(from, to, step)
	for i := range s.Values {
		p.asked++
		if !s.At(i).Before(p.since) {
			s.Values[i] = 1
		}
	}
	return s, p.err
}

// A defect: what a source did not know when it was asked first was a gap until the advisor was started again.
func TestGapsAreAskedForAgain(t *testing.T) {
	source := &partial{since: noon.Add(time.Hour)}
	r := remember(source)
	gaps := func(to time.Time) int {
		s, err := r.Series(t.Context(), Quantity{}, to.Add(-99*time.Minute), to, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Values) != 100 {
			t.Fatalf("%d values", len(s.Values))
		}
		return len(s.Values) - len(known(s.Values))
	}
	must.Equal(t, gaps(noon), 100, "gaps")
	source.since = time.Time{}
	for minute := 1; minute < 60; minute++ {
		must.Equal(t, gaps(noon.Add(time.Duration(minute)*time.Minute)), 100-minute, "after %d minutes gaps", minute)
	}
	source.err = errors.New("it is down")
	if _, err := r.Series(t.Context(), Quantity{}, noon.Add(-39*time.Minute), noon.Add(time.Hour), time.Minute); err == nil {
		t.Error("no error")
	}
	source.err = nil
	asked := source.asked
	if got := gaps(noon.Add(time.Hour)); got != 0 || source.asked != asked+100 {
		t.Errorf("after an hour %d gaps, %d values", got, source.asked-asked)
	}
	for minute := 61; minute < 200; minute++ {
		asked = source.asked
		if got := gaps(noon.Add(time.Duration(minute) * time.Minute)); got != 0 || source.asked != asked+1 {
			t.Errorf("%d gaps, %d values", got, source.asked-asked)
		}
	}
}

func TestWhatIsInfiniteIsAGap(t *testing.T) {
	if x := number(math.NaN()); x != 0 {
		t.Errorf("no number is %g", x)
	}
	if x := number(math.Inf(1)); !math.IsNaN(x) {
		t.Errorf("infinite is %g", x)
	}
}
