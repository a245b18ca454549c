package storetest

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// testSoft: past its limit, a rule with enforcement soft allows some percent more for a time. Then it allows no more, until no
// request has exceeded the limit for a whole period.
func testSoft(t *testing.T, newStore NewStore) {
	each(t, newStore, "", but(rate.LeakyBucket), toleranceBeginsAndEnds, toleranceComesAgainAfterAQuietPeriod, toleranceDoesNotComeAgainBeforeItsDebtIsPaid,
		toleranceIsForEachKey, costsAboveOneAreTolerated, whatToleranceDoesNotHelpDoesNotBeginIt, peeksBeginNoTolerance, anotherRulesRejectionBeginsNoTolerance,
		retryInToleranceComesTrue, tolerancePastASecondRuleIsCharged, whatToleranceHasReservedLeavesNoLessThanNothing, whatToleranceAdmittedDrainsAsTheLimitSays,
		whatDepartsAfterToleranceIsOwedBesideTheRest)
	each(t, newStore, "all at once, ", but(rate.LeakyBucket), aCrowdIsTolerated)
}

// aCrowdIsTolerated: exactly the limit and the tolerance are allowed, however many ask at the same time.
func aCrowdIsTolerated(s *scene, v variant) {
	c := newCrowd(s, 10, 2)
	c.ask(s.open(core.RuleConfig{Name: "crowd", Limit: v.limit(s.t, c.quarter, hour), OverflowPolicy: tolerant(50, 10*time.Second)}))
	c.wants("the limit and half of it", c.quarter+c.quarter/2)
}

func tolerant(percent int64, span time.Duration) core.OverflowPolicy {
	return core.OverflowPolicy{SoftPercent: percent, SoftFor: span}
}

// soft opens a rule of 4 units in a period, and 2 more for 10 seconds. In a period of an hour, no unit comes back during a test.
func (s *scene) soft(v variant, name string, period int64) *core.Rule {
	s.t.Helper()
	return s.open(core.RuleConfig{Name: name, Limit: v.limit(s.t, 4, period), OverflowPolicy: tolerant(50, 10*time.Second)})
}

// use takes as many units as the limit has, one by one.
func (s *scene) use(r *core.Rule, key string, units int64) {
	s.t.Helper()
	for i := int64(0); i < units; i++ {
		d := s.take(r, key, 1)
		if !d.Allowed || d.Soft {
			s.t.Fatalf("%s, %s: unit %d of %d: %+v; want it within the limit", r.Identity, key, i+1, units, d)
		}
	}
}

var (
	softYes = rate.Decision{Allowed: true, Soft: true, Limit: 4}
	softNo  = rate.Decision{Limit: 4, RetryAfter: some}
)

func toleranceBeginsAndEnds(s *scene, v variant) {
	r := s.soft(v, "begins", hour)
	for i := int64(0); i < 4; i++ {
		s.is("within the limit", s.take(r, "alice", 1), rate.Decision{Allowed: true, Limit: 4, Remaining: 3 - i})
	}
	s.is("the fifth of 4", s.take(r, "alice", 1), softYes)
	s.is("the sixth of 4", s.take(r, "alice", 1), softYes)
	s.is("the seventh, of 4 and 2 more", s.take(r, "alice", 1), softNo)

	// Tolerance ends when its time is over, counted from the first request that exceeded the limit.
	s.use(r, "in time", 4)
	s.use(r, "late", 4)
	s.is("the fifth", s.take(r, "in time", 1), softYes)
	s.is("the fifth", s.take(r, "late", 1), softYes)
	s.clock.Add(10*second - 1)
	s.is("in the last microsecond", s.take(r, "in time", 1), softYes)
	s.clock.Add(1)
	s.is("after the last microsecond", s.take(r, "late", 1), softNo)
}

