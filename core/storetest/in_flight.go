package storetest

import (
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// testInFlight: a limit of requests in flight bounds how many requests of each key are under way, from the decision until they
// are settled.
func testInFlight(t *testing.T, newStore NewStore) {
	s := newScene(t, newStore)
	placesAreFreeWhenRequestsEnd(s)
	costsTakeOnePlace(s)
	peeksTakeNoPlace(s)
	aShadowCountsPlacesAndRejectsNobody(s)
	aCrowdInFlight(s)
	each(t, newStore, "beside ", variants(), placesBesideALimit, anotherRulesRejectionTakesNoPlace)
}

func (s *scene) inFlight(n int64) *rate.Limit {
	s.t.Helper()
	l, err := rate.NewConcurrency(n)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func placesAreFreeWhenRequestsEnd(s *scene) {
	r := s.open(core.RuleConfig{Name: "places", Limit: s.inFlight(3)})
	full := rate.Decision{Limit: 3, RetryAfter: second}
	var reservations [][]core.Reservation
	for i := int64(0); i < 3; i++ {
		d, h := s.reserve(r, "alice", 1)
		s.is("a place", d, rate.Decision{Allowed: true, Limit: 3, Remaining: 2 - i})
		if len(h) != 1 || h[0].Ticket == 0 {
			s.t.Fatalf("it has the reservations %+v", h)
		}
		reservations = append(reservations, h)
	}
	d, none := s.reserve(r, "alice", 1)
	s.is("the fourth", d, full)
	if len(none) != 0 {
		s.t.Fatalf("a rejected request has the reservations %+v", none)
	}
	s.clock.Add(10 * second) // a reservation lasts as long as the request
	s.is("the fourth, later", s.take(r, "alice", 1), full)
	s.mustReserve(r, "bob", 1)
	s.settle(reservations[1], false)
	reservations[1] = s.mustReserve(r, "alice", 1)
	s.is("a place taken again", s.take(r, "alice", 1), full)
	for i := int64(0); i < 3; i++ {
		s.settle(reservations[i], false)
		s.is("a place given back", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 3, Remaining: i})
	}
	s.is("where none is under way, of another key", s.peek(r, "bob", 1), rate.Decision{Allowed: true, Limit: 3, Remaining: 1})
}

func costsTakeOnePlace(s *scene) {
	r := s.open(core.RuleConfig{Name: "cost", Limit: s.inFlight(2)})
	costly := s.mustReserve(r, "alice", 100)
	s.is("beside a costly one", s.peek(r, "alice", 1_000_000), rate.Decision{Allowed: true, Limit: 2})
	s.settle(costly, false)
	s.is("after it", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 2, Remaining: 1})
	s.is("what no limit can hold", s.take(r, "alice", rate.Unaffordable), rate.Decision{Limit: 2, RetryAfter: rate.Never})
}

func anotherRulesRejectionTakesNoPlace(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "innocent", Limit: s.inFlight(2)})
	other := s.open(core.RuleConfig{Name: "other", Limit: v.limit(s.t, 2, hour)})
	s.exhaust(other, "alice", 2)
	for i := 0; i < 4; i++ {
		a, b := s.ask(one(r, "alice"), one(other, "alice"), false)
		s.is("beside a rule that rejects", a.Decision, rate.Decision{Allowed: true, Limit: 2, Remaining: 2})
		if b.Decision.Allowed || a.Ticket != 0 {
			s.t.Fatalf("%+v and %+v; want the second to reject, and no ticket", a, b)
		}
	}
	s.mustReserve(r, "bob", 1)
	s.mustReserve(r, "bob", 1)
	before := s.peek(other, "bob", 1)
	for i := 0; i < 4; i++ {
		_, b := s.ask(one(r, "bob"), one(other, "bob"), false)
		s.yes("the other rule", b.Decision, whatever)
	}
	s.asBefore("a rule beside one whose places are taken", before, s.peek(other, "bob", 1))
}

