package memory_test

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/tools/underrace"
)

// The environment variable WEIR_SWITCHES says how many switches there are; 1000000 take half a minute.
func TestNoClientGainsByRandomSwitchesOfAlgorithm(t *testing.T) {
	underrace.OneGoroutine(t)
	switches := 60_000 // 25 µs each
	if storetest.Interpreted() {
		switches = 300
	}
	if n, err := strconv.Atoi(os.Getenv("WEIR_SWITCHES")); err == nil {
		switches = n
	}
	storetest.RunSwitches(t, func(t *testing.T, clock *storetest.Clock) core.Store {
		return memory.New(memory.Config{Clock: clock.Now, MaxKeys: 10_000})
	}, switches)
}

// Requests come under a rule while its limits change and transitions end. All of them are charged to the limits in force.
func TestLimitsMaySwitchWhileRequestsCome(t *testing.T) {
	var now atomic.Int64
	now.Store(noon)
	m := memory.New(memory.Config{Clock: func() int64 { return now.Load() }})
	limiter := core.NewLimiter(m)
	config := core.RuleConfig{Name: "x", KeySpec: "client_ip"}
	open := func(i int) *core.Limits {
		algorithm := rate.Algorithm(1 + i%len(rate.AlgorithmNames))
		limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: algorithm, Requests: 50, Period: time.Second})
		if err != nil {
			t.Error(err)
		}
		config.Limit = limit
		limits, err := core.NewLimits(config, core.MoreLimits{})
		if err != nil {
			t.Error(err)
		}
		if err := limiter.Open(limits.Own()); err != nil {
			t.Error(err)
		}
		return limits
	}
	limits := open(0)
	var group sync.WaitGroup
	var over atomic.Bool
	request := func(key string) {
		defer group.Done()
		var checks []core.Check
		var v core.Verdict
		for !over.Load() {
			checks = append(checks[:0], core.Check{Rule: limits.Of("", key), Key: key, Cost: 1})
			if atomic.LoadInt32(&limits.Moved) != 0 {
				checks[0].Limits = limits
			}
			if err := limiter.Decide(checks, false, &v); err != nil {
				t.Error(err)
			}
			_ = limits.InTransition(m.Now())
			runtime.Gosched()
		}
	}
	for _, key := range []string{"alice", "bob", "carol", "alice"} {
		group.Add(1)
		go request(key)
	}
	before := limits
	for i := 1; i < 60; i++ {
		next := open(i)
		if err := limiter.SwitchTo(limits, next); err != nil {
			t.Fatal(err)
		}
		if before != limits {
			limiter.Release(before.Own())
		}
		before = next
		for j := 0; j < 10; j++ {
			now.Add(150_000)
			runtime.Gosched()
		}
		if i%10 == 0 {
			m.Sweep()
		}
	}
	over.Store(true)
	group.Wait()
	limiter.EndSwitch(limits)
	limiter.Release(before.Own())
	limiter.Release(limits.Own())
	now.Add(int64(time.Hour / time.Microsecond))
	m.Sweep()
	if got := m.Stats().Keys; got != 0 {
		t.Errorf("%d keys are left when all is released", got)
	}
}