// toleranceComesAgainAfterAQuietPeriod: in a quiet period no request would have exceeded the limit, whether it was allowed or
// not.
func toleranceComesAgainAfterAQuietPeriod(s *scene, v variant) {
	r := s.soft(v, "again", minute)
	for _, key := range []string{"early", "in time"} {
		s.clock.Set(start())
		s.use(r, key, 4)
		s.is("the fifth", s.take(r, key, 1), softYes)
		s.clock.Add(59 * second) // a second before tolerance is available again
		room := int64(0)
		if d := s.peek(r, key, 1); d.Allowed {
			room = d.Remaining + 1
		}
		if room == 4 { // more than that can never be allowed
			s.use(r, key, 1)
			room = 3
		}
		s.is("one more than there is, a second before a minute was quiet", s.take(r, key, room+1), rate.Decision{Limit: 4, Remaining: room, RetryAfter: some})
		s.clock.Add(minute - 1)
		if key == "in time" {
			s.clock.Add(1)
		}
		s.use(r, key, 4)
		if key == "early" {
			s.is("a microsecond before a minute was quiet", s.take(r, key, 1), softNo)
		} else {
			s.is("when a minute was quiet", s.take(r, key, 1), softYes)
		}
	}
}

// toleranceDoesNotComeAgainBeforeItsDebtIsPaid: a silent client is allowed after the last RetryAfter, and not on tolerance
// before, however many periods that takes.
func toleranceDoesNotComeAgainBeforeItsDebtIsPaid(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "debt", Limit: v.limit(s.t, 4, minute), OverflowPolicy: tolerant(500, 10*time.Second)})
	s.use(r, "alice", 4)
	for i := 0; i < 20; i++ {
		s.is("of the 20 that tolerance gives", s.take(r, "alice", 1), softYes)
	}
	s.clock.Add(10 * second)
	d := s.take(r, "alice", 1)
	s.is("after tolerance", d, softNo)
	for waited := int64(0); waited < d.RetryAfter-1; {
		step := minute
		if step > d.RetryAfter-1-waited {
			step = d.RetryAfter - 1 - waited
		}
		waited += step
		s.clock.Add(step)
		s.is("before RetryAfter", s.peek(r, "alice", 1), rate.Decision{Limit: 4, RetryAfter: d.RetryAfter - waited})
	}
	s.clock.Add(1)
	s.use(r, "alice", 1)
}

func toleranceIsForEachKey(s *scene, v variant) {
	r := s.soft(v, "keys", hour)
	s.use(r, "alice", 4)
	s.is("the fifth", s.take(r, "alice", 1), softYes)
	s.clock.Add(10 * second)
	s.is("alice, whose time is over", s.take(r, "alice", 1), softNo)
	s.use(r, "bob", 4)
	s.is("bob, whose time has not begun", s.take(r, "bob", 1), softYes)
}

func costsAboveOneAreTolerated(s *scene, v variant) {
	r := s.soft(v, "costs", hour)
	s.is("3 of 4", s.take(r, "alice", 3), rate.Decision{Allowed: true, Limit: 4, Remaining: 1})
	s.is("2, one of them more than 4", s.take(r, "alice", 2), softYes)
	s.is("2, one of them more than 4 and 2", s.take(r, "alice", 2), softNo)
	s.is("the last", s.take(r, "alice", 1), softYes)
	s.is("one more", s.take(r, "alice", 1), softNo)
}

// whatToleranceDoesNotHelpDoesNotBeginIt: nor does it prevent tolerance from beginning later.
func whatToleranceDoesNotHelpDoesNotBeginIt(s *scene, v variant) {
	r := s.soft(v, "helpless", hour)
	s.use(r, "alice", 4)
	s.is("3 more than 4, of 2", s.take(r, "alice", 3), softNo)
	s.clock.Add(5 * second)
	s.is("the fifth", s.take(r, "alice", 1), softYes)
	s.clock.Add(10*second - 1)
	s.is("in the last microsecond since then", s.take(r, "alice", 1), softYes)
}

