package storetest

import (
	"strings"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// testChangedLimits: a reload opens the new rule, and then releases the old one. Counters survive; from then on they are compared
// with the new numbers.
func testChangedLimits(t *testing.T, newStore NewStore) {
	each(t, newStore, "", withOwnWindows(), aLimitIsRaised, aLimitIsLowered, aLimitIsLoweredBelowWhatIsUsed, twoLimitsHaveOneCount)
}

func aLimitIsRaised(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "raised", Limit: v.limit(s.t, 100, minute)})
	s.exhaust(r, "alice", 100)
	raised := s.open(core.RuleConfig{Name: "raised", Limit: v.limit(s.t, 1000, minute)})
	s.store.Release(r)
	s.yes("a limit raised from an exhausted 100 to 1000", s.take(raised, "alice", 1), 899)
	s.yes("all the rest", s.take(raised, "alice", 899), 0)
}

func aLimitIsLowered(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "lowered", Limit: v.limit(s.t, 1000, minute)})
	s.take(r, "alice", 100)
	s.take(r, "bob", 40)
	lowered := s.open(core.RuleConfig{Name: "lowered", Limit: v.limit(s.t, 100, minute)})
	s.store.Release(r)
	s.no("a limit lowered from 1000 to 100 with 100 used", s.take(lowered, "alice", 1), 0)
	s.yes("and with 40 used", s.take(lowered, "bob", 1), 59)
}

func aLimitIsLoweredBelowWhatIsUsed(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "below", Limit: v.limit(s.t, 1000, minute)})
	s.take(r, "alice", 900)
	lowered := s.open(core.RuleConfig{Name: "below", Limit: v.limit(s.t, 100, minute)})
	d := s.take(lowered, "alice", 1)
	s.no("100 a minute with 900 used", d, 0)
	s.clock.Add(d.RetryAfter)
	s.yes("after RetryAfter", s.take(lowered, "alice", 1), whatever)
}

// twoLimitsHaveOneCount: during a reload, requests under the old limit and the new one are in flight together.
func twoLimitsHaveOneCount(s *scene, v variant) {
	few := s.open(core.RuleConfig{Name: "both", Limit: v.limit(s.t, 10, minute)})
	many := s.open(core.RuleConfig{Name: "both", Limit: v.limit(s.t, 20, minute)})
	s.take(few, "alice", 5)
	s.take(many, "alice", 5)
	s.no("10 of 10 used", s.take(few, "alice", 1), whatever)
	s.yes("10 of 20 used", s.take(many, "alice", 1), 9)
}

// testIsolation: different rules and different keys share nothing.
func testIsolation(t *testing.T, newStore NewStore) {
	keys := []string{
		"bob", "", "alice ", "ALICE", "a", "alice\x00", "\x00", "alice\nbob", "ali|ce", "{alice}", "älice", "\xff\xfe",
		strings.Repeat("a", 1<<20),
	}
	all := variants()
	for n, v := range all {
		t.Run(v.name, func(t *testing.T) {
			s := newScene(t, newStore)
			r := s.open(core.RuleConfig{Name: "one", Limit: v.limit(t, 3, minute)})
			s.exhaust(r, "alice", 3)
			for _, key := range keys {
				s.exhaust(r, key, 3)
			}
			other := all[(n+1)%len(all)]
			fresh := []core.RuleConfig{
				{Name: "two", Limit: v.limit(t, 3, minute)},
				{Name: "ONE", Limit: v.limit(t, 3, minute)},
				{Name: "one", Namespace: "of-another", Limit: v.limit(t, 3, minute)},
				{Name: "one", KeySpec: "host", Limit: v.limit(t, 3, minute)},
				{Name: "one", Limit: v.limit(t, 3, 2*minute)},
				{Name: "one", Limit: other.limit(t, 3, minute)},
			}
			for i := range fresh {
				s.exhaust(s.open(fresh[i]), "alice", 3)
			}
			same := s.open(core.RuleConfig{Name: "one", Limit: v.limit(t, 3, minute)})
			s.no("a rule of the same identity, which shares the count", s.take(same, "alice", 1), whatever)
		})
	}
}

func testCost(t *testing.T, newStore NewStore) {
	each(t, newStore, "", withOwnWindows(), unitsAreTakenAtOnce, costsBelowOneAreOne)
	t.Run("no checks", func(t *testing.T) {
		s := newScene(t, newStore)
		s.decide(nil, false)
		s.decide([]core.Check{}, true)
	})
}

func unitsAreTakenAtOnce(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "cost", Limit: v.limit(s.t, 10, minute)})
	for _, cost := range []int64{11, 1000, rate.MaxRequests, rate.Unaffordable} {
		s.never("more than 10, of 10", s.take(r, "alice", cost))
	}
	s.yes("7 of 10", s.take(r, "alice", 7), 3)
	s.no("4 more", s.take(r, "alice", 4), 3)
	s.yes("3 more", s.take(r, "alice", 3), 0)
	s.yes("10 at once", s.take(r, "bob", 10), 0)
}

// costsBelowOneAreOne: the limiter sees to it. A cost above everything takes nothing.
func costsBelowOneAreOne(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "odd", Limit: v.limit(s.t, 10, minute)})
	limiter := core.NewLimiter(s.store)
	var verdict core.Verdict
	for i, cost := range []int64{0, -1, -1 << 62, 1 << 62} {
		checks := []core.Check{{Rule: r, Key: "carol", Cost: cost}}
		if err := limiter.Decide(checks, false, &verdict); err != nil {
			s.t.Fatal(err)
		}
		if cost < 1 {
			s.yes("a cost below 1", checks[0].Decision, 9-int64(i))
		}
	}
	if verdict.Outcome != core.Reject || verdict.RetryAfter != rate.Never {
		s.t.Fatalf("a cost of 2⁶²: %+v; want it rejected for good", verdict)
	}
}
