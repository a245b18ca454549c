package core

import (
	"sort"
	"sync/atomic"
	"time"
)

// DurationBounds are the upper bounds of the buckets that Durations counts in, in nanoseconds: from what a decision in memory takes,
// compiled, to what one in a store far away does.
var DurationBounds = []int{
	250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
	1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000, 250_000_000,
}

// Durations is a histogram of how long something takes. Made by NewDurations, safe for concurrent use.
type Durations struct {
	sum    int64   // in nanoseconds; first, since that is where 64 bits are aligned on every machine
	counts []int64 // by bucket, each without those below it; the last is of what is above all bounds
}

// NewDurations returns a histogram that has counted nothing.
func NewDurations() *Durations {
	return &Durations{counts: make([]int64, len(DurationBounds)+1)}
}

// Observe counts a duration.
func Observe(d *Durations, duration time.Duration) {
	i := len(DurationBounds)
	if duration <= time.Second { // more does not fit into every int
		i = sort.SearchInts(DurationBounds, int(duration))
	}
	atomic.AddInt64(&d.counts[i], 1)
	atomic.AddInt64(&d.sum, int64(duration))
}

// Read returns how many durations were counted up to each of DurationBounds, and at last how many in all; and their sum.
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
