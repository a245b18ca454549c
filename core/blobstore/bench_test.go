package blobstore_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/blobstore"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// BenchmarkDecide compares a decision of the store with one of memory, for 1000 keys.
func BenchmarkDecide(b *testing.B) {
	limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1_000_000_000, Period: time.Second})
	must.Succeed(b, err)
	store, err := blobstore.New(blobstore.Config{Storage: &blobs{of: make(map[string][]byte)}, Folder: "weir"})
	must.Succeed(b, err)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = "192.0.2." + strconv.Itoa(i)
	}
	for name, s := range map[string]core.Store{"memory": memory.New(memory.Config{}), "storage": store} {
		b.Run(name, func(b *testing.B) {
			r, err := core.NewRule(core.RuleConfig{Name: "bench", Limit: limit})
			must.Succeed(b, err)
			must.Succeed(b, s.Open(r))
			b.ReportAllocs()
			checks := make([]core.Check, 1)
			for i := range b.N {
				checks[0] = core.Check{Rule: r, Key: keys[i%len(keys)], Cost: 1}
				if s.Decide(checks, false); !checks[0].Decision.Allowed {
					b.Fatal("rejected")
				}
			}
		})
	}
}

// BenchmarkRound is a round of writing and reading, with 10,000 keys in use at each of two instances.
func BenchmarkRound(b *testing.B) {
	limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 60, Period: 30 * time.Second})
	must.Succeed(b, err)
	now := int64(1_800_000_000_000_000)
	clock := func() int64 { return now }
	config := blobstore.Config{Storage: &blobs{of: make(map[string][]byte)}, Folder: "weir", Clock: clock, Mono: clock}
	var stores []*blobstore.Store
	var rules []*core.Rule
	for range 2 {
		s, err := blobstore.New(config)
		must.Succeed(b, err)
		r, err := core.NewRule(core.RuleConfig{Name: "bench", Limit: limit})
		if err == nil {
			err = s.Open(r)
		}
		must.Succeed(b, err)
		stores, rules = append(stores, s), append(rules, r)
	}
	for range b.N {
		b.StopTimer()
		now += 5_000_000
		for i, s := range stores {
			for k := range 10_000 {
				checks := []core.Check{{Rule: rules[i], Key: strconv.Itoa(k), Cost: 1}}
				_ = s.Decide(checks, false)
			}
		}
		b.StartTimer()
		must.Succeed(b, stores[0].Write(context.Background()))
		stores[1].Read(context.Background())
	}
}
