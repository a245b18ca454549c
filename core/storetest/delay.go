package storetest

import (
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// testDelay: requests over a limit that delays wait until they are within it, depart in the order in which they came, and are
// charged at their departure.
func testDelay(t *testing.T, newStore NewStore) {
	for _, departures := range departureTable() {
		for _, v := range departures.variants {
			t.Run(departures.name+", "+v.name, func(t *testing.T) { requestsDepartWhenTheyMust(newScene(t, newStore), departures, v) })
			if v.algorithm != rate.SlidingWindowLog {
				t.Run("a shadow, "+departures.name+", "+v.name, func(t *testing.T) { aShadowSaysWhenRequestsWouldDepart(newScene(t, newStore), departures, v) })
			}
		}
	}
	each(t, newStore, "a leaky bucket alone, beside ", but(rate.LeakyBucket), aLeakyBucketReservesNothing)
	each(t, newStore, "", waiters(), aCostlyRequestIsNotOvertaken, peeksTakeNoTurn, theLatestDepartureCounts, theLastPlaceInTheQueueIsGivenBack,
		whoHasDepartedGivesNothingBack, whoLeavesAfterTheClockWasSetBackDelaysNobody, aPlaceInTheMiddleIsLost, aCrowdWaits)
	eachPair(t, newStore, waiters(), variants(), anotherRulesRejectionTakesNoTurn, theCandidateOfARejectionDelaysNobody)
	eachPair(t, newStore, waiters(), but(rate.LeakyBucket), otherRulesKeepTheirUnitsReserved, whatIsReservedComesBack)
	each(t, newStore, "at random, ", waiters(), departuresKeepToTheLimit)
}

// delaying returns a limit that delays requests.
func (v variant) delaying(t *testing.T, requests, period, longest int64) *rate.Limit {
	t.Helper()
	c := v.config(requests, period)
	c.Delays = true
	c.MaxDelay = time.Duration(longest) * time.Microsecond
	return limit(t, c)
}

// slow opens a rule that lets one request depart in each period, and makes requests wait for at most longest, both in
// microseconds.
func (s *scene) slow(name string, period, longest int64) *core.Rule {
	s.t.Helper()
	return s.open(core.RuleConfig{Name: name, Limit: variant{algorithm: rate.TokenBucket}.delaying(s.t, 1, period, longest)})
}

// waiters returns the variants that on_limit delay can make requests wait for. (Requests in a leaky bucket wait anyway, and have
// departures of their own: it is in the table.)
func waiters() []variant {
	return but(rate.LeakyBucket, rate.SlidingWindowCounter, rate.SlidingWindowSegments)
}

// departures is a history of one key: requests, their times, and when they depart.
type departures struct {
	name     string
	variants []variant
	requests int64
	period   int64 // this and all times below are in seconds
	longest  int64
	events   []departure
}

// departure is a request that departs that many seconds after the beginning, or is rejected with a RetryAfter.
type departure struct {
	at, cost      int64
	departs       float64
	rejectedUntil float64
}

// departureTable says when requests depart. Tests begin 20 seconds into a minute, where windows and refills of 10 seconds begin.
func departureTable() []departures {
	all := variants()
	token, leaky, windows, log := all[:1], all[2:3], []variant{all[1], all[3]}, all[4:5]
	return []departures{
		{"one after the other", token, 2, 10, 20, []departure{
			{3, 1, 3, 0}, {3, 1, 3, 0}, {3, 1, 8, 0}, {3, 1, 13, 0}, {3, 1, 18, 0},
			{3, 1, 23, 0}, {3, 1, 0, 5}, {4, 1, 0, 4}, {8, 1, 28, 0}, {60, 1, 60, 0},
		}},
		{"one after the other", windows, 2, 10, 20, []departure{
			{3, 1, 3, 0}, {3, 1, 3, 0}, {3, 1, 10, 0}, {3, 1, 10, 0}, {3, 1, 20, 0},
			{3, 1, 20, 0}, {3, 1, 0, 7}, {10, 1, 30, 0}, {60, 1, 60, 0},
		}},
		{"one after the other", log, 2, 10, 20, []departure{
			{3, 1, 3, 0}, {5, 1, 5, 0}, {5, 1, 13, 0}, {5, 1, 15, 0}, {5, 1, 23, 0},
			{5, 1, 25, 0}, {5, 1, 0, 8}, {13, 1, 33, 0}, {60, 1, 60, 0},
		}},
		{"one after the other", leaky, 2, 10, 20, []departure{
			{3, 1, 3, 0}, {3, 1, 8, 0}, {3, 1, 13, 0}, {3, 1, 0, 5}, {8, 1, 18, 0},
			{60, 1, 60, 0},
		}},

		{"costs above 1", token, 4, 10, 20, []departure{
			{0, 4, 0, 0}, {0, 2, 5, 0}, {0, 4, 15, 0}, {0, 1, 17.5, 0}, {0, 4, 0, 7.5},
			{0, 1, 20, 0}, {0, 5, 0, -1},
		}},
		{"costs above 1", windows, 4, 10, 20, []departure{
			{0, 4, 0, 0}, {0, 2, 10, 0}, {0, 3, 20, 0}, {0, 1, 20, 0}, {0, 4, 0, 10},
			{0, 5, 0, -1},
		}},
		{"costs above 1", log, 4, 10, 20, []departure{
			{0, 3, 0, 0}, {2, 1, 2, 0}, {2, 2, 10, 0}, {2, 2, 12, 0}, {2, 1, 20, 0},
			{2, 3, 22, 0}, {2, 1, 0, 8}, {2, 5, 0, -1},
		}},
	}
}

func requestsDepartWhenTheyMust(s *scene, departures departures, v variant) {
	r := s.open(core.RuleConfig{Name: "departures", Limit: v.delaying(s.t, departures.requests, departures.period*second, departures.longest*second)})
	for i, e := range departures.events {
		s.clock.Set(start() + e.at*second)
		what := "request " + strconv.Itoa(i+1) + ", at " + strconv.FormatInt(e.at, 10) + " s"
		if e.rejectedUntil != 0 {
			d, reservations := s.reserve(r, "alice", e.cost)
			wait := int64(e.rejectedUntil * float64(second))
			if e.rejectedUntil < 0 {
				wait = rate.Never
			}
			if d.Allowed || d.RetryAfter != wait || d.Delay != 0 || len(reservations) > 0 {
				s.t.Fatalf("%s: %+v; want it rejected for %d", what, d, wait)
			}
			if wait != rate.Never {
				if late := s.comesTrue(r, "alice", e.cost, d, wait); late.Delay > departures.longest*second {
					s.t.Fatalf("%s: %+v; yet then %+v", what, d, late)
				}
			}
			continue
		}
		delay := int64(e.departs*float64(second)) - e.at*second
		d, reservations := s.reserve(r, "alice", e.cost)
		if !d.Allowed || d.Delay != delay || d.RetryAfter != 0 || (delay > 0) != (len(reservations) == 1) {
			s.t.Fatalf("%s: %+v, %d reservations; want it to depart in %d", what, d, len(reservations), delay)
		}
		if v.algorithm != rate.LeakyBucket && delay > 0 && d.Remaining != 0 {
			s.t.Fatalf("%s: %+v; it waits, and yet there is more", what, d)
		}
	}
	s.clock.Set(start())
	if d := s.take(r, "bob", departures.requests); !d.Allowed || d.Delay != 0 {
		s.t.Fatalf("another key: %+v; want it at once", d)
	}
}

// aShadowSaysWhenRequestsWouldDepart, makes none wait, and leaves nothing that somebody would have to give back.
func aShadowSaysWhenRequestsWouldDepart(s *scene, departures departures, v variant) {
	r := s.open(core.RuleConfig{Name: "shadow", Limit: v.delaying(s.t, departures.requests, departures.period*second, departures.longest*second), Shadow: true})
	other := s.open(core.RuleConfig{Name: "enforced", Limit: variant{algorithm: rate.FixedWindow}.limit(s.t, 1000, 1000*hour)})
	limiter := core.NewLimiter(s.store)
	for i, e := range departures.events {
		s.clock.Set(start() + e.at*second)
		checks := []core.Check{one(r, "alice"), one(other, "alice")}
		checks[0].Cost = e.cost
		var verdict core.Verdict
		if err := limiter.Decide(checks, false, &verdict); err != nil {
			s.t.Fatal(err)
		}
		d := checks[0].Decision
		if verdict.Outcome != core.Allow || verdict.Delay != 0 || verdict.Reserved || checks[0].Ticket != 0 || checks[1].Decision.Remaining != int64(999-i) {
			s.t.Fatalf("request %d, at %d s: %+v, %+v, and the other rule says %+v; want it to pass at once", i+1, e.at, verdict, checks[0], checks[1].Decision)
		}
		delay, retry := int64(e.departs*float64(second))-e.at*second, int64(0)
		if e.rejectedUntil != 0 {
			delay, retry = 0, int64(e.rejectedUntil*float64(second))
		}
		if e.rejectedUntil < 0 {
			retry = rate.Never
		}
		if d.Allowed != (retry == 0) || d.Delay != delay || d.RetryAfter != retry {
			s.t.Fatalf("request %d, at %d s: the shadow says %+v; want a delay of %d, or a retry after %d", i+1, e.at, d, delay, retry)
		}
	}
}

// aCostlyRequestIsNotOvertaken: a request that would have room now waits behind one that has not.
func aCostlyRequestIsNotOvertaken(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "costly", Limit: v.delaying(s.t, 4, 10*second, minute)})
	s.take(r, "alice", 3)
	costly := s.take(r, "alice", 3)
	cheap := s.take(r, "alice", 1)
	want := 10 * second
	cheapest := want
	if v.name == "token_bucket" { // two drain in 5 seconds, and one more in 2.5
		want = 5 * second
		cheapest = 7500 * second / 1000
	}
	s.is("3 of 4, 3 being used", costly, rate.Decision{Allowed: true, Limit: 4, Delay: want})
	s.is("1 behind it", cheap, rate.Decision{Allowed: true, Limit: 4, Delay: cheapest})
}

