package goredis_test

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
)

// TestWhatAnotherSlotDeniedIsNotHeld: in a Cluster, where a request's keys lie in several slots, what it has reserved in one is given back
// when another denies it, and no lease of it is renewed.
func TestWhatAnotherSlotDeniedIsNotHeld(t *testing.T) {
	server := redistest.Start(t, redistest.WithClock())
	server.SetTime(1_700_000_000_000_000)
	s := newStoreOver(t, redis.Config{}, goredis.Config{Addresses: []string{server.Addr()}}, true)
	statuses, err := core.ParseStatuses([]string{"401"})
	if err != nil {
		t.Fatal(err)
	}
	rule := func(c core.RuleConfig, l core.LimitConfig) *core.Rule {
		if c.Limit == nil {
			l.Period = time.Minute
			if c.Limit, err = core.NewLimit(l); err != nil {
				t.Fatal(err)
			}
		}
		r, err := core.NewRule(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Open(r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	two, _ := core.NewConcurrency(2)
	few := rule(core.RuleConfig{Name: "few", Limit: two}, core.LimitConfig{})
	tries := rule(core.RuleConfig{Name: "tries", Conduct: core.Conduct{Count: statuses}}, core.LimitConfig{Algorithm: core.FixedWindow, Requests: 3})
	turns := rule(core.RuleConfig{Name: "turns"}, core.LimitConfig{Algorithm: core.TokenBucket, Requests: 60, Burst: 1, Delays: true})
	tight := rule(core.RuleConfig{Name: "tight"}, core.LimitConfig{Algorithm: core.FixedWindow, Requests: 2})
	ask := func() []core.Check {
		checks := []core.Check{
			{Rule: few, Key: "a", Cost: 1}, {Rule: tries, Key: "b", Cost: 1}, {Rule: turns, Key: "c", Cost: 1}, {Rule: tight, Key: "d", Cost: 1},
		}
		if err := s.Decide(checks, false); err != nil {
			t.Fatal(err)
		}
		return checks
	}
	for i := range 2 {
		for j, c := range ask() {
			if !c.Decision.Allowed {
				t.Fatalf("request %d is rejected by %s", i+1, []string{"few", "tries", "turns", "tight"}[j])
			}
		}
	}
	for range 3 { // denied by few and by tight, whichever is asked first
		if checks := ask(); checks[0].Decision.Allowed || checks[3].Decision.Allowed && checks[0].Decision.Allowed {
			t.Fatalf("%+v", checks)
		}
	}
	checks := []core.Check{{Rule: tries, Key: "b", Cost: 1}}
	if err := s.Decide(checks, true); err != nil || !checks[0].Decision.Allowed || checks[0].Decision.Remaining != 0 {
		t.Errorf("tries, of which two of three are held: %+v, %v", checks[0].Decision, err)
	}
	checks = []core.Check{{Rule: turns, Key: "c", Cost: 1}}
	if err := s.Decide(checks, true); err != nil || checks[0].Decision.Delay != 2*time.Second.Microseconds() {
		t.Errorf("turns, where one waits for a second: %+v, %v", checks[0].Decision, err)
	}
}
