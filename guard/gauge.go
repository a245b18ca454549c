package guard

import "sync/atomic"

// Gauge has what a program needs that an interpreter runs, to which a Begin and an End cost as much as all else. It may have most requests pass
// by them where there is ample room: then nobody is turned away, whoever asks. Such a request is added to UnderWay, and taken out again where
// End would do that. The numbers are for the functions of sync/atomic.
type Gauge struct {
	UnderWay *int64 // how many requests are under way
	Ample    *int64 // requests may pass by while no more than this are under way; it changes every second
	Stride   *int64 // one of so many is not to pass by, but to call BeginFor with this number, and Count with it; also one by one
}

// GaugeOf returns the gauge of a guard.
func GaugeOf(g *Guard) Gauge {
	return Gauge{UnderWay: &g.underWay, Ample: &g.ample, Stride: &g.stride}
}

const (
	// From so many requests a second on one of widest stands for those that pass by: enough of them for a mean, and for the demand of a key that
	// matters.
	frequent, widest = 400, 8
)

// Exact has no request pass by from now on.
func Exact(g *Guard) {
	atomic.StoreInt64(&g.exact, 1)
	atomic.StoreInt64(&g.ample, 0)
}

// spare sets how many requests pass by, by the limit and by how many a second the service has got through.
func spare(g *Guard, open, through float64) {
	ample, stride := int64((1-strict)*open), int64(1)
	if atomic.LoadInt64(&g.exact) != 0 || g.tight {
		ample = 0
	}
	if through >= frequent {
		stride = widest
	}
	atomic.StoreInt64(&g.stride, stride)
	atomic.StoreInt64(&g.ample, ample)
}