func peeksTakeNoTurn(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "peeks", Limit: v.delaying(s.t, 1, 10*second, 15*second)})
	s.take(r, "alice", 1)
	for i := 0; i < 4; i++ {
		s.is("a peek", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 1, Delay: 10 * second})
	}
	s.is("the second", s.take(r, "alice", 1), rate.Decision{Allowed: true, Limit: 1, Delay: 10 * second})
	s.is("a peek behind it", s.peek(r, "alice", 1), rate.Decision{Limit: 1, RetryAfter: 5 * second})
}

func anotherRulesRejectionTakesNoTurn(s *scene, v, w variant) {
	r := s.open(core.RuleConfig{Name: "innocent", Limit: v.delaying(s.t, 1, 10*second, minute)})
	other := s.open(core.RuleConfig{Name: "other", Limit: w.limit(s.t, 2, hour)})
	s.exhaust(other, "alice", 2)
	s.take(r, "alice", 1)
	for i := 0; i < 4; i++ {
		checks := s.request(one(r, "alice"), one(other, "alice"))
		if d := checks[0].Decision; !d.Allowed || d.Delay != 0 || checks[1].Decision.Allowed || len(core.AppendReservations(nil, checks)) > 0 {
			s.t.Fatalf("beside a rule that rejects: %+v, %+v", checks[0], checks[1])
		}
	}
	s.is("the next", s.take(r, "alice", 1), rate.Decision{Allowed: true, Limit: 1, Delay: 10 * second})
}

