package advisor

import (
	"math"
	"slices"
	"time"

	"github.com/proxyweir/weir/core/advice"
)

// Series has a value for each step of time. A value that is not known is NaN: a gap.
type Series struct {
	Start  time.Time // of the first value
	Step   time.Duration
	Values []float64
}

// End returns the time of the last value.
func (s *Series) End() time.Time { return s.At(len(s.Values) - 1) }

// At returns the time of a value.
func (s *Series) At(i int) time.Time { return s.Start.Add(time.Duration(i) * s.Step) }

// known returns the values that are not NaN.
func known(values []float64) []float64 {
	list := make([]float64, 0, len(values))
	for _, x := range values {
		if !math.IsNaN(x) {
			list = append(list, x)
		}
	}
	return list
}

// mean returns the mean of the values that are known, or 0.
func mean(values []float64) float64 {
	sum, n := 0.0, 0
	for _, x := range values {
		if !math.IsNaN(x) {
			sum += x
			n++
		}
	}
	return sum / math.Max(float64(n), 1)
}

// Model forecasts a demand that has a season, such as a day. It is the Holt-Winters method without a trend, on the logarithm of the demand, so that
// level, season and errors multiply, and with Taylor's correction for errors that last (J. W. Taylor, Short-term electricity demand forecasting using
// double seasonal exponential smoothing, J. Oper. Res. Soc. 54, 2003, equation 6). With x = ln(y + c):
//
//	e(t) = x(t) − l(t−1) − s(t)           the error of level and season
//	l(t) = l(t−1) + α·e(t)                the level
//	s(t) ← s(t) + γ·e(t)                  the season at this time of it, kept for at most 288 times and interpolated between them
//	r(t) = r(t−1) + λ·(e(t) − r(t−1))     what of the error has lasted
//	x̂(t+h) = l(t) + s(t+h) + φʰ·r(t)      the forecast, h steps ahead
//
// After a gap, level and season stay, and r fades by φ. If φ is near 1 the forecast is the last value, moved by the season; if it is 0, it is
// level and season alone. Fit chooses α, γ, λ and φ.
// A Model is used by one goroutine.
type Model struct {
	weights
	shift   float64   // c
	season  []float64 // s, at equal distances of width steps
	width   float64
	period  int // of the season, in steps
	level   float64
	lasting float64
	next    int // the number of the next value, from the beginning of the history
}

// Weights are what Fit has chosen. The zero value: nothing yet.
type Weights struct {
	tried [4]weights // on the halves of the history that begin at 0, 1/8, 2/8 and 3/8 of it, each to be tried on the eighth that follows
	final weights    // on the second half
}

// weights are those of one model.
type weights struct {
	level, season, lasting, fade float64 // α, γ (of a point of the season), λ, φ
}

// mostPoints is the most points of a season that are kept. Values between two of them are interpolated.
const mostPoints = 288

// newModel returns a model that begins with the means of the first season of a history: first has its logarithms.
func newModel(w weights, first []float64, shift float64) *Model {
	m := &Model{weights: w, shift: shift, period: len(first), next: len(first)}
	points := min(len(first), mostPoints)
	m.width = float64(len(first)) / float64(points)
	m.level = mean(first)
	m.season = make([]float64, points)
	around := slices.Concat(first, first, first)
	for i := range m.season {
		// The mean of twice the width, so that a point knows as much as it speaks for.
		at := float64(len(first)) + float64(i)*m.width
		if near := known(around[int(at-m.width) : int(at+m.width)+1]); len(near) > 0 {
			m.season[i] = mean(near) - m.level
		}
	}
	return m
}

// place returns the points of the season before and after a value, and how far it is from the first to the second, from 0 to 1.
func (m *Model) place(i int) (before, after int, part float64) {
	at := float64(i%m.period) / m.width
	before = int(at)
	return before % len(m.season), (before + 1) % len(m.season), at - float64(before)
}

// at returns level and season of a value.
func (m *Model) at(i int) float64 {
	before, after, part := m.place(i)
	return m.level + m.season[before]*(1-part) + m.season[after]*part
}

