package guard

import (
	"sort"
	"sync/atomic"
)

// Window is the time over which the demand of a key is counted, in microseconds.
const Window = 10_000_000

// demand counts the requests of each key in a sliding window, in memory that does not grow: a sketch of two rows of cells, in which keys share
// cells by chance. What is counted of a key is never too little, and too much by the lesser of what shares its two cells. All functions but turn
// may be called at any time from everywhere.
type demand struct {
	state  int64       // window<<3 | table<<1 | known: the window that is being counted, its table, and whether the table before it is of the window before; atomic, and first, as in Guard
	cells  uint64      // of a row; a power of two
	tables [3][]uint32 // of this window, of that before it, and one that nobody uses
}

func newDemand(cells int) *demand {
	size := 1
	for size < cells {
		size *= 2
	}
	d := &demand{cells: uint64(size)}
	for i := range d.tables {
		d.tables[i] = make([]uint32, 2*size)
	}
	return d
}

// windowOf returns the window that is being counted, in Windows since the epoch.
func windowOf(d *demand) int64 { return atomic.LoadInt64(&d.state) >> 3 }

// tablesOf returns the tables of the current window and of the one before, and how much of the latter still counts.
func tablesOf(d *demand, now int64) (counts, before []uint32, left float64) {
	state := atomic.LoadInt64(&d.state)
	table := state >> 1 & 3
	counts, before = d.tables[table], d.tables[(table+2)%3]
	if state&1 != 0 {
		left = 1 - float64(now-(state>>3)*Window)/Window
	}
	if left < 0 {
		left = 0
	}
	return counts, before, left
}

// mix spreads a hash: the finalizer of splitmix64, by Sebastiano Vigna.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// count counts a request of a key. It returns how many of it are in the current window, and in a whole window that ends now.
func count(d *demand, key uint64, now int64) (int64, float64) { return countMany(d, key, now, 1) }

// countMany is count for so many requests.
func countMany(d *demand, key uint64, now int64, n uint32) (int64, float64) {
	counts, before, left := tablesOf(d, now)
	h := mix(key)
	a, b := h&(d.cells-1), d.cells+(h>>32)&(d.cells-1)
	one, other := atomic.AddUint32(&counts[a], n), atomic.AddUint32(&counts[b], n)
	here, there := float64(one)+left*float64(atomic.LoadUint32(&before[a])), float64(other)+left*float64(atomic.LoadUint32(&before[b]))
	if other < one {
		one = other
	}
	if there < here {
		here = there
	}
	return int64(one), here
}

// turn begins a window, where it is time. One caller at a time.
func turn(d *demand, now int64) {
	window := now / Window
	state := atomic.LoadInt64(&d.state)
	if window == state>>3 {
		return
	}
	table := (state>>1&3 + 1) % 3
	next := d.tables[table]
	for i := range next { // nobody should look at it any more, but one who was stopped for long may
		atomic.StoreUint32(&next[i], 0)
	}
	known := int64(0)
	if window == state>>3+1 { // else nothing was asked for a whole window, or the clock has stepped
		known = 1
	}
	atomic.StoreInt64(&d.state, window<<3|table<<1|known)
}

// fairLevel returns the max-min fair level of a budget, both in requests a window: the level to which the keys must be cut that are above it, so
// that all together make the budget. It is 0 where all fit.
func fairLevel(d *demand, now int64, budget float64) float64 {
	counts, before, left := tablesOf(d, now)
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
