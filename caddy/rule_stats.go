package ratelimit

import (
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/proxyweir/weir/front"
)

// ruleStats is what has become of the requests of one rule since the process has had it. All handlers that have a rule of the name
// share it, also from one configuration to the next; with the last of them it goes, and its series with it.
type ruleStats struct {
	label      string // the rule's name, after its namespace if it has one
	outcomes   [front.NotCounted]atomic.Int64
	candidates [front.Comparisons]atomic.Int64
	penalties  atomic.Int64
	requests   topKeys // that came under the rule
	rejections topKeys // those that it rejected, or would have as a shadow
}

// allStats has the ruleStats of all configurations' rules, by their labels.
var allStats = caddy.NewUsagePool()

// acquireStats returns the stats of a rule. Who has them lets go of them by release.
func acquireStats(label string) *ruleStats {
	value, _, _ := allStats.LoadOrNew(label, func() (caddy.Destructor, error) { // which never fails
		return &ruleStats{label: label}, nil
	})
	return value.(*ruleStats)
}

func (s *ruleStats) release() {
	_, _ = allStats.Delete(s.label) // Destruct never fails
}

// Destruct implements caddy.Destructor.
func (s *ruleStats) Destruct() error {
	s.requests.end()
	s.rejections.end()
	return nil
}

// labelOf returns what a rule is called in metrics and in the admin API.
func labelOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func (s *ruleStats) inc(o front.Outcome) { s.outcomes[o].Add(1) }

// sweepTopKeys gives back the memory of keys that have not sent anything for long.
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
