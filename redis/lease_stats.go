package redis

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// LeaseStats is the result of Store.LeaseStats.
type LeaseStats struct {
	Units    int64            // that this node may spend now, of all rules
	Held     map[string]int64 // the same, by the identity of the rule; without those of which it holds nothing
	UnderWay int64            // calls that no request waits for

	// Checks of leased rules, by what became of them: the units were held; the request was rejected without asking Redis, as the limit had been used up
	// a moment before; or Redis had to decide. Those of a peek do not count.
	Spent, Rejected, Asked int64

	// Calls about leases, by their outcome: units were granted; none were, since too few are free; units were given back; or there was no answer.
	Granted, Refused, Returned, Failed int64
}

// LeaseStats returns what this node holds by leases, and what has become of requests and calls since the store was made.
func (s *Store) LeaseStats() LeaseStats {
	l := &s.leaseCache
	stats := LeaseStats{Held: make(map[string]int64), UnderWay: l.underWay.Load(),
		Granted: l.granted.Load(), Refused: l.refused.Load(), Returned: l.returned.Load(), Failed: l.failed.Load()}
	mono, wall := s.clocks()
	for i := range l.shards {
		shard := &l.shards[i]
		shard.mu.Lock()
		stats.Spent += shard.spent
		stats.Rejected += shard.rejected
		stats.Asked += shard.asked
		for _, k := range shard.held {
			if units, _ := rate.LeaseHolds(&k.lease, mono, wall); units > 0 {
				stats.Units += units
				stats.Held[k.rule.Identity] += units
			}
		}
		shard.mu.Unlock()
	}
	return stats
}

// Add adds the numbers of another store.
func (s *LeaseStats) Add(other LeaseStats) {
	s.Units += other.Units
	s.UnderWay += other.UnderWay
	for identity, units := range other.Held {
		if s.Held == nil {
			s.Held = make(map[string]int64)
		}
		s.Held[identity] += units
	}
	s.Spent += other.Spent
	s.Rejected += other.Rejected
	s.Asked += other.Asked
	s.Granted += other.Granted
	s.Refused += other.Refused
	s.Returned += other.Returned
	s.Failed += other.Failed
}

// Requests returns the checks of leased rules, in the order of the outcomes of metrics.LeaseRequests.
func (s *LeaseStats) Requests() []int64 { return []int64{s.Spent, s.Rejected, s.Asked} }

// Calls returns the calls about leases, in the order of the outcomes of metrics.LeaseCalls.
func (s *LeaseStats) Calls() []int64 { return []int64{s.Granted, s.Refused, s.Returned, s.Failed} }

// HeldOf returns how many units are held of rules, some of which may be counted in the same place, and whether any of them is leased.
func (s *LeaseStats) HeldOf(rules []*core.Rule) (units int64, leased bool) {
	counted := make(map[string]bool)
	for _, r := range rules {
		id := r.LentAs()
		if id != "" && !counted[id] {
			counted[id] = true
			units += s.Held[id]
			leased = true
		}
	}
	return units, leased
}

// Holds returns how many units of a key's limit this node may spend now without asking Redis, and how much longer, in microseconds. The rule must be open
// in the store.
func (s *Store) Holds(r *core.Rule, key string) (units, lasts int64) {
	o := opened(r)
	hash := s.hashOf(o, key) ^ o.terms
	shard := &s.leaseCache.shards[hash%cacheShards]
	mono, wall := s.clocks()
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k := shard.keys.Find(hash)
	if k == nil {
		return 0, 0
	}
	return rate.LeaseHolds(&k.lease, mono, wall)
}
