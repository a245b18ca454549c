package memory

import (
	"math/big"
	"sort"
	"time"

	"github.com/proxyweir/weir/core/rate"
)

// An oracle decides by the definition of the algorithm, slowly and in exact arithmetic. It shares no code with the code under
// test, and knows only the configuration of a limit.
type oracle interface {
	// look returns the decision on a request of that cost. It changes only what a look changes.
	look(n *numbers, now, cost int64) rate.Decision

	// charge counts a request that was allowed, or that a rule with count_rejected has rejected.
	charge(n *numbers, now, cost int64, allowed bool)
}

// numbers is the configuration of a limit, with times in microseconds.
type numbers struct {
	algorithm rate.Algorithm
	interval  bool
	segments  int64
	start     rate.WindowStart
	requests  int64
	period    int64
	burst     int64
	maxDelay  int64
	bounds    []int64 // the beginnings of the calendar's windows; nil: windows of a period
}

func newOracle(n *numbers) oracle {
	switch {
	case n.start == rate.Spread:
		clock := *n
		clock.start = rate.ByClock
		c := rate.LimitConfig{Algorithm: n.algorithm, Segments: n.segments, Requests: 1, Period: time.Duration(n.period) * time.Microsecond, Start: rate.Spread}
		l, _ := rate.NewLimit(c)
		return &spreadOracle{of: newOracle(&clock), shift: rate.Phase(l, "k")}
	case n.algorithm == rate.TokenBucket && n.interval:
		return &intervalOracle{}
	case n.algorithm == rate.TokenBucket:
		return &tokenOracle{level: new(big.Rat)}
	case n.algorithm == rate.LeakyBucket:
		return &leakyOracle{level: new(big.Rat)}
	case n.algorithm == rate.FixedWindow:
		return &windowOracle{}
	case n.algorithm == rate.SlidingWindowLog:
		return &logOracle{}
	}
	if n.segments > 0 {
		return &segmentsOracle{}
	}
	return &counterOracle{}
}

// spreadOracle decides as the oracle of windows of the clock would, if that was slow by so much.
type spreadOracle struct {
	of    oracle
	shift int64
}

func (o *spreadOracle) look(n *numbers, now, cost int64) rate.Decision {
	return o.of.look(n, now-o.shift, cost)
}

func (o *spreadOracle) charge(n *numbers, now, cost int64, allowed bool) {
	o.of.charge(n, now-o.shift, cost, allowed)
}

// product returns a·b/c exactly.
func product(a, b, c int64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c))
}

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func floorOf(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64() // rounded down (Div is Euclidean, and the denominator is positive)
}

func ceilOf(r *big.Rat) int64 {
	return -floorOf(new(big.Rat).Neg(r))
}

func smaller(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}

func larger(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}

// drained returns a level at time now that was level at time at and falls by R in P, but not below 0. If the clock has stepped
// back by at most a period, the level is unchanged; after a longer step it is 0. time is the time of the result.
func drained(n *numbers, at int64, level *big.Rat, now int64) (time int64, left *big.Rat) {
	left = new(big.Rat)
	if now < at && at-now <= n.period {
		left.Set(level)
		return at, left
	}
	if now >= at {
		left.Sub(level, product(now-at, n.requests, n.period))
		if left.Sign() < 0 {
			left.SetInt64(0)
		}
	}
	return now, left
}

// timeFor returns how long a level takes to drain, rounded up to a microsecond, and at most a hundred years.
func timeFor(n *numbers, level *big.Rat) int64 {
	t := new(big.Rat).Mul(level, product(n.period, 1, n.requests))
	if t.Cmp(whole(rate.Forever)) > 0 {
		return rate.Forever
	}
	return ceilOf(t)
}

// tokenOracle is a bucket of B tokens, of which level are used.
type tokenOracle struct {
	at    int64
	level *big.Rat
}

