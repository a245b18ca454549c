package fleetclock

import (
	"github.com/proxyweir/weir/core/rate"
)

// Judge has the state that an algorithm would have, had it been charged with everything that was admitted, at the time of the admission. It shares no code
// with the algorithms.
type Judge interface {
	Charge(now, units int64)

	// Over returns how many units the state has more than the limit allows; negative: how many are left.
	Over(now int64) int64
}

// NewJudge returns the judge of a limit of which nothing is used.
func NewJudge(l *rate.Limit) Judge {
	r, p, b := l.Requests, l.Period, l.Capacity
	switch {
	case l.Algorithm == rate.SlidingWindowLog:
		return &logJudge{limit: r, times: Arrivals{Long: p}}
	case l.Algorithm == rate.TokenBucket && l.Interval():
		return &intervalJudge{limit: b, refill: r, period: p}
	case l.Algorithm == rate.TokenBucket:
		return &bucketJudge{limit: b, rate: float64(r) / float64(p)}
	}
	if n := l.Segments(); n > 0 {
		return &segmentJudge{limit: r, long: (p + n - 1) / n, segments: n, counts: make(map[int64]int64)}
	}
	return &windowJudge{limit: r, period: p, slides: l.Algorithm == rate.SlidingWindowCounter}
}

type windowJudge struct {
	limit, period     int64
	slides            bool
	start             int64
	previous, current int64
}

func (j *windowJudge) Charge(now, units int64) {
	j.Over(now)
	j.current += units
}

func (j *windowJudge) Over(now int64) int64 {
	if start := now - now%j.period; start != j.start {
		j.previous = 0
		if start == j.start+j.period {
			j.previous = j.current
		}
		j.start, j.current = start, 0
	}
	if !j.slides {
		return j.current - j.limit
	}
	return int64(float64(j.previous)*(1-float64(now-j.start)/float64(j.period))) + j.current - j.limit
}

type segmentJudge struct {
	limit, long, segments int64
	counts                map[int64]int64 // by the number of the segment
}

func (j *segmentJudge) Charge(now, units int64) { j.counts[now/j.long] += units }

func (j *segmentJudge) Over(now int64) int64 {
	over, oldest := -j.limit, now/j.long-j.segments
	for segment, units := range j.counts {
		switch {
		case segment > oldest:
			over += units
		case segment == oldest:
			over += units * (j.long - now%j.long) / j.long
		default:
			delete(j.counts, segment)
		}
	}
	return over
}

type bucketJudge struct {
	limit int64
	rate  float64
	at    int64
	used  float64
}

func (j *bucketJudge) Charge(now, units int64) {
	j.Over(now)
	j.used += float64(units)
}

func (j *bucketJudge) Over(now int64) int64 {
	j.used = max(j.used-j.rate*float64(now-j.at), 0)
	j.at = now
	used := int64(j.used)
	if j.used-float64(used) > 1e-6 { // it counts when it is whole
		used++
	}
	return used - j.limit
}

type intervalJudge struct {
	limit, refill, period int64
	at, used              int64
}

func (j *intervalJudge) Charge(now, units int64) {
	j.Over(now)
	j.used += units
}

func (j *intervalJudge) Over(now int64) int64 {
	j.used = max(j.used-(now/j.period-j.at/j.period)*j.refill, 0)
	j.at = now
	return j.used - j.limit
}

type logJudge struct {
	limit int64
	times Arrivals
}

func (j *logJudge) Charge(now, units int64) { j.times.Add(now, units) }

func (j *logJudge) Over(now int64) int64 {
	j.times.drop(now)
	return j.times.Sum - j.limit
}

// Arrivals are the units that were asked for within a time.
type Arrivals struct {
	Long  int64 // the time, in microseconds
	times []int64
	units []int64
	Sum   int64
}

// Add adds units, and forgets those that came earlier.
func (a *Arrivals) Add(now, units int64) {
	a.times = append(a.times, now)
	a.units = append(a.units, units)
	a.Sum += units
	a.drop(now)
}

func (a *Arrivals) drop(now int64) {
	for len(a.times) > 0 && a.times[0] <= now-a.Long {
		a.Sum -= a.units[0]
		a.times = a.times[1:]
		a.units = a.units[1:]
	}
}