// otherRulesKeepTheirUnitsReserved from the decision until the departure, when they are charged.
func otherRulesKeepTheirUnitsReserved(s *scene, v, w variant) {
	slow := s.open(core.RuleConfig{Name: "slow", Limit: v.delaying(s.t, 1, 10*second, minute)})
	wide := s.tracking(core.RuleConfig{Name: "wide", Limit: w.limit(s.t, 3, hour)})
	s.take(slow, "alice", 1)
	checks := s.request(one(wide, "carol"), one(slow, "alice"))
	s.is("the rule that delays it", checks[1].Decision, rate.Decision{Allowed: true, Limit: 1, Delay: 10 * second})
	s.is("the one that does not", checks[0].Decision, rate.Decision{Allowed: true, Limit: 3, Remaining: 2})
	if reservations := core.AppendReservations(nil, checks); len(reservations) != 2 || reservations[0].Cost != 1 || reservations[0].Key != "carol" {
		s.t.Fatalf("a waiting request has the reservations %+v; want a unit of one rule and a place of the other", reservations)
	}
	s.is("beside what is reserved", s.take(wide, "carol", 1), rate.Decision{Allowed: true, Limit: 3, Remaining: 1})
	s.is("beside what is reserved", s.take(wide, "carol", 1), rate.Decision{Allowed: true, Limit: 3})
	full := rate.Decision{Limit: 3, RetryAfter: 10 * second}
	s.is("where the last is reserved", s.take(wide, "carol", 1), full)
	s.clock.Add(10*second - 1)
	full.RetryAfter = 1
	s.is("a microsecond before it departs", s.take(wide, "carol", 1), full)
	s.is("another key of the rule that delays it", s.take(slow, "bob", 1), rate.Decision{Allowed: true, Limit: 1})
	s.clock.Add(1)
	d := s.take(wide, "carol", 1)
	if d.Allowed || d.RetryAfter < minute {
		s.t.Fatalf("when it has departed: %+v; want it charged", d)
	}
	if w.algorithm == rate.SlidingWindowLog { // the unit counts from the departure on
		s.clock.Set(start() + hour)
		s.is("when the two others have gone", s.take(wide, "carol", 2), rate.Decision{Allowed: true, Limit: 3})
		s.is("and the third has not", s.take(wide, "carol", 1), rate.Decision{Limit: 3, RetryAfter: 10 * second})
	}
}

