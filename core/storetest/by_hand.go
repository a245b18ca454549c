package storetest

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// testByHand: keys of every rule can be blocked, unblocked and reset by hand.
func testByHand(t *testing.T, newStore NewStore) {
	each(t, newStore, "", variants(), everyRuleCanBeBlockedAndReset, aRejectionDoesNotEndABlock, aShadowOnlyReportsABlock, aReloadDoesNotEndABlock,
		aBlockIsNoOffenceAndTakesThePlaceOfAPenalty, severalRulesOfWhichOneHasBlockedAKey, aResetForgetsOffences, aBlockIsToldFromALimitThatIsUsedUp)
	each(t, newStore, "of requests counted by status, ", but(rate.LeakyBucket), whatIsCountedByStatusSurvivesAReset, aRequestThatEndsHasABlockStepBack)
	each(t, newStore, "of requests that wait, ", waiters(), aBlockIsNoDeparture, departuresSurviveAReset)
	eachPair(t, newStore, waiters(), but(rate.LeakyBucket), chargesToComeSurviveAReset, whoDepartsBeforeABlockEndsIsNotCharged)
	t.Run("of requests in flight", func(t *testing.T) { placesSurviveBlocksAndResets(newScene(t, newStore)) })
}

// aBlockIsToldFromALimitThatIsUsedUp, also of a single unit, and with a queue.
func aBlockIsToldFromALimitThatIsUsedUp(s *scene, v variant) {
	for name, units := range map[string]int64{"one": 1, "three": 3} {
		limits := map[string]*rate.Limit{name: v.limit(s.t, units, hour)}
		if v.algorithm.Named() != rate.SlidingWindowCounter {
			limits["queue-"+name] = v.delaying(s.t, units, hour, hour)
		}
		for name, limit := range limits {
			r := s.open(core.RuleConfig{Name: name, Limit: limit})
			blocked := func(what string, want int64) {
				s.t.Helper()
				if left, err := core.NewLimiter(s.store).BlockedFor(r, "alice"); err != nil || left != want {
					s.t.Fatalf("%s, %s: blocked for %d, %v; want %d", name, what, left, err, want)
				}
			}
			s.clock.Set(start())
			blocked("a new key", 0)
			for i := int64(0); i < units+2; i++ {
				s.take(r, "alice", 1)
				blocked("a key that has used some", 0)
			}
			s.block(r, "alice", 90*minute)
			blocked("a blocked key", 90*minute)
			s.clock.Add(89 * minute)
			blocked("a blocked key at the end", minute)
			s.clock.Add(minute)
			blocked("after the block", 0)
		}
	}
}

// policed is a rule with some overflow policy. Its limit allows a new key 3 units at once, and no more for an hour.
type policed struct {
	name string
	rule *core.Rule
}

// everyRuleCanBeBlockedAndReset, whatever its overflow policy.
func everyRuleCanBeBlockedAndReset(s *scene, v variant) {
	for _, c := range s.rulesOfAllPolicies(v) {
		s.clock.Set(start())
		aKeyBlockedByHandIsRejected(s, c)
		aKeyBlockedByHandIsUnblocked(s, c)
		aBlockLastsNoLongerThanItWasTo(s, c)
		aResetForgets(s, c)
	}
}

