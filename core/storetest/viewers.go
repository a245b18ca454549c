package storetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// testViewers: several limits share one key: the tiers of a rule, or the nodes of a fleet while a limit is changed. They differ
// in requests and burst, and share a counter. On random histories, in whatever order they decide:
//
//   - A limit allows a request only if it is within that limit by everything that was allowed before, by any of them. A bucket is assumed
//     to drain as fast as the fastest of the limits. So no span has more requests than the largest of them allows.
//   - What tolerance has allowed counts like all else. If the limit is the only one, then a bucket has drained by its own rate, not that
//     of the wider limit, when it next allows a request without tolerance.
//   - A rejected request is allowed after its RetryAfter, and not a microsecond before, if nothing else comes.
func testViewers(t *testing.T, newStore NewStore) {
	histories := times(8, 1)
	steps := times(100, 25)
	for n, v := range variants() {
		for m, way := range waysOfViewing {
			if !way.has(v) {
				continue
			}
			t.Run(v.name+", "+way.name, func(t *testing.T) {
				s := newScene(t, newStore)
				for i := 0; i < histories; i++ {
					h := viewing{history: history{scene: s, random: uint64(10_000*n + 1000*m + i)}, variant: v, way: way}
					h.begin(way.name + strconv.Itoa(i))
					for j := 0; j < steps; j++ {
						h.step()
					}
				}
			})
		}
	}
	each(t, newStore, "a lower limit waits, ", variants(), aLowerLimitForgetsNothing)
	each(t, newStore, "a lower limit charges, ", but(rate.LeakyBucket), whatIsReservedIsChargedWholeByALowerLimit)
	each(t, newStore, "a lower limit has a departure, ", waiters(), whatDepartsIsChargedWholeByALowerLimit)
	buckets := variants()[:2] // token buckets, which may take long to drain; what others have counted is gone after two periods
	each(t, newStore, "what takes long to drain, ", buckets, whatIsReservedIsKnownUntilALowerLimitHasDrainedIt, theLongestWaitIsReported)
	each(t, newStore, "what tolerance has lent, ", buckets[:1], aLoanThatOthersHaveChargedSinceIsForgotten, whatFallsDueInToleranceIsTheSameWhoeverLooks)
}

// wayOfViewing is what the limits of a history have in common.
type wayOfViewing struct {
	name                              string
	countRejected, soft, counts, wait bool
	alone                             bool // there is only one limit
}

var waysOfViewing = []wayOfViewing{
	{name: "plain"},
	{name: "count_rejected", countRejected: true},
	{name: "soft", soft: true},
	{name: "soft, alone", soft: true, alone: true},
	{name: "count", counts: true},
	{name: "delay", wait: true},
}

// has reports whether an algorithm can have that overflow policy.
func (w wayOfViewing) has(v variant) bool {
	if v.algorithm == rate.LeakyBucket {
		return !w.soft && !w.counts && !w.wait
	}
	return !w.wait || v.algorithm.Named() != rate.SlidingWindowCounter
}

// viewing is a history of one key under several limits.
type viewing struct {
	history // without rule
	variant variant
	way     wayOfViewing
	viewers []viewer
	largest int64 // the most that one of them can hold
	passed  passages
	under   []reservation
}

// viewer is one of the limits.
type viewer struct {
	rule     *core.Rule
	requests int64
	capacity int64 // units that it allows a new key at once
	wide     int64 // the same, with tolerance
	faster   int64 // requests, with tolerance
}

// reservation is the reservations of a request under way.
type reservation struct {
	reservations []core.Reservation
	cost         int64
}

// begin opens limits of one identity.
func (h *viewing) begin(name string) {
	h.period = []int64{second, 7*second + 1, minute}[h.below(3)]
	h.units = 12
	viewers := 3
	if h.way.alone {
		viewers = 1
	}
	for i := 0; i < viewers; i++ {
		h.viewers = append(h.viewers, h.open(name))
		h.passed.fastest = larger(h.passed.fastest, h.viewers[i].faster)
		h.largest = larger(h.largest, h.viewers[i].wide)
	}
}

