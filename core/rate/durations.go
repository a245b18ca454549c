package rate

import (
	"sort"
	"sync/atomic"
	"time"
)

// DurationBounds are the upper bounds of the buckets of Durations, in nanoseconds. They reach from what a compiled decision in
// memory takes to what one in a distant store takes.
var DurationBounds = []int{
	250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
	1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000, 250_000_000,
}

// Durations is a histogram of durations. NewDurations makes it. It is safe for concurrent use.
type Durations struct {
	sum    int64   // in nanoseconds; first, so that 32-bit machines align it to 64 bits, too
	counts []int64 // of each bucket alone; the last is of durations above all bounds
}

// NewDurations returns an empty histogram.
func NewDurations() *Durations {
	return &Durations{counts: make([]int64, len(DurationBounds)+1)}
}

// Observe counts a duration.
func Observe(d *Durations, duration time.Duration) {
	i := len(DurationBounds)
	if duration <= time.Second { // longer ones do not fit into every int
		i = sort.SearchInts(DurationBounds, int(duration))
	}
	atomic.AddInt64(&d.counts[i], 1)
	atomic.AddInt64(&d.sum, int64(duration))
}

// Read returns cumulative counts: the durations up to each of DurationBounds, and last of all of them. sum is their sum.
func (d *Durations) Read() (counts []int64, sum time.Duration) {
	counts = make([]int64, len(d.counts))
	all := int64(0)
	for i := range d.counts {
		all += atomic.LoadInt64(&d.counts[i])
		counts[i] = all
	}
	sum = time.Duration(atomic.LoadInt64(&d.sum))
	return counts, sum
}