func peeksBeginNoTolerance(s *scene, v variant) {
	r := s.soft(v, "peeks", hour)
	s.use(r, "alice", 4)
	for i := 0; i < 4; i++ {
		s.is("a peek past the limit", s.peek(r, "alice", 1+int64(i%2)), softYes)
	}
	s.clock.Add(10 * second)
	s.is("the fifth", s.take(r, "alice", 1), softYes)
	s.clock.Add(10*second - 1)
	s.is("in the last microsecond since then", s.take(r, "alice", 1), softYes)

	// Nor does it put off the next tolerance.
	s.clock.Set(start())
	r = s.soft(v, "peeks-later", minute)
	s.use(r, "alice", 4)
	s.is("the fifth", s.take(r, "alice", 1), softYes)
	s.clock.Add(30 * second)
	s.peek(r, "alice", 4)
	s.clock.Add(2*minute - 30*second)
	s.use(r, "alice", 4)
	s.is("when more than a minute was quiet", s.take(r, "alice", 1), softYes)
}

func anotherRulesRejectionBeginsNoTolerance(s *scene, v variant) {
	r := s.soft(v, "innocent", hour)
	other := s.open(core.RuleConfig{Name: "other", Limit: v.limit(s.t, 2, hour)})
	s.exhaust(other, "alice", 2)
	s.use(r, "alice", 4)
	before := s.peek(r, "alice", 1)
	for i := 0; i < 6; i++ {
		d, o := s.both(r, other, "alice", i%2 == 1, false)
		s.is("past the limit, beside a rule that rejects", d, rate.Decision{Allowed: true, Limit: 4})
		if o.Allowed {
			s.t.Fatalf("the rule that is exhausted says %+v", o)
		}
	}
	s.asBefore("what none of them has changed", before, s.peek(r, "alice", 1))
	s.clock.Add(5 * second)
	s.is("the fifth", s.take(r, "alice", 1), softYes)
	s.clock.Add(10*second - 1)
	s.is("in the last microsecond since then", s.take(r, "alice", 1), softYes)
}

// retryInToleranceComesTrue: even if the units that the client waits for would come at the end of tolerance, and then do not
// suffice.
func retryInToleranceComesTrue(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "honest", Limit: v.limit(s.t, 4, minute), OverflowPolicy: tolerant(50, 59*time.Second)})
	s.use(r, "alice", 1)
	s.clock.Add(second)
	s.use(r, "alice", 3)
	var d rate.Decision
	for i := 0; i < 3 && (i == 0 || d.Allowed); i++ { // a bucket has a little more by now
		d = s.take(r, "alice", 1)
	}
	s.is("the seventh", d, softNo)
	s.comesTrue(r, "alice", 1, d, d.RetryAfter)
}

// tolerancePastASecondRuleIsCharged: a request that tolerance allows, and that waits for another rule, is charged at its
// departure.
func tolerancePastASecondRuleIsCharged(s *scene, v variant) {
	r := s.soft(v, "departs", hour)
	slow := s.slow("slow", 10*second, minute)
	s.use(r, "alice", 4)
	s.is("the fifth", s.take(r, "alice", 1), softYes)
	s.take(slow, "alice", 1)
	s.clock.Add(second)
	a, b := s.ask(one(r, "alice"), one(slow, "alice"), false)
	s.is("the sixth", a.Decision, softYes)
	s.is("the slow rule", b.Decision, rate.Decision{Allowed: true, Limit: 1, Delay: 9 * second})
	s.is("the seventh, the sixth waiting", s.peek(r, "alice", 1), rate.Decision{Limit: 4, RetryAfter: some})
	s.clock.Add(9*second - 1)
	s.is("the seventh, a microsecond before the sixth departs", s.peek(r, "alice", 1), rate.Decision{Limit: 4, RetryAfter: some})
	s.clock.Set(start() + 10*second)
	s.is("the seventh, after tolerance", s.take(r, "alice", 1), softNo)

	// The same, while the tolerance lasts.
	s.clock.Set(start())
	r = s.open(core.RuleConfig{Name: "goes-on", Limit: v.limit(s.t, 4, hour), OverflowPolicy: tolerant(50, time.Minute)})
	s.use(r, "bob", 4)
	s.is("the fifth", s.take(r, "bob", 1), softYes)
	s.take(slow, "bob", 1)
	a, _ = s.ask(one(r, "bob"), one(slow, "bob"), false)
	s.is("the sixth", a.Decision, softYes)
	s.clock.Add(10 * second)
	s.is("the seventh, the sixth having departed", s.take(r, "bob", 1), softNo)
}