func (o *tokenOracle) look(n *numbers, now, cost int64) rate.Decision {
	at, level := drained(n, o.at, o.level, now)
	d := rate.Decision{Limit: n.burst}
	after := new(big.Rat).Add(level, whole(cost))
	if after.Cmp(whole(n.burst)) <= 0 {
		d.Allowed = true
		level = after
	} else if cost > n.burst {
		d.RetryAfter = rate.Never
	} else {
		d.RetryAfter = at - now + timeFor(n, after.Sub(after, whole(n.burst)))
	}
	d.Remaining = larger(0, floorOf(new(big.Rat).Sub(whole(n.burst), level))) // a lowered burst leaves a debt
	if level.Sign() > 0 {
		d.ResetAfter = at - now + timeFor(n, level)
		if d.Allowed {
			d.MoreAfter = at - now + timeFor(n, new(big.Rat).Add(level, whole(d.Remaining+1-n.burst)))
		}
	}
	return d
}

func (o *tokenOracle) charge(n *numbers, now, cost int64, allowed bool) {
	at, level := drained(n, o.at, o.level, now)
	o.at = at
	o.level = level
	if allowed {
		o.level = new(big.Rat).Add(level, whole(cost))
	} else if level.Cmp(whole(n.burst)) < 0 {
		o.level = whole(n.burst)
	}
}

// intervalOracle is a bucket that gets R tokens at each whole P of the epoch.
type intervalOracle struct {
	at, gone int64
}

func (o *intervalOracle) now(n *numbers, now int64) (at, gone int64) {
	gone = o.gone
	if now < o.at {
		if o.at-now <= n.period {
			return o.at, gone
		}
		return now, 0
	}
	refills := now/n.period - o.at/n.period
	back := new(big.Int).Mul(big.NewInt(refills), big.NewInt(n.requests))
	if back.Cmp(big.NewInt(gone)) >= 0 {
		return now, 0
	}
	return now, gone - back.Int64()
}

// until returns how long it takes from now until that many tokens have come back since time at.
func (o *intervalOracle) until(n *numbers, now, at, tokens int64) int64 {
	refills := (tokens + n.requests - 1) / n.requests
	if product(refills, n.period, 1).Cmp(whole(rate.Forever)) > 0 {
		return at - now + rate.Forever
	}
	return (at/n.period+refills)*n.period - now
}

func (o *intervalOracle) look(n *numbers, now, cost int64) rate.Decision {
	at, gone := o.now(n, now)
	d := rate.Decision{Limit: n.burst}
	if gone+cost <= n.burst {
		d.Allowed = true
		gone += cost
	} else if cost > n.burst {
		d.RetryAfter = rate.Never
	} else {
		d.RetryAfter = o.until(n, now, at, gone+cost-n.burst)
	}
	d.Remaining = larger(0, n.burst-gone)
	if gone > 0 {
		d.ResetAfter = o.until(n, now, at, gone)
		if d.Allowed {
			d.MoreAfter = o.until(n, now, at, 1)
		}
	}
	return d
}

func (o *intervalOracle) charge(n *numbers, now, cost int64, allowed bool) {
	o.at, o.gone = o.now(n, now)
	if allowed {
		o.gone += cost
	} else {
		o.gone = larger(o.gone, n.burst)
	}
}

// leakyOracle is a queue in which one request leaves in each P/R. level is how many such slots are taken, the first of them
// perhaps in part. Requests whose slot has not begun are waiting.
type leakyOracle struct {
	at    int64
	level *big.Rat
}