// rulesOfAllPolicies opens a rule for each overflow policy that the algorithm can have.
func (s *scene) rulesOfAllPolicies(v variant) []policed {
	s.t.Helper()
	limit := v.limit(s.t, 3, hour)
	var list []policed
	add := func(name string, c core.RuleConfig) {
		c.Name = name
		c.KeySpec = "client_ip"
		if c.Limit == nil {
			c.Limit = limit
		}
		r, err := core.NewRule(c)
		if err != nil {
			return // the algorithm cannot have it
		}
		if name == "tracks" {
			r.TrackReservations()
		}
		list = append(list, policed{name: name, rule: s.opened(r)})
	}
	add("plain", core.RuleConfig{})
	add("counts-rejected", core.RuleConfig{CountRejected: true})
	add("penal", core.RuleConfig{OverflowPolicy: penalized()})
	add("soft", core.RuleConfig{OverflowPolicy: core.OverflowPolicy{SoftPercent: 100, SoftFor: time.Minute}})
	add("counts", core.RuleConfig{OverflowPolicy: core.OverflowPolicy{Count: statuses(s.t, "401")}})
	add("tracks", core.RuleConfig{})
	if v.algorithm.Named() != rate.SlidingWindowCounter {
		add("delays", core.RuleConfig{Limit: v.delaying(s.t, 3, hour, hour)})
	}
	add("in-flight", core.RuleConfig{Limit: s.inFlight(3)})
	return list
}

// spend takes a unit of a key, which must be allowed, and gives it back if it was only reserved.
func (s *scene) spend(c policed, key string) {
	s.t.Helper()
	d, reservations := s.reserve(c.rule, key, 1)
	s.yes(c.name+", a unit of "+key, d, whatever)
	s.settle(reservations, c.name == "counts")
}

// isFresh fails unless a key's state is that of a key that was never seen.
func (s *scene) isFresh(what string, c policed, key string) {
	s.t.Helper()
	for cost := int64(1); cost <= 4; cost++ {
		want := s.peek(c.rule, "never seen", cost)
		if got := s.peek(c.rule, key, cost); got != want {
			s.t.Fatalf("%s, %s, cost %d: got %+v, want what a new key has, %+v", c.rule.Identity, what, cost, got, want)
		}
	}
}

func aKeyBlockedByHandIsRejected(s *scene, c policed) {
	r := c.rule
	s.spend(c, "alice")
	s.spend(c, "alice")
	s.block(r, "alice", minute)
	s.block(r, "new", hour)
	s.is(c.name+", a peek", s.peek(r, "alice", 1), blockedFor(r, minute))
	s.is(c.name+", at once", s.take(r, "alice", 1), blockedFor(r, minute))
	s.is(c.name+", of a new key", s.take(r, "new", 1), blockedFor(r, hour))
	s.clock.Add(20 * second)
	for i := 0; i < 5; i++ {
		d := s.take(r, "alice", 2)
		if d.ResetAfter != 40*second {
			s.t.Fatalf("%s: %+v; want it whole at the end", c.name, d)
		}
		s.is(c.name+", a cost of 2", d, blockedFor(r, 40*second))
	}
	s.never(c.name+", a cost that can never be allowed", s.take(r, "alice", rate.Unaffordable))
	s.yes(c.name+", another key", s.peek(r, "bob", 1), whatever)
	s.clock.Add(40*second - 1)
	s.is(c.name+", shortly before the end", s.take(r, "alice", 1), blockedFor(r, 1))
	s.clock.Add(1)
	s.isFresh("after the block", c, "alice")
	s.spend(c, "alice")
	s.block(r, "alice", 10*second)
	s.block(r, "alice", 5*second)
	s.is(c.name+", for less", s.take(r, "alice", 1), blockedFor(r, 5*second))
	s.clock.Add(5 * second)
	for i := 0; i < 3; i++ {
		s.spend(c, "alice")
	}
}

func aKeyBlockedByHandIsUnblocked(s *scene, c policed) {
	s.clock.Set(start() + hour)
	s.block(c.rule, "carol", 0) // unblocking a key that is not blocked changes nothing
	s.spend(c, "carol")
	before := s.peek(c.rule, "carol", 1)
	s.block(c.rule, "carol", 0)
	s.unchanged(c.name+", unblocked without a block", before, s.peek(c.rule, "carol", 1))
	s.block(c.rule, "carol", hour)
	s.take(c.rule, "carol", 1)
	s.block(c.rule, "carol", 0)
	s.isFresh("after it was unblocked", c, "carol")
	s.spend(c, "carol")
}

