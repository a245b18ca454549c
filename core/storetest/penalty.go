package storetest

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// testPenalty: a key that exceeds the limit of a rule with penalties is blocked, for longer each time.
func testPenalty(t *testing.T, newStore NewStore) {
	each(t, newStore, "", withOwnWindows(), offendersAreBlockedForLongerEachTime, offendersStartOverAfterAQuietTime, whoIsBlockedIsChargedNothing,
		peeksAreNoOffence, onlyTheRulesOwnRejectionIsAnOffence, whatCanNeverBeAdmittedIsNoOffence, theLimitMayHaveOneWaitLonger,
		keysAreBlockedAndUnblockedByHand, whereThereIsNoPenaltyAnyMoreNobodyIsBlocked)
	each(t, newStore, "with tolerance, ", but(rate.LeakyBucket), toleratedRequestsAreNoOffence)
	each(t, newStore, "all at once, ", variants(), aCrowdOffendsOnce)
}

// aCrowdOffendsOnce: however many requests are rejected, only the first is an offence, and blocks the others.
func aCrowdOffendsOnce(s *scene, v variant) {
	c := newCrowd(s, 10, 2)
	r := s.open(core.RuleConfig{Name: "crowd", Limit: v.limit(s.t, c.quarter, second), OverflowPolicy: penalized()})
	c.ask(r)
	c.wants("the limit", c.quarter)
	s.is("after the crowd", s.peek(r, "everybody", 1), rate.Decision{Limit: r.Limit.Quota, RetryAfter: 10 * second})
	s.clock.Add(40 * second) // a leaky bucket's queue is empty by then, too
	for i := int64(0); i < c.quarter; i++ {
		s.take(r, "everybody", 1)
	}
	s.is("the second offence", s.take(r, "everybody", 1), offence(r, minute))
}

func penalized() core.OverflowPolicy {
	return core.OverflowPolicy{Penalties: []time.Duration{10 * time.Second, time.Minute}}
}

// penal opens a rule of 3 units a second, with penalties of 10 seconds and then a minute.
func (s *scene) penal(v variant, name string) *core.Rule {
	s.t.Helper()
	return s.open(core.RuleConfig{Name: name, Limit: v.limit(s.t, 3, second), OverflowPolicy: penalized()})
}

// offend exceeds the limit with a new key, and wants a penalty of that duration.
func (s *scene) offend(what string, r *core.Rule, key string, span int64) {
	s.t.Helper()
	s.exhaust(r, key, 3)
	s.is(what, s.take(r, key, 1), offence(r, span))
}

// offence returns the decision that begins a penalty of that duration, and blockedFor the one during a block that lasts that much
// longer.
func offence(r *core.Rule, span int64) rate.Decision {
	d := blockedFor(r, span)
	d.Penalty = true
	return d
}

func blockedFor(r *core.Rule, span int64) rate.Decision {
	return rate.Decision{Limit: r.Limit.Quota, RetryAfter: span}
}

func offendersAreBlockedForLongerEachTime(s *scene, v variant) {
	r := s.penal(v, "longer")
	s.offend("the first offence", r, "alice", 10*second)
	s.clock.Add(5 * second)
	s.is("a blocked key", s.take(r, "alice", 1), blockedFor(r, 5*second))
	s.clock.Add(5*second - 1)
	s.is("a blocked key", s.take(r, "alice", 1), blockedFor(r, 1))
	s.clock.Add(1)
	s.offend("the second offence", r, "alice", minute)
	s.exhaust(r, "bob", 3) // another key is not blocked
	s.clock.Add(minute - 1)
	s.is("a blocked key", s.take(r, "alice", 2), blockedFor(r, 1))
	s.clock.Add(1)
	s.offend("the third offence", r, "alice", minute)
	s.clock.Add(minute)
	s.offend("the fourth offence", r, "alice", minute)
}

