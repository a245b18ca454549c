package bench

import (
	"context"
	"hash/maphash"
	"sync"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	timerate "golang.org/x/time/rate"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// subject is one of the measured limiters.
type subject struct {
	name string
	open func(tb testing.TB, keys int, q quota) limiter
}

// limiter is an open subject. It returns a function for each goroutine that makes a decision on a key.
type limiter func() func(key string) bool

// quota is the limit of every subject.
type quota struct {
	name     string
	requests int64
	period   time.Duration
}

var (
	allowing  = quota{"allowed", 1000, 24 * time.Hour}
	rejecting = quota{"rejected", 1, 24 * time.Hour} // all but a key's first request
	passing   = quota{"new", 1000, time.Millisecond} // a key is whole again before its next request, so to a store it is new
)

const (
	weirBucket = "weir/algorithm=token_bucket"
	goLimiter  = "go-limiter"
)

var subjects = []subject{
	{weirBucket, weir(rate.TokenBucket, memory.Probing)},
	{goLimiter, openGoLimiter},
	{"weir/algorithm=leaky_bucket", weir(rate.LeakyBucket, memory.Probing)},
	{"weir/algorithm=fixed_window", weir(rate.FixedWindow, memory.Probing)},
	{"weir/algorithm=sliding_window_counter", weir(rate.SlidingWindowCounter, memory.Probing)},
	{"weir/algorithm=sliding_window_log", weir(rate.SlidingWindowLog, memory.Probing)},
	{"weir-mapped/algorithm=token_bucket", weir(rate.TokenBucket, memory.Mapped)},
	{"x-time-rate/map=one", openTimeRate(1)},
	{"x-time-rate/map=sharded", openTimeRate(512)},
	{"throttled", openThrottled},
	{"bare-map", openBareMap},
}

func weir(a rate.Algorithm, index memory.Index) func(testing.TB, int, quota) limiter {
	return func(tb testing.TB, keys int, q quota) limiter {
		c := rate.LimitConfig{Algorithm: a, Requests: q.requests, Period: q.period}
		if a == rate.LeakyBucket && q.requests > 1 {
			c.MaxDelay = time.Hour
		}
		limit, err := rate.NewLimit(c)
		must.Succeed(tb, err)
		rule, err := core.NewRule(core.RuleConfig{Name: "bench", Limit: limit})
		must.Succeed(tb, err)
		store := memory.New(memory.Config{MaxKeys: 2 * keys, Index: index})
		must.Succeed(tb, store.Open(rule))
		l := core.NewLimiter(store)
		return func() func(string) bool {
			checks := []core.Check{{Rule: rule}}
			var verdict core.Verdict
			return func(key string) bool {
				checks[0].Key = key
				checks[0].Cost = 1
				if err := l.Decide(checks, false, &verdict); err != nil {
					panic(err)
				}
				return verdict.Outcome != core.Reject
			}
		}
	}
}

func openGoLimiter(tb testing.TB, _ int, q quota) limiter {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.requests), Interval: q.period})
	must.Succeed(tb, err)
	ctx := context.Background()
	tb.Cleanup(func() { store.Close(ctx) })
	return func() func(string) bool {
		return func(key string) bool {
			_, _, _, ok, err := store.Take(ctx, key)
			if err != nil {
				panic(err)
			}
			return ok
		}
	}
}

// openTimeRate does what many programs do: it keeps a map of limiters of x/time/rate, under one mutex, or in shards with a mutex each.
func openTimeRate(shards int) func(testing.TB, int, quota) limiter {
	return func(_ testing.TB, _ int, q quota) limiter {
		type part struct {
			mu       sync.Mutex
			limiters map[string]*timerate.Limiter
			_        [48]byte
		}
		parts := make([]part, shards)
		for i := range parts {
			parts[i].limiters = make(map[string]*timerate.Limiter)
		}
		seed := maphash.MakeSeed()
		each := timerate.Limit(float64(q.requests) / q.period.Seconds())
		return func() func(string) bool {
			return func(key string) bool {
				p := &parts[0]
				if len(parts) > 1 {
					p = &parts[maphash.String(seed, key)%uint64(len(parts))]
				}
				p.mu.Lock()
				l := p.limiters[key]
				if l == nil {
					l = timerate.NewLimiter(each, int(q.requests))
					p.limiters[key] = l
				}
				p.mu.Unlock()
				return l.Allow()
			}
		}
	}
}

func openThrottled(tb testing.TB, _ int, q quota) limiter {
	store, err := memstore.NewCtx(0)
	must.Succeed(tb, err)
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(q.requests), q.period),
		MaxBurst: int(q.requests) - 1,
	})
	must.Succeed(tb, err)
	ctx := context.Background()
	return func() func(string) bool {
		return func(key string) bool {
			limited, _, err := l.RateLimitCtx(ctx, key, 1)
			if err != nil {
				panic(err)
			}
			return !limited
		}
	}
}

// openBareMap limits nothing. It shows the cost of counting alone, with one integer for each key in sharded maps.
func openBareMap(testing.TB, int, quota) limiter {
	type part struct {
		mu     sync.Mutex
		counts map[uint64]uint64
		_      [48]byte
	}
	parts := make([]part, 512)
	for i := range parts {
		parts[i].counts = make(map[uint64]uint64)
	}
	seed := maphash.MakeSeed()
	return func() func(string) bool {
		return func(key string) bool {
			h := maphash.String(seed, key)
			p := &parts[h%uint64(len(parts))]
			p.mu.Lock()
			p.counts[h]++
			p.mu.Unlock()
			return true
		}
	}
}