// aBlockLastsNoLongerThanItWasTo, even if the clock steps back.
func aBlockLastsNoLongerThanItWasTo(s *scene, c policed) {
	s.clock.Set(start() + 5*hour)
	s.block(c.rule, "dave", minute)
	s.clock.Add(-10 * second)
	s.is(c.name+", the clock has stepped back", s.take(c.rule, "dave", 1), blockedFor(c.rule, minute))
	s.clock.Add(50 * second)
	s.is(c.name+", and goes on", s.take(c.rule, "dave", 1), blockedFor(c.rule, 10*second))
	s.clock.Add(10*second - 1)
	s.is(c.name+", until the end", s.peek(c.rule, "dave", 1), blockedFor(c.rule, 1))
	s.clock.Add(1)
	s.yes(c.name+", at the end", s.peek(c.rule, "dave", 1), whatever)
	s.block(c.rule, "dave", minute)
	other := s.open(core.RuleConfig{Name: "beside", Limit: limit(s.t, rate.LimitConfig{Requests: 100, Period: time.Hour})})
	s.clock.Add(-10 * second)
	d, _ := s.both(c.rule, other, "dave", false, false)
	s.is(c.name+", beside another rule, the clock has stepped back", d, blockedFor(c.rule, minute))
	s.clock.Add(50 * second)
	d, _ = s.both(c.rule, other, "dave", true, true)
	s.is(c.name+", beside another rule, and goes on", d, blockedFor(c.rule, 10*second))
	s.block(c.rule, "dave", 0)
}

func aResetForgets(s *scene, c policed) {
	s.clock.Set(start() + 10*hour)
	s.reset(c.rule, "erin") // a key that the store does not know
	s.isFresh("reset", c, "erin")
	for i := 0; i < 3; i++ {
		s.spend(c, "erin")
	}
	s.take(c.rule, "frank", 1)
	before := s.peek(c.rule, "frank", 1)
	for i := 0; i < 2; i++ { // past the limit: an offence, or the beginning of tolerance
		_, reservations := s.reserve(c.rule, "erin", 1)
		s.settle(reservations, false)
	}
	s.reset(c.rule, "erin")
	if c.name != "delays" { // requests that wait keep their departures: see departuresSurviveAReset
		s.isFresh("reset", c, "erin")
	}
	s.unchanged(c.name+", another key", before, s.peek(c.rule, "frank", 1))
	s.block(c.rule, "erin", hour)
	s.reset(c.rule, "erin")
	s.yes(c.name+", reset during a block", s.peek(c.rule, "erin", 1), whatever)
}

// aRejectionDoesNotEndABlock: with count_rejected, requests that are rejected during a block are not charged.
func aRejectionDoesNotEndABlock(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "rejected", Limit: v.limit(s.t, 3, hour), CountRejected: true})
	s.exhaust(r, "alice", 3)
	s.block(r, "alice", minute)
	for i := int64(0); i < 6; i++ {
		s.is("during a block", s.take(r, "alice", 1+i%3), blockedFor(r, minute-i*second))
		s.clock.Add(second)
	}
	s.clock.Add(54 * second)
	s.exhaust(r, "alice", 3)
}

// aShadowOnlyReportsABlock, but rejects nobody.
func aShadowOnlyReportsABlock(s *scene, v variant) {
	shadow := s.open(core.RuleConfig{Name: "shadow", Limit: v.limit(s.t, 3, hour), Shadow: true})
	enforced := s.open(core.RuleConfig{Name: "enforced", Limit: v.limit(s.t, 2, hour)})
	s.block(shadow, "alice", minute)
	for i := 0; i < 4; i++ {
		d, e := s.both(shadow, enforced, "alice", i%2 == 1, false)
		s.is("the shadow", d, blockedFor(shadow, minute))
		if e.Allowed != (i < 2) {
			s.t.Fatalf("beside a shadow that blocks the key, request %d: %+v", i, e)
		}
	}
	s.clock.Add(minute)
	s.exhaust(shadow, "alice", 3)
}

