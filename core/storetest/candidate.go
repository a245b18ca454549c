package storetest

import (
	"strconv"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// testCandidate: a candidate is decided in place of its rule, on the same requests, and rejects none.
func testCandidate(t *testing.T, newStore NewStore) {
	eachPair(t, newStore, variants(), variants(), aCandidateGoesByItsOwnLimit, anotherRulesRejectionIsTheCandidatesToo, peeksLeaveTheCandidateAlone)
}

// candidate opens a rule with a candidate.
func (s *scene) candidate(name string, limit, other *rate.Limit) (r, candidate *core.Rule) {
	s.t.Helper()
	r = s.open(core.RuleConfig{Name: name, Limit: limit, Candidate: other})
	if len(r.Linked()) != 1 || !r.Linked()[0].IsCandidate() || r.IsCandidate() || !r.Linked()[0].Shadow {
		s.t.Fatalf("the rules beside it are %v", r.Linked())
	}
	return r, r.Linked()[0]
}

// pair asks for a unit of both, in the required order.
func (s *scene) pair(r, candidate *core.Rule) (rate.Decision, rate.Decision) {
	s.t.Helper()
	a, b := s.ask(one(r, "alice"), one(candidate, "alice"), false)
	return a.Decision, b.Decision
}

// aCandidateGoesByItsOwnLimit: a wider one is charged for what its rule rejects, a tighter one rejects nobody, and each has its
// own counters.
func aCandidateGoesByItsOwnLimit(s *scene, v, w variant) {
	for _, limits := range [][]int64{{3, 5}, {5, 3}} {
		own, other := limits[0], limits[1]
		r, candidate := s.candidate("of"+strconv.FormatInt(own, 10), v.limit(s.t, own, hour), w.limit(s.t, other, hour))
		for i := int64(0); i < 7; i++ {
			d, c := s.pair(r, candidate)
			if d.Allowed != (i < own) || c.Allowed != (i < other) || d.Allowed && d.Remaining != own-1-i || c.Allowed && c.Remaining != other-1-i {
				s.t.Fatalf("request %d: the rule says %+v, its candidate %+v; want %d and %d admitted", i+1, d, c, own, other)
			}
		}
	}
}

// anotherRulesRejectionIsTheCandidatesToo, since the candidate would not have changed it.
func anotherRulesRejectionIsTheCandidatesToo(s *scene, v, w variant) {
	r, candidate := s.candidate("innocent", v.limit(s.t, 3, hour), w.limit(s.t, 9, hour))
	other := s.open(core.RuleConfig{Name: "other", Limit: v.limit(s.t, 2, hour)})
	s.exhaust(other, "alice", 2)
	s.pair(r, candidate)
	before := s.peek(candidate, "alice", 1)
	for i := 0; i < 6; i++ {
		checks := []core.Check{one(r, "alice"), one(candidate, "alice"), one(other, "alice")}
		if i%2 == 1 {
			checks = []core.Check{one(other, "alice"), one(r, "alice"), one(candidate, "alice")}
		}
		s.request(checks...)
	}
	s.asBefore("the candidate of a rule beside one that rejects", before, s.peek(candidate, "alice", 1))

	// Also if its own rule rejects together with the other.
	s.exhaust(r, "bob", 3)
	s.exhaust(other, "bob", 2)
	before = s.peek(candidate, "bob", 1)
	for i := 0; i < 3; i++ {
		s.request(one(r, "bob"), one(candidate, "bob"), one(other, "bob"))
	}
	s.asBefore("the candidate, where both reject", before, s.peek(candidate, "bob", 1))

	// If two rules have candidates, each candidate stands in for its own rule.
	r2, candidate2 := s.candidate("second", w.limit(s.t, 9, hour), v.limit(s.t, 9, hour))
	s.exhaust(r, "carol", 3)
	before = s.peek(candidate2, "carol", 1)
	after := s.peek(candidate, "carol", 1)
	s.request(one(r, "carol"), one(candidate, "carol"), one(r2, "carol"), one(candidate2, "carol"))
	s.asBefore("the second rule's candidate", before, s.peek(candidate2, "carol", 1))
	s.yes("the first rule's candidate, charged", s.peek(candidate, "carol", 1), after.Remaining-1)
	s.yes("the second rule, not charged", s.peek(r2, "carol", 1), before.Remaining)
}

func peeksLeaveTheCandidateAlone(s *scene, v, w variant) {
	r, candidate := s.candidate("peeks", v.limit(s.t, 3, hour), w.limit(s.t, 5, hour))
	s.pair(r, candidate)
	before := s.peek(candidate, "alice", 1)
	for i := 0; i < 4; i++ {
		s.ask(one(r, "alice"), one(candidate, "alice"), true)
	}
	s.asBefore("after peeks", before, s.peek(candidate, "alice", 1))
}
