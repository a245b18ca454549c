// Package storetest is the conformance suite that every core.Store must pass: memory, and Redis through either client, compiled
// and under the interpreter.
//
// A store's tests are two lines, in a test each:
//
//	storetest.Run(t, func(t *testing.T, clock *storetest.Clock) core.Store { … })
//	storetest.RunHistories(t, func(t *testing.T, clock *storetest.Clock) core.Store { … })
//
// The suite never sleeps and never reads the wall clock: it sets the Clock, from which the store must take its time. It keeps to
// the Go that Yaegi can run, and does less under Yaegi.
package storetest

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// NewStore returns an empty store that takes its time only from that clock. It must register with t.Cleanup what has to be
// closed. The store must share nothing with those of earlier calls.
type NewStore func(t *testing.T, clock *Clock) core.Store

// Run and RunHistories together check everything that core.Store promises, each part in a subtest. Run has what many goroutines do at a time,
// and at least one call of each kind.
func Run(t *testing.T, newStore NewStore) {
	t.Run("vectors", func(t *testing.T) { testVectors(t, newStore) })
	t.Run("changed limits", func(t *testing.T) { testChangedLimits(t, newStore) })
	t.Run("isolation", func(t *testing.T) { testIsolation(t, newStore) })
	t.Run("cost", func(t *testing.T) { testCost(t, newStore) })
	t.Run("concurrency", func(t *testing.T) { testConcurrency(t, newStore) })
	t.Run("soft", func(t *testing.T) { testSoft(t, newStore) })
	t.Run("penalty", func(t *testing.T) { testPenalty(t, newStore) })
	t.Run("count", func(t *testing.T) { testCount(t, newStore) })
	t.Run("measured", func(t *testing.T) { testMeasured(t, newStore) })
	t.Run("in flight", func(t *testing.T) { testInFlight(t, newStore) })
	t.Run("candidate", func(t *testing.T) { testCandidate(t, newStore) })
	t.Run("reload", func(t *testing.T) { testReload(t, newStore) })
	t.Run("delay", func(t *testing.T) { testDelay(t, newStore) })
	t.Run("by hand", func(t *testing.T) { testByHand(t, newStore) })
	t.Run("switching", func(t *testing.T) { testSwitching(t, newStore) })
	t.Run("requested", func(t *testing.T) { testRequested(t, newStore) })
	t.Run("enforced share", func(t *testing.T) { testEnforcedShare(t, newStore) })
}

// RunHistories has the parts with most calls, all of one goroutine. So they need no race detector.
func RunHistories(t *testing.T, newStore NewStore) {
	t.Run("charging", func(t *testing.T) { testCharging(t, newStore) })
	t.Run("viewers", func(t *testing.T) { testViewers(t, newStore) })
	t.Run("honesty", func(t *testing.T) { testHonesty(t, newStore) })
}

// Clock is the time of a store under test, in microseconds since the Unix epoch. It stands still until it is set, and may be set
// back. It is safe for concurrent use.
type Clock struct {
	mu     sync.Mutex
	now    int64
	follow func(now int64)
}

// Now returns the time. It is the function for stores that ask a clock.
func (c *Clock) Now() int64 {
	c.mu.Lock()
	now := c.now
	c.mu.Unlock()
	return now
}

// Set sets the time.
func (c *Clock) Set(now int64) {
	c.mu.Lock()
	c.now = now
	if c.follow != nil {
		c.follow(now)
	}
	c.mu.Unlock()
}

// Add moves the time by that many microseconds.
func (c *Clock) Add(micros int64) {
	c.Set(c.Now() + micros)
}

// Follow is for a store that asks no clock, such as one that uses its server's TIME. It calls f with the time at once, and
// whenever the time is set, before the store is asked anything. f must not call the clock.
func (c *Clock) Follow(f func(now int64)) {
	c.mu.Lock()
	c.follow = f
	f(c.now)
	c.mu.Unlock()
}

// Interpreted reports whether the suite runs under the interpreter, which is a hundred times slower: long tests then do less.
func Interpreted() bool {
	_, file, _, _ := runtime.Caller(0) // the file of the interpreter
	return !strings.HasSuffix(file, "storetest.go")
}

// times returns how often a test repeats something: less often under the interpreter.
func times(compiled, interpreted int) int {
	if Interpreted() {
		return interpreted
	}
	return compiled
}

// start is when the tests begin: 20 seconds into a minute, so that instants some seconds apart are in one window of a minute.
func start() int64 {
	return time.Date(2026, 3, 2, 12, 0, 20, 0, time.UTC).UnixMicro()
}

const (
	second = int64(1_000_000)
	minute = 60 * second
)

// variant is an algorithm, or a form of it.
type variant struct {
	name      string
	algorithm rate.Algorithm
	interval  bool
	start     rate.WindowStart
}

// variants returns all algorithms but that of requests in flight.
func variants() []variant {
	var list []variant
	for a := rate.TokenBucket; a.String() != ""; a++ {
		if a == rate.InFlight {
			continue
		}
		list = append(list, variant{a.Row().Name, a, false, rate.ByClock})
		if a == rate.TokenBucket {
			list = append(list, variant{a.String() + " interval", a, true, rate.ByClock})
		}
	}
	return list
}

// withOwnWindows returns all variants, and those whose windows do not begin by the clock.
func withOwnWindows() []variant {
	return append(variants(),
		variant{"fixed_window first_request", rate.FixedWindow, false, rate.FirstRequest},
		variant{"fixed_window spread", rate.FixedWindow, false, rate.Spread},
		variant{"sliding_window_counter spread", rate.SlidingWindowCounter, false, rate.Spread},
		variant{"sliding_window_segments spread", rate.SlidingWindowSegments, false, rate.Spread},
	)
}

// limit returns a limit that allows a new key that many units, at least 2, at one instant. (In a leaky bucket, one leaves, and
// the others wait in the queue, for up to an hour.)
func (v variant) limit(t *testing.T, units, period int64) *rate.Limit {
	t.Helper()
	c := v.config(units, period)
	if v.algorithm == rate.LeakyBucket {
		c.Burst = units - 1
		c.MaxDelay = time.Hour
	}
	return limit(t, c)
}

// config returns the common part of a variant's limits. The period is in microseconds.
func (v variant) config(requests, period int64) rate.LimitConfig {
	c := rate.LimitConfig{Algorithm: v.algorithm, Interval: v.interval, Start: v.start, Requests: requests, Period: time.Duration(period) * time.Microsecond}
	if v.algorithm == rate.SlidingWindowSegments {
		c.Segments = 6
	}
	return c
}

func limit(t *testing.T, c rate.LimitConfig) *rate.Limit {
	t.Helper()
	l, err := rate.NewLimit(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
