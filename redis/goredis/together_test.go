package goredis_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/redis/resp"
)

// newStoreBy returns a store that speaks to an address by one of the two clients, which waits as long as it takes.
func newStoreBy(t *testing.T, addr string, interpreted bool, changed func(string, error)) *redis.Store {
	t.Helper()
	if !interpreted {
		return newStore(t, redis.Config{Changed: changed}, goredis.Config{Addresses: []string{addr}, ReadTimeout: patience})
	}
	client, err := resp.New(resp.Config{Address: addr, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	s, err := redis.NewStore(redis.Config{Client: client, Lines: true, Changed: changed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.CloseNow() })
	return s
}

// Connections that are lost take all the calls with them that wait for replies. That is one failure each time, however many calls
// there are: whoever asks next is answered, over another connection.
func TestCallsThatAConnectionTakesWithItDoNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, interpreted bool) {
		server := redistest.Start(t)
		proxy := redistest.NewProxy(t, server.Addr())
		var changes atomic.Int64
		n := &node{store: newStoreBy(t, proxy.Addr(), interpreted, func(string, error) { changes.Add(1) })}
		n.open(t, rule(t, "plenty", core.TokenBucket, plenty))
		for round := range 10 {
			ok, err := n.ask([]int{0}, "everybody")
			if round > 0 && errors.Is(err, redis.ErrUnavailable) { // over the connection that was cut last, which nobody had used yet
				ok, err = n.ask([]int{0}, "everybody")
			}
			if !ok || err != nil {
				t.Fatalf("round %d: %v, %v", round, ok, err)
			}
			server.Pause()
			const callers = 32
			var begun, failed atomic.Int64
			var wg sync.WaitGroup
			before := proxy.Stats().ToServer
			for range callers {
				wg.Go(func() {
					begun.Add(1)
					_, err := n.ask([]int{0}, "everybody")
					if err != nil && !errors.Is(err, redis.ErrOpen) {
						failed.Add(1)
					} else {
						t.Errorf("round %d: a call that was cut: %v", round, err)
					}
				})
			}
			until(t, "the calls are under way", func() bool { return begun.Load() == callers && proxy.Stats().ToServer > before })
			for failed.Load() < callers && !t.Failed() { // those that waited for the connection come over the next
				proxy.Cut()
			}
			wg.Wait()
			server.Resume()
		}
		if changes.Load() != 0 {
			t.Errorf("the breaker has changed %d times", changes.Load())
		}
	})
}