// aReloadDoesNotEndABlock, whatever it changes in the rule's numbers and overflow policy, as long as the rule's identity stays.
func aReloadDoesNotEndABlock(s *scene, v variant) {
	configs := []core.RuleConfig{
		{Limit: v.limit(s.t, 3, hour)},
		{Limit: v.limit(s.t, 5, hour), CountRejected: true},
		{Limit: v.limit(s.t, 3, hour), OverflowPolicy: penalized()},
		{Limit: v.limit(s.t, 3, hour), OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{2 * time.Hour}}},
		{Limit: v.limit(s.t, 3, hour), Shadow: true},
	}
	if v.algorithm != rate.LeakyBucket {
		configs = append(configs, core.RuleConfig{Limit: v.limit(s.t, 3, hour), OverflowPolicy: core.OverflowPolicy{SoftPercent: 100, SoftFor: time.Hour}})
	}
	if v.algorithm.Named() != rate.SlidingWindowCounter {
		configs = append(configs, core.RuleConfig{Limit: v.delaying(s.t, 3, hour, hour)})
	}
	open := func(c core.RuleConfig) *core.Rule {
		c.Namespace = "by-hand"
		c.Name = "reloaded"
		return s.open(c)
	}
	left := minute
	before := open(configs[0])
	s.block(before, "alice", left)
	for round := 0; round < 2; round++ {
		for i := range configs {
			r := open(configs[i])
			s.store.Release(before)
			before = r
			s.clock.Add(second)
			left -= second
			s.is("after a reload", s.take(r, "alice", 1), blockedFor(r, left))
		}
	}
	s.clock.Add(left)
	s.yes("at the end", s.take(before, "alice", 1), whatever)
}

func aBlockIsNoOffenceAndTakesThePlaceOfAPenalty(s *scene, v variant) {
	r := s.penal(v, "by-hand")
	s.block(r, "alice", 5*second)
	s.is("blocked", s.take(r, "alice", 1), blockedFor(r, 5*second))
	s.clock.Add(5 * second)
	s.offend("the first offence", r, "alice", 10*second)
	s.block(r, "alice", second)
	s.is("for less than the penalty", s.take(r, "alice", 1), blockedFor(r, second))
	s.clock.Add(second)
	s.offend("the second offence, as soon as that is over", r, "alice", minute)
	s.block(r, "alice", hour)
	s.clock.Add(hour)
	s.offend("the third offence", r, "alice", minute)
	s.block(r, "alice", hour)
	s.block(r, "alice", 0)
	s.offend("the first offence, the others being forgotten", r, "alice", 10*second)
}

// severalRulesOfWhichOneHasBlockedAKey: none is charged.
func severalRulesOfWhichOneHasBlockedAKey(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "blocks", Limit: v.limit(s.t, 3, hour)})
	for _, w := range variants() {
		other := s.open(core.RuleConfig{Name: "other", Limit: w.limit(s.t, 2, hour)})
		key := w.name
		s.block(r, key, minute)
		for i := 0; i < 4; i++ {
			d, o := s.both(r, other, key, i%2 == 1, false)
			s.is("a blocked key", d, blockedFor(r, minute))
			s.is("the other rule", o, rate.Decision{Allowed: true, Limit: other.Limit.Quota, Remaining: other.Limit.Quota})
		}
		s.reset(r, key)
		s.exhaust(other, key, 2)
		d, o := s.both(r, other, key, false, false)
		if !d.Allowed || o.Allowed {
			s.t.Fatalf("beside a rule that rejects: %+v, %+v", d, o)
		}
	}
	daily := s.open(core.RuleConfig{Name: "daily", Limit: limit(s.t, rate.LimitConfig{Requests: 5, Calendar: rate.Day})})
	s.block(daily, "alice", minute)
	d, o := s.both(daily, r, "alice", false, false)
	s.is("a rule of the calendar", d, blockedFor(daily, minute))
	s.is("the rule behind it", o, rate.Decision{Allowed: true, Limit: r.Limit.Quota, Remaining: r.Limit.Quota})
}

