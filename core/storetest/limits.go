package storetest

import (
	"strings"
	"testing"

	"github.com/proxyweir/weir/core"
)

// testChangedLimits: a reload opens the new rule and then releases the old one. What was used stands; how much that is of
// the limit is for the new numbers to say, at once.
func testChangedLimits(t *testing.T, newStore func(t *testing.T, clock *Clock) core.Store) {
	for _, v := range variants() {
		s := newScene(t, newStore)
		t.Run("raised, "+v.name, func(t *testing.T) {
			s.t = t
			r := s.open(core.RuleConfig{Name: "raised", Limit: v.limit(t, 100, minute)})
			s.exhaust(r, "alice", 100)
			raised := s.open(core.RuleConfig{Name: "raised", Limit: v.limit(t, 1000, minute)})
			s.store.Release(r)
			if d := s.take(raised, "alice", 1); !d.Allowed || d.Remaining != 899 {
				t.Fatalf("a limit raised from an exhausted 100 to 1000 says %+v; want yes, and 899 more", d)
			}
			if d := s.take(raised, "alice", 899); !d.Allowed || d.Remaining != 0 {
				t.Fatalf("899 more: %+v", d)
			}
		})
		t.Run("lowered, "+v.name, func(t *testing.T) {
			s.t = t
			r := s.open(core.RuleConfig{Name: "lowered", Limit: v.limit(t, 1000, minute)})
			s.take(r, "alice", 100)
			s.take(r, "bob", 40)
			lowered := s.open(core.RuleConfig{Name: "lowered", Limit: v.limit(t, 100, minute)})
			s.store.Release(r)
			d := s.take(lowered, "alice", 1)
			if d.Allowed || d.Remaining != 0 || d.RetryAfter <= 0 {
				t.Fatalf("a limit lowered from 1000 to 100 with 100 used says %+v; want no", d)
			}
			if d = s.take(lowered, "bob", 1); !d.Allowed || d.Remaining != 59 {
				t.Fatalf("and with 40 used %+v; want yes, and 59 more", d)
			}
		})
		t.Run("lowered below what is used, "+v.name, func(t *testing.T) {
			s.t = t
			r := s.open(core.RuleConfig{Name: "below", Limit: v.limit(t, 1000, minute)})
			s.take(r, "alice", 900)
			lowered := s.open(core.RuleConfig{Name: "below", Limit: v.limit(t, 100, minute)})
			d := s.take(lowered, "alice", 1)
			if d.Allowed || d.Remaining != 0 || d.RetryAfter <= 0 {
				t.Fatalf("100 a minute with 900 used: %+v; want no", d)
			}
			before := s.clock.Now()
			s.clock.Add(d.RetryAfter)
			if d = s.take(lowered, "alice", 1); !d.Allowed {
				t.Fatalf("at the time that was told: %+v; want yes", d)
			}
			s.clock.Set(before)
		})
		t.Run("both at once, "+v.name, func(t *testing.T) {
			// During a reload requests under the old limit and the new are in flight together, over one count.
			s.t = t
			few := s.open(core.RuleConfig{Name: "both", Limit: v.limit(t, 10, minute)})
			many := s.open(core.RuleConfig{Name: "both", Limit: v.limit(t, 20, minute)})
			s.take(few, "alice", 5)
			s.take(many, "alice", 5)
			if d := s.take(few, "alice", 1); d.Allowed {
				t.Fatalf("10 of 10 used: %+v; want no", d)
			}
			if d := s.take(many, "alice", 1); !d.Allowed || d.Remaining != 9 {
				t.Fatalf("10 of 20 used: %+v; want yes, and 9 more", d)
			}
		})
	}
}

// testIsolation: what is not the same rule, or not the same key, shares nothing.
func testIsolation(t *testing.T, newStore func(t *testing.T, clock *Clock) core.Store) {
	keys := []string{
		"bob", "", "alice ", "ALICE", "a", "alice\x00", "\x00", "alice\nbob", "ali|ce", "{alice}", "älice", "\xff\xfe",
		strings.Repeat("a", 1<<20),
	}
	all := variants()
	for n, v := range all {
		s := newScene(t, newStore)
		t.Run(v.name, func(t *testing.T) {
			s.t = t
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
			if d := s.take(same, "alice", 1); d.Allowed {
				t.Fatalf("a rule of the same identity says %+v; want no: it shares the count", d)
			}
		})
	}
}

func testCost(t *testing.T, newStore func(t *testing.T, clock *Clock) core.Store) {
	for _, v := range variants() {
		s := newScene(t, newStore)
		t.Run(v.name, func(t *testing.T) {
			s.t = t
			r := s.open(core.RuleConfig{Name: "cost", Limit: v.limit(t, 10, minute)})
			for _, cost := range []int64{11, 1000, core.MaxRequests, core.Unaffordable} {
				if d := s.take(r, "alice", cost); d.Allowed || d.RetryAfter != core.Never {
					t.Fatalf("a cost of %d, of 10: %+v; want no, and never", cost, d)
				}
			}
			if d := s.take(r, "alice", 7); !d.Allowed || d.Remaining != 3 {
				t.Fatalf("7 of 10: %+v", d)
			}
			if d := s.take(r, "alice", 4); d.Allowed || d.Remaining != 3 || d.RetryAfter <= 0 {
				t.Fatalf("4 more: %+v; want no, 3 left, and a wait", d)
			}
			if d := s.take(r, "alice", 3); !d.Allowed || d.Remaining != 0 {
				t.Fatalf("3 more: %+v", d)
			}
			if d := s.take(r, "bob", 10); !d.Allowed || d.Remaining != 0 {
				t.Fatalf("10 at once: %+v", d)
			}

			// A cost below 1 is a cost of 1, by the limiter.
			limiter := core.NewLimiter(s.store)
			for i, cost := range []int64{0, -1, -1 << 62} {
				checks := []core.Check{{Rule: r, Key: "carol", Cost: cost}}
				var verdict core.Verdict
				if err := limiter.Decide(checks, false, &verdict); err != nil {
					t.Fatal(err)
				}
				if d := checks[0].Decision; !d.Allowed || d.Remaining != 9-int64(i) {
					t.Fatalf("a cost of %d: %+v; want 1 charged", cost, d)
				}
			}
			checks := []core.Check{{Rule: r, Key: "dave", Cost: 1 << 62}}
			var verdict core.Verdict
			if err := limiter.Decide(checks, false, &verdict); err != nil {
				t.Fatal(err)
			}
			if verdict.Outcome != core.Reject || verdict.RetryAfter != core.Never {
				t.Fatalf("a cost of 2⁶²: %+v; want it rejected for good", verdict)
			}
		})
	}
	t.Run("no checks", func(t *testing.T) {
		s := newScene(t, newStore)
		s.decide(nil, false)
		s.decide([]core.Check{}, true)
	})
}
