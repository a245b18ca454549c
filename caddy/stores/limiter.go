package stores

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/byhand"
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/regions"
)

// Limiter is a core.Limiter, with what logs and metrics report about its store.
type Limiter struct {
	byhand.Counters
	Store    string           // "memory", "redis", or the name of another module
	Redis    *redis.Store     // nil: the store is no Redis
	Settings *redisSettings   // of that Redis
	Storage  *SharedStorage   // nil: the store is not over a storage
	courier  *regions.Courier // of that Redis; nil: it is of no region

	times   *rate.Durations // of its decisions
	trouble *troubleLog     // nil: the store cannot fail
}

// NewLimiter returns a limiter over a store of that name, with the store's exceptions.
func NewLimiter(store core.Store, name string, exceptions *excepted.Table) *Limiter {
	return &Limiter{Counters: byhand.Counters{Limiter: core.NewLimiter(store), Exceptions: exceptions}, Store: name, times: decisionTimesOf(name)}
}

// CountersName names the store such that two limiters of one name have the same counters, and those of two names have not.
func (l *Limiter) CountersName() string {
	if l.Settings == nil || l.Settings.Client.Cluster { // whose nodes can be named differently
		return l.Store
	}
	c := l.Settings.Client
	return fmt.Sprintf("%s %s%s, database %d, prefix %q", l.Store, strings.Join(slices.Sorted(slices.Values(c.Addresses)), " "), c.MasterName, c.Database, cmp.Or(l.Settings.Store.Prefix, redis.DefaultPrefix))
}

// WarnOf logs what is unwise about a rule in the limiter's store.
func (l *Limiter) WarnOf(r *core.Rule) {
	if l.Storage == nil {
		return
	}
	if advice := l.Storage.Store.Advice(r); advice != "" {
		storageLog().Warn(advice, zap.String("rule", r.Name()))
	}
}

// Failed logs that the store has failed; see troubleLog.
func (l *Limiter) Failed(err error) {
	if err != nil && l.trouble != nil {
		l.trouble.failed(err)
	}
}

// Charge decides on checks, charges them, and measures the time that this takes. It returns the time of the decision in seconds since the
// Unix epoch. It counts and logs a failure.
func (l *Limiter) Charge(checks []core.Check, v *core.Verdict) (at int64, err error) {
	began := time.Now()
	err = l.Decide(checks, false, v)
	rate.Observe(l.times, time.Since(began))
	if err != nil {
		metrics.Count(StoreErrors, metrics.StoreErrors, redis.ErrorKind(err))
		l.Failed(err)
	}
	return began.Unix(), err
}

// TakeBack takes reservations back, and logs a failure.
func (l *Limiter) TakeBack(reservations []core.Reservation) { l.Failed(l.Leave(reservations)) }

// Settle settles reservations by the status of the response, and logs a failure.
func (l *Limiter) Settle(reservations []core.Reservation, status int) {
	l.Failed(l.Finish(reservations, status))
}

// What belongs to no rule exists once in a process, so that it survives reloads.
var (
	decisionTimes sync.Map // by the name of the store: *rate.Durations
	StoreErrors   = metrics.NewCounts(metrics.StoreErrors)
)

// decisionTimesOf returns the histogram for the decisions in a store.
func decisionTimesOf(store string) *rate.Durations {
	d, _ := decisionTimes.LoadOrStore(store, rate.NewDurations())
	return d.(*rate.Durations)
}

// AddDecisions adds how long the decisions of stores took, and how often they have failed.
func AddDecisions(p *metrics.Page) {
	decisionTimes.Range(func(store, d any) bool {
		metrics.AddDecisions(p, store.(string), d.(*rate.Durations))
		return true
	})
	metrics.Each(p, metrics.StoreErrors, metrics.Read(StoreErrors))
}