func aResetForgetsOffences(s *scene, v variant) {
	r := s.penal(v, "reset")
	s.offend("the first offence", r, "alice", 10*second)
	s.clock.Add(10 * second)
	s.offend("the second offence", r, "alice", minute)
	s.reset(r, "alice")
	s.offend("the first offence, the others being forgotten", r, "alice", 10*second)
}

// whatIsCountedByStatusSurvivesAReset: requests under way are still charged or given back when they end.
func whatIsCountedByStatusSurvivesAReset(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "under-way", Limit: v.limit(s.t, 5, hour), OverflowPolicy: core.OverflowPolicy{Count: statuses(s.t, "401")}})
	kept := s.mustReserve(r, "alice", 1)
	given := s.mustReserve(r, "alice", 2)
	charged := s.mustReserve(r, "alice", 1)
	s.settle(charged, true)
	s.reset(r, "alice")
	s.yes("with 3 of 5 reserved", s.peek(r, "alice", 1), 1)
	s.settle(kept, true)
	s.settle(given, false)
	s.yes("with 1 of 5 charged", s.peek(r, "alice", 1), 3)
	late := s.mustReserve(r, "alice", 1)
	s.block(r, "alice", minute)
	s.settle(late, true)
	s.is("a charge does not end a block", s.take(r, "alice", 1), blockedFor(r, minute))
	s.clock.Add(minute)
	s.yes("nor does it count afterwards", s.peek(r, "alice", 5), whatever)
}

// aRequestThatEndsHasABlockStepBack: the end of a block also moves back with the clock if a request is to be charged at that
// moment.
func aRequestThatEndsHasABlockStepBack(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "ends-while-blocked", Limit: v.limit(s.t, 5, hour), OverflowPolicy: core.OverflowPolicy{Count: statuses(s.t, "401")}})
	late := s.mustReserve(r, "alice", 1)
	s.block(r, "alice", minute)
	s.clock.Add(-10 * second)
	s.settle(late, true)
	s.clock.Add(20 * second)
	s.is("20 seconds after that, of a minute", s.peek(r, "alice", 1), blockedFor(r, 40*second))
}

// aBlockIsNoDeparture: no request waits for the end of a block.
func aBlockIsNoDeparture(s *scene, v variant) {
	r := s.open(core.RuleConfig{Name: "no-departure", Limit: v.delaying(s.t, 1, minute, hour)})
	s.block(r, "alice", second)
	s.is("blocked for less than requests may wait", s.take(r, "alice", 1), blockedFor(r, second))
	s.clock.Add(second)
	s.take(r, "alice", 1)
	waits := s.mustReserve(r, "alice", 1)
	s.block(r, "alice", second)
	s.clock.Add(second)
	s.yes("after the block", s.take(r, "alice", 1), whatever)
	before := s.peek(r, "alice", 1)
	s.settle(waits, false) // there is nothing to give back
	s.asBefore("after it, when a request has left that waited before", before, s.peek(r, "alice", 1))
}

