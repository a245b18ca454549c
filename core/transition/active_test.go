package transition_test

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
	"github.com/proxyweir/weir/core/transition"
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

// Requests come under a rule while its limits change and transitions end. All of them are charged to the active limits.
func TestLimitsMayChangeWhileRequestsCome(t *testing.T) {
	var now atomic.Int64
	now.Store(1_772_454_620_000_000) // 12:30:20, in the middle of windows
	m := memory.New(memory.Config{Clock: func() int64 { return now.Load() }})
	limiter := core.NewLimiter(m)
	config := core.RuleConfig{Name: "x", KeySpec: "client_ip"}
	made := func(i int) *core.Limits {
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
		return limits
	}
	active := transition.NewActive(made(0))
	if err := limiter.Open(active.Configured().Own()); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var over atomic.Bool
	request := func(key string) {
		defer group.Done()
		var checks []core.Check
		var v core.Verdict
		for !over.Load() {
			checks = append(checks[:0], core.Check{Rule: active.Of("", key), Key: key, Cost: 1})
			if atomic.LoadInt32(&active.Generation) != 0 {
				checks[0].Previous = active.Previous("", key, checks[0].Rule)
			}
			if err := limiter.Decide(checks, false, &v); err != nil {
				t.Error(err)
			}
			_ = active.Changing()
			runtime.Gosched()
		}
	}
	for _, key := range []string{"alice", "bob", "carol", "alice"} {
		group.Add(1)
		go request(key)
	}
	for i := 1; i < 60; i++ {
		if err := active.Replace(limiter, made(i)); err != nil {
			t.Fatal(err)
		}
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
	last := active.Limits()
	active.End()
	if err := active.Replace(limiter, made(0)); err != nil || active.Limits() != last {
		t.Errorf("%v; late requests do not meet the last limits", err)
	}
	limiter.Release(active.Configured().Own())
	now.Add(int64(time.Hour / time.Microsecond))
	m.Sweep()
	if got := m.Stats().Keys; got != 0 {
		t.Errorf("%d keys are left when all is released", got)
	}
}

func TestATransitionLastsForTheLongerPromise(t *testing.T) {
	made := func(c rate.LimitConfig) *core.Limits {
		t.Helper()
		limit, err := rate.NewLimit(c)
		if err != nil {
			t.Fatal(err)
		}
		limits, err := core.NewLimits(core.RuleConfig{Name: "r", Limit: limit}, core.MoreLimits{})
		if err != nil {
			t.Fatal(err)
		}
		return limits
	}
	minute := made(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 10, Period: time.Minute})
	for _, c := range []struct {
		name  string
		other *core.Limits
		want  time.Duration
	}{
		{"a longer period", made(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 10, Period: time.Hour}), time.Hour},
		{"a shorter one", made(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 10, Period: time.Second}), time.Minute},
		{"a large burst", made(rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Minute, Burst: 100}), 10 * time.Minute},
		{"a large burst that is refilled at intervals", made(rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Minute, Burst: 95, Interval: true}), 11 * time.Minute},
		{"a small burst", made(rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Minute, Burst: 1}), time.Minute},
		{"a day", made(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 10, Calendar: rate.Day}), 26 * time.Hour},
		{"another number", made(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 20, Period: time.Minute}), -time.Second},
	} {
		for _, pair := range [][2]*core.Limits{{minute, c.other}, {c.other, minute}} {
			if got := time.Duration(transition.Compare(pair[0], pair[1]).Lasts) * time.Microsecond; got != c.want+time.Second {
				t.Errorf("%s: %s, want %s and a second", c.name, got, c.want)
			}
		}
	}
	queue := made(rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 10, Period: time.Minute, Burst: 1, MaxDelay: time.Hour})
	if there, back := transition.Compare(minute, queue).Lasts, transition.Compare(queue, minute).Lasts; there != 61_000_000 || back != 3661_000_000 {
		t.Errorf("to a queue %d, and from it %d", there, back)
	}
}