// theLatestDepartureCounts: a request departs when the last of its rules lets it, and delays no other request of the rules that
// would have let it depart earlier.
func theLatestDepartureCounts(s *scene, v variant) {
	s.clock.Set(start() + 4*second) // where windows and refills of 6 seconds begin
	quick := s.open(core.RuleConfig{Name: "quick", Limit: v.delaying(s.t, 2, 6*second, minute)})
	slow := s.slow("late", 20*second, minute)
	s.take(quick, "alice", 2)
	s.take(slow, "bob", 1)
	mine := 6 * second
	if v.name == "token_bucket" {
		mine = 3 * second
	}
	a, b := s.ask(one(quick, "alice"), one(slow, "bob"), false)
	s.is("the quick rule", a.Decision, rate.Decision{Allowed: true, Limit: 2, Delay: mine})
	s.is("the slow one", b.Decision, rate.Decision{Allowed: true, Limit: 1, Delay: 20 * second})
	s.is("another of the quick rule", s.take(quick, "alice", 1), rate.Decision{Allowed: true, Limit: 2, Delay: 6 * second})
	s.is("a key of the slow rule", s.take(slow, "carol", 1), rate.Decision{Allowed: true, Limit: 1})
	s.clock.Add(20 * second) // it departs, and is charged to both
	s.is("one beside it", s.take(quick, "alice", 1), rate.Decision{Allowed: true, Limit: 2})
	s.waits("one more", s.take(quick, "alice", 1))
	s.is("the slow rule", s.take(slow, "bob", 1), rate.Decision{Allowed: true, Limit: 1, Delay: 20 * second})
}

func theLastPlaceInTheQueueIsGivenBack(s *scene, v variant) {
	for _, patience := range []int64{0, 3 * second} {
		s.clock.Set(start())
		r := s.open(core.RuleConfig{Name: "last", KeySpec: strconv.FormatInt(patience, 10), Limit: v.delaying(s.t, 1, 10*second, minute)})
		s.take(r, "alice", 1)
		var queue [][]core.Reservation
		for i := int64(1); i <= 3; i++ {
			d, h := s.reserve(r, "alice", 1)
			s.is("in the queue", d, rate.Decision{Allowed: true, Limit: 1, Delay: 10 * i * second})
			queue = append(queue, h)
		}
		s.clock.Add(patience)
		s.settle(queue[2], false)
		s.is("in place of the last", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 1, Delay: 30*second - patience})
		s.settle(queue[1], false)
		d, h := s.reserve(r, "alice", 1)
		s.is("in place of the last but one", d, rate.Decision{Allowed: true, Limit: 1, Delay: 20*second - patience})
		s.settle(h, false)
		s.settle(queue[0], false)
		s.is("in place of the first", s.take(r, "alice", 1), rate.Decision{Allowed: true, Limit: 1, Delay: 10*second - patience})
	}
}

// aPlaceInTheMiddleIsLost, except in a log, which always gives back places.
func aPlaceInTheMiddleIsLost(s *scene, v variant) {
	if v.algorithm == rate.SlidingWindowLog {
		return
	}
	r := s.open(core.RuleConfig{Name: "middle", Limit: v.delaying(s.t, 1, 10*second, minute)})
	s.take(r, "alice", 1)
	var queue [][]core.Reservation
	for i := int64(1); i <= 3; i++ {
		queue = append(queue, s.mustReserve(r, "alice", 1))
	}
	s.settle(queue[1], false)
	s.is("behind the last", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 1, Delay: 40 * second})
	s.settle(queue[2], false)
	s.is("in place of the middle, with the last", s.take(r, "alice", 1), rate.Decision{Allowed: true, Limit: 1, Delay: 20 * second})
	s.settle(queue[0], false)
	s.is("behind it", s.take(r, "alice", 1), rate.Decision{Allowed: true, Limit: 1, Delay: 30 * second})
}

