package memory

import (
	"errors"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// While the store fails, memory counts by this node's share of both limits, and knows what is blocked.
func TestWithoutTheStoreATransitionGoesOnInMemory(t *testing.T) {
	f := newFallen(t, 2)
	made := func(a rate.Algorithm, requests int64) *core.Limits {
		limits, err := core.NewLimits(core.RuleConfig{Name: "r", KeySpec: "client_ip", Limit: mustLimit(t, rate.LimitConfig{Algorithm: a, Requests: requests, Period: time.Minute})}, core.MoreLimits{})
		must.Succeed(t, err)
		must.Succeed(t, f.limiter.Open(limits.Own()))
		return limits
	}
	limits := made(rate.TokenBucket, 4)
	all := func(key string) int {
		n := 0
		for {
			checks := []core.Check{{Rule: limits.Of("", key), Key: key, Cost: 1, Limits: limits}}
			var v core.Verdict
			_ = f.limiter.Decide(checks, false, &v) // the store's error
			if v.Outcome != core.Allow {
				return n
			}
			n++
		}
	}
	if got := all("alice"); got != 2 {
		t.Fatalf("%d were allowed of this node's share of 4", got)
	}
	must.Succeed(t, f.limiter.Block(limits.Own(), "mallory", int64(time.Hour/time.Microsecond)))
	must.Succeed(t, f.limiter.SwitchTo(limits, made(rate.FixedWindow, 10)))
	must.Equal(t, all("alice"), 0, "more were allowed after the switch")
	if got := all("bob"); got != 2 {
		t.Errorf("another client was allowed %d, want its share of the former limit", got)
	}
	f.now += int64(3 * time.Minute / time.Microsecond)
	if got := all("bob"); got != 5 {
		t.Errorf("when the transition is over %d were allowed, want this node's share of 10", got)
	}
	must.Equal(t, all("mallory"), 0, "a blocked client was allowed")
	f.limiter.EndSwitch(limits)
	must.Equal(t, len(limits.FormerRules()), 0, "former rules are left")
}

// A transition that its store cannot begin leaves the limits as they are.
func TestASwitchThatTheStoreRefusesChangesNothing(t *testing.T) {
	limits, err := core.NewLimits(core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 4, Period: time.Minute})}, core.MoreLimits{})
	must.Succeed(t, err)
	next, err := core.NewLimits(core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 4, Period: time.Minute})}, core.MoreLimits{})
	must.Succeed(t, err)
	refusal := errors.New("no")
	l := core.NewLimiter(New(Config{}))
	l.FallBack(&unopenable{refusal}, 1)
	if err := l.SwitchTo(limits, next); err != refusal || limits.InForce() != limits || limits.Moved != 0 {
		t.Errorf("%v, and the limits have changed", err)
	}
}

func TestATransitionLastsForTheLongerPromise(t *testing.T) {
	made := func(c rate.LimitConfig) *core.Limits {
		t.Helper()
		limits, err := core.NewLimits(core.RuleConfig{Name: "r", Limit: mustLimit(t, c)}, core.MoreLimits{})
		must.Succeed(t, err)
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
			if got := time.Duration(pair[0].Overlap(pair[1])) * time.Microsecond; got != c.want+time.Second {
				t.Errorf("%s: %s, want %s and a second", c.name, got, c.want)
			}
		}
	}
	queue := made(rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 10, Period: time.Minute, Burst: 1, MaxDelay: time.Hour})
	if there, back := minute.Overlap(queue), queue.Overlap(minute); there != 61_000_000 || back != 3661_000_000 {
		t.Errorf("to a queue %d, and from it %d", there, back)
	}
}
