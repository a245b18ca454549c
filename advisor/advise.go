package advisor

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core/ruleset"
)

// Why an advisor says nothing of a rule. The words are values of the label reason of weir_advisor_abstains.
const (
	WithoutSource  = "source"   // the source did not answer
	WithoutHistory = "history"  // less than two seasons are known
	WithGaps       = "gaps"     // more than a tenth of the history is not known
	Outdated       = "outdated" // nothing is known of the last horizon
	WithoutSkill   = "skill"    // the errors are not less, by minimum_skill, than those of the last value and of the mean of the season before
	Unneeded       = "unneeded" // the configured limit is right within a tenth
	UnderPressure  = "pressure" // more than the configured limit would be right, and the pressure on the service is high
)

var abstentions = []string{WithoutSource, WithoutHistory, WithGaps, Outdated, WithoutSkill, Unneeded, UnderPressure}

// Why a limit or a threshold is advised, as documents say it.
const (
	reasonGrowth   = "growth"   // demand grows
	reasonSchedule = "schedule" // it does so at this time of the season
	reasonCrowd    = "crowd"    // more keys than usual ask
	reasonAbuse    = "abuse"    // a few keys ask for more than usual
)

// Finding is what an advisor finds out about a rule at a time.
type Finding struct {
	Rule     string   // its label
	At       Sample   // the last value
	Forecast Forecast // zero if there is none
	Requests int64    // the limit that is advised; 0: none
	Above    *Threshold
	Reason   string // why either is advised, or why neither
	Err      error  // of the source; without the pressure alone something may be advised all the same
}

// Sample is the demand at a time, in requests in the limit's period.
type Sample struct {
	Time   time.Time
	Demand float64
}

// Threshold tells proxies which keys to slow down, and to what.
type Threshold struct {
	PerSecond  float64 `json:"requests_per_second"` // keys that ask for more
	Limit      string  `json:"limit"`               // get this
	Confidence float64 `json:"confidence"`          // the part of the unusual demand that ten keys make
}

// forThreshold is how long a threshold holds.
const forThreshold = 5 * time.Minute

// memory is what an advisor keeps of a rule between two computations: weights that hold for an hour.
type memory struct {
	demand, total Weights
	hour          time.Time
}

// Find finds out about a rule what the source knows at a time. Only one call at a time may be with the same memory. pressed is asked where the limit would be raised.
func find(ctx context.Context, c *Config, r *Rule, source Source, kept *memory, now time.Time, pressed func() (bool, error)) Finding {
	f := Finding{Rule: r.Label}
	if hour := now.Truncate(time.Hour); !hour.Equal(kept.hour) {
		*kept = memory{hour: hour}
	}
	demand, why, err := c.history(ctx, source, r.demandOf(), now)
	if why != "" {
		f.Reason, f.Err = why, err
		return f
	}
	for i := range demand.Values {
		demand.Values[i] *= r.perPeriod()
	}
	f.At = lastOf(demand)
	f.Forecast = Fit(demand.Values, int(c.Season/c.Step), int(c.Horizon/c.Step), &kept.demand)
	crowd := false
	if r.Abuse {
		if f.Above, crowd, err = c.unusual(ctx, r, source, &f, demand, kept, now); err != nil {
			f.Reason, f.Err = WithoutSource, err
			return f
		}
	}
	if f.Above != nil { // the forecast has learnt what it is about: no limit follows from it
		f.Reason = reasonAbuse
		return f
	}
	if !(f.Forecast.Skill >= c.MinimumSkill && f.Forecast.SkillVersusMean >= c.MinimumSkill) {
		f.Reason = WithoutSkill
		return f
	}
	f.Reason = Unneeded
	configured := r.Limit.Requests
	wanted := min(max(int64(math.Ceil(math.Min(r.Headroom*f.Forecast.Upper, 1e12))), r.Floor), r.Ceiling)
	if float64(wanted) >= 1.1*float64(configured) || r.Lower && float64(wanted) <= 0.9*float64(configured) {
		f.Requests = wanted
		f.Reason = reasonGrowth
		if crowd {
			f.Reason = reasonCrowd
		} else if wanted < configured || f.Forecast.Mean > 1.1*f.At.Demand {
			f.Reason = reasonSchedule
		}
	}
	if f.Requests > configured {
		var high bool
		if high, f.Err = pressed(); high {
			f.Requests, f.Reason = 0, UnderPressure
		}
	}
	return f
}

// pressureUnknown is why the pressure on the service is not known, and has no effect.
type pressureUnknown struct{ error }

func (e pressureUnknown) Unwrap() error { return e.error }

