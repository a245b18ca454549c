package ratelimit

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
)

// guardCollector reports what guards are at.
type guardCollector struct {
	mu     sync.Mutex
	states []*guardState
}

var guardMetrics = new(guardCollector)

func guardDesc(m front.GuardMetric, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(m.Name, m.Help, append([]string{"guard"}, labels...), nil)
}

var (
	guardLimitDesc    = guardDesc(front.GuardLimit)
	guardUnderWayDesc = guardDesc(front.GuardUnderWay)
	guardBaselineDesc = guardDesc(front.GuardBaseline)
	guardFairDesc     = guardDesc(front.GuardFair)
	guardRejectedDesc = guardDesc(front.GuardRejected, "reason")
	guardShadowDesc   = guardDesc(front.GuardShadowRejected, "reason")

	demandDesc    = guardDesc(front.KeyDemand, "rule")
	activeDesc    = guardDesc(front.ActiveKeys, "rule")
	refusedDesc   = guardDesc(front.RejectedKeys, "rule")
	topDesc       = guardDesc(front.TopKeys, "rule", "keys")
	firstByteDesc = guardDesc(front.FirstByte, "rule")
	usualDesc     = guardDesc(front.UsualDemand, "rule", "share")
	tightenedDesc = guardDesc(front.TightenedLimit, "rule")
)

func (c *guardCollector) add(s *guardState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states = append(c.states, s)
}

func (c *guardCollector) remove(s *guardState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states = slices.DeleteFunc(c.states, func(other *guardState) bool { return other == s })
}

// all returns the guards of all configurations.
func (c *guardCollector) all() []*guardState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.states)
}

// Describe implements prometheus.Collector.
func (c *guardCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{guardLimitDesc, guardUnderWayDesc, guardBaselineDesc, guardFairDesc, guardRejectedDesc, guardShadowDesc,
		demandDesc, activeDesc, refusedDesc, topDesc, firstByteDesc, usualDesc, tightenedDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *guardCollector) Collect(to chan<- prometheus.Metric) {
	now := guardNow()
	for _, s := range c.all() {
		at := guard.Look(s.Guard)
		name := s.label
		gauge := func(d *prometheus.Desc, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{name}, labels...)...)
		}
		gauge(guardLimitDesc, float64(at.Limit))
		gauge(guardUnderWayDesc, float64(at.UnderWay))
		gauge(guardBaselineDesc, float64(at.Baseline)/1e6)
		gauge(guardFairDesc, float64(at.Fair)/1e3)
		s.each(func(label string, r *guard.Rule) {
			of := guard.LookAt(r, now)
			if label == "" && of.Asked == 0 && of.Answers == 0 { // all requests come under rules
				return
			}
			gauge(activeDesc, float64(of.Keys), label)
			gauge(refusedDesc, float64(of.Refused), label)
			gauge(topDesc, of.Top, label, "1")
			gauge(topDesc, of.Ten, label, "10")
			gauge(usualDesc, float64(of.P99), label, "0.99")
			gauge(usualDesc, float64(of.Greatest), label, "0.9999")
			gauge(tightenedDesc, of.Limit, label)
			to <- histogramOf(demandDesc, of.Demand, 1, of.Asked, float64(of.Requests), name, label)
			to <- histogramOf(firstByteDesc, of.Took, 0.001, of.Answers, float64(of.Time)/1e6, name, label)
		})
		for d, shadow := range map[*prometheus.Desc]bool{guardRejectedDesc: false, guardShadowDesc: true} {
			counts, shown := front.GuardCounts(&at, shadow)
			for reason, n := range counts {
				if shown {
					to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), name, reason)
				}
			}
		}
	}
}

// histogramOf returns a histogram whose buckets are at a unit, twice that, four times that, and so on.
func histogramOf(d *prometheus.Desc, within []int64, unit float64, count int64, sum float64, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(within))
	for _, n := range within {
		buckets[unit] = uint64(max(n, 0))
		unit *= 2
	}
	return prometheus.MustNewConstHistogram(d, uint64(count), sum, buckets, labels...)
}
