package guard

import (
	"math"
	"math/bits"
)

// Keys are told apart by their demand, in requests a Window, in buckets: bucket i has those with more than bound(i) requests, and not more than
// bound(i+1). A bound is a quarter more than the one before, or less; all counts to 8 and all powers of two are bounds.
const buckets = 72

// bucketOf returns the bucket of a key with one request more than n.
func bucketOf(n int64) int {
	if n < 8 {
		return int(n)
	}
	shift := bits.Len64(uint64(n)) - 3
	i := shift*4 + int(n>>uint(shift))
	if i >= buckets {
		return buckets - 1
	}
	return i
}

// bound returns the greatest number of requests that is too few for a bucket.
func bound(bucket int) int64 {
	if bucket < 8 {
		return int64(bucket)
	}
	return int64(bucket%4+4) << uint(bucket/4-1)
}

const (
	// day is the time in microseconds after which what was learnt weighs a third of what is learnt now, about.
	day = 86_400 * second

	// trimmed is the part of the keys, those with the greatest demand, that the greatest of a history leaves out.
	trimmed = 0.0001
)

// History is the distribution of the demand of a rule's keys over the last day, older demand weighing less. The zero value knows nothing.
type History struct {
	// Learnt is the time in which there was demand, in microseconds.
	Learnt int64

	// keys has the number of keys by their demand, one for each Window that they asked in, each with its weight.
	keys   []float64
	weight float64 // the sum of keys
}

// Learn adds the demand of one Window: exceeding has for each bucket how many keys asked for more than its bound. A weight below 1 counts it for
// less. It returns the history with it, which shares memory with the former one.
func Learn(h History, exceeding []int64, weight float64) History {
	if len(exceeding) == 0 || exceeding[0] <= 0 {
		return h
	}
	if h.keys == nil {
		h.keys = make([]float64, buckets)
	}
	h.Learnt += Window
	const kept = 1 - float64(Window)/day
	h.weight = 0
	for i := range h.keys {
		n := exceeding[i]
		if i+1 < len(exceeding) {
			n -= exceeding[i+1]
		}
		if n < 0 { // one was counted while others were read
			n = 0
		}
		h.keys[i] = kept*h.keys[i] + weight*float64(n)
		h.weight += h.keys[i]
	}
	return h
}

// Quantile returns the demand, in requests a Window, that the part q of the keys does not exceed; 0 if nothing is known.
func Quantile(h History, q float64) int64 {
	left := (1 - q) * h.weight // of the keys that may be above
	for i := len(h.keys) - 1; i >= 0; i-- {
		left -= h.keys[i]
		if left < -1e-9 {
			return bound(i + 1)
		}
	}
	return 0
}

// Greatest returns the greatest demand of a key, in requests a Window, but for one key in 10,000, and at least for one; 0 if nothing is known.
func Greatest(h History) int64 {
	if h.weight <= 0 {
		return 0
	}
	return Quantile(h, 1-math.Max(trimmed, math.Min(0.5, 1/h.weight)))
}
