package metrics

import (
	"sync/atomic"

	"github.com/proxyweir/weir/core/rate"
)

// Page has the series of one scrape, by family.
type Page struct {
	series map[*Family][]*Series
}

// Series is one series of a family, or one for each value of its last label.
type Series struct {
	Labels []string // the values of the family's labels
	Value  float64  // of a histogram, the sum
	Values []int64  // one for each value of the last label, which Labels lack; nil: there is one series

	// Of a histogram: the upper bounds of its buckets but the last, how many values each has with those before it, and how many there are.
	Bounds []float64
	Within []int64
	Count  int64
}

// NewPage returns an empty page.
func NewPage() *Page { return &Page{series: make(map[*Family][]*Series)} }

// Of returns the series of a family.
func Of(p *Page, f *Family) []*Series { return p.series[f] }

// Add adds a series with the values of the family's labels.
func Add(p *Page, f *Family, value float64, labels ...string) {
	p.series[f] = append(p.series[f], &Series{Labels: labels, Value: value})
}

// AddIf adds a series whose value is 1 if something is so, and else 0.
func AddIf(p *Page, f *Family, is bool, labels ...string) {
	value := 0.0
	if is {
		value = 1
	}
	Add(p, f, value, labels...)
}

// Each adds a series for each value of the family's last label, which labels lack.
func Each(p *Page, f *Family, values []int64, labels ...string) {
	p.series[f] = append(p.series[f], &Series{Labels: labels, Values: values})
}

// Last returns the last label of a family.
func Last(f *Family) Label { return f.Labels[len(f.Labels)-1] }

// AddRegion adds how another region is heard. Times are in seconds.
func AddRegion(p *Page, name string, age, ahead float64, cut bool, units int64) {
	Add(p, RegionAge, age, name)
	AddIf(p, RegionCut, cut, name)
	Add(p, RegionUnits, float64(units), name)
	Add(p, RegionClock, ahead, name)
}

// AddDecisions adds how long decisions took in a store.
func AddDecisions(p *Page, store string, d *rate.Durations) {
	counts, sum := d.Read()
	all := len(counts) - 1
	bounds := make([]float64, 0, all)
	for _, bound := range rate.DurationBounds {
		bounds = append(bounds, float64(bound)/1e9)
	}
	p.series[DecisionTime] = append(p.series[DecisionTime], &Series{Labels: []string{store}, Value: sum.Seconds(), Bounds: bounds, Within: counts[:all], Count: counts[all]})
}

// addPowers adds a histogram whose bounds are at a unit, twice that, four times that, and so on.
func addPowers(p *Page, f *Family, within []int64, unit float64, count int64, sum float64, labels ...string) {
	s := &Series{Labels: labels, Value: sum, Within: within, Count: count}
	for range within {
		s.Bounds = append(s.Bounds, unit)
		unit *= 2
	}
	p.series[f] = append(p.series[f], s)
}

// NewCounts returns a count for each value of a family's last label; Count and Read use them.
func NewCounts(f *Family) []int64 { return make([]int64, len(Last(f).Values)) }

// Count counts what has a value of a family's last label. Another value is not counted.
func Count(counts []int64, f *Family, value string) {
	for i, known := range Last(f).Values {
		if known == value {
			atomic.AddInt64(&counts[i], 1)
		}
	}
}

// ByValue returns counts by the values of a family's last label.
func ByValue(f *Family, counts []int64) map[string]int64 {
	by := make(map[string]int64, len(counts))
	for i, value := range Last(f).Values {
		by[value] = counts[i]
	}
	return by
}

// Read returns counts that others may be changing with functions of sync/atomic.
func Read(counts []int64) []int64 {
	list := make([]int64, len(counts))
	for i := range counts {
		list[i] = atomic.LoadInt64(&counts[i])
	}
	return list
}
