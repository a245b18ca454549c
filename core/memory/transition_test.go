package memory

import (
	"errors"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/transition"
	"github.com/proxyweir/weir/tools/must"
)

// While the store fails, memory counts by this node's share of both limits, and knows what is blocked.
func TestWithoutTheStoreATransitionGoesOnInMemory(t *testing.T) {
	f := newFallen(t, 2)
	made := func(a rate.Algorithm, requests int64) *core.Limits {
		limits, err := core.NewLimits(core.RuleConfig{Name: "r", KeySpec: "client_ip", Limit: mustLimit(t, rate.LimitConfig{Algorithm: a, Requests: requests, Period: time.Minute})}, core.MoreLimits{})
		must.Succeed(t, err)
		return limits
	}
	limits := made(rate.TokenBucket, 4)
	must.Succeed(t, f.limiter.Open(limits.Own()))
	active := transition.NewActive(limits)
	all := func(key string) int {
		n := 0
		for {
			r := active.Of("", key)
			checks := []core.Check{{Rule: r, Key: key, Cost: 1, Previous: active.Previous("", key, r)}}
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
	must.Succeed(t, active.Replace(f.limiter, made(rate.FixedWindow, 10)))
	must.Equal(t, all("alice"), 0, "more were allowed after the change")
	if got := all("bob"); got != 2 {
		t.Errorf("another client was allowed %d, want its share of the previous limit", got)
	}
	f.now += int64(3 * time.Minute / time.Microsecond)
	if got := all("bob"); got != 5 {
		t.Errorf("when the transition is over %d were allowed, want this node's share of 10", got)
	}
	must.Equal(t, all("mallory"), 0, "a blocked client was allowed")
	for i := 0; i < 3; i++ {
		must.Succeed(t, active.Replace(f.limiter, made(rate.TokenBucket, 4)))
		must.Succeed(t, active.Replace(f.limiter, made(rate.FixedWindow, 4)))
	}
	active.End()
	must.Equal(t, len(active.PreviousRules()), 0, "previous rules are left")
	must.Equal(t, f.store.opened, 1, "rules are open") // the configured one
}

// A transition that its store cannot begin leaves the limits as they are.
func TestAChangeThatTheStoreRefusesChangesNothing(t *testing.T) {
	limits, err := core.NewLimits(core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 4, Period: time.Minute})}, core.MoreLimits{})
	must.Succeed(t, err)
	next, err := core.NewLimits(core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 4, Period: time.Minute})}, core.MoreLimits{})
	must.Succeed(t, err)
	refusal := errors.New("no")
	l := core.NewLimiter(New(Config{}))
	l.FallBack(&unopenable{refusal}, 1)
	active := transition.NewActive(limits)
	if err := active.Replace(l, next); err != refusal || active.Limits() != limits || active.Generation != 0 {
		t.Errorf("%v, and the limits have changed", err)
	}
}
