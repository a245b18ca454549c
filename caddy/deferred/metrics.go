package deferred

import (
	"github.com/proxyweir/weir/core/metrics"
)

// AddMetrics adds what the queue is at. While Redis does not answer, its numbers are missing.
func (d *Deferral) AddMetrics(p *metrics.Page) {
	rule := d.Label()
	metrics.Each(p, metrics.DeferredRefused, metrics.Read(d.Stats.Refused), rule)
	metrics.Add(p, metrics.DeferredMaxWait, d.API.MaxWait.Seconds(), rule)
	metrics.Add(p, metrics.DeferredMaxJobs, float64(d.Config.MaxJobs), rule)
	metrics.Add(p, metrics.DeferredMaxBytes, float64(d.Config.MaxBytes), rule)
	sums := d.Worker.Sums()
	accepting := 0.0
	if sums != nil && !sums.Draining && d.Worker.Obstacle() == "" {
		accepting = 1
	}
	metrics.Add(p, metrics.DeferredAccepting, accepting, rule)
	if sums == nil {
		return
	}
	metrics.Each(p, metrics.DeferredJobs, []int64{sums.Open - sums.Claimed, sums.Claimed, sums.Letters}, rule)
	metrics.Add(p, metrics.DeferredOldest, sums.Age().Seconds(), rule)
	metrics.Add(p, metrics.DeferredBytes, float64(sums.Bytes), rule)
	metrics.Each(p, metrics.Deferred, []int64{sums.Accepted, sums.Done, sums.Died, sums.Cancelled}, rule)
	metrics.Add(p, metrics.DeferredAttempts, float64(sums.Attempts), rule)
	metrics.Add(p, metrics.DeferredRetaken, float64(sums.Retaken), rule)
}

// Label returns the name of the zone in metrics and in the admin API.
func (d *Deferral) Label() string { return metrics.LabelOf(d.Namespace, d.Zone.Rule.Name) }
