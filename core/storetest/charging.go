package storetest

import (
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// testCharging: one decision for all rules of a request, for every pair of algorithms.
func testCharging(t *testing.T, newStore NewStore) {
	eachPair(t, newStore, variants(), variants(), rejectionCostsTheOthersNothing, rejectionIsCountedWhereAsked, shadowNeverVetoes, shadowIsChargedIfAllAdmit, peekChargesNothing)
	each(t, newStore, "count_rejected of ", variants(), countRejectedSaturates)
}

func rejectionCostsTheOthersNothing(s *scene, x, y variant) {
	tight := s.open(core.RuleConfig{Namespace: "nothing", Name: "tight", Limit: x.limit(s.t, 3, minute)})
	wide := s.open(core.RuleConfig{Namespace: "nothing", Name: "wide", Limit: y.limit(s.t, 5, minute)})
	s.exhaust(tight, "alice", 3)
	s.take(wide, "alice", 1)
	tightBefore, wideBefore := s.peek(tight, "alice", 1), s.peek(wide, "alice", 1)
	for i := 0; i < 6; i++ {
		dTight, dWide := s.both(tight, wide, "alice", i%2 == 1, false)
		if dTight.Allowed || !dWide.Allowed {
			s.t.Fatalf("tight says %+v and wide %+v; want no and yes", dTight, dWide)
		}
		// The decision of a rule that was not charged is its present state: four of five are left.
		if dWide.Remaining != 4 || dWide.RetryAfter != 0 || dWide.Delay != 0 || dWide.ResetAfter <= 0 {
			s.t.Fatalf("wide, not charged, says %+v; want remaining 4 and no wait", dWide)
		}
	}
	s.unchanged("tight, which rejected", tightBefore, s.peek(tight, "alice", 1))
	s.unchanged("wide, which did not", wideBefore, s.peek(wide, "alice", 1))

	// A key that a rule has not seen has the whole quota.
	whole := s.peek(wide, "bob", 1)
	if d := s.request(one(tight, "alice"), one(wide, "bob"))[1].Decision; !d.Allowed || d.Remaining != d.Limit || d.ResetAfter != 0 {
		s.t.Fatalf("wide, never charged, says %+v; want the whole quota", d)
	}
	s.unchanged("wide for bob", whole, s.peek(wide, "bob", 1))
	s.exhaust(wide, "bob", 5)
}

// rejectionIsCountedWhereAsked: of two rules with count_rejected, only the one that rejects is charged.
func rejectionIsCountedWhereAsked(s *scene, x, y variant) {
	tight := s.open(core.RuleConfig{Namespace: "counted", Name: "tight", Limit: x.limit(s.t, 3, minute), CountRejected: true})
	wide := s.open(core.RuleConfig{Namespace: "counted", Name: "wide", Limit: y.limit(s.t, 5, minute), CountRejected: true})
	plain := s.open(core.RuleConfig{Namespace: "counted", Name: "plain", Limit: x.limit(s.t, 3, minute)})
	s.exhaust(tight, "alice", 3)
	s.exhaust(plain, "alice", 3)
	s.clock.Add(10 * second)
	before := s.peek(wide, "alice", 1)
	var d rate.Decision
	for i := 0; i < 6; i++ {
		d, _ = s.both(tight, wide, "alice", i%2 == 1, false)
		s.no("tight", d, whatever)
	}
	s.unchanged("wide, which rejected nothing", before, s.peek(wide, "alice", 1))
	s.unchanged("tight, decided and asked again", d, s.peek(tight, "alice", 1))
	uncounted := s.take(plain, "alice", 1)
	switch x.name {
	case "token_bucket", "leaky_bucket", "sliding_window_log", "sliding_window_counter", "sliding_window_segments":
		if d.RetryAfter <= uncounted.RetryAfter {
			s.t.Fatalf("retry after %d; want more than the %d of a rule without count_rejected", d.RetryAfter, uncounted.RetryAfter)
		}
	default: // a window has one end, and a refill with interval one time
		if d.RetryAfter != uncounted.RetryAfter {
			s.t.Fatalf("retry after %d; want the %d of a rule without count_rejected", d.RetryAfter, uncounted.RetryAfter)
		}
	}
}

func shadowNeverVetoes(s *scene, x, y variant) {
	shadow := s.open(core.RuleConfig{Namespace: "veto", Name: "shadow", Limit: x.limit(s.t, 3, minute), Shadow: true})
	enforced := s.open(core.RuleConfig{Namespace: "veto", Name: "enforced", Limit: y.limit(s.t, 5, minute)})
	s.exhaust(shadow, "alice", 3)
	before := s.peek(shadow, "alice", 1)
	limiter := core.NewLimiter(s.store)
	for i := int64(0); i < 5; i++ {
		checks := []core.Check{one(shadow, "alice"), one(enforced, "alice")}
		var v core.Verdict
		if err := limiter.Decide(checks, false, &v); err != nil {
			s.t.Fatal(err)
		}
		if v.Outcome == core.Reject || v.Reported != 1 || checks[0].Decision.Allowed || checks[1].Decision.Remaining != 4-i {
			s.t.Fatalf("request %d: %+v of %+v and %+v; want it admitted and charged to the enforced rule", i+1, v, checks[0].Decision, checks[1].Decision)
		}
	}
	s.unchanged("a shadow that would have rejected", before, s.peek(shadow, "alice", 1))
	s.no("enforced after 5 of 5", s.take(enforced, "alice", 1), whatever)
}

func shadowIsChargedIfAllAdmit(s *scene, x, y variant) {
	shadow := s.open(core.RuleConfig{Namespace: "shadow", Name: "shadow", Limit: x.limit(s.t, 5, minute), Shadow: true})
	enforced := s.open(core.RuleConfig{Namespace: "shadow", Name: "enforced", Limit: y.limit(s.t, 3, minute)})
	for i := int64(0); i < 3; i++ {
		d, e := s.both(shadow, enforced, "alice", i%2 == 1, false)
		if !d.Allowed || !e.Allowed || d.Remaining != 4-i || e.Remaining != 2-i {
			s.t.Fatalf("request %d: shadow says %+v, enforced %+v; want both charged", i+1, d, e)
		}
	}
	before := s.peek(shadow, "alice", 1)
	for i := 0; i < 4; i++ {
		_, e := s.both(shadow, enforced, "alice", i%2 == 1, false)
		s.no("enforced after 3 of 3", e, whatever)
	}
	s.unchanged("a shadow beside a rule that rejects", before, s.peek(shadow, "alice", 1))
}

func peekChargesNothing(s *scene, x, y variant) {
	a := s.open(core.RuleConfig{Namespace: "peek", Name: "a", Limit: x.limit(s.t, 3, minute), CountRejected: true})
	b := s.open(core.RuleConfig{Namespace: "peek", Name: "b", Limit: y.limit(s.t, 5, minute)})
	for i := int64(0); i < 3; i++ {
		for again := 0; again < 2; again++ {
			s.both(a, b, "alice", again == 1, true)
			s.peek(a, "alice", 1)
			s.peek(b, "alice", 5)
		}
		peekA, peekB := s.both(a, b, "alice", false, true)
		dA, dB := s.both(a, b, "alice", false, false)
		s.unchanged("what a peek said of a", peekA, dA)
		s.unchanged("what a peek said of b", peekB, dB)
		if dA.Remaining != 2-i || dB.Remaining != 4-i {
			s.t.Fatalf("request %d: a says %+v, b %+v; peeks were charged", i+1, dA, dB)
		}
	}
	s.clock.Add(10 * second)
	beforeA, beforeB := s.peek(a, "alice", 1), s.peek(b, "alice", 1)
	for i := 0; i < 4; i++ {
		s.both(a, b, "alice", i%2 == 1, true)
	}
	s.unchanged("a, which would reject", beforeA, s.peek(a, "alice", 1))
	s.unchanged("b, which would not", beforeB, s.peek(b, "alice", 1))
}

// countRejectedSaturates: however many requests are rejected, the key is allowed again within two periods of silence.
func countRejectedSaturates(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "flooded", Limit: v.limit(s.t, 3, minute), CountRejected: true})
	s.exhaust(r, "alice", 3)
	for i := 0; i < times(300, 30); i++ {
		if d := s.take(r, "alice", 1+int64(i%5)); d.Allowed {
			s.t.Fatalf("request %d past the limit: %+v", i+1, d)
		}
	}
	s.never("a cost that no limit can hold", s.take(r, "alice", rate.Unaffordable))
	d := s.peek(r, "alice", 1)
	s.no("after the flood", d, 0)
	if d.RetryAfter > 2*minute || d.ResetAfter > 2*minute {
		s.t.Fatalf("after the flood: %+v; want it to last for at most two periods", d)
	}
	s.clock.Add(d.RetryAfter)
	s.yes("after RetryAfter", s.take(r, "alice", 1), whatever)
}
