package report

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/proxyweir/weir/core/metrics"
)

// Stats has the counts of one rule's requests since the process first had the rule. All handlers with a rule of the name share
// it, also across reloads. It ends with the last of them, and so do its series.
type Stats struct {
	*metrics.Meter
	Refused       []int64 // of metrics.DeferredRefused
	TopRequests   topKeys // requests under the rule
	TopRejections topKeys // requests that the rule rejected, or would have rejected as a shadow
}

// allStats has the Stats of all configurations' rules, by their labels.
var allStats = caddy.NewUsagePool()

// acquireStats returns the stats of a rule. The caller must release them.
func acquireStats(label string) *Stats {
	value, _, _ := allStats.LoadOrNew(label, func() (caddy.Destructor, error) { // cannot fail
		return &Stats{Meter: metrics.NewMeter(label), Refused: metrics.NewCounts(metrics.DeferredRefused)}, nil
	})
	return value.(*Stats)
}

func (s *Stats) release() {
	_, _ = allStats.Delete(s.Label) // Destruct cannot fail
}

// Destruct implements caddy.Destructor.
func (s *Stats) Destruct() error {
	s.TopRequests.end()
	s.TopRejections.end()
	return nil
}

// SweepTopKeys frees the memory of keys that have sent nothing for long.
func SweepTopKeys() {
	now := time.Now().Unix()
	allStats.Range(func(_, value any) bool {
		s := value.(*Stats)
		s.TopRequests.look(now)
		s.TopRejections.look(now)
		return true
	})
}

// Interface guard
var _ caddy.Destructor = (*Stats)(nil)