// add takes the next value's logarithm, or NaN.
func (m *Model) add(x float64) {
	if math.IsNaN(x) {
		m.lasting *= m.fade
		m.next++
		return
	}
	before, after, part := m.place(m.next)
	e := x - m.at(m.next)
	m.level += m.weights.level * e
	m.season[before] += m.weights.season * (1 - part) * e
	m.season[after] += m.weights.season * part * e
	m.lasting += m.weights.lasting * (e - m.lasting)
	m.next++
}

// ahead returns the logarithm of the forecast h steps after the last value.
func (m *Model) ahead(h int) float64 {
	return m.at(m.next-1+h) + math.Pow(m.fade, float64(h))*m.lasting
}

// value returns the demand of a logarithm, at most what documents may have.
func (m *Model) value(x float64) float64 {
	return math.Min(math.Max(math.Exp(x)-m.shift, 0), advice.MaxDemand)
}

// Band is a forecast for one time: the demand that is expected, and its quantiles 0.01 and 0.99.
type Band struct {
	Mean  float64 `json:"mean"`
	Lower float64 `json:"lower"`
	Upper float64 `json:"upper"`
}

// Forecast is what a model says after a history.
type Forecast struct {
	Band // at the step of the horizon at which Upper is the greatest

	// Usual is the band of the last value as level and season alone forecast it a horizon before, whatever the errors then were. It tells whether that value
	// is unusual.
	Usual Band

	// Skill is 1 − MAE(model) / MAE(last value) at the horizon, and SkillVersusMean the same with the mean of the season before. Both are measured on the
	// second half of the history, with a forecast after each value of it, of which the weights know nothing. −1: nothing could be compared.
	Skill, SkillVersusMean float64
}

// Fit forecasts a horizon of h steps after a history of at least two seasons of period steps. It chooses the weights unless w, which must not be nil, has
// some already, from an earlier history of the same demand; it leaves those that it has chosen there.
//
// Skill and band are of the second half of the history, whose eighths (of the whole) are each forecast with weights that were chosen on the half before it.
// The band is from the quantile 0.01 of these errors at the horizon to the quantile 0.99, around the forecast of each step. The errors of the last quarter of a
// season are not in it, so that what is unusual now does not make itself usual. The forecast itself has weights that were chosen on the second half.
func Fit(history []float64, period, h int, w *Weights) Forecast {
	shift := math.Max(mean(history), 0)/100 + 1e-9 // zero has a logarithm, and small numbers do not weigh much
	xs := logarithms(history, shift)
	at := func(eighths int) int { return period + (len(history)-period)*eighths/8 }
	chosen := *w != (Weights{})
	usual := len(history) - max(period/4, h) // before what the band leaves out
	var tried trial
	for i := range w.tried {
		if end := at(i + 4); !chosen {
			w.tried[i] = choose(xs[:end], history[:end], period, h, at(i), shift)
		}
		end := at(i + 5)
		tried.add(run(xs[:end], history[:end], period, h, at(i+4), usual, w.tried[i], shift))
	}
	if !chosen {
		w.final = choose(xs, history, period, h, at(4), shift)
	}
	final := run(xs, history, period, h, at(8), 0, w.final, shift).end
	f := Forecast{Skill: skill(tried.model, tried.last), SkillVersusMean: skill(tried.model, tried.mean)}
	low, high := bounds(tried.errors)
	for step := 1; step <= h; step++ {
		x := final.ahead(step)
		if b := (Band{final.value(x), final.value(x + low), final.value(x + high)}); step == 1 || b.Upper > f.Upper {
			f.Band = b
		}
	}
	low, high = bounds(tried.unusual)
	x := tried.usual
	f.Usual = Band{final.value(x), final.value(x + low), final.value(x + high)}
	return f
}

// logarithms returns x of each y.
func logarithms(ys []float64, shift float64) []float64 {
	xs := make([]float64, len(ys))
	for i, y := range ys {
		xs[i] = math.Log(math.Max(y, 0) + shift) // NaN stays
	}
	return xs
}