// Storages returns the stores over storages in which limiters count, each once.
func Storages(limiters []*Limiter) []*SharedStorage {
	var list []*SharedStorage
	for _, l := range limiters {
		if l.Storage != nil && !slices.Contains(list, l.Storage) {
			list = append(list, l.Storage)
		}
	}
	slices.SortFunc(list, func(a, b *SharedStorage) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// InRedis returns the stores in Redis in which limiters count, each once.
func InRedis(limiters []*Limiter) []*redis.Store {
	var list []*redis.Store
	for _, l := range limiters {
		if l.Redis != nil && !slices.Contains(list, l.Redis) {
			list = append(list, l.Redis)
		}
	}
	return list
}

// Regions returns how the regions of the limiters' stores hear of others.
func Regions(limiters []*Limiter) regions.Stats {
	var list []regions.Stats
	seen := make(map[*regions.Courier]bool)
	for _, l := range limiters {
		if l.courier != nil && !seen[l.courier] {
			seen[l.courier] = true
			list = append(list, l.courier.Stats())
		}
	}
	return regions.Merge(list)
}

// Divide reports whether any of the limiters' stores leases units from another region.
func Divide(limiters []*Limiter) bool {
	return slices.ContainsFunc(limiters, func(l *Limiter) bool { return l.courier != nil && l.courier.Lends() })
}

// LimiterOver returns a limiter over the store of a loaded module. If the store fails, the limiter counts in memory. local are the exceptions of this process.
func LimiterOver(mod any, inMemory *memory.Store, local *excepted.Table) (*Limiter, error) {
	if _, ok := mod.(*MemoryStore); ok {
		return NewLimiter(inMemory, MemoryName, local), nil
	}
	m, ok := mod.(StoreModule)
	if !ok {
		return nil, fmt.Errorf("store: the module %T has no store for rate limits", mod)
	}
	limiter := NewLimiter(m.Store(), caddy.GetModuleName(mod), local)
	if s, ok := mod.(*StorageStore); ok { // it cannot fail
		limiter.Storage, limiter.InStorage = s.shared, true
		return limiter, nil
	}
	if r, ok := mod.(*RedisStore); ok {
		limiter.Redis, limiter.trouble, limiter.Settings = r.shared.store, r.shared.trouble, r.resolved
		limiter.InRedis = true
		limiter.Exceptions, limiter.courier = r.shared.exceptions, r.shared.courier
		limiter.InRegion(r.resolved.Regions.Part())
	}
	nodes := 0
	if fleet, ok := mod.(FleetStoreModule); ok {
		nodes = fleet.Fleet()
	}
	limiter.FallBack(inMemory, nodes)
	return limiter, nil
}

// InFleet is how this process stands in its fleet with a key: what it has leased of the limit and not spent, if the rule is leased; what it has admitted that
// others cannot know yet, and how old its own knowledge of them is, if the rule is eventual.
type InFleet struct {
	Held    *int64   `json:"held,omitempty"`
	HeldFor *float64 `json:"held_seconds,omitempty"`   // until the lease ends
	Untold  *int64   `json:"untold,omitempty"`         // nil also over a storage, which tells all keys together
	Synced  *float64 `json:"synced_seconds,omitempty"` // nil also if nothing is known
}

// Stands returns how this process stands in its fleet with a key.
func (l *Limiter) Stands(r *core.Rule, key string) (in InFleet) {
	age := int64(-1)
	switch {
	case l.Storage != nil:
		age = l.Storage.Store.ReadAge()
	case l.Redis != nil && r.LeaseTerms() != nil:
		units, lasts := l.Redis.Holds(r, key)
		in.Held, in.HeldFor = &units, new(Seconds(lasts))
	case l.Redis != nil && r.SyncTerms() != nil:
		var untold int64
		untold, age = l.Redis.Stands(r, key)
		in.Untold = &untold
	}
	if age >= 0 {
		in.Synced = new(Seconds(age))
	}
	return in
}

// Seconds converts microseconds to seconds. rate.Never is -1.
func Seconds(d int64) float64 {
	if d == rate.Never {
		return -1
	}
	return float64(d) / 1e6
}