// departuresSurviveAReset: requests that wait depart as planned, later ones depart behind them, and those that leave give nothing
// back.
func departuresSurviveAReset(s *scene, v variant) {
	for _, key := range []string{"reset", "blocked"} {
		s.clock.Set(start())
		r := s.open(core.RuleConfig{Name: "departures", Limit: v.delaying(s.t, 2, minute, hour)})
		s.take(r, key, 1)
		s.take(r, key, 1)
		wait := s.peek(r, key, 1).Delay
		early := s.mustReserve(r, key, 1)
		if key == "reset" {
			s.reset(r, key)
		} else {
			s.block(r, key, second)
			s.clock.Add(second)
			wait -= second
		}
		d, late := s.reserve(r, key, 1)
		if !d.Allowed || d.Delay != wait {
			s.t.Fatalf("%s, %s, behind a departure in %d: %+v", v.name, key, wait, d)
		}
		s.settle(early, false)
		s.settle(late, false)
		for i := 0; i < 2; i++ { // the request that left has charged nothing, and has not restored what was forgotten
			if d := s.take(r, key, 1); !d.Allowed || d.Delay != wait {
				s.t.Fatalf("%s, %s, when all have left, %d: %+v; want it to wait for %d", v.name, key, i, d, wait)
			}
		}
		s.clock.Add(hour)
		s.isFresh("a while later", policed{rule: r}, key)
	}
}

// chargesToComeSurviveAReset: a rule beside one that delays charges waiting requests when they depart.
func chargesToComeSurviveAReset(s *scene, v, w variant) {
	slow := s.open(core.RuleConfig{Name: "slow", Limit: v.delaying(s.t, 1, 10*second, minute)})
	wide := s.tracking(core.RuleConfig{Name: "reset", Limit: w.limit(s.t, 3, hour)})
	s.take(slow, "alice", 1)
	s.take(wide, "carol", 1)
	s.request(one(wide, "carol"), one(slow, "alice"))
	leaves := s.request(one(wide, "carol"), one(slow, "alice"))
	s.reset(wide, "carol")
	s.yes("with 2 of 3 reserved", s.peek(wide, "carol", 1), 0)
	s.settle(core.AppendReservations(nil, leaves), false)
	s.clock.Add(minute)
	s.yes("with 1 of 3 charged at its departure", s.peek(wide, "carol", 1), 1)
	s.reset(wide, "carol")
	s.take(slow, "bob", 1)
	s.request(one(wide, "carol"), one(slow, "bob"))
	s.clock.Add(minute)
	s.reset(wide, "carol") // the first call after its departure
	s.exhaust(wide, "carol", 3)
}

func whoDepartsBeforeABlockEndsIsNotCharged(s *scene, v, w variant) {
	slow := s.open(core.RuleConfig{Name: "slow", Limit: v.delaying(s.t, 1, 10*second, minute)})
	wide := s.tracking(core.RuleConfig{Name: "departs", Limit: w.limit(s.t, 3, hour)})
	s.take(slow, "alice", 1)
	delay := s.request(one(wide, "carol"), one(slow, "alice"))[1].Decision.Delay
	s.request(one(wide, "carol"), one(slow, "alice"))
	s.block(wide, "carol", delay+second) // until the first has departed, and the second has not
	s.clock.Add(delay + second - 1)
	s.is("to the end", s.take(wide, "carol", 1), blockedFor(wide, 1))
	s.clock.Add(minute)
	s.yes("with 1 of 3 charged", s.peek(wide, "carol", 1), 1)
	s.reset(wide, "carol")
	s.take(slow, "bob", 1)
	s.request(one(wide, "carol"), one(slow, "bob"))
	s.block(wide, "carol", minute)
	s.block(wide, "carol", 0)
	s.exhaust(wide, "carol", 3) // even if the key is unblocked before its departure
}

func placesSurviveBlocksAndResets(s *scene) {
	r := s.open(core.RuleConfig{Name: "places", Limit: s.inFlight(3)})
	one := s.mustReserve(r, "alice", 1)
	two := s.mustReserve(r, "alice", 1)
	s.reset(r, "alice")
	s.yes("with two of three under way", s.peek(r, "alice", 1), 0)
	s.block(r, "alice", minute)
	s.is("blocked", s.take(r, "alice", 1), blockedFor(r, minute))
	s.settle(one, false)
	s.clock.Add(minute)
	s.yes("with one of three under way", s.peek(r, "alice", 1), 1)
	s.settle(two, false)
	s.yes("with none under way", s.peek(r, "alice", 1), 2)
}