func whatIsReservedComesBack(s *scene, v, w variant) {
	slow := s.open(core.RuleConfig{Name: "gone", Limit: v.delaying(s.t, 1, 10*second, minute)})
	wide := s.tracking(core.RuleConfig{Name: "reserved", Limit: w.limit(s.t, 5, hour)})
	s.take(slow, "alice", 1)
	before := s.peek(wide, "carol", 1)
	first := s.request(core.Check{Rule: wide, Key: "carol", Cost: 2}, one(slow, "alice"))
	next := s.request(core.Check{Rule: wide, Key: "carol", Cost: 3}, one(slow, "alice"))
	s.is("where all is reserved", s.take(wide, "carol", 1), rate.Decision{Limit: 5, RetryAfter: 10 * second})
	s.clock.Add(second)
	s.settle(core.AppendReservations(nil, first), false) // not the last request that waits, but the queue is that of the other rule
	s.is("where 2 came back", s.peek(wide, "carol", 1), rate.Decision{Allowed: true, Limit: 5, Remaining: 1})
	s.settle(core.AppendReservations(nil, next), false)
	s.asBefore("where all came back", before, s.peek(wide, "carol", 1))
	s.clock.Add(hour / 60)
	s.asBefore("later", before, s.peek(wide, "carol", 1))
}

// whoLeavesAfterTheClockWasSetBackDelaysNobody: the place that is given back belongs to a time that is in the future again.
func whoLeavesAfterTheClockWasSetBackDelaysNobody(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "set-back", Limit: v.delaying(s.t, 1, 10*second, minute)})
	s.take(r, "alice", 1)
	s.mustReserve(r, "alice", 1)
	last := s.mustReserve(r, "alice", 1)
	s.clock.Set(start() - hour)
	s.settle(last, false)
	if d := s.peek(r, "alice", 1); !d.Allowed || d.Delay > 20*second {
		s.t.Fatalf("%+v; want it to wait for 20 seconds at most, as those before it did", d)
	}
}

func whoHasDepartedGivesNothingBack(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "departed", Limit: v.delaying(s.t, 1, 10*second, minute)})
	wide := s.tracking(core.RuleConfig{Name: "charged", Limit: v.limit(s.t, 5, hour)})
	s.take(r, "alice", 1)
	checks := s.request(one(r, "alice"), one(wide, v.name))
	s.clock.Add(10 * second)
	s.settle(core.AppendReservations(nil, checks), false)
	s.is("the next", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 1, Delay: 10 * second})
	s.is("the rule beside it", s.peek(wide, v.name, 1), rate.Decision{Allowed: true, Limit: 5, Remaining: 3})
}

// theCandidateOfARejectionDelaysNobody: it is charged at once, and nothing is reserved.
func theCandidateOfARejectionDelaysNobody(s *scene, v, w variant) {
	slow := s.open(core.RuleConfig{Name: "shown", Limit: v.delaying(s.t, 1, 10*second, minute)})
	r, candidate := s.candidate("candidate", w.limit(s.t, 2, hour), w.limit(s.t, 5, hour))
	s.take(slow, "alice", 1)
	s.exhaust(r, "alice", 2)
	before := s.peek(candidate, "alice", 1)
	checks := s.request(one(slow, "alice"), one(r, "alice"), one(candidate, "alice"))
	if reservations := core.AppendReservations(nil, checks); len(reservations) > 0 || checks[1].Decision.Allowed || !checks[2].Decision.Allowed {
		s.t.Fatalf("a rejected request has the reservations %+v: %+v", reservations, checks)
	}
	if d := s.peek(candidate, "alice", 1); d.Remaining >= before.Remaining {
		s.t.Fatalf("its candidate: was %+v, is %+v; want it charged", before, d)
	}
}

