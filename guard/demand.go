package guard

import (
	"sort"
	"sync/atomic"
)

// Window is the time over which the demand of a key is counted, in microseconds.
const Window = 10_000_000

// demand counts the requests of each key in a sliding window, in memory that does not grow: a sketch of two rows of cells, in which keys share
// cells by chance. What is counted of a key is never too little, and too much by the lesser of what shares its two cells. All methods but turn
// may be called at any time from everywhere.
type demand struct {
	cells   uint64 // of a row; a power of two
	current int64  // the window that is being counted, in Windows since the epoch; atomic
	counts  [2][]uint32
}

func newDemand(cells int) demand {
	size := 1
	for size < cells {
		size *= 2
	}
	return demand{cells: uint64(size), counts: [2][]uint32{make([]uint32, 2*size), make([]uint32, 2*size)}}
}

// mix spreads a hash: the finalizer of splitmix64, by Sebastiano Vigna.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// add counts a request of a key, and returns how many of it are in the window that ends now.
func add(d *demand, key uint64, now int64) float64 { return addMany(d, key, now, 1) }

// addMany is add for so many requests.
func addMany(d *demand, key uint64, now int64, n uint32) float64 {
	window := atomic.LoadInt64(&d.current)
	since := now - window*Window
	counts, before := d.counts[window&1], d.counts[1-window&1]
	h := mix(key)
	a, b := h&(d.cells-1), d.cells+(h>>32)&(d.cells-1)
	left := 1 - float64(since)/Window
	if left < 0 {
		left = 0
	}
	one := float64(atomic.AddUint32(&counts[a], n)) + left*float64(atomic.LoadUint32(&before[a]))
	other := float64(atomic.AddUint32(&counts[b], n)) + left*float64(atomic.LoadUint32(&before[b]))
	if other < one {
		return other
	}
	return one
}

// turn begins a window, where it is time. One caller at a time.
func turn(d *demand, now int64) {
	window := now / Window
	before := atomic.LoadInt64(&d.current)
	if window == before {
		return
	}
	next := d.counts[window&1]
	for i := range next {
		atomic.StoreUint32(&next[i], 0)
	}
	if window != before+1 { // nothing was asked for a whole window, or the clock has stepped
		other := d.counts[1-window&1]
		for i := range other {
			atomic.StoreUint32(&other[i], 0)
		}
	}
	atomic.StoreInt64(&d.current, window)
}

// fairLevel returns the max-min fair level of a budget, both in requests a window: the level to which the keys must be cut that are above it, so
// that all together make the budget. It is 0 where all fit.
func fairLevel(d *demand, now int64, budget float64) float64 {
	window := atomic.LoadInt64(&d.current)
	left := 1 - float64(now-window*Window)/Window
	if left < 0 {
		left = 0
	}
	counts, before := d.counts[window&1], d.counts[1-window&1]
	rates := make([]float64, 0, d.cells)
	for i := uint64(0); i < d.cells; i++ {
		rate := float64(atomic.LoadUint32(&counts[i])) + left*float64(atomic.LoadUint32(&before[i]))
		if rate > 0 {
			rates = append(rates, rate)
		}
	}
	return level(rates, budget)
}

// level is fairLevel's of demands that are in a slice, which it sorts.
func level(rates []float64, budget float64) float64 {
	sort.Float64s(rates)
	for i, rate := range rates {
		n := float64(len(rates) - i)
		if rate*n >= budget {
			if budget <= 0 {
				return 0
			}
			return budget / n
		}
		budget -= rate
	}
	return 0
}
