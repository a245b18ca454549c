package guard

import "math"

// Second is what a guard has seen in one second.
type Second struct {
	// Answered is how many requests got the first byte of their answer in it, and Time how many microseconds that took of all of them
	// together.
	Answered, Time int64

	// Cut is how much longer these took, where Time has an answer count for less.
	Cut int64

	// Met is how many were under way when they began, each counted among them: of all of them together.
	Met int64

	// Light and LightTime are the same of those that began while no more than the floor were under way.
	Light, LightTime int64

	// Served is Answered, where an answer that stands for several others is counted as so many.
	Served int64

	// Left is how many of those Answered were not, since their clients left before: Time has how long they waited, which is less than it would
	// have taken.
	Left int64

	// Most is the greatest number of requests that were under way at a time, and Rejected how many more came.
	Most, Rejected int64
}

// Gradient is how many requests may be under way, and what that is judged by. It is the state of a loop that turns once a second: see Next.
// The zero value begins at the ceiling, and learns its baseline from the first requests.
type Gradient struct {
	// Limit is how many requests may be under way, from the floor to the ceiling; 0: the ceiling.
	Limit float64

	// Baseline is the mean time to the first byte of a service that keeps up, in microseconds; 0: it is not known.
	Baseline float64

	// Of the logarithms of the mean number under way and of the mean time, in the seconds in which the limit was used, with weights that halve in
	// 23 seconds: the means, the variance of the first, and the covariance.
	meanMet, meanTime, variance, covariance, weight float64
}

const (
	// tolerance is how many times the baseline a mean may be without a consequence. A mean of some 30 answers varies by a third where times
	// have a heavy tail.
	tolerance = 1.5

	// slack is how many times the root of the limit may be queued within the service: that keeps its workers busy, and gives a limit something
	// to grow by.
	slack = 2

	// descent is the share of the way to its target that a limit goes in a second when it falls, ascent when it grows.
	descent, ascent = 0.5, 0.2

	// steepest is the lowest gradient of one second: one slow second, whatever its cause, does not cost more than this.
	steepest = 0.5

	// A baseline goes so much of the way in a second: to a mean that is lower than it, and to one that is higher while the limit is not used.
	improves, drifts = 0.05, 0.01

	// learns is how far a baseline goes in a second where the time does not depend on how many are under way.
	learns = 0.1

	// remembers is the weight that a second has for the elasticity when the next one comes, and doubt how much variance outweighs the
	// presumption that the time goes with the number under way.
	remembers, doubt = 0.97, 0.02

	// impatient is the part of the clients beyond which their leaving hides how long answers take.
	impatient = 0.1

	// sure is of how many answers a second's mean counts fully for the baseline.
	sure = 20
)

// Next returns the state after another second, with a limit from floor to ceiling. It is Netflix's gradient (concurrency-limits, Gradient2):
// the limit is multiplied by how many times the tolerated time goes into the present one, and has room added for a short queue, by which it
// grows while the service keeps up. It differs in this:
//
//   - A limit that is not used does not move. It falls quickly and grows slowly.
//   - The queue is a multiple of the limit's root, as the theory of many servers has it (Halfin and Whitt, 1981).
//   - The baseline goes up in seconds in which the limit is not used, so that no traffic has to be starved to find it out. While the limit is
//     used it does so only where the time does not depend on how many are under way (see Elasticity): then the service has become slower, but
//     does not queue, and to let it do less would not make it quicker. So a long overload is not learnt as normal.
//
// Where many clients leave before the service answers, nobody can see what the time depends on. Then the service is taken to queue.
//
// Of two seconds that differ in Time alone, the slower one never has the higher limit.
func Next(g Gradient, s Second, floor, ceiling float64) Gradient {
	if !(ceiling >= 1) {
		ceiling = 1
	}
	if !(floor >= 1) {
		floor = 1
	}
	if floor > ceiling {
		floor = ceiling
	}
	g.Limit = within(g.Limit, floor, ceiling)
	if !(g.Baseline > 0) || math.IsInf(g.Baseline, 0) {
		g.Baseline = 0
	}
	if s.Answered <= 0 {
		return g
	}
	mean := meanOf(s.Time, s.Answered)
	if g.Baseline == 0 {
		if s.Light <= 0 {
			return g
		}
		g.Baseline = meanOf(s.LightTime, s.Light)
	}
	used := s.Rejected > 0 || float64(s.Most) > g.Limit/2
	elasticity := Elasticity(g)
	hidden := float64(s.Left) > impatient*float64(s.Answered)
	if hidden {
		elasticity = 1
	}
	share := improves
	if mean > g.Baseline {
		share = drifts
		if used {
			share = learns * (1 - 2.0*elasticity)
			if share < 0 {
				share = 0
			}
		}
	}
	if s.Answered < sure {
		share *= float64(s.Answered) / sure
	}
	g.Baseline += share * (mean - g.Baseline)
	if !used {
		return g
	}
	gradient := tolerance * g.Baseline / mean
	if gradient > 1 {
		gradient = 1
	}
	if gradient < steepest {
		gradient = steepest
	}
	target := g.Limit*math.Pow(gradient, elasticity) + slack*math.Sqrt(g.Limit)
	if target < g.Limit {
		g.Limit += descent * (target - g.Limit)
	} else {
		g.Limit += ascent * (target - g.Limit)
	}
	g.Limit = within(g.Limit, floor, ceiling)
	if s.Met > 0 && !hidden {
		remember(&g, math.Log(meanOf(s.Met, s.Answered)), math.Log(meanOf(s.Time+s.Cut, s.Answered)))
	}
	return g
}

func meanOf(sum, n int64) float64 {
	mean := float64(sum) / float64(n)
	if mean < 1 {
		return 1
	}
	return mean
}

// Elasticity is by how many per cent the time of an answer has gone up, lately, for each per cent more requests under way: 1 where the service
// queues, 0 where it does not; 1 where the number under way has not changed enough to say.
func Elasticity(g Gradient) float64 {
	e := (g.covariance + doubt) / (g.variance + doubt)
	if !(e > 0) {
		return 0
	}
	if e > 1 {
		return 1
	}
	return e
}

// remember takes a second into the moments that the elasticity is made of.
func remember(g *Gradient, met, time float64) {
	before := g.weight * remembers
	g.weight = before + 1
	x, y := met-g.meanMet, time-g.meanTime
	g.meanMet += x / g.weight
	g.meanTime += y / g.weight
	g.variance = (g.variance*before + x*(met-g.meanMet)) / g.weight
	g.covariance = (g.covariance*before + x*(time-g.meanTime)) / g.weight
}

// within returns a limit between two bounds; one that is not known, or no number, is the upper one.
func within(limit, floor, ceiling float64) float64 {
	if !(limit > 0) || limit > ceiling {
		return ceiling
	}
	if limit < floor {
		return floor
	}
	return limit
}
