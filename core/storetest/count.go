package storetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// testCount: under a rule that counts by status, a request reserves its charge, which is charged or given back when the status is
// known.
func testCount(t *testing.T, newStore NewStore) {
	each(t, newStore, "", but(rate.LeakyBucket), reservationsCountAgainstTheRoom, whatIsGivenBackWasNeverThere, reservationsOfCostsAboveOne,
		anotherRulesRejectionReservesNothing, peeksReserveNothing, reservationsAreNoOffence, whatIsSparedIsOnlyChecked)
	each(t, newStore, "all at once, ", but(rate.LeakyBucket), guessesAtOnce)
	each(t, newStore, "charged when it ends, ", variants(), theTimeOfTheEndIsCharged)
}

// theTimeOfTheEndIsCharged: the window in which a request ends is charged, and a unit in a log counts for a minute from then on.
func theTimeOfTheEndIsCharged(s *scene, v variant) {
	if v.algorithm != rate.FixedWindow && v.algorithm != rate.SlidingWindowLog {
		return
	}
	r := s.counting(v, "ends", 1, minute)
	reservations := s.mustReserve(r, "alice", 1)
	s.clock.Add(50 * second) // the next minute
	s.is("one, another being under way", s.take(r, "alice", 1), rate.Decision{Limit: 1, RetryAfter: second})
	s.settle(reservations, true)
	left := 50 * second // of that minute
	if v.algorithm == rate.SlidingWindowLog {
		left = minute
	}
	s.is("one, another being charged", s.take(r, "alice", 1), rate.Decision{Limit: 1, RetryAfter: left})
	s.clock.Add(left - 1)
	s.is("a microsecond before", s.take(r, "alice", 1), rate.Decision{Limit: 1, RetryAfter: 1})
	s.clock.Add(1)
	s.is("then", s.take(r, "alice", 1), rate.Decision{Allowed: true, Limit: 1})
}

// counting opens a rule that counts by status.
func (s *scene) counting(v variant, name string, units, period int64) *core.Rule {
	s.t.Helper()
	// Names allow only letters, digits and a few other characters; KeySpec allows anything.
	return s.open(core.RuleConfig{Name: "count", KeySpec: name, Limit: v.limit(s.t, units, period), OverflowPolicy: core.OverflowPolicy{Count: statuses(s.t, "401")}})
}

// whatIsSparedIsOnlyChecked: under a rule that counts only some requests, the others pass if anything is left, reserve nothing, and cost nothing. Past the
// limit they are rejected, and offend.
func whatIsSparedIsOnlyChecked(s *scene, v variant) {
	limiter := core.NewLimiter(s.store)
	of := func(name string, policy core.OverflowPolicy) *core.Rule {
		policy.CountsSome = true
		return s.open(core.RuleConfig{Name: name, Limit: v.limit(s.t, 2, hour), OverflowPolicy: policy})
	}
	ask := func(r *core.Rule, cost int64) (core.Check, []core.Reservation) {
		checks := []core.Check{{Rule: r, Key: "alice", Cost: cost}}
		var verdict core.Verdict
		must.Succeed(s.t, limiter.Decide(checks, false, &verdict))
		list := core.AppendReservations(nil, checks)
		must.Equal(s.t, verdict.Reserved, len(list) > 0, "reserved")
		return checks[0], list
	}
	spared := func(what string, r *core.Rule, want rate.Decision) {
		s.t.Helper()
		for i := 0; i < 4; i++ {
			c, list := ask(r, core.Spared)
			s.is(what, c.Decision, want)
			if len(list) > 0 {
				s.t.Fatalf("%s: what is spared has reserved %+v", what, list)
			}
		}
	}
	r := of("some", core.OverflowPolicy{Count: statuses(s.t, "401")})
	spared("new", r, rate.Decision{Allowed: true, Limit: 2, Remaining: 2})
	_, first := ask(r, 1)
	spared("one being reserved", r, rate.Decision{Allowed: true, Limit: 2, Remaining: 1})
	_, other := ask(r, 1)
	spared("all being reserved", r, rate.Decision{Limit: 2, RetryAfter: some})
	must.Succeed(s.t, limiter.Finish(first, 200))
	must.Succeed(s.t, limiter.Finish(other, 401))
	s.yes("one being charged", s.peek(r, "alice", 1), 0)
	_, third := ask(r, 1)
	must.Succeed(s.t, limiter.Finish(third, 401))
	spared("all being charged", r, rate.Decision{Limit: 2, RetryAfter: some})

	all := of("any", core.OverflowPolicy{Penalties: []time.Duration{2 * time.Hour}})
	for i := 0; i < 2; i++ {
		_, list := ask(all, 1)
		must.Equal(s.t, core.ByResponse(list), false, "the response is asked for")
		must.Succeed(s.t, limiter.Finish(list, 0))
	}
	c, _ := ask(all, core.Spared)
	s.is("an offence", c.Decision, rate.Decision{Limit: 2, RetryAfter: 2 * hour, Penalty: true})

	plain := s.open(core.RuleConfig{Name: "plain", Limit: v.limit(s.t, 2, hour)})
	c, _ = ask(plain, core.Spared)
	s.yes("a rule that counts all takes it for one", c.Decision, 1)
}