// whatToleranceHasReservedLeavesNoLessThanNothing: tolerance has allowed waiting requests, so that more than the limit is
// reserved. If another rule rejects a request, Remaining is 0 and not negative.
func whatToleranceHasReservedLeavesNoLessThanNothing(s *scene, v variant) {
	r := s.soft(v, "none-left", hour)
	slow := s.slow("slow-beside", 10*second, minute)
	other := s.open(core.RuleConfig{Name: "other-beside", Limit: v.limit(s.t, 2, hour)})
	s.exhaust(other, "alice", 2)
	s.use(r, "alice", 4)
	s.take(slow, "alice", 1)
	a, _ := s.ask(one(r, "alice"), one(slow, "alice"), false)
	s.is("the fifth, which waits for the slow rule", a.Decision, softYes)
	d, _ := s.both(r, other, "alice", false, false)
	s.is("beside a rule that rejects, with one unit reserved past the limit", d, rate.Decision{Allowed: true, Limit: 4})
}

// whatToleranceAdmittedDrainsAsTheLimitSays: when tolerance is over, a bucket drains at the limit's own rate, and its state is
// kept for as long as that takes.
func whatToleranceAdmittedDrainsAsTheLimitSays(s *scene, v variant) {
	if v.algorithm != rate.TokenBucket { // others release all of it at once
		return
	}
	r := s.soft(v, "drains", hour)
	s.use(r, "alice", 4)
	s.is("the fifth", s.take(r, "alice", 1), softYes)
	s.is("the sixth", s.take(r, "alice", 1), softYes)
	s.clock.Add(hour + 10*minute) // in which 4 of the 6 have drained, or a part of one more
	s.is("after an hour, with two units still used", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 4, Remaining: 1})
	s.clock.Add(hour)
	s.is("after two", s.peek(r, "alice", 1), rate.Decision{Allowed: true, Limit: 4, Remaining: 3})
}

// whatDepartsAfterToleranceIsOwedBesideTheRest: a request that tolerance has allowed departs when tolerance is over. It is
// charged to the bucket in addition to all that tolerance has lent, whichever rule looks first: this one, or one without
// tolerance that shares its counter.
func whatDepartsAfterToleranceIsOwedBesideTheRest(s *scene, v variant) {
	if v.algorithm != rate.TokenBucket || v.interval { // others lend nothing, or not in seconds
		return
	}
	s.clock.Set(start())
	soft := s.tracking(core.RuleConfig{Name: "after", Limit: v.limit(s.t, 20, 20*second), OverflowPolicy: tolerant(100, 5*time.Second)})
	twin := s.tracking(core.RuleConfig{Name: "after", Limit: v.limit(s.t, 20, 20*second)})
	slow := s.slow("slow-after", 10*second, minute)
	for i, first := range []*core.Rule{soft, twin} {
		s.clock.Set(start())
		key := []string{"alice", "bob"}[i]
		s.take(soft, key, 20)
		s.is("20 more than 20", s.take(soft, key, 20), rate.Decision{Allowed: true, Soft: true, Limit: 20})
		s.take(slow, key, 1)
		s.clock.Add(4 * second)
		s.is("7 of the 8 that 4 seconds have refilled, 4 of which are lent", s.take(soft, key, 7), rate.Decision{Allowed: true, Soft: true, Limit: 20})
		a, b := s.ask(one(soft, key), one(slow, key), false)
		s.is("the eighth", a.Decision, rate.Decision{Allowed: true, Soft: true, Limit: 20})
		s.is("the slow rule", b.Decision, rate.Decision{Allowed: true, Limit: 1, Delay: 6 * second})
		s.clock.Add(6*second + 1)
		s.peek(first, key, 1)
		s.clock.Set(start() + 29*second - 1)
		s.is("48 have been allowed, and 29 seconds have drained, but for a microsecond", s.peek(twin, key, 1), rate.Decision{Limit: 20, RetryAfter: 1})
		s.clock.Add(1)
		s.is("48 have been allowed, and 29 seconds have drained", s.peek(twin, key, 1), rate.Decision{Allowed: true, Limit: 20})
	}
}
