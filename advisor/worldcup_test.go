package advisor

import (
	"bufio"
	"compress/gzip"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// worldCup returns the requests of testdata/worldcup, in 5 minutes each.
func worldCup(t *testing.T) []float64 {
	t.Helper()
	file, err := os.Open("../testdata/worldcup/requests-in-5-minutes.txt.gz")
	must.Succeed(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	must.Succeed(t, err)
	var values []float64
	for lines := bufio.NewScanner(unzipped); lines.Scan(); {
		n, err := strconv.ParseFloat(lines.Text(), 64)
		if err != nil {
			n = math.NaN()
		}
		values = append(values, n)
	}
	return values
}

// Each day of real traffic is forecast with weights that were chosen on the 14 days before it. `go test ./advisor -run WorldCup -v` prints the errors.
func TestTheWorldCupIsForecastBetterThanByTheLastValue(t *testing.T) {
	underrace.OneGoroutine(t)
	const perDay = 288
	values := worldCup(t)
	for _, c := range []struct {
		minutes int
		ratio   float64 // to the error of the last value, at most
	}{{30, 0.85}, {60, 0.8}} {
		h := c.minutes / 5
		var model, last, seasonal, levelled, demand, n, above, below, abstains float64
		for day := 14 * perDay; day+perDay <= len(values); day += perDay {
			var w Weights
			if f := Fit(values[day-14*perDay:day], perDay, h, &w); f.Skill < 0.05 {
				abstains++
			}
			history := values[day-14*perDay : day+perDay]
			shift := mean(history[:14*perDay]) / 100
			xs := logarithms(history, shift)
			low, high := bounds(run(xs[:14*perDay], history[:14*perDay], perDay, h, 7*perDay, 14*perDay, w.tried[3], shift).errors)
			trial := run(xs, history, perDay, h, 14*perDay, len(xs), w.final, shift)
			model += trial.model
			last += trial.last
			for _, e := range trial.errors {
				above += truth(e > high)
				below += truth(e < low)
				n++
			}
			for i := 14 * perDay; i < len(history); i++ {
				if y, before := history[i], history[i-perDay]; !math.IsNaN(y) && !math.IsNaN(before) {
					seasonal += math.Abs(before - y)
					demand += y
					if now, then := history[i-h], history[i-h-perDay]; now > 0 && then > 0 { // the season before, at the level of now
						levelled += math.Abs(before*now/then - y)
					}
				}
			}
		}
		t.Logf("%d minutes ahead: MAE / MAE of the last value %.3f, / MAE of the season before %.3f; in %% of the mean demand: model %.1f, last value %.1f, season before %.1f, and at the level of now %.1f; abstains on %.0f of 73 days; above the band %.1f %%, below %.1f %%",
			c.minutes, model/last, model/seasonal, 100*model/demand, 100*last/demand, 100*seasonal/demand, 100*levelled/demand, abstains, 100*above/n, 100*below/n)
		if model/last > c.ratio || model > 0.6*seasonal {
			t.Errorf("%d minutes ahead the error is %.3f of the last value's", c.minutes, model/last)
		}
	}
}
