package storetest

import (
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// What tests of rules with an overflow policy share. They compare all of a decision but ResetAfter: nobody knows for how long
// reservations will count, so stores may differ there.

// some stands for any positive RetryAfter, in a decision that a test wants.
const some int64 = -2

const hour = 60 * minute

// is fails unless got is the decision that a test wants.
func (s *scene) is(what string, got, want rate.Decision) {
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

// asBefore is unchanged without ResetAfter.
func (s *scene) asBefore(what string, before, after rate.Decision) {
	s.t.Helper()
	before.ResetAfter = 0
	before.MoreAfter = 0
	s.is(what, after, before)
}

// one returns a check of a rule at a cost of 1.
func one(r *core.Rule, key string) core.Check {
	return core.Check{Rule: r, Key: key, Cost: 1}
}

// ask decides on a request under two rules.
func (s *scene) ask(x, y core.Check, peek bool) (core.Check, core.Check) {
	s.t.Helper()
	checks := []core.Check{x, y}
	s.decide(checks, peek)
	return checks[0], checks[1]
}

// reserve takes units, and returns the decision and the request's reservations.
func (s *scene) reserve(r *core.Rule, key string, cost int64) (rate.Decision, []core.Reservation) {
	s.t.Helper()
	checks := s.request(core.Check{Rule: r, Key: key, Cost: cost})
	return checks[0].Decision, core.AppendReservations(nil, checks)
}

// mustReserve is reserve for a request that must be allowed, and must reserve something.
func (s *scene) mustReserve(r *core.Rule, key string, cost int64) []core.Reservation {
	s.t.Helper()
	d, reservations := s.reserve(r, key, cost)
	if !d.Allowed || len(reservations) != 1 {
		s.t.Fatalf("%s, %s: %+v with %d reservations; want it allowed, with one", r.Identity, key, d, len(reservations))
	}
	return reservations
}

// settle ends the reservations of a request.
func (s *scene) settle(reservations []core.Reservation, keep bool) {
	s.t.Helper()
	for i := range reservations {
		reservations[i].Keep(keep)
	}
	must.Succeed(s.t, s.store.Settle(reservations))
}

func (s *scene) block(r *core.Rule, key string, duration int64) {
	s.t.Helper()
	must.Succeed(s.t, s.store.Block(r, key, duration))
}

func (s *scene) reset(r *core.Rule, key string) {
	s.t.Helper()
	must.Succeed(s.t, core.NewLimiter(s.store).Reset(r, key))
}

// tracking opens a rule that rejects, under which requests may come together with a rule that delays.
func (s *scene) tracking(c core.RuleConfig) *core.Rule {
	s.t.Helper()
	r := s.rule(c)
	r.TrackReservations()
	return s.opened(r)
}

// statuses reads a list of status codes.
func statuses(t *testing.T, words ...string) *core.Counted {
	t.Helper()
	list, err := core.ParseCounted(words)
	must.Succeed(t, err)
	return list
}

// but returns the variants without those of some algorithms, which do not allow the overflow policy under test.
func but(refuse ...rate.Algorithm) []variant {
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
