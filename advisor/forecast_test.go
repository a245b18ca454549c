package advisor

import (
	"math"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/advice"
)

// fortnight is the demand of 14 days, each minute: a season of a day with noise.
func fortnight() []float64 {
	noise := gauss(9)
	values := make([]float64, 14*1440)
	for i := range values {
		values[i] = 100 + 50*math.Sin(2*math.Pi*float64(i)/1440) + 5*noise()
	}
	return values
}

func BenchmarkFit(b *testing.B) {
	values := fortnight()
	b.Run("choosing weights", func(b *testing.B) {
		for b.Loop() {
			Fit(values, 1440, 10, new(Weights))
		}
	})
	b.Run("with weights", func(b *testing.B) {
		var w Weights
		Fit(values, 1440, 10, &w)
		for b.Loop() {
			Fit(values, 1440, 10, &w)
		}
	})
}

// A model has seen nothing of a gap, and goes on from what it knew.
func TestAGapMovesNeitherLevelNorSeason(t *testing.T) {
	first := []float64{1, 2, 3, 2}
	m := newModel(weights{level: 0.1, season: 0.1, lasting: 1, fade: 0.5}, first, 0)
	for i := range 8 {
		m.add(first[i%4] + 0.5)
	}
	level, lasting := m.level, m.lasting
	m.add(math.NaN())
	if m.level != level || m.lasting != lasting/2 || m.next != 13 {
		t.Errorf("level %v, lasting %v, next %d", m.level, m.lasting, m.next)
	}
}

// By hand: level 2, season −0.5, 0.5. The value 2 at the first place of the season is an error of 0.5.
func TestTheModelIsAsItsFormulasSay(t *testing.T) {
	m := newModel(weights{level: 0.2, season: 0.1, lasting: 0.5, fade: 0.5}, []float64{1, 3}, 0)
	m.season = []float64{-0.5, 0.5}
	m.add(2)
	for _, c := range []struct{ got, want float64 }{
		{m.level, 2.1}, {m.season[0], -0.45}, {m.season[1], 0.5}, {m.lasting, 0.25},
		{m.ahead(1), 2.1 + 0.5 + 0.125}, {m.ahead(2), 2.1 - 0.45 + 0.0625},
	} {
		if math.Abs(c.got-c.want) > 1e-12 {
			t.Errorf("%v, not %v", c.got, c.want)
		}
	}
}

// With more steps than points, an error moves the points before and after it, each as far as it is near.
func TestValuesBetweenTwoPointsOfTheSeasonMoveBoth(t *testing.T) {
	m := newModel(weights{season: 0.1}, make([]float64, 3*mostPoints), 0)
	for range 4 { // the first errors are at the beginning, at a third, at two thirds, and at the second point
		m.add(3)
	}
	if len(m.season) != mostPoints || !(m.season[1] > 0.3 && m.season[2] == 0 && m.season[0] > 0.3) || m.level != 0 {
		t.Errorf("the season begins with %v", m.season[:4])
	}
	if got := m.at(1) - (m.season[0]*2/3 + m.season[1]/3); math.Abs(got) > 1e-12 {
		t.Errorf("between the points it is off by %v", got)
	}
}

func TestNothingMakesAForecastThatNoDocumentTakes(t *testing.T) {
	tiny := make([]float64, 400)
	for i := range tiny {
		tiny[i] = 1e-300
		if i%50 == 49 {
			tiny[i] = 1e300
		}
	}
	for name, values := range map[string][]float64{
		"zeros": make([]float64, 400), "tiny and huge": tiny, "negative": {-1, -2, -3, -4, -1, -2, -3, -4, -1, -2, -3, -4},
		"gaps":      append(make([]float64, 200), unknown(noon, noon.Add(199*time.Minute), time.Minute).Values...),
		"only gaps": unknown(noon, noon.Add(399*time.Minute), time.Minute).Values,
	} {
		for _, h := range []int{1, 3, 4} {
			f := Fit(values, 4, h, new(Weights))
			for _, b := range []Band{f.Band, f.Usual} {
				if !(b.Lower >= 0 && b.Lower <= b.Mean && b.Mean <= b.Upper && b.Upper <= advice.MaxDemand) || !(f.Skill >= -1 && f.Skill <= 1) {
					t.Errorf("%s, %d ahead: %+v", name, h, f)
				}
			}
		}
	}
}