// offendersStartOverAfterAQuietTime: as long as the longest penalty, from the end of the last.
func offendersStartOverAfterAQuietTime(s *scene, v variant) {
	r := s.penal(v, "quiet")
	for _, key := range []string{"early", "in time"} {
		s.clock.Set(start())
		s.offend("the first offence", r, key, 10*second)
		s.clock.Add(10 * second)
		s.offend("the second offence", r, key, minute)
		s.clock.Add(2*minute - 1)
		if key == "early" {
			s.offend("a microsecond too early to start over", r, key, minute)
		} else {
			s.clock.Add(1)
			s.offend("a key that starts over", r, key, 10*second)
			s.clock.Add(10 * second)
			s.offend("the second offence again", r, key, minute)
		}
	}
}

func whoIsBlockedIsChargedNothing(s *scene, v variant) {
	for _, counted := range []bool{false, true} {
		name := "nothing"
		if counted {
			name = "nothing, counted"
		}
		penalty := core.OverflowPolicy{Penalties: []time.Duration{2 * time.Hour}}
		r := s.open(core.RuleConfig{Name: "nothing", KeySpec: name, Limit: v.limit(s.t, 3, minute), CountRejected: counted, OverflowPolicy: penalty})
		other := s.open(core.RuleConfig{Name: "other", KeySpec: name, Limit: v.limit(s.t, 5, 3*hour)})
		s.exhaust(r, "alice", 3)
		s.is("the offence", s.take(r, "alice", 1), offence(r, 2*hour))
		s.clock.Add(2*hour - second)
		for i := 0; i < 10; i++ {
			s.is("a blocked key", s.take(r, "alice", 1), blockedFor(r, second))
			d, o := s.both(r, other, "alice", i%2 == 1, false)
			s.is("a blocked key", d, blockedFor(r, second))
			s.is("the other rule", o, rate.Decision{Allowed: true, Limit: other.Limit.Quota, Remaining: other.Limit.Quota})
		}
		s.clock.Add(second)
		s.exhaust(r, "alice", 3)
	}
}

func peeksAreNoOffence(s *scene, v variant) {
	r := s.penal(v, "peeks")
	s.exhaust(r, "alice", 3)
	for i := 0; i < 3; i++ {
		if d := s.peek(r, "alice", 1); d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > 2*second {
			s.t.Fatalf("a peek past the limit: %+v; want no, and the wait of the limit", d)
		}
	}
	s.clock.Add(4 * second)
	s.offend("the first offence", r, "alice", 10*second)
	s.clock.Add(5 * second)
	s.is("a peek at a blocked key", s.peek(r, "alice", 1), blockedFor(r, 5*second))
	s.clock.Add(5 * second)
	s.offend("the second offence", r, "alice", minute)
}

func onlyTheRulesOwnRejectionIsAnOffence(s *scene, v variant) {
	r := s.penal(v, "own")
	other := s.open(core.RuleConfig{Name: "other", Limit: v.limit(s.t, 2, hour)})
	s.exhaust(other, "alice", 2)
	before := s.peek(r, "alice", 1)
	for i := 0; i < 8; i++ {
		d, o := s.both(r, other, "alice", i%2 == 1, false)
		if !d.Allowed || o.Allowed || d.RetryAfter != 0 {
			s.t.Fatalf("beside a rule that rejects: %+v, and the other %+v", d, o)
		}
	}
	s.asBefore("what the others' rejections have not changed", before, s.peek(r, "alice", 1))

	// If both reject, it is one offence.
	s.exhaust(r, "alice", 3)
	d, _ := s.both(r, other, "alice", false, false)
	s.is("an offence that another rule rejects too", d, offence(r, 10*second))
	s.clock.Add(10 * second)
	s.offend("the second offence", r, "alice", minute)
}

