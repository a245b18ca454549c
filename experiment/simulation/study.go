package simulation

import "math"

// Adviser moves limits while a situation is played.
type Adviser interface {
	// Interval is how often it is asked, in seconds.
	Interval() float64

	// Advise returns the limits that are right from now on, given how many requests were sent since it was asked last.
	Advise(t float64, asked int) Limits
}

// Forecast is what seven usual days have shown of the requests of all clients in each window of a day, in requests a second: their mean, and
// their standard deviation.
type Forecast struct{ Mean, Deviation [int(Day / window)]float64 }

// at returns the forecast for the window that follows a time of the day.
func (f *Forecast) at(time float64) (mean, deviation float64) {
	i := int(math.Mod(time+window, Day) / window)
	return f.Mean[i], f.Deviation[i]
}

// Study is the policy of the study that the experiment comes from, read literally. Each ten seconds it raises or lowers the limits with a forecast
// of the demand, whoever makes the demand and whatever the service can do. When demand is a tenth above the forecast's 99th percentile for three
// times ten seconds, it takes that for an anomaly, and halves the limits of everyone until the demand has been usual for a minute. It keeps each
// limit between a half and twice what is configured, and a quarter in an anomaly.
type Study struct {
	base      Limits
	forecast  *Forecast
	largest   float64                 // what one client in a thousand exceeds in a usual window, in requests a second
	timeOfDay func(t float64) float64 // of an instant of the run
	level     float64                 // of today's demand, to the forecast
	hot, calm int                     // how many times in a row demand was unusual, and was not
	anomaly   bool
}

// NewStudy returns the study's policy before it has seen anything of the situation.
func NewStudy(s *Situation, base Limits) *Study {
	return &Study{base: base, forecast: &s.Forecast, largest: s.LearntP999, timeOfDay: s.TimeOfDay, level: 1}
}

// Interval implements Adviser.
func (*Study) Interval() float64 { return window }

// Advise implements Adviser.
func (y *Study) Advise(t float64, asked int) Limits {
	const upperQuantile = 2.33 // standard deviations of a normal distribution that 99 % do not exceed
	time := y.timeOfDay(t)
	total := float64(asked) / window
	mean, deviation := y.forecast.at(time)
	usual := mean + upperQuantile*deviation
	y.level += 0.2 * (between(0.4, total/math.Max(mean, 1), 2.5) - y.level)
	limits := y.base
	limits.All = between(y.base.All/2, 1.2*(y.level*mean+upperQuantile*deviation), 2*y.base.All)
	limits.Client = between(y.base.Client/2, 1.2*y.largest*y.level*shape(time)/1.5, 2*y.base.Client)
	if total > 1.1*usual {
		y.hot, y.calm = y.hot+1, 0
	} else {
		y.hot, y.calm = 0, y.calm+1
	}
	if y.hot >= 3 {
		y.anomaly = true
	}
	if y.calm >= 6 {
		y.anomaly = false
	}
	if y.anomaly {
		limits.All = math.Max(limits.All/2, y.base.All/4)
		limits.Client = math.Max(limits.Client/2, y.base.Client/4)
	}
	return limits
}

func between(low, x, high float64) float64 { return math.Max(low, math.Min(x, high)) }
