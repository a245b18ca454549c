package ratelimit

import (
	"time"

	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/redis"
)

// addMetrics adds what the configuration's rules and their stores are at.
func (a *App) addMetrics(p *metrics.Page) {
	now := time.Now().UnixMicro()
	lent, leased := stores.Leases.Stats(), false
	for _, s := range a.subjects() {
		r := metrics.Rule{Meter: s.Stats.Meter, Candidate: s.HasCandidate(), Blocks: s.HasPenalty(),
			Waiting: metrics.Absent, Keys: metrics.Absent, Units: metrics.Absent, Own: s.Own, Configured: s.All.Own()}
		if len(s.Rules) > 0 {
			r.Waiting = s.Waiting()
		}
		if rules := s.InMemory(); len(rules) > 0 {
			r.Keys = report.KeysIn(a.memory.store, rules)
		}
		if units := s.Leased(&lent); units != nil {
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
		d.AddMetrics(p)
	}
	stores.AddStorages(p, stores.Storages(a.limiters()))
	servers := make(map[string]bool)
	var syncs redis.SyncStats
	for _, store := range stores.InRedis(a.limiters()) {
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
	metrics.AddAdvice(p, a.memory.adapting.Metrics(a.advised), adapt.AdviceClock.Now())
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