func whatCanNeverBeAdmittedIsNoOffence(s *scene, v variant) {
	r := s.penal(v, "never")
	for _, cost := range []int64{4, rate.Unaffordable} {
		s.never("more than 3, of 3", s.take(r, "alice", cost))
	}
	s.offend("the first offence", r, "alice", 10*second)
	s.never("a blocked key, a cost that can never be allowed", s.take(r, "alice", rate.Unaffordable))
}

func theLimitMayHaveOneWaitLonger(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "short", Limit: v.limit(s.t, 3, hour), OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Second}}})
	s.exhaust(r, "alice", 3)
	wait := s.peek(r, "alice", 1).RetryAfter
	if wait <= second {
		s.t.Fatalf("the limit makes it wait for %d", wait)
	}
	s.is("an offence", s.take(r, "alice", 1), offence(r, wait))
	s.clock.Add(second)
	s.is("another", s.take(r, "alice", 1), offence(r, wait-second))
}

func keysAreBlockedAndUnblockedByHand(s *scene, v variant) {
	r := s.penal(v, "by-hand")
	s.block(r, "alice", 0) // unblocking a key that is not blocked changes nothing
	s.block(r, "alice", minute)
	s.is("blocked by hand", s.take(r, "alice", 1), blockedFor(r, minute))
	s.yes("another key", s.take(r, "bob", 1), whatever)
	s.block(r, "alice", 5*second)
	s.is("blocked for less", s.take(r, "alice", 1), blockedFor(r, 5*second))
	s.clock.Add(5*second - 1)
	s.is("a blocked key", s.take(r, "alice", 1), blockedFor(r, 1))
	s.clock.Add(1)
	s.offend("the first offence", r, "alice", 10*second)
	s.block(r, "alice", 0)
	if d := s.peek(r, "alice", 1); d.Allowed || d.RetryAfter > 2*second {
		s.t.Fatalf("after unblocking: %+v; want the key still over its limit", d)
	}
	s.clock.Add(4 * second)
	s.offend("the first offence again, the other being forgotten", r, "alice", 10*second)
	s.block(r, "alice", hour)
	s.is("blocked for more", s.take(r, "alice", 1), blockedFor(r, hour))
	s.clock.Add(hour)
	s.offend("the second offence", r, "alice", minute)
}

func toleratedRequestsAreNoOffence(s *scene, v variant) {
	c := penalized()
	c.SoftPercent = 50
	c.SoftFor = time.Minute
	r := s.open(core.RuleConfig{Name: "tolerant", Limit: v.limit(s.t, 4, second), OverflowPolicy: c})
	s.use(r, "alice", 4)
	for i := 0; i < 2; i++ {
		s.is("past the limit, on tolerance", s.take(r, "alice", 1), softYes)
	}
	s.is("past the tolerance", s.take(r, "alice", 1), offence(r, 10*second))
	s.clock.Add(second)
	s.is("a blocked key", s.take(r, "alice", 1), blockedFor(r, 9*second))
}

// whereThereIsNoPenaltyAnyMoreNobodyIsBlocked: a reload has removed the penalties from a rule that still has an overflow policy.
func whereThereIsNoPenaltyAnyMoreNobodyIsBlocked(s *scene, v variant) {
	before := s.open(core.RuleConfig{Namespace: "gone", Name: "penal", Limit: v.limit(s.t, 3, second), OverflowPolicy: penalized()})
	after := s.open(core.RuleConfig{Namespace: "gone", Name: "penal", Limit: v.limit(s.t, 3, second)})
	after.TrackReservations()
	s.exhaust(before, "alice", 3)
	if d := s.take(before, "alice", 1); d.Allowed || d.RetryAfter < 10*second {
		s.t.Fatalf("%s, past the limit: %+v; want a penalty", v.name, d)
	}
	s.clock.Add(5 * second) // the limit is whole again, and the penalty is not over
	s.no("blocked", s.take(before, "alice", 1), whatever)
	s.yes("without penalties", s.take(after, "alice", 1), whatever)
}