// aLeakyBucketReservesNothing: requests wait in it, but those that leave give nothing back, and rules beside it are charged on
// arrival.
func aLeakyBucketReservesNothing(s *scene, v variant) {
	queue := s.open(core.RuleConfig{Name: "queue", Limit: variant{algorithm: rate.LeakyBucket}.limit(s.t, 4, minute)})
	r := s.open(core.RuleConfig{Name: "charged", Limit: v.limit(s.t, 3, hour), OverflowPolicy: penalized()})
	s.take(queue, "alice", 1)
	for i := int64(0); i < 3; i++ {
		checks := s.request(one(queue, "alice"), one(r, "alice"))
		s.waits("the queue", checks[0].Decision)
		if reservations := core.AppendReservations(nil, checks); len(reservations) > 0 {
			s.t.Fatalf("it has the reservations %+v", reservations)
		}
		s.is("the rule beside it", checks[1].Decision, rate.Decision{Allowed: true, Limit: 3, Remaining: 2 - i})
	}
	if d := s.take(r, "alice", 1); d.Allowed || d.RetryAfter < minute {
		s.t.Fatalf("the fourth of 3: %+v; want all three charged", d)
	}
}

// aCrowdWaits: of many at the same time, as many are allowed as depart within the longest wait, and no two get the same place.
func aCrowdWaits(s *scene, v variant) {
	c := newCrowd(s, 1, 1)
	c.ask(s.open(core.RuleConfig{Name: "crowd", Limit: v.delaying(s.t, 10, 10*second, 30*second)}))
	sort.Slice(c.delays, func(i, j int) bool { return c.delays[i] < c.delays[j] })
	if len(c.delays) != 40 {
		s.t.Fatalf("%d were admitted; want 10 at once, and the 30 of 30 seconds: %v", len(c.delays), c.delays)
	}
	for i, d := range c.delays {
		want := int64(i/10) * 10 * second
		if v.name == "token_bucket" {
			want = 0
			if i >= 10 {
				want = int64(i-9) * second
			}
		}
		if d != want {
			s.t.Fatalf("number %d waits for %d; want %d: %v", i+1, d, want, c.delays)
		}
	}
}

// departuresKeepToTheLimit: on random histories of one key, under one rule alone and with a second one. All allowed requests
// depart in the order in which they came, after at most the longest wait, and no window has more departures than the limit.
func departuresKeepToTheLimit(s *scene, v variant) {
	sizes := []struct{ units, period, longest int64 }{
		{1, second, 5 * second}, {3, 7001, 20_000}, {5, 10 * second, 10 * second}, {10, second, 300_000},
	}
	steps := times(150, 20)
	for i, size := range sizes {
		h := history{scene: s, random: uint64(i)}
		s.clock.Set(start())
		name := "random" + strconv.Itoa(i)
		r := s.open(core.RuleConfig{Name: name, Limit: v.delaying(s.t, size.units, size.period, size.longest)})
		wide := s.tracking(core.RuleConfig{Name: name + "wide", Limit: variant{algorithm: rate.SlidingWindowLog}.limit(s.t, 2*size.units, 2*size.period)})
		own := passages{fastest: size.units}
		var all passages
		last, passed := int64(0), 0 // when the last of them departs, and how many do
		for n := 0; n < steps; n++ {
			s.clock.Add(h.below(2*size.period/size.units + 2))
			if h.below(20) == 0 {
				s.clock.Add(h.below(2*size.period + size.longest))
			}
			now := s.clock.Now()
			cost := 1 + h.below(size.units)
			if h.below(3) > 0 {
				cost = 1
			}
			checks := []core.Check{{Rule: r, Key: "alice", Cost: cost}}
			if h.below(2) == 0 {
				checks = append(checks, core.Check{Rule: wide, Key: "alice", Cost: cost})
			}
			s.decide(checks, false)
			if len(checks) == 2 && !checks[1].Decision.Allowed {
				continue
			}
			d := checks[0].Decision
			if !d.Allowed {
				if d.RetryAfter <= 0 || d.Delay != 0 {
					s.t.Fatalf("%s at %d: %+v", r.Limit, now, d)
				}
				continue
			}
			if d.Delay < 0 || d.Delay > size.longest {
				s.t.Fatalf("%s at %d: %+v; it waits for longer than %d", r.Limit, now, d, size.longest)
			}
			if last > now+d.Delay {
				s.t.Fatalf("%s at %d: %+v; the one before it departs at %d", r.Limit, now, d, last)
			}
			if h.below(8) == 0 && d.Delay > 0 { // the client leaves at once
				s.settle(core.AppendReservations(nil, checks), false)
				continue
			}
			last = now + d.Delay
			passed++
			own.add(s.t, r.Limit, size.units, last, cost)
			if len(checks) == 2 {
				all.add(s.t, wide.Limit, 2*size.units, last, cost)
			}
		}
		if passed < steps/4 {
			s.t.Fatalf("%s: only %d of %d were allowed", r.Limit, passed, steps)
		}
	}
}