func (o *leakyOracle) look(n *numbers, now, cost int64) rate.Decision {
	at, level := drained(n, o.at, o.level, now)
	d := rate.Decision{Limit: n.burst}
	begun := ceilOf(level)
	free := n.burst + 1 - begun // one leaves, B wait
	slot := int64(0)            // from now, when the next request may leave
	if level.Sign() > 0 {
		slot = at - now + timeFor(n, level)
	}
	d.ResetAfter = slot
	if cost <= free && slot <= n.maxDelay {
		d.Allowed = true
		d.Delay = slot
		d.ResetAfter = at - now + timeFor(n, new(big.Rat).Add(level, whole(cost)))
		free -= cost
	} else if cost > n.burst+1 {
		d.RetryAfter = rate.Never
	} else {
		if slot > n.maxDelay {
			d.RetryAfter = slot - n.maxDelay
		}
		if cost > free {
			excess := new(big.Rat).Add(level, whole(cost-n.burst-1))
			d.RetryAfter = larger(d.RetryAfter, at-now+timeFor(n, excess))
		}
	}
	d.Remaining = smaller(larger(free, 0), n.burst)
	if d.Allowed && d.Remaining < n.burst {
		after := new(big.Rat).Add(level, whole(cost))
		d.MoreAfter = at - now + timeFor(n, after.Add(after, whole(d.Remaining-n.burst)))
	}
	return d
}

func (o *leakyOracle) charge(n *numbers, now, cost int64, allowed bool) {
	at, level := drained(n, o.at, o.level, now)
	full := whole(n.burst + 1)
	o.at = at
	o.level = new(big.Rat).Add(level, whole(cost))
	if !allowed && o.level.Cmp(full) > 0 { // fills the queue, and leaves a longer one as it is
		o.level = full
		if level.Cmp(full) > 0 {
			o.level = level
		}
	}
}

// windowOracle counts in windows that do not overlap.
type windowOracle struct {
	start, count int64
}

func (o *windowOracle) now(n *numbers, now int64) (start, end, count int64) {
	count = o.count
	at := now
	if now < o.start {
		if o.start-now <= n.period {
			at = o.start
		} else {
			count = 0
		}
	}
	if n.start == rate.FirstRequest {
		if count == 0 || at >= o.start+n.period {
			return at, at + n.period, 0
		}
		return o.start, o.start + n.period, count
	}
	if n.bounds == nil {
		start = at / n.period * n.period
		end = start + n.period
	} else {
		i := sort.Search(len(n.bounds), func(i int) bool { return n.bounds[i] > at })
		start, end = n.bounds[i-1], n.bounds[i]
	}
	if start != o.start {
		count = 0
	}
	return start, end, count
}

func (o *windowOracle) look(n *numbers, now, cost int64) rate.Decision {
	_, end, count := o.now(n, now)
	d := rate.Decision{Limit: n.requests}
	if count+cost <= n.requests {
		d.Allowed = true
		count += cost
	} else if cost > n.requests {
		d.RetryAfter = rate.Never
	} else {
		d.RetryAfter = end - now
	}
	d.Remaining = larger(0, n.requests-count)
	if count > 0 {
		d.ResetAfter = end - now
		if d.Allowed {
			d.MoreAfter = end - now
		}
	}
	return d
}

func (o *windowOracle) charge(n *numbers, now, cost int64, allowed bool) {
	start, _, count := o.now(n, now)
	o.start = start
	if allowed {
		o.count = count + cost
	} else {
		o.count = larger(count, n.requests)
	}
}

// logOracle is a list of exact times, oldest first. Units taken at the same time are one entry.
type logOracle struct {
	known  bool  // a key that was never charged cannot be looked at
	last   int64 // the time of the last look
	events []event
}

type event struct {
	at, units int64
}

// forget drops what has expired at time now, and returns the time and the units that are left.
func (o *logOracle) forget(n *numbers, now int64) (at, units int64) {
	at = now
	if now < o.last {
		if o.last-now <= n.period {
			at = o.last
		} else {
			o.events = nil
		}
	}
	if o.known {
		o.last = at
	}
	for len(o.events) > 0 && o.events[0].at+n.period <= at {
		o.events = o.events[1:]
	}
	for i := range o.events {
		units += o.events[i].units
	}
	return at, units
}