// open opens a random limit.
func (h *viewing) open(name string) viewer {
	s := h.scene
	c := h.variant.config(1+h.below(h.units), h.period)
	v := viewer{requests: c.Requests, capacity: c.Requests}
	bucket := h.variant.algorithm == rate.TokenBucket || h.variant.algorithm == rate.LeakyBucket
	if bucket {
		c.Burst = 1 + h.below(h.units)
		v.capacity = c.Burst
	}
	if h.variant.algorithm == rate.LeakyBucket {
		c.MaxDelay = time.Hour
		v.capacity++
	}
	if h.way.wait {
		c.Delays = true
		c.MaxDelay = time.Duration(2*h.period) * time.Microsecond
	}
	r := core.RuleConfig{Name: "viewed", KeySpec: h.variant.name + name, Limit: limit(s.t, c)}
	r.CountRejected = h.way.countRejected && h.below(2) == 0
	v.wide = v.capacity
	v.faster = v.requests
	if h.way.soft && (h.way.alone || h.below(4) > 0) {
		percent := 100 + h.below(300)
		r.OverflowPolicy = tolerant(percent, time.Duration(h.period/4+h.below(2*h.period))*time.Microsecond)
		v.wide += v.capacity * percent / 100
		v.faster += v.requests * percent / 100
	}
	if h.way.counts {
		r.OverflowPolicy.Count = statuses(s.t, "401")
	}
	v.rule = s.open(r)
	return v
}

// step lets one of the limits decide, or ends a request's reservations.
func (h *viewing) step() {
	s := h.scene
	switch h.below(10) {
	case 0:
		s.clock.Add(h.below(2 * h.period))
	case 1:
		s.clock.Add(h.period - s.clock.Now()%h.period) // the beginning of the next window
	case 2, 3, 4, 5:
		s.clock.Add(h.below(h.period / 6))
	}
	if len(h.under) > 0 && h.below(3) == 0 {
		h.end()
		return
	}
	v := h.viewers[h.below(int64(len(h.viewers)))]
	cost := int64(1)
	if h.below(4) == 0 {
		cost = 1 + h.below(v.wide+1)
	}
	if h.below(6) == 0 {
		s.peek(v.rule, "k", cost)
		return
	}
	now := s.clock.Now()
	d, reservations := s.reserve(v.rule, "k", cost)
	if !d.Allowed {
		if d.Remaining < 0 {
			s.t.Fatalf("%s at %d: %+v; less than nothing remains", v.rule.Limit, now, d)
		}
		if d.RetryAfter != rate.Never && !h.way.soft && !h.way.counts && h.below(2) == 0 {
			s.comesTrue(v.rule, "k", cost, d, d.RetryAfter)
		}
		return
	}
	if h.way.counts {
		h.under = append(h.under, reservation{reservations, cost})
		return
	}
	at := now
	if h.way.wait {
		at += d.Delay
	}
	capacity := v.capacity
	if h.way.alone { // what is allowed without tolerance is within the limit, as if there had been no tolerance
		h.passed.fastest = v.requests
	}
	if d.Soft {
		capacity = v.wide
		h.passed.fastest = larger(h.passed.fastest, v.faster)
	}
	h.passed.add(s.t, v.rule.Limit, capacity, at, cost)
}

// end ends one of the requests under way: it is charged now, or given back.
func (h *viewing) end() {
	i := int(h.below(int64(len(h.under))))
	u := h.under[i]
	h.under = append(h.under[:i], h.under[i+1:]...)
	keep := h.below(3) > 0
	h.scene.settle(u.reservations, keep)
	if keep {
		h.passed.add(h.scene.t, u.reservations[0].Rule.Limit, h.largest, h.scene.clock.Now(), u.cost)
	}
}

func larger(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}

// aLowerLimitForgetsNothing: what a higher limit has counted is still there after a decision by a lower one, and a rejection by
// the one is no rejection by the other.
func aLowerLimitForgetsNothing(s *scene, v variant) {
	high := s.open(core.RuleConfig{Name: "forgets", Limit: v.limit(s.t, 100, minute)})
	low := s.open(core.RuleConfig{Name: "forgets", Limit: v.limit(s.t, 10, minute)})
	counts := s.open(core.RuleConfig{Name: "forgets", Limit: v.limit(s.t, 5, minute), CountRejected: true})
	s.take(high, "alice", 90)
	for i := 0; i < 3; i++ {
		for _, r := range []*core.Rule{low, counts} {
			s.no("a peek at a limit of which 90 are used", s.peek(r, "alice", 1), 0)
			s.no("a limit of which 90 are used", s.take(r, "alice", 1), 0)
		}
	}
	// What was rejected counts, but the limit of a bucket or a window was used up anyway, and a log keeps as many entries as it
	// has.
	left := int64(10)
	if v.algorithm.Named() == rate.SlidingWindowCounter {
		left -= 3
	}
	s.no("more of 100 than is left, 90 being used", s.take(high, "alice", left+1), left)
	s.yes("what is left", s.take(high, "alice", left), 0)
}