// bounds returns the quantiles 0.01 and 0.99 of errors; the first is not above 0, nor the second below.
func bounds(errors []float64) (low, high float64) {
	slices.Sort(errors)
	return math.Min(quantile(errors, 0.01), 0), math.Max(quantile(errors, 0.99), 0)
}

// skill returns 1 − a/b.
func skill(a, b float64) float64 {
	if !(b > 0) {
		return -1
	}
	return math.Max(1-a/b, -1)
}

// trial is what weights have shown on a history.
type trial struct {
	model, last, mean float64   // the sums of the absolute errors, of the model, of the last value and of the mean
	errors            []float64 // of the model, as logarithms
	unusual           []float64 // of level and season alone
	usual             float64   // the logarithm that level and season alone forecast for the last value
	end               *Model    // after the history
}

// add adds a trial on the part of the history that follows.
func (t *trial) add(next trial) {
	t.model += next.model
	t.last += next.last
	t.mean += next.mean
	t.errors = append(t.errors, next.errors...)
	t.unusual = append(t.unusual, next.unusual...)
	t.usual, t.end = next.usual, next.end
}

// run takes a history through a model, and compares each forecast for a value from the number from with that value. It keeps the errors of those before the
// number until; if that is 0, only so many forecasts are compared as a season has points.
func run(xs, ys []float64, period, h, from, until int, w weights, shift float64) trial {
	t := trial{end: newModel(w, xs[:period], shift)}
	m := t.end
	fade := math.Pow(w.fade, float64(h))
	sum, n, last := 0.0, 0.0, math.NaN() // of the season before, and the last value that is known
	count := func(y, sign float64) {
		if !math.IsNaN(y) {
			sum += sign * y
			n += sign
		}
	}
	for i := range period {
		count(ys[i], 1)
	}
	each := max(period/mostPoints, 1)
	for i := period; i < len(xs); i++ {
		m.add(xs[i])
		count(ys[i], 1)
		count(ys[i-period], -1)
		if !math.IsNaN(ys[i]) {
			last = ys[i]
		}
		to := i + h
		if to < from || to >= len(xs) || until == 0 && to%each != 0 {
			continue
		}
		t.usual = m.at(to)
		x := t.usual + fade*m.lasting
		if y := ys[to]; !math.IsNaN(y) && !math.IsNaN(last) {
			t.model += math.Abs(m.value(x) - y)
			t.last += math.Abs(last - y)
			t.mean += math.Abs(sum/math.Max(n, 1) - y)
			if to < until {
				t.errors = append(t.errors, xs[to]-x)
				t.unusual = append(t.unusual, xs[to]-t.usual)
			}
		}
	}
	return t
}

// choose returns the weights with the least absolute error at the horizon, of forecasts for values from the number from. It tries how long errors last first,
// then level and season.
func choose(xs, ys []float64, period, h, from int, shift float64) weights {
	points := float64(min(period, mostPoints))
	halved := func(steps float64) float64 { return 1 - math.Pow(0.5, 1/steps) } // the weight with which a half is forgotten after so many steps
	best := weights{level: halved(float64(period)), season: 0.2 * points / float64(period), lasting: 1}
	least := math.Inf(1)
	try := func(w weights) {
		if t := run(xs, ys, period, h, from, 0, w, shift); t.model < least {
			best, least = w, t.model
		}
	}
	base := best
	try(base)
	for _, lasts := range []float64{0.5, 2, 8, 32} { // horizons after which half an error is left
		for _, smooth := range []float64{0, 0.25, 1} { // horizons over which an error is averaged
			w := base
			w.fade = 1 - halved(lasts*float64(h))
			if smooth > 0 {
				w.lasting = halved(smooth * float64(h))
			}
			try(w)
		}
	}
	base = best
	for _, seasons := range []float64{0.1, 0.3, 1, 3} {
		for _, share := range []float64{0.05, 0.2, 0.5} { // of a season's error that is learnt
			w := base
			w.level = halved(seasons * float64(period))
			w.season = share * points / float64(period)
			try(w)
		}
	}
	return best
}

// quantile returns a quantile of values that are in order. It is 0 if there are none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Round(q*float64(len(sorted)-1)))]
}
