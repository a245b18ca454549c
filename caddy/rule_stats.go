package ratelimit

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/proxyweir/weir/core/metrics"
)

// ruleStats has the counts of one rule's requests since the process first had the rule. All handlers with a rule of the name share
// it, also across reloads. It ends with the last of them, and so do its series.
type ruleStats struct {
	*metrics.Meter
	refused    []int64 // of metrics.DeferredRefused
	requests   topKeys // requests under the rule
	rejections topKeys // requests that the rule rejected, or would have rejected as a shadow
}

// allStats has the ruleStats of all configurations' rules, by their labels.
var allStats = caddy.NewUsagePool()

// acquireStats returns the stats of a rule. The caller must release them.
func acquireStats(label string) *ruleStats {
	value, _, _ := allStats.LoadOrNew(label, func() (caddy.Destructor, error) { // cannot fail
		return &ruleStats{Meter: metrics.NewMeter(label), refused: metrics.NewCounts(metrics.DeferredRefused)}, nil
	})
	return value.(*ruleStats)
}

func (s *ruleStats) release() {
	_, _ = allStats.Delete(s.Label) // Destruct cannot fail
}

// Destruct implements caddy.Destructor.
func (s *ruleStats) Destruct() error {
	s.requests.end()
	s.rejections.end()
	return nil
}

// sweepTopKeys frees the memory of keys that have sent nothing for long.
func sweepTopKeys() {
	now := time.Now().Unix()
	allStats.Range(func(_, value any) bool {
		s := value.(*ruleStats)
		s.requests.look(now)
		s.rejections.look(now)
		return true
	})
}

// Interface guard
var _ caddy.Destructor = (*ruleStats)(nil)