// whatIsReservedIsChargedWholeByALowerLimit: even if it is more than the limit that charges it can hold.
func whatIsReservedIsChargedWholeByALowerLimit(s *scene, v variant) {
	high := s.open(core.RuleConfig{Name: "whole", Limit: v.limit(s.t, 100, hour), OverflowPolicy: core.OverflowPolicy{Count: statuses(s.t, "401")}})
	low := s.open(core.RuleConfig{Name: "whole", Limit: v.limit(s.t, 10, hour), OverflowPolicy: core.OverflowPolicy{Count: statuses(s.t, "401")}})
	reservations := s.mustReserve(high, "alice", 90)
	lowered := []core.Reservation{reservations[0]}
	lowered[0].Rule = low // as after a reload, after which the present rule settles the requests under way
	s.settle(lowered, true)
	s.no("11 of 100, of which 90 were charged by a limit of 10", s.take(high, "alice", 11), 10)
}

func whatDepartsIsChargedWholeByALowerLimit(s *scene, v variant) {
	beside := s.open(core.RuleConfig{Name: "beside", Limit: v.delaying(s.t, 1, second, minute)})
	high := s.tracking(core.RuleConfig{Name: "later", Limit: v.limit(s.t, 100, hour)})
	low := s.tracking(core.RuleConfig{Name: "later", Limit: v.limit(s.t, 10, hour)})
	s.take(beside, "alice", 1)
	a, b := s.ask(core.Check{Rule: high, Key: "alice", Cost: 90}, one(beside, "alice"), false)
	if !a.Decision.Allowed || b.Decision.Delay <= 0 {
		s.t.Fatalf("90 of 100 that wait for another rule: %+v, %+v", a.Decision, b.Decision)
	}
	s.clock.Add(b.Decision.Delay)
	s.take(low, "alice", 1)
	s.no("11 of 100, of which 90 departed under a limit of 10", s.take(high, "alice", 11), 10)
}

// whatIsReservedIsKnownUntilALowerLimitHasDrainedIt: a lower limit decides while requests wait that one with a larger burst has
// allowed, and long after their departure. Blocks and resets by hand use any of the limits, too.
func whatIsReservedIsKnownUntilALowerLimitHasDrainedIt(s *scene, v variant) {
	c := v.config(10, hour)
	low := s.tracking(core.RuleConfig{Name: "long", Limit: limit(s.t, c)})
	c.Burst = 90
	high := s.tracking(core.RuleConfig{Name: "long", Limit: limit(s.t, c)})
	beside := s.slow("beside-long", minute, hour)
	for _, key := range []string{"alice", "bob, by hand"} {
		s.clock.Set(start())
		s.take(beside, key, 1)
		a, b := s.ask(core.Check{Rule: high, Key: key, Cost: 90}, one(beside, key), false)
		if !a.Decision.Allowed || b.Decision.Delay != minute {
			s.t.Fatalf("90 that wait for another rule: %+v, %+v; want a minute", a.Decision, b.Decision)
		}
		if key == "alice" {
			s.peek(low, key, 1)
		} else {
			s.block(low, key, second)
		}
		s.clock.Add(minute + 7*hour)
		s.no(key+": one of 10, 7 hours after 90 have departed", s.peek(low, key, 1), whatever)
		s.clock.Add(2 * hour)
		s.yes(key+": 10 of 10, 9 hours after 90 have departed", s.peek(low, key, 10), whatever)
	}
}