func reservationsCountAgainstTheRoom(s *scene, v variant) {
	r := s.counting(v, "room", 3, hour)
	var reservations [][]core.Reservation
	for i := int64(0); i < 3; i++ {
		d, h := s.reserve(r, "alice", 1)
		s.is("within the limit", d, rate.Decision{Allowed: true, Limit: 3, Remaining: 2 - i})
		if len(h) != 1 || h[0].Rule != r || h[0].Key != "alice" || h[0].Cost != 1 || h[0].Ticket == 0 {
			s.t.Fatalf("request %d has the reservations %+v", i+1, h)
		}
		reservations = append(reservations, h)
	}
	full := rate.Decision{Limit: 3, RetryAfter: second}
	d, none := s.reserve(r, "alice", 1)
	s.is("where all is reserved", d, full)
	if len(none) > 0 {
		s.t.Fatalf("a rejected request has the reservations %+v", none)
	}
	s.clock.Add(10 * second) // a reservation lasts as long as the request
	s.is("later", s.take(r, "alice", 1), full)
	s.settle(reservations[1], true)
	s.is("where one is charged, and two are reserved", s.take(r, "alice", 1), full)
	s.settle(reservations[0], false)
	s.is("where one was given back", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 3})
	s.settle(reservations[2], true)
	s.is("where two are charged, and none is reserved", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 3})
	s.settle(s.mustReserve(r, "alice", 1), true)
	if d = s.take(r, "alice", 1); d.Allowed || d.RetryAfter <= second || d.Remaining != 0 { // longer than the RetryAfter for reservations
		s.t.Fatalf("where all is charged: %+v; want no, for as long as the limit says", d)
	}
}

func whatIsGivenBackWasNeverThere(s *scene, v variant) {
	r := s.counting(v, "back", 3, hour)
	s.settle(s.mustReserve(r, "alice", 1), true)
	before := s.peek(r, "alice", 1)
	for i := 0; i < 10; i++ {
		s.settle(s.mustReserve(r, "alice", 2), false)
	}
	s.asBefore("after ten that were given back", before, s.peek(r, "alice", 1))
	s.is("a new key", s.peek(r, "bob", 1), rate.Decision{Allowed: true, Limit: 3, Remaining: 2})
}

func reservationsOfCostsAboveOne(s *scene, v variant) {
	r := s.counting(v, "cost", 10, hour)
	seven := s.mustReserve(r, "alice", 7)
	s.is("4 of 10, 7 being reserved", s.take(r, "alice", 4), rate.Decision{Limit: 10, RetryAfter: second})
	three := s.mustReserve(r, "alice", 3)
	s.is("1 of 10, all being reserved", s.take(r, "alice", 1), rate.Decision{Limit: 10, RetryAfter: second})
	s.settle(seven, false)
	s.is("1 of 10, 3 being reserved", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 10, Remaining: 6})
	s.settle(three, true)
	s.is("1 of 10, 3 being charged", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 10, Remaining: 6})
	s.mustReserve(r, "alice", 2)
	s.is("8 of 10, 3 being charged, 2 reserved", s.take(r, "alice", 8), rate.Decision{Limit: 10, Remaining: 5, RetryAfter: some})
	s.is("11 of 10", s.take(r, "alice", 11), rate.Decision{Limit: 10, Remaining: 5, RetryAfter: rate.Never})
}

