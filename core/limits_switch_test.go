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
			checks := []Check{{Rule: limits.Of("", key), Key: key, Cost: 1, Limits: limits}}
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

func TestATransitionLastsForTheLongerPromise(t *testing.T) {
	made := func(c LimitConfig) *Limits {
		t.Helper()
		limits, err := NewLimits(RuleConfig{Name: "r", Limit: mustLimit(t, c)}, MoreLimits{})
		if err != nil {
			t.Fatal(err)
		}
		return limits
	}
	minute := made(LimitConfig{Algorithm: FixedWindow, Requests: 10, Period: time.Minute})
	for _, c := range []struct {
		name  string
		other *Limits
		want  time.Duration
	}{
		{"a longer period", made(LimitConfig{Algorithm: FixedWindow, Requests: 10, Period: time.Hour}), time.Hour},
		{"a shorter one", made(LimitConfig{Algorithm: FixedWindow, Requests: 10, Period: time.Second}), time.Minute},
		{"a large burst", made(LimitConfig{Algorithm: TokenBucket, Requests: 10, Period: time.Minute, Burst: 100}), 10 * time.Minute},
		{"a large burst that is refilled at intervals", made(LimitConfig{Algorithm: TokenBucket, Requests: 10, Period: time.Minute, Burst: 95, Interval: true}), 11 * time.Minute},
		{"a small burst", made(LimitConfig{Algorithm: TokenBucket, Requests: 10, Period: time.Minute, Burst: 1}), time.Minute},
		{"a day", made(LimitConfig{Algorithm: FixedWindow, Requests: 10, Calendar: Day}), 26 * time.Hour},
		{"another number", made(LimitConfig{Algorithm: FixedWindow, Requests: 20, Period: time.Minute}), -time.Second},
	} {
		for _, pair := range [][2]*Limits{{minute, c.other}, {c.other, minute}} {
			if got := time.Duration(pair[0].Overlap(pair[1])) * time.Microsecond; got != c.want+time.Second {
				t.Errorf("%s: %s, want %s and a second", c.name, got, c.want)
			}
		}
	}
	queue := made(LimitConfig{Algorithm: LeakyBucket, Requests: 10, Period: time.Minute, Burst: 1, MaxDelay: time.Hour})
	if there, back := minute.Overlap(queue), queue.Overlap(minute); there != 61_000_000 || back != 3661_000_000 {
		t.Errorf("to a queue %d, and from it %d", there, back)
	}
}

func TestTheDecisionsOfTwoLimitsBecomeOne(t *testing.T) {
	for name, c := range map[string]struct{ d, former, want Decision }{
		"the former has less": {Decision{Allowed: true, Limit: 9, Remaining: 5, ResetAfter: 8, MoreAfter: 2}, Decision{Allowed: true, Limit: 5, Remaining: 3, ResetAfter: 4, MoreAfter: 1},
			Decision{Allowed: true, Limit: 9, Remaining: 3, ResetAfter: 8, MoreAfter: 1}},
		"it has more": {Decision{Allowed: true, Limit: 9, Remaining: 2, ResetAfter: 3, MoreAfter: 2}, Decision{Allowed: true, Limit: 5, Remaining: 3, ResetAfter: 4, MoreAfter: 1},
			Decision{Allowed: true, Limit: 9, Remaining: 2, ResetAfter: 4, MoreAfter: 2}},
		"as many": {Decision{Allowed: true, Limit: 9, Remaining: 3, MoreAfter: 2}, Decision{Allowed: true, Limit: 5, Remaining: 3, MoreAfter: 7},
			Decision{Allowed: true, Limit: 9, Remaining: 3, MoreAfter: 7}},
		"as many, unknown when more": {Decision{Allowed: true, Limit: 9, Remaining: 3, MoreAfter: 2}, Decision{Allowed: true, Limit: 3, Remaining: 3},
			Decision{Allowed: true, Limit: 9, Remaining: 3}},
		"the former is tolerant, and late": {Decision{Allowed: true, Limit: 9, Remaining: 3}, Decision{Allowed: true, Soft: true, Limit: 3, Delay: 4},
			Decision{Allowed: true, Soft: true, Limit: 9, Delay: 4}},
		"the former rejects": {Decision{Allowed: true, Limit: 9, Remaining: 3, MoreAfter: 2, Delay: 3, Soft: true}, Decision{Limit: 5, RetryAfter: 6, ResetAfter: 7},
			Decision{Limit: 9, RetryAfter: 6, ResetAfter: 7}},
		"the new one rejects": {Decision{Limit: 9, RetryAfter: 6, ResetAfter: 7}, Decision{Allowed: true, Limit: 5, Remaining: 2, ResetAfter: 9, MoreAfter: 3, Delay: 2, Soft: true},
			Decision{Limit: 9, RetryAfter: 6, ResetAfter: 9}},
		"both reject": {Decision{Limit: 9, RetryAfter: 6, Penalty: true}, Decision{Limit: 5, RetryAfter: 8}, Decision{Limit: 9, RetryAfter: 8, Penalty: true}},
		"one forever": {Decision{Limit: 9, RetryAfter: Never}, Decision{Limit: 5, RetryAfter: 8}, Decision{Limit: 9, RetryAfter: Never}},
	} {
		got := c.d
		merge(&got, &c.former)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
