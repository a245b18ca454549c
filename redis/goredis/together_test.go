package goredis_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
)

// newStoreBy returns a store that connects to an address with one of the two clients, and a timeout that no answer reaches.
func newStoreBy(t *testing.T, addr string, interpreted bool, changed func(string, error)) *redis.Store {
	t.Helper()
	return newStore(t, redis.Config{Lines: interpreted, Changed: changed}, goredis.Config{Addresses: []string{addr}, ReadTimeout: patience})
}

// When a connection is lost, all the calls fail that wait for replies on it. That is one failure each time, however many calls there are. The
// next call succeeds, over another connection. The test cuts no connection without calls: a client that loses connections which have brought
// nothing yet waits before it connects again, and calls fail meanwhile.
func TestCallsThatFailWithTheirConnectionDoNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, interpreted bool) {
		server := redistest.Start(t)
		proxy := redistest.NewProxy(t, server.Addr())
		var changes atomic.Int64
		n := &node{store: newStoreBy(t, proxy.Addr(), interpreted, func(string, error) { changes.Add(1) })}
		n.open(t, rule(t, "plenty", rate.TokenBucket, plenty))
		ask := func(when string) {
			t.Helper()
			if ok, err := n.ask([]int{0}, "everybody"); !ok || err != nil {
				t.Fatalf("%s: %v, %v", when, ok, err)
			}
		}
		ask("the first") // loads the script
		for round := range 10 {
			before := proxy.Stats().ToServer
			ask(fmt.Sprintf("round %d", round))
			size := proxy.Stats().ToServer - before // of one call
			server.Pause()
			const callers = 32
			sent := proxy.Stats().ToServer
			var failed atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					_, err := n.ask([]int{0}, "everybody")
					if err != nil && !errors.Is(err, redis.ErrOpen) {
						failed.Add(1)
					} else {
						t.Errorf("round %d: a call that was cut: %v", round, err)
					}
				})
			}
			until(t, "the calls are under way", func() bool { return callsUnderWay(t, interpreted) == callers })
			awaited := 1 // a new connection does not begin with calls alone
			if interpreted {
				awaited = callers * size // all calls go over one connection, and fail with it
			}
			for !t.Failed() {
				until(t, "calls are being sent, or all have failed", func() bool { return proxy.Stats().ToServer >= sent+awaited || failed.Load() == callers })
				if failed.Load() == callers {
					break
				}
				sent = proxy.Stats().ToServer
				proxy.Cut() // the calls that wait go over the next connection
			}
			wg.Wait()
			server.Resume()
		}
		ask("in the end")
		if changes.Load() != 0 {
			t.Errorf("the breaker has changed %d times", changes.Load())
		}
	})
}

// callsUnderWay returns how many goroutines of a test are in one of the clients, after they have checked the breaker.
func callsUnderWay(t *testing.T, interpreted bool) int {
	run := "redis/goredis.(*conn).Run("
	if interpreted {
		run = "redis/resp.(*conn).Run("
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	buffer := make([]byte, 16<<20)
	buffer = buffer[:runtime.Stack(buffer, true)]
	calls := 0
	for stack := range strings.SplitSeq(string(buffer), "\n\n") {
		if strings.Contains(stack, run) && strings.Contains(stack, "."+test+".") {
			calls++
		}
	}
	return calls
}
