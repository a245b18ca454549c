package memory

import (
	"math/big"
	"testing"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/underrace"
)

// segmentsOracle adds up all units that the window covers, each segment by itself, in whole numbers. It finds times by trying.
type segmentsOracle struct {
	last   int64 // the beginning of the present segment at the last look
	counts map[int64]int64
}

// length is how long a segment lasts.
func (o *segmentsOracle) length(n *numbers) int64 { return (n.period + n.segments - 1) / n.segments }

// time returns the time by which the key counts.
func (o *segmentsOracle) time(n *numbers, now int64) int64 {
	if now < o.last && o.last-now <= n.period {
		return o.last
	}
	return now
}

// used returns how much is in use at time t, with so many units more in the present segment.
func (o *segmentsOracle) used(n *numbers, t, more int64) int64 {
	long := o.length(n)
	present := t / long
	sum := more
	for at, units := range o.counts {
		switch {
		case at > present-n.segments:
			sum += units
		case at == present-n.segments:
			part := new(big.Int).Mul(big.NewInt(units), big.NewInt((present+1)*long-t))
			sum += part.Div(part, big.NewInt(long)).Int64()
		}
	}
	return sum
}

// until returns how long it takes from now until at most most is in use, if more is charged at time at.
func (o *segmentsOracle) until(n *numbers, now, at, more, most int64) int64 {
	long := o.length(n)
	then := &segmentsOracle{counts: map[int64]int64{}}
	for segment, units := range o.counts {
		then.counts[segment] = units
	}
	then.counts[at/long] += more
	low, high := at-1, at+(n.segments+1)*long
	for high-low > 1 {
		middle := (low + high) / 2
		if then.used(n, middle, 0) <= most {
			high = middle
		} else {
			low = middle
		}
	}
	return high - now
}

func (o *segmentsOracle) look(n *numbers, now, cost int64) rate.Decision {
	at := o.time(n, now)
	if at < o.last {
		o.counts = map[int64]int64{}
	}
	if o.counts != nil { // else there is no key yet
		o.last = at - at%o.length(n)
	}
	d := rate.Decision{Limit: n.requests}
	used := o.used(n, at, 0)
	more := int64(0)
	if used+cost <= n.requests {
		d.Allowed = true
		more = cost
		used += cost
	} else if cost > n.requests {
		d.RetryAfter = rate.Never
	} else {
		d.RetryAfter = o.until(n, now, at, 0, n.requests-cost)
	}
	d.Remaining = larger(0, n.requests-used)
	if used > 0 {
		d.ResetAfter = o.until(n, now, at, more, 0)
		if d.Allowed {
			d.MoreAfter = o.until(n, now, at, more, smaller(used, n.requests)-1)
		}
	}
	return d
}

func (o *segmentsOracle) charge(n *numbers, now, cost int64, allowed bool) {
	at := o.time(n, now)
	present := at / o.length(n)
	sum := int64(0)
	for segment, units := range o.counts {
		if segment <= present-n.segments-1 {
			delete(o.counts, segment)
		} else if segment > present-n.segments {
			sum += units
		}
	}
	if o.counts == nil {
		o.counts = map[int64]int64{}
	}
	o.last = at - at%o.length(n)
	o.counts[present] += smaller(cost, 1<<31-1-sum) // the most that all can hold: twice the largest limit
}

func TestSegmentsAgreeWithTheirOracle(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, segments := range []int64{2, 3, 12, 60} {
		againstOracle(t, numbers{algorithm: rate.SlidingWindowCounter, segments: segments})
	}
}