func anotherRulesRejectionReservesNothing(s *scene, v variant) {
	r := s.counting(v, "innocent", 3, hour)
	other := s.open(core.RuleConfig{Name: "other", Limit: v.limit(s.t, 2, hour)})
	s.mustReserve(r, "alice", 1)
	s.exhaust(other, "alice", 2)
	before := s.peek(r, "alice", 1)
	for i := 0; i < 6; i++ {
		a, b := s.ask(one(r, "alice"), one(other, "alice"), false)
		s.is("beside a rule that rejects", a.Decision, rate.Decision{Allowed: true, Limit: 3, Remaining: 2})
		if b.Decision.Allowed || a.Ticket != 0 || b.Ticket != 0 {
			s.t.Fatalf("%+v and %+v; want the second to reject, and no tickets", a, b)
		}
	}
	s.asBefore("after that", before, s.peek(r, "alice", 1))

	// The other way round: if all units are reserved, other rules are not charged.
	s.mustReserve(r, "alice", 2)
	before = s.peek(other, "bob", 1)
	for i := 0; i < 3; i++ {
		a, _ := s.ask(one(r, "alice"), one(other, "bob"), false)
		s.is("where all is reserved", a.Decision, rate.Decision{Limit: 3, RetryAfter: second})
	}
	s.asBefore("the other rule", before, s.peek(other, "bob", 1))
}

func peeksReserveNothing(s *scene, v variant) {
	r := s.counting(v, "peeks", 3, hour)
	s.mustReserve(r, "alice", 1)
	for i := 0; i < 5; i++ {
		s.is("a peek", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 3, Remaining: 1})
	}
}

// reservationsAreNoOffence: nobody knows whether they will be charged, so no key is blocked for them.
func reservationsAreNoOffence(s *scene, v variant) {
	c := core.OverflowPolicy{Count: statuses(s.t, "4xx"), Penalties: []time.Duration{10 * time.Second}}
	r := s.open(core.RuleConfig{Name: "penal", Limit: v.limit(s.t, 2, second), OverflowPolicy: c})
	first := s.mustReserve(r, "alice", 1)
	second1 := s.mustReserve(r, "alice", 1)
	s.is("where all is reserved", s.take(r, "alice", 1), rate.Decision{Limit: 2, RetryAfter: second})
	s.settle(first, true)
	s.is("where one is reserved", s.take(r, "alice", 1), rate.Decision{Limit: 2, RetryAfter: second})
	s.settle(second1, true)
	s.is("where all is charged", s.take(r, "alice", 1), offence(r, 10*second))
	s.clock.Add(10 * second)
	s.settle(s.mustReserve(r, "alice", 2), false)
}

// guessesAtOnce: however many guesses come, only as many as the limit allows are under way at a time.
func guessesAtOnce(s *scene, v variant) {
	const units = 20
	r := s.counting(v, "guesses", units, hour)
	c := newCrowd(s, 4, 1)
	c.ask(r)
	if len(c.reservations) != units {
		s.t.Fatalf("%d of %d guesses are under way; want %d", len(c.reservations), 4*c.quarter, units)
	}
	tickets := make(map[string]bool)
	for i := range c.reservations {
		tickets[strconv.FormatUint(c.reservations[i].Ticket, 10)] = true
	}
	if len(tickets) != units {
		s.t.Fatalf("%d tickets of %d guesses; want each to have its own", len(tickets), units)
	}
	s.settle(c.reservations[:7], true)
	s.settle(c.reservations[7:], false)
	s.is("after 7 wrong guesses", s.peek(r, "everybody", 1), rate.Decision{Allowed: true, Limit: units, Remaining: units - 8})

	// If guesses end at once, right or wrong, as many pass as the limit has room for.
	c.ends = true
	c.keeps = true
	c.ask(r)
	wrong := c.kept.Load()
	want := rate.Decision{Allowed: true, Limit: units, Remaining: units - 8 - wrong}
	if wrong == units-7 {
		want = rate.Decision{Limit: units, RetryAfter: some}
	}
	if wrong > units-7 {
		s.t.Fatalf("%d wrong guesses; want at most %d", wrong, units-7)
	}
	s.is("after "+strconv.FormatInt(wrong, 10)+" more", s.peek(r, "everybody", 1), want)
}