// theLongestWaitIsReported: what the largest limit has counted takes the smallest longer to drain than any number can hold.
func theLongestWaitIsReported(s *scene, v variant) {
	longest := rate.MaxPeriod.Microseconds()
	high := s.open(core.RuleConfig{Name: "centuries", Limit: v.limit(s.t, rate.MaxRequests, longest)})
	low := s.open(core.RuleConfig{Name: "centuries", Limit: v.limit(s.t, 1, longest)})
	s.take(high, "alice", rate.MaxRequests)
	century := int64(100*365*24) * hour
	for i := 0; i < 2; i++ {
		d := s.take(low, "alice", 1)
		if d.Allowed || d.RetryAfter < century || d.RetryAfter > century+longest || d.ResetAfter < century {
			s.t.Fatalf("a billion units, and 1 in 366 days: %+v; want no, for a century", d)
		}
	}
	if d := s.take(high, "alice", 1); d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > longest {
		s.t.Fatalf("a billion of a billion units: %+v; want no, for 366 days at most", d)
	}
}

// aLoanThatOthersHaveChargedSinceIsForgotten: what tolerance has lent is owed by the state that it was lent to. A rule without
// tolerance, as after a reload, charges the bucket and ignores the loan: long after that nothing is owed any more.
func aLoanThatOthersHaveChargedSinceIsForgotten(s *scene, v variant) {
	soft := s.open(core.RuleConfig{Name: "loan", Limit: v.limit(s.t, 20, 20*second), OverflowPolicy: tolerant(100, 5*time.Second)})
	plain := s.open(core.RuleConfig{Name: "loan", Limit: v.limit(s.t, 20, 20*second)})
	s.take(soft, "alice", 20)
	s.take(soft, "alice", 20)
	s.clock.Add(4 * second)
	s.is("8 that are refilled in 4 seconds of tolerance, of which 4 are lent", s.take(soft, "alice", 8), rate.Decision{Allowed: true, Soft: true, Limit: 20})
	s.clock.Add(42 * second)
	s.is("what 42 seconds have refilled, of 40", s.take(plain, "alice", 20), rate.Decision{Allowed: true, Limit: 20})
	s.is("20 more, by tolerance that is there again", s.take(soft, "alice", 20), rate.Decision{Allowed: true, Soft: true, Limit: 20})
}

// whatFallsDueInToleranceIsTheSameWhoeverLooks: a request has waited for another rule, and departs during tolerance. The limit
// that has begun the tolerance charges it, and what the bucket owes stays owed, whichever rule looks first: this one, or one that
// shares its counter and has no tolerance or another percentage.
func whatFallsDueInToleranceIsTheSameWhoeverLooks(s *scene, v variant) {
	soft := s.tracking(core.RuleConfig{Name: "due", Limit: v.limit(s.t, 20, 20*second), OverflowPolicy: tolerant(100, time.Minute)})
	plain := s.tracking(core.RuleConfig{Name: "due", Limit: v.limit(s.t, 20, 20*second)})
	softer := s.tracking(core.RuleConfig{Name: "due", Limit: v.limit(s.t, 20, 20*second), OverflowPolicy: tolerant(500, time.Minute)})
	slow := s.slow("slow-due", 10*second, minute)
	for i, first := range []*core.Rule{soft, plain, softer} {
		s.clock.Set(start())
		key := []string{"the rule looks first", "one without tolerance does", "one with more does"}[i]
		s.take(soft, key, 20)
		s.is("20 more than 20", s.take(soft, key, 20), rate.Decision{Allowed: true, Soft: true, Limit: 20})
		s.take(slow, key, 1)
		s.clock.Add(5 * second)
		s.is("9 of the 10 that 5 seconds have refilled, 5 of which are lent", s.take(soft, key, 9), rate.Decision{Allowed: true, Soft: true, Limit: 20})
		a, b := s.ask(one(soft, key), one(slow, key), false)
		s.is("the tenth", a.Decision, rate.Decision{Allowed: true, Soft: true, Limit: 20})
		s.is("the slow rule", b.Decision, rate.Decision{Allowed: true, Limit: 1, Delay: 5 * second})
		s.clock.Add(6 * second)
		s.peek(first, key, 1)
		s.is("all that is left of 40: 12 of the last 6 seconds, but for the tenth", s.take(soft, key, 12), rate.Decision{Allowed: true, Soft: true, Limit: 20})
		s.is("one more", s.peek(soft, key, 1), rate.Decision{Limit: 20, RetryAfter: second / 2})
		s.clock.Set(start() + minute)
		s.is("62 have been allowed, and a minute has drained", s.peek(soft, key, 1), rate.Decision{Allowed: true, Limit: 20, Remaining: 17})
	}
}
