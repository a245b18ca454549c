package ratelimit

import (
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/proxyweir/weir/core/front"
)

// ruleStats has the counts of one rule's requests since the process first had the rule. All handlers with a rule of the name share
// it, also across reloads. It ends with the last of them, and so do its series.
type ruleStats struct {
	label      string // the rule's name, with its namespace in front if it has one
	outcomes   [front.NotCounted]atomic.Int64
	candidates [front.Comparisons]atomic.Int64
	penalties  atomic.Int64
	refusals   [len(refusals)]atomic.Int64 // of requests that could have been deferred
	requests   topKeys                     // requests under the rule
	rejections topKeys                     // requests that the rule rejected, or would have rejected as a shadow
}

// allStats has the ruleStats of all configurations' rules, by their labels.
var allStats = caddy.NewUsagePool()

// acquireStats returns the stats of a rule. The caller must release them.
func acquireStats(label string) *ruleStats {
	value, _, _ := allStats.LoadOrNew(label, func() (caddy.Destructor, error) { // cannot fail
		return &ruleStats{label: label}, nil
	})
	return value.(*ruleStats)
}

func (s *ruleStats) release() {
	_, _ = allStats.Delete(s.label) // Destruct cannot fail
}

// Destruct implements caddy.Destructor.
func (s *ruleStats) Destruct() error {
	s.requests.end()
	s.rejections.end()
	return nil
}

// labelOf returns the name of a rule in metrics and in the admin API.
func labelOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func (s *ruleStats) inc(o front.Outcome) { s.outcomes[o].Add(1) }

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