// pressed returns a function that reports whether the pressure on the service is high at a time. It asks when it is called first, and only that call returns an
// error, a pressureUnknown.
func (c *Config) pressed(ctx context.Context, source Source, now time.Time) func() (bool, error) {
	asked, high := c.PressureQuery == "", false
	return func() (bool, error) {
		if asked {
			return high, nil
		}
		asked = true
		s, err := source.Series(ctx, Quantity{Of: QueryDemand, Query: c.PressureQuery}, now, now, c.Step)
		if err == nil && math.IsNaN(s.Values[0]) {
			err = fmt.Errorf("%s: has no series, or no finite value", c.PressureQuery)
		}
		if err != nil {
			return false, pressureUnknown{fmt.Errorf("the pressure is not known, and has no effect: %w", err)}
		}
		high = s.Values[0] >= c.PressureHigh
		return high, nil
	}
}

// history returns the values of a quantity over the history, from the first that is known. If they are not enough, why says it.
func (c *Config) history(ctx context.Context, source Source, q Quantity, now time.Time) (s Series, why string, err error) {
	to := now.Truncate(c.Step)
	s, err = source.Series(ctx, q, to.Add(c.Step-c.History.Truncate(c.Step)), to, c.Step)
	if err != nil {
		return s, WithoutSource, err
	}
	for len(s.Values) > 0 && math.IsNaN(s.Values[0]) {
		s = Series{Start: s.At(1), Step: s.Step, Values: s.Values[1:]}
	}
	s.Values = append([]float64(nil), s.Values...) // which the source keeps
	switch last := lastOf(s).Time; {
	case len(s.Values) < 2*int(c.Season/c.Step):
		return s, WithoutHistory, nil
	case float64(len(known(s.Values))) < 0.9*float64(len(s.Values)):
		return s, WithGaps, nil
	case s.End().Sub(last) > c.Horizon:
		return s, Outdated, nil
	}
	return s, "", nil
}

// lastOf returns the last value that is known.
func lastOf(s Series) Sample {
	for i := len(s.Values) - 1; i >= 0; i-- {
		if !math.IsNaN(s.Values[i]) {
			return Sample{s.At(i), s.Values[i]}
		}
	}
	return Sample{}
}

// unusual looks whether all demand of a rule is above the band that is usual at this time of the season, and who makes it so: a crowd of keys, or a few.
// For a few it returns a threshold: three times what one key in a thousand asked for over the history; the limit is what nine keys of ten were content with.
//
// A few have made it if the ten keys with the most make at least half of the excess: share·demand − usual share·usual demand ≥ (demand − usual demand) / 2.
func (c *Config) unusual(ctx context.Context, r *Rule, source Source, f *Finding, demand Series, kept *memory, now time.Time) (above *Threshold, crowd bool, err error) {
	at, usual := f.At.Demand, f.Forecast.Usual
	if r.Demand != DemandInAll {
		total, why, err := c.history(ctx, source, Quantity{Of: TotalDemand, Rule: r.Label}, now)
		if why != "" {
			return nil, false, err
		}
		at = lastOf(total).Demand
		usual = Fit(total.Values, int(c.Season/c.Step), int(c.Horizon/c.Step), &kept.total).Usual
	}
	if at <= usual.Upper {
		return nil, false, nil
	}
	shares, why, err := c.history(ctx, source, Quantity{Of: TopShare, Rule: r.Label}, now)
	if why == WithoutSource || len(shares.Values) == 0 {
		return nil, false, err
	}
	share := lastOf(shares).Demand
	usualShares := known(shares.Values)
	slices.Sort(usualShares)
	usualShare := quantile(usualShares, 0.5)
	part := (share*at - usualShare*usual.Mean) / (at - usual.Mean)
	if part < 0.5 {
		return nil, true, nil
	}
	// Without the last horizon, in which they may have asked already.
	before := now.Truncate(c.Step).Add(-c.Horizon)
	most, err := c.demandOver(ctx, source, r, 0.999, before)
	if err != nil {
		return nil, false, err
	}
	content, err := c.demandOver(ctx, source, r, 0.9, before)
	if err != nil || !(most > 0) {
		return nil, false, err
	}
	per := r.Period()
	if per < time.Second || per > time.Hour || per%time.Second != 0 {
		per = 10 * time.Second
	}
	requests := max(int64(math.Ceil(content*per.Seconds()/10)), 1)
	return &Threshold{PerSecond: 3 * most / 10, Limit: strconv.FormatInt(requests, 10) + "/" + ruleset.Shortly(per), Confidence: math.Min(part, 1)}, false, nil
}

// demandOver returns what a key at a quantile of the keys asked for in 10 seconds, over the history before a time.
func (c *Config) demandOver(ctx context.Context, source Source, r *Rule, quantile float64, to time.Time) (float64, error) {
	s, err := source.Series(ctx, Quantity{Of: KeyDemand, Rule: r.Label, Quantile: quantile, Window: c.History}, to, to, c.Step)
	return lastOf(s).Demand, err
}