func peeksTakeNoPlace(s *scene) {
	r := s.open(core.RuleConfig{Name: "peeks", Limit: s.inFlight(2)})
	for i := 0; i < 5; i++ {
		s.is("a peek", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 2, Remaining: 1})
	}
}

func aShadowCountsPlacesAndRejectsNobody(s *scene) {
	shadow := s.open(core.RuleConfig{Name: "shadow", Limit: s.inFlight(1), Shadow: true})
	r := s.open(core.RuleConfig{Name: "enforced", Limit: s.inFlight(2)})
	first := s.request(one(shadow, "alice"), one(r, "alice"))
	if reservations := core.AppendReservations(nil, first); len(reservations) != 2 {
		s.t.Fatalf("the first has the reservations %+v; want a place of each rule", reservations)
	}
	next := s.request(one(shadow, "alice"), one(r, "alice"))
	if reservations := core.AppendReservations(nil, next); len(reservations) != 1 || reservations[0].Rule != r || next[0].Decision.Allowed {
		s.t.Fatalf("the second has the reservations %+v, and the shadow says %+v; want a place of the enforced rule", reservations, next[0].Decision)
	}
	s.settle(core.AppendReservations(nil, first), false)
	s.is("the shadow", s.peek(shadow, "alice", 1), rate.Decision{Allowed: true, Limit: 1})
}

// placesBesideALimit: a rule's concurrency is a second rule, decided together with it.
func placesBesideALimit(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "beside", KeySpec: v.name, Limit: v.limit(s.t, 5, hour), Concurrency: 2})
	if len(r.Linked()) != 1 || !r.Linked()[0].Limit.InFlight {
		s.t.Fatalf("the rules beside it are %v", r.Linked())
	}
	places := r.Linked()[0]
	quota := r.Limit.Quota
	var reservations []core.Reservation
	for i := 0; i < 2; i++ {
		reservations = core.AppendReservations(reservations, s.request(one(r, "alice"), one(places, "alice")))
	}
	if len(reservations) != 2 || reservations[0].Rule != places || reservations[1].Rule != places {
		s.t.Fatalf("two have the reservations %+v; want a place each", reservations)
	}
	before := s.peek(r, "alice", 1)
	a, b := s.ask(one(r, "alice"), one(places, "alice"), false)
	s.is("the third at once", b.Decision, rate.Decision{Limit: 2, RetryAfter: second})
	if !a.Decision.Allowed {
		s.t.Fatalf("its limit says %+v; want yes", a.Decision)
	}
	s.asBefore("the limit", before, s.peek(r, "alice", 1))
	s.settle(reservations, false)
	for i := 0; i < 3; i++ {
		checks := s.request(one(r, "alice"), one(places, "alice"))
		s.is("one after the other", checks[1].Decision, rate.Decision{Allowed: true, Limit: 2, Remaining: 1})
		s.settle(core.AppendReservations(nil, checks), false)
	}
	a, b = s.ask(one(r, "alice"), one(places, "alice"), false)
	s.is("where the limit rejects, no place", b.Decision, rate.Decision{Allowed: true, Limit: 2, Remaining: 2})
	s.is("the limit", a.Decision, rate.Decision{Limit: quota, RetryAfter: some})
}

// aCrowdInFlight: of requests at the same time, exactly as many are allowed as the limit says; of those that come and go never
// more.
func aCrowdInFlight(s *scene) {
	const places = 5
	r := s.open(core.RuleConfig{Name: "crowd", Limit: s.inFlight(places)})
	stay := newCrowd(s, 1, 1)
	stay.ask(r)
	stay.wants("the places that there are", places)
	s.is("one more", s.take(r, "everybody", 1), rate.Decision{Limit: places, RetryAfter: second})
	s.settle(stay.reservations, false)

	come := newCrowd(s, 40, 5)
	come.ends = true
	come.ask(r)
	if n := come.most.Load(); n > places {
		s.t.Fatalf("%d were in flight at a time; want at most %d", n, places)
	}
	s.is("when all have landed", s.peek(r, "everybody", 1), rate.Decision{Allowed: true, Limit: places, Remaining: places - 1})
}
