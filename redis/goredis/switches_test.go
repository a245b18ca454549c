package goredis_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/underrace"
)

// The environment variable WEIR_SWITCHES says how many switches there are.
func TestNoClientGainsByRandomSwitchesOfAlgorithm(t *testing.T) {
	underrace.OneGoroutine(t)
	switches := 3000
	if n, err := strconv.Atoi(os.Getenv("WEIR_SWITCHES")); err == nil {
		switches = n
	}
	storetest.RunSwitches(t, conforming(t), switches)
}

// In a Cluster the limits in a transition have keys in one slot, as those of one client have.
func TestNoClientGainsByASwitchInACluster(t *testing.T) {
	underrace.OneGoroutine(t)
	cluster := redistest.StartCluster(t, redistest.WithClock())
	storetest.RunSwitches(t, func(t *testing.T, clock *storetest.Clock) core.Store {
		clock.Follow(cluster.SetTime)
		s := newStore(t, redis.Config{Clock: clock.Now, WallClock: clock.Now, Lease: 24 * time.Hour}, goredis.Config{Addresses: cluster.Addrs(), Cluster: true})
		if err := s.Check(patience); err != nil {
			t.Fatal(err)
		}
		return s
	}, 60)
}