// expiry returns when that many of the oldest units have expired.
func (o *logOracle) expiry(n *numbers, units int64) int64 {
	for i := range o.events {
		units -= o.events[i].units
		if units <= 0 {
			return o.events[i].at + n.period
		}
	}
	return 0
}

func (o *logOracle) look(n *numbers, now, cost int64) rate.Decision {
	at, units := o.forget(n, now)
	d := rate.Decision{Limit: n.requests}
	if units+cost <= n.requests {
		d.Allowed = true
		d.Remaining = n.requests - units - cost
		d.ResetAfter = at + n.period - now
		d.MoreAfter = d.ResetAfter
		if units > 0 {
			d.MoreAfter = o.expiry(n, 1) - now
		}
		return d
	}
	d.Remaining = larger(0, n.requests-units)
	d.RetryAfter = rate.Never
	if cost <= n.requests {
		d.RetryAfter = o.expiry(n, units+cost-n.requests) - now
	}
	if units > 0 {
		d.ResetAfter = o.expiry(n, units) - now
	}
	return d
}

func (o *logOracle) charge(n *numbers, now, cost int64, allowed bool) {
	at, units := o.forget(n, now)
	most := larger(units, n.requests)
	cost = smaller(cost, most)
	o.known, o.last = true, at
	o.events = append(o.events, event{at, cost})
	for excess := units + cost - most; excess > 0; {
		if o.events[0].units > excess {
			o.events[0].units -= excess
			break
		}
		excess -= o.events[0].units
		o.events = o.events[1:]
	}
}

// counterOracle computes ⌊previous × overlap⌋ + current in whole numbers. It finds times by trying.
type counterOracle struct {
	start, previous, current int64
}

// now returns the present counts and their time.
func (o *counterOracle) now(n *numbers, now int64) (counterOracle, int64) {
	c, at := *o, now
	if now < o.start {
		if o.start-now <= n.period {
			at = o.start
		} else {
			c.previous, c.current = 0, 0
		}
	}
	start := at / n.period * n.period
	if start > c.start {
		c.previous = c.current
		if start > c.start+n.period {
			c.previous = 0
		}
		c.current = 0
	}
	c.start = start
	return c, at
}

// used returns how much is in use at time t, without further requests.
func (o *counterOracle) used(n *numbers, t int64) int64 {
	c, at := o.now(n, t)
	weight := new(big.Int).Mul(big.NewInt(c.previous), big.NewInt(c.start+n.period-at))
	return weight.Div(weight, big.NewInt(n.period)).Int64() + c.current
}

// until returns how long it takes from now until at most most is in use, which only falls.
func (o *counterOracle) until(n *numbers, now, most int64) int64 {
	low, high := int64(-1), larger(0, o.start-now)+2*n.period
	for high-low > 1 {
		middle := (low + high) / 2
		if o.used(n, now+middle) <= most {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

func (o *counterOracle) look(n *numbers, now, cost int64) rate.Decision {
	c, at := o.now(n, now)
	d := rate.Decision{Limit: n.requests}
	used := c.used(n, at)
	if used+cost <= n.requests {
		d.Allowed = true
		c.current += cost
		used += cost
	} else if cost > n.requests {
		d.RetryAfter = rate.Never
	} else {
		d.RetryAfter = c.until(n, now, n.requests-cost)
	}
	d.Remaining = larger(0, n.requests-used)
	if used > 0 {
		d.ResetAfter = c.until(n, now, 0)
		if d.Allowed {
			d.MoreAfter = c.until(n, now, used-1)
		}
	}
	return d
}

func (o *counterOracle) charge(n *numbers, now, cost int64, allowed bool) {
	c, _ := o.now(n, now)
	c.current += cost
	if !allowed {
		c.current = smaller(c.current, 1<<32-1) // the most that a state can hold: four times the largest limit
	}
	*o = c
}
