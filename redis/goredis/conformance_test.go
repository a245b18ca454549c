package goredis_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/redis/resp"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// TestConformance and TestConformanceOfHistories run the conformance suite of stores.
func TestConformance(t *testing.T) {
	storetest.Run(t, conforming(t))
}

func TestConformanceOfHistories(t *testing.T) {
	underrace.OneGoroutine(t)
	storetest.RunHistories(t, conforming(t))
}

// conforming starts a server that uses the suite's clock, for all stores.
func conforming(t *testing.T) storetest.NewStore {
	server := redistest.Start(t, redistest.WithClock())
	return func(t *testing.T, clock *storetest.Clock) core.Store {
		clock.Follow(server.SetTime)
		// The suite's clock makes steps that are longer than a lease.
		return newStore(t, redis.Config{Clock: clock.Now, WallClock: clock.Now, Lease: 24 * time.Hour}, goredis.Config{Addresses: []string{server.Addr()}})
	}
}

var stores atomic.Int64

// newStore returns a store with keys of its own, and a timeout that no answer reaches. With Lines it has the client of interpreted programs.
func newStore(t testing.TB, c redis.Config, g goredis.Config) *redis.Store {
	t.Helper()
	if g.Timeout == 0 {
		g.Timeout = patience
	}
	newClient := goredis.New
	if c.Lines {
		newClient = resp.New
	}
	client, err := newClient(g)
	must.Succeed(t, err)
	c.Client = client
	if c.Prefix == "" {
		c.Prefix = "test" + strconv.FormatInt(stores.Add(1), 10) + ":"
	}
	s, err := redis.NewStore(c)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := s.CloseNow(); err != nil { // at once, even if the test has left requests under way
			t.Error(err)
		}
	})
	return s
}
