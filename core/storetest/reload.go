package storetest

import (
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// testReload: reservations survive a reload that changes a rule's overflow policy. Each of these tests is for a defect.
func testReload(t *testing.T, newStore NewStore) {
	each(t, newStore, "", waiters(), fromCountToDelay, whoLeavesTakesNobodysChargeBack, aRuleThatDelaysNoMoreSeesWhatWaits, severalDeparturesBehindABacklog)
}

// fromCountToDelay: requests that were counted by status are under way when the rule begins to delay. They are charged when they
// end.
func fromCountToDelay(s *scene, v variant) {
	counts := s.open(core.RuleConfig{Namespace: "count", Name: "x", Limit: v.limit(s.t, 3, minute), OverflowPolicy: core.OverflowPolicy{Count: statuses(s.t, "401")}})
	var under [][]core.Reservation
	for i := 0; i < 3; i++ {
		under = append(under, s.mustReserve(counts, "alice", 1))
	}
	delays := s.open(core.RuleConfig{Namespace: "count", Name: "x", Limit: v.delaying(s.t, 3, minute, 2*minute)})
	if d := s.take(delays, "alice", 1); !d.Allowed || d.Delay != 0 {
		s.t.Fatalf("%s, after the reload: %+v; want yes, at once", v.name, d)
	}
	for i := range under {
		s.settle(under[i], true)
	}
	s.waits("when all were charged", s.take(delays, "alice", 1))
}

// whoLeavesTakesNobodysChargeBack: a request waits, a reload makes the rule reject under a larger limit, others are charged, and
// then the client of the waiting request leaves.
func whoLeavesTakesNobodysChargeBack(s *scene, v variant) {
	before := s.open(core.RuleConfig{Namespace: "leave", Name: "x", Limit: v.delaying(s.t, 3, minute, 2*minute)})
	for i := 0; i < 3; i++ {
		s.take(before, "alice", 1)
	}
	waits := s.mustReserve(before, "alice", 1)
	after := s.open(core.RuleConfig{Namespace: "leave", Name: "x", Limit: v.limit(s.t, 30, minute)})
	most := 27
	if v.algorithm == rate.FixedWindow || v.interval { // these charge the window that the request waits for
		most = 29
	}
	admitted := 0
	for s.take(after, "alice", 1).Allowed {
		admitted++
	}
	if admitted > most {
		s.t.Fatalf("%s: %d more are admitted under a limit of 30; want %d at most", v.name, admitted, most)
	}
	s.settle(waits, false)
	admitted = 0
	for s.take(after, "alice", 1).Allowed {
		admitted++
	}
	if admitted > 1 { // the reservation of the request that has left
		s.t.Fatalf("%s: when the one that waited has left, %d more are admitted; want 1 at most", v.name, admitted)
	}
}

// aRuleThatDelaysNoMoreSeesWhatWaits: it counts the charges of waiting requests.
func aRuleThatDelaysNoMoreSeesWhatWaits(s *scene, v variant) {
	before := s.open(core.RuleConfig{Namespace: "plain", Name: "x", Limit: v.delaying(s.t, 3, minute, 2*minute)})
	for i := 0; i < 6; i++ {
		s.yes("before the reload", s.take(before, "alice", 1), whatever)
	}
	after := s.open(core.RuleConfig{Namespace: "plain", Name: "x", Limit: v.limit(s.t, 3, minute)})
	s.clock.Add(minute) // all of them have departed
	admitted := 0
	for s.take(after, "alice", 1).Allowed {
		admitted++
	}
	if admitted > 1 {
		s.t.Fatalf("%s: %d are admitted when three have departed in this minute; want 1 at most", v.name, admitted)
	}
}

// severalDeparturesBehindABacklog: a rule for all clients has a backlog, so that one client's requests reserve more of the
// client's own rule than it can hold at a time. They depart within both rules nevertheless.
func severalDeparturesBehindABacklog(s *scene, v variant) {
	all := s.open(core.RuleConfig{Namespace: "backlog", Name: "all", Limit: v.delaying(s.t, 2, second, minute)})
	own := s.open(core.RuleConfig{Namespace: "backlog", Name: "own", Limit: v.delaying(s.t, 2, second, minute)})
	for i := 0; i < 10; i++ {
		s.take(all, "all", 1)
	}
	last := int64(0)
	for i := 0; i < 8; i++ {
		a, b := s.ask(core.Check{Rule: own, Key: "alice", Cost: 1}, core.Check{Rule: all, Key: "all", Cost: 1}, false)
		delay := a.Decision.Delay
		if b.Decision.Delay > delay {
			delay = b.Decision.Delay
		}
		if !a.Decision.Allowed || !b.Decision.Allowed || delay < last || delay < 4*second || delay > 10*second {
			s.t.Fatalf("%s, request %d: %+v and %+v; want it to wait behind the one before it, at %d", v.name, i+1, a.Decision, b.Decision, last)
		}
		last = delay
	}
}
