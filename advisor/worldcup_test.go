package advisor

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
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

// generated returns 28 days of a series of advisor/prophet/compare.py, in 5 minutes each: a day with noise, the same with bursts, and a random walk.
func generated(name string) []float64 {
	noise := gauss(1)
	values := make([]float64, 28*perDay)
	burst, walk := 0.0, 500.0
	for i := range values {
		burst = burst*math.Pow(0.5, 48.0/perDay) + 150*truth(noise() > 2.45)
		walk += 5 * noise()
		day := 100 + 50*math.Sin(2*math.Pi*float64(i)/perDay) + 5*noise()
		values[i] = map[string]float64{"day": day, "bursts": day + burst, "walk": math.Abs(walk)}[name]
	}
	return values
}

const perDay = 288

// alike tells whether two rows of comparison.csv have the same words, and numbers that differ by rounding alone.
func alike(a, b string) bool {
	return slices.EqualFunc(strings.Split(a, ","), strings.Split(b, ","), func(a, b string) bool {
		x, err := strconv.ParseFloat(a, 64)
		y, err2 := strconv.ParseFloat(b, 64)
		return a == b || err == nil && err2 == nil && math.Abs(x-y) < 0.02
	})
}

// Each day of a series is forecast with weights that were chosen on the 14 days before it. With -v it prints what they come to, which advisor/prophet/compare.py
// takes into its table.
func TestForecastsBeatTheLastValueWhereThatCanBe(t *testing.T) {
	underrace.OneGoroutine(t)
	table, err := os.ReadFile("prophet/comparison.csv")
	must.Succeed(t, err)
	published := strings.Fields(string(table))
	for _, c := range []struct {
		name    string
		minutes int
		ratio   float64 // to the error of the last value, at most
	}{
		{"worldcup", 5, 0.96}, {"worldcup", 30, 0.85}, {"worldcup", 60, 0.8},
		{"day", 5, 0.8}, {"day", 30, 0.8}, {"day", 60, 0.6}, {"bursts", 5, 1}, {"bursts", 30, 0.9}, {"bursts", 60, 0.8},
		{"walk", 5, 1.1}, {"walk", 30, 1.1}, {"walk", 60, 1.1}, // which nothing beats
	} {
		values := worldCup(t)
		if c.name != "worldcup" {
			values = generated(c.name)
		}
		h := c.minutes / 5
		var model, last, seasonal, demand, n, above, below, abstains, days float64
		for day := 14 * perDay; day+perDay <= len(values); day += perDay {
			var w Weights
			if f := Fit(values[day-14*perDay:day], perDay, h, &w); math.Min(f.Skill, f.SkillVersusMean) < 0.05 {
				abstains++
			}
			days++
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
				}
			}
		}
		row := fmt.Sprintf("holt-winters,%s,log,%d,%.3f,%.3f,%.3f,%.2f,%.2f,%.0f,%.0f", c.name, c.minutes, 100*model/demand, 100*last/demand, 100*seasonal/demand, 100*above/n, 100*below/n, abstains, days)
		t.Log(row)
		if !slices.ContainsFunc(published, func(other string) bool { return alike(row, other) }) {
			t.Errorf("advisor/prophet/comparison.csv has another row than %s: play compare.py holt-winters there", row)
		}
		if model/last > c.ratio || model > 0.8*seasonal {
			t.Errorf("%s: %d minutes ahead the error is %.3f of the last value's, and %.3f of the season before's", c.name, c.minutes, model/last, model/seasonal)
		}
	}
}
