package ratelimit

import (
	"cmp"
	"slices"
	"time"

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/redis"
)

// addMetrics adds what the configuration's rules and their stores are at.
func (a *App) addMetrics(p *metrics.Page) {
	now := time.Now().UnixMicro()
	lent, leased := stores.Leases.Stats(), false
	for _, s := range a.subjects() {
		r := metrics.Rule{Meter: s.stats.Meter, Candidate: s.hasCandidate(), Blocks: s.hasPenalty(),
			Waiting: metrics.Absent, Keys: metrics.Absent, Units: metrics.Absent, Own: s.own, Configured: s.all.Own()}
		if len(s.rules) > 0 {
			r.Waiting = s.waiting()
		}
		if rules := s.inMemory(); len(rules) > 0 {
			r.Keys = a.keysOf(rules)
		}
		if units := s.leased(&lent); units != nil {
			r.Units = *units
			leased = true
		}
		metrics.AddRule(p, &r, now)
	}
	if leased {
		metrics.Each(p, metrics.LeaseRequests, lent.Requests())
		metrics.Each(p, metrics.LeaseCalls, lent.Calls())
	}
	for _, d := range a.queues() {
		d.addMetrics(p)
	}
	stores.AddStorages(p, a.storages())
	servers := make(map[string]bool)
	var syncs redis.SyncStats
	for _, store := range a.redisStores() {
		syncs.Add(store.SyncStats())
		for _, server := range store.Servers() {
			servers[server.Name] = servers[server.Name] || server.Open
		}
	}
	for name, open := range servers { // several stores may share a server
		metrics.Add(p, metrics.BreakerOpen, oneIf(open), name)
	}
	if syncs.Rounds > 0 {
		metrics.Add(p, metrics.SyncAge, float64(syncs.Age)/1e6)
	}
	stats := a.memory.store.Stats()
	metrics.Add(p, metrics.MaxKeys, float64(stats.MaxKeys))
	metrics.Add(p, metrics.Evictions, float64(stats.Evictions))
	if len(a.files.inUse()) > 0 {
		metrics.Add(p, metrics.RulesSuccessful, oneIf(!rulesRefused.Load()))
		metrics.Add(p, metrics.RulesLoaded, float64(rulesLoaded.Load())/1e6)
		metrics.Each(p, metrics.RulesReloads, metrics.Read(rulesReloads))
	}
	metrics.AddAdvice(p, a.memory.adapting.metrics(a.advised), adviceClock.now())
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// keysOf returns how many keys of rules are in memory. Rules with the same name, algorithm and period have the same keys.
func (a *App) keysOf(rules []*core.Rule) int64 {
	keys := int64(0)
	counted := make(map[string]bool)
	for _, r := range rules {
		if !counted[r.Identity] {
			counted[r.Identity] = true
			keys += a.memory.store.Keys(r)
		}
	}
	return keys
}

// storages returns the stores over storages in which handlers count, each once.
func (a *App) storages() []*stores.SharedStorage {
	var list []*stores.SharedStorage
	for _, h := range a.handlers {
		if s := h.limiter.Storage; s != nil && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *stores.SharedStorage) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
