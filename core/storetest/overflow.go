package storetest

import (
	"testing"

	"github.com/proxyweir/weir/core"
)

// What the tests of rules with a conduct share. They compare all of a decision but ResetAfter: how long what is reserved will count
// is known to nobody, and stores may say what they find.

// some stands, in a decision that is wanted, for any RetryAfter that is above 0.
const some int64 = -2

const hour = 60 * minute

// is fails unless a decision is the one that is wanted.
func (s *scene) is(what string, got, want core.Decision) {
	s.t.Helper()
	shown := got
	got.ResetAfter = 0
	got.MoreAfter = 0
	if want.RetryAfter == some && got.RetryAfter > 0 {
		got.RetryAfter = some
	}
	if got != want {
		s.t.Fatalf("%s: got %+v, want %+v", what, shown, want)
	}
}

// asBefore is unchanged, but for ResetAfter.
func (s *scene) asBefore(what string, before, after core.Decision) {
	s.t.Helper()
	before.ResetAfter = 0
	before.MoreAfter = 0
	s.is(what, after, before)
}

// one is a check of a rule at a cost of 1.
func one(r *core.Rule, key string) core.Check {
	return core.Check{Rule: r, Key: key, Cost: 1}
}

// ask decides on a request that comes under two rules.
func (s *scene) ask(x, y core.Check, peek bool) (core.Check, core.Check) {
	s.t.Helper()
	checks := []core.Check{x, y}
	s.decide(checks, peek)
	return checks[0], checks[1]
}

// hold takes so many units, and returns what the request has reserved by that.
func (s *scene) reserve(r *core.Rule, key string, cost int64) (core.Decision, []core.Reservation) {
	s.t.Helper()
	checks := s.request(core.Check{Rule: r, Key: key, Cost: cost})
	return checks[0].Decision, core.AppendReservations(nil, checks)
}

// held is hold of a request that must be admitted, and reserve something.
func (s *scene) held(r *core.Rule, key string, cost int64) []core.Reservation {
	s.t.Helper()
	d, reservations := s.reserve(r, key, cost)
	if !d.Allowed || len(reservations) != 1 {
		s.t.Fatalf("%s, %s: %+v with %d holds; want it admitted, and one", r.Identity(), key, d, len(reservations))
	}
	return reservations
}

// settle ends what a request has reserved.
func (s *scene) settle(reservations []core.Reservation, keep bool) {
	s.t.Helper()
	for i := range reservations {
		reservations[i].Keep = keep
	}
	if err := s.store.Settle(reservations); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) block(r *core.Rule, key string, duration int64) {
	s.t.Helper()
	if err := s.store.Block(r, key, duration); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) reset(r *core.Rule, key string) {
	s.t.Helper()
	if err := core.NewLimiter(s.store).Reset(r, key); err != nil {
		s.t.Fatal(err)
	}
}

// accompany opens a rule that rejects, whose requests may come under one that delays, too.
func (s *scene) accompany(c core.RuleConfig) *core.Rule {
	s.t.Helper()
	r := s.rule(c)
	r.Accompany()
	return s.opened(r)
}

// statuses reads a list of codes.
func statuses(t *testing.T, words ...string) *core.Statuses {
	t.Helper()
	list, err := core.ParseStatuses(words)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// but returns the variants without those of some algorithms, which refuse the conduct that is tested.
func but(refuse ...core.Algorithm) []variant {
	var list []variant
	for _, v := range variants() {
		refuses := false
		for _, a := range refuse {
			refuses = refuses || v.algorithm == a
		}
		if !refuses {
			list = append(list, v)
		}
	}
	return list
}
