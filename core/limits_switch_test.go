package core

import (
	"errors"
	"testing"
	"time"
)

// While the store fails, memory counts by this node's share of both limits, and knows what is blocked.
func TestWithoutTheStoreATransitionGoesOnInMemory(t *testing.T) {
	f := newFallen(t, 2)
	made := func(a Algorithm, requests int64) *Limits {
		limits, err := NewLimits(RuleConfig{Name: "r", KeySpec: "client_ip", Limit: mustLimit(t, LimitConfig{Algorithm: a, Requests: requests, Period: time.Minute})}, MoreLimits{})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.limiter.Open(limits.Own()); err != nil {
			t.Fatal(err)
		}
		return limits
	}
	limits := made(TokenBucket, 4)
	all := func(key string) int {
		n := 0
		for {
			r := limits.Of("", key)
			checks := limits.AppendFormers([]Check{{Rule: r, Key: key, Cost: 1}}, r, "", key, 1)
			var v Verdict
			_ = f.limiter.Decide(checks, false, &v) // the store's error
			if v.Outcome != Allow {
				return n
			}
			n++
		}
	}
	if got := all("alice"); got != 2 {
		t.Fatalf("%d were allowed of this node's share of 4", got)
	}
	if err := f.limiter.Block(limits.Own(), "mallory", int64(time.Hour/time.Microsecond)); err != nil {
		t.Fatal(err)
	}
	if err := f.limiter.SwitchTo(limits, made(FixedWindow, 10)); err != nil {
		t.Fatal(err)
	}
	if got := all("alice"); got != 0 {
		t.Errorf("%d more were allowed after the switch", got)
	}
	if got := all("bob"); got != 2 {
		t.Errorf("another client was allowed %d, want its share of the former limit", got)
	}
	f.now += int64(3 * time.Minute / time.Microsecond)
	if got := all("bob"); got != 5 {
		t.Errorf("when the transition is over %d were allowed, want this node's share of 10", got)
	}
	if got := all("mallory"); got != 0 {
		t.Errorf("a blocked client was allowed %d", got)
	}
	f.limiter.EndSwitch(limits)
	if got := len(limits.FormerRules()); got != 0 {
		t.Errorf("%d former rules are left", got)
	}
}

// A transition that its store cannot begin leaves the limits as they are.
func TestASwitchThatTheStoreRefusesChangesNothing(t *testing.T) {
	limits, err := NewLimits(RuleConfig{Name: "r", Limit: mustLimit(t, LimitConfig{Algorithm: TokenBucket, Requests: 4, Period: time.Minute})}, MoreLimits{})
	if err != nil {
		t.Fatal(err)
	}
	next, err := NewLimits(RuleConfig{Name: "r", Limit: mustLimit(t, LimitConfig{Algorithm: FixedWindow, Requests: 4, Period: time.Minute})}, MoreLimits{})
	if err != nil {
		t.Fatal(err)
	}
	refusal := errors.New("no")
	l := NewLimiter(NewMemory(MemoryConfig{}))
	l.FallBack(&unopenable{refusal}, 1)
	if err := l.SwitchTo(limits, next); err != refusal || limits.InForce() != limits || limits.Moved != 0 {
		t.Errorf("%v, and the limits have changed", err)
	}
}
