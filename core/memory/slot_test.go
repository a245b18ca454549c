//go:build gc
// +build gc

package memory_test

// Only Caddy tells of slots, so these tests are left out under the interpreter: see compiled_test.go.

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// slotRule returns a rule of a limit, opened in a memory with a clock that the test steps.
func slotRule(t *testing.T, limit rate.LimitConfig) (*memory.Store, *core.Rule, *int64) {
	t.Helper()
	l, err := rate.NewLimit(limit)
	must.Succeed(t, err)
	r, err := core.NewRule(core.RuleConfig{Name: "slots", Limit: l})
	must.Succeed(t, err)
	now := int64(1_800_000_000_000_000)
	m := memory.New(memory.Config{Clock: func() int64 { return now }})
	must.Succeed(t, m.Open(r))
	return m, r, &now
}

func decideOnce(m *memory.Store, r *core.Rule, cost int64, peek bool) rate.Decision {
	checks := []core.Check{{Rule: r, Key: "a", Cost: cost}}
	_ = m.Decide(checks, peek)
	return checks[0].Decision
}

// What others have admitted, told by slots and late, weighs at least as much as if this memory had admitted it: in windows exactly as much, in a log at
// most as if all had been admitted at the end of its slot.
func TestSlotsWeighAtLeastWhatWasAdmitted(t *testing.T) {
	for _, c := range []rate.LimitConfig{
		{Algorithm: rate.FixedWindow, Requests: 10_000, Period: time.Minute},
		{Algorithm: rate.FixedWindow, Requests: 10_000, Calendar: rate.Day},
		{Algorithm: rate.SlidingWindowCounter, Requests: 10_000, Period: time.Minute},
		{Algorithm: rate.SlidingWindowCounter, Requests: 10_000, Period: time.Minute, Segments: 2},
		{Algorithm: rate.SlidingWindowCounter, Requests: 10_000, Period: 60_000_001 * time.Microsecond, Segments: 13},
		{Algorithm: rate.SlidingWindowLog, Requests: 10_000, Period: time.Minute},
		{Algorithm: rate.SlidingWindowLog, Requests: 10_000, Period: time.Hour},
		{Algorithm: rate.TokenBucket, Requests: 10_000, Period: time.Minute},
		{Algorithm: rate.TokenBucket, Requests: 600, Period: time.Minute, Burst: 10_000},
		{Algorithm: rate.TokenBucket, Requests: 10_000, Period: time.Minute, Interval: true},
		{Algorithm: rate.TokenBucket, Requests: 5_000, Period: time.Minute, Burst: 10_000, Interval: true},
	} {
		all, rule, now := slotRule(t, c)
		t.Run(fmt.Sprint(rule.Limit), func(t *testing.T) {
			exact := c.Algorithm == rate.FixedWindow || c.Algorithm == rate.SlidingWindowCounter || c.Interval && c.Burst == 0
			one, same, clock := slotRule(t, c)
			r := rand.New(rand.NewSource(1))
			period := rule.Limit.Period
			const grain = 5_000_000
			told := make(map[rate.Slot]int64)
			type admission struct{ counts, units int64 } // from when a log takes its period
			var admissions []admission
			for step := range 4000 {
				*now += r.Int63n(period/100 + 1)
				*clock = *now
				units := int64(1 + r.Intn(9))
				if r.Intn(3) == 0 {
					decideOnce(all, rule, units, false)
					decideOnce(one, same, units, false)
					admissions = append(admissions, admission{*now, units})
				} else {
					decideOnce(all, rule, units, false)
					slot := rate.SlotOf(rule.Limit, *now, grain)
					told[slot] += units
					admissions = append(admissions, admission{slot.End - period, units})
					if length := slot.End - slot.Start - period; length > max(period/8+1, grain) && c.Algorithm == rate.SlidingWindowLog {
						t.Fatalf("a slot lasts %d µs", length)
					}
				}
				if r.Intn(20) > 0 {
					continue
				}
				for slot, units := range told {
					one.ChargeSlot(same, "a", slot, units)
				}
				clear(told)
				want, got := decideOnce(all, rule, 0, true).Remaining, decideOnce(one, same, 0, true).Remaining
				if got > want || exact && got != want {
					t.Fatalf("step %d: %d remain where slots are told, and %d where all is admitted", step, got, want)
				}
				if c.Algorithm != rate.SlidingWindowLog {
					continue
				}
				least := int64(10_000)
				for _, a := range admissions {
					if a.counts > *now-period-10 {
						least -= a.units
					}
				}
				if got < least {
					t.Fatalf("step %d: %d remain where slots are told, fewer than %d", step, got, least)
				}
			}
		})
	}
}

// A memory that starts afresh, and is told everything at once, knows what still counts: at least that, and of a bucket at most what was admitted in a quarter
// more than the time in which it is full again.
func TestAMemoryThatStartsAfreshIsToldWhatStillCounts(t *testing.T) {
	for _, c := range []rate.LimitConfig{
		{Algorithm: rate.TokenBucket, Requests: 1000, Period: time.Minute},
		{Algorithm: rate.TokenBucket, Requests: 100, Period: time.Minute, Burst: 1000},
		{Algorithm: rate.TokenBucket, Requests: 1000, Period: time.Minute, Burst: 500},
		{Algorithm: rate.TokenBucket, Requests: 200, Period: time.Minute, Burst: 1000, Interval: true},
		{Algorithm: rate.SlidingWindowLog, Requests: 1000, Period: time.Minute},
		{Algorithm: rate.SlidingWindowCounter, Requests: 1000, Period: time.Minute},
		{Algorithm: rate.SlidingWindowCounter, Requests: 1000, Period: time.Minute, Segments: 7},
		{Algorithm: rate.FixedWindow, Requests: 1000, Period: time.Minute},
	} {
		before, rule, now := slotRule(t, c)
		t.Run(fmt.Sprint(rule.Limit), func(t *testing.T) {
			r := rand.New(rand.NewSource(1))
			told := make(map[rate.Slot]int64)
			var admitted []int64 // at these times, 3 units each
			capacity := rule.Limit.Capacity
			partly := false
			for step := range 3000 {
				*now += r.Int63n(rate.WholeAfter(rule.Limit) / 600)
				if step%700 > 400 { // a pause
					*now += rate.WholeAfter(rule.Limit) / 600
				} else if decideOnce(before, rule, 3, false).Allowed {
					told[rate.SlotOf(rule.Limit, *now, 1)] += 3
					admitted = append(admitted, *now)
				}
				if step%25 > 0 {
					continue
				}
				after, same, clock := slotRule(t, c)
				*clock = *now
				for slot, units := range told {
					after.ChargeSlot(same, "a", slot, units)
				}
				had, has := decideOnce(before, rule, 0, true).Remaining, decideOnce(after, same, 0, true).Remaining
				if has > had {
					t.Fatalf("step %d: %d remain after a start, and %d did before", step, has, had)
				}
				least := capacity
				for _, at := range admitted {
					if at >= *now-rate.WholeAfter(rule.Limit)*5/4-1 {
						least -= 3
					}
				}
				if c.Algorithm == rate.TokenBucket && has < least {
					t.Fatalf("step %d: %d remain after a start, and %d did before: want %d at least", step, has, had, least)
				}
				partly = partly || has > 0 && has < capacity
			}
			if !partly {
				t.Error("the limit is always unused or used up, so that this test sees little")
			}
		})
	}
}

// Slots that are over change nothing, and neither do units for a key that is blocked.
func TestSlotsThatAreOverAreIgnored(t *testing.T) {
	for _, algorithm := range []rate.Algorithm{rate.FixedWindow, rate.SlidingWindowCounter, rate.SlidingWindowLog, rate.TokenBucket, rate.SlidingWindowSegments} {
		m, r, now := slotRule(t, slotConfig(algorithm))
		slot := rate.SlotOf(r.Limit, *now, 1)
		if slot.Start > *now || slot.End <= *now {
			t.Errorf("%s: the slot of %d is %+v", r.Limit, *now, slot)
		}
		*now = slot.End
		m.ChargeSlot(r, "a", slot, 5)
		must.Equal(t, m.Keys(r), 0, "%s: a slot that is over makes keys", r.Limit)
		must.Succeed(t, m.Block(r, "a", 1_000_000))
		m.ChargeSlot(r, "a", rate.SlotOf(r.Limit, *now, 1), 5)
		if d := decideOnce(m, r, 1, true); d.Allowed {
			t.Errorf("%s: units from others have ended a block", r.Limit)
		}
		*now += 1_000_000
		if d := decideOnce(m, r, 0, true); d.Remaining != 10 {
			t.Errorf("%s: after a block %d remain, want 10", r.Limit, d.Remaining)
		}
	}
}

// A log that is told of more than its limit says when there is room again.
func TestALogToldOfMoreThanItsLimit(t *testing.T) {
	m, r, now := slotRule(t, rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 10, Period: time.Minute})
	slot := rate.SlotOf(r.Limit, *now, 1)
	*now = slot.End - 60_000_000 + 1
	decideOnce(m, r, 1, false) // newer than what is told
	m.ChargeSlot(r, "a", slot, 1_000_000)
	d := decideOnce(m, r, 1, false)
	if want := slot.End - *now; d.Allowed || d.RetryAfter < want || d.RetryAfter > want+2 {
		t.Errorf("the decision is %+v, want a rejection for %d µs", d, want)
	}
	*now += d.RetryAfter
	if d := decideOnce(m, r, 0, true); d.Remaining != 9 {
		t.Errorf("then %d remain, want 9", d.Remaining)
	}
}

// Units besides leave so much less, and are not charged.
func TestUnitsBesideAreNotCharged(t *testing.T) {
	for _, algorithm := range []rate.Algorithm{rate.FixedWindow, rate.SlidingWindowCounter, rate.SlidingWindowLog, rate.TokenBucket, rate.SlidingWindowSegments} {
		m, r, _ := slotRule(t, slotConfig(algorithm))
		decide := func(cost, beside int64, peek bool) rate.Decision {
			checks := []core.Check{{Rule: r, Key: "a", Cost: cost}}
			must.Succeed(t, m.DecideWithExtra(checks, []int64{beside}, peek))
			return checks[0].Decision
		}
		if d := decide(3, 4, false); !d.Allowed || d.Remaining != 3 {
			t.Errorf("%s: with 4 units beside: %+v, want 3 remaining", r.Limit, d)
		}
		if d := decide(4, 4, false); d.Allowed || d.RetryAfter <= 0 || d.Remaining != 0 {
			t.Errorf("%s: with 4 units beside, 4 more are decided on as %+v, want a rejection", r.Limit, d)
		}
		if d := decide(8, 1<<40, false); d.Allowed || d.RetryAfter <= 0 {
			t.Errorf("%s: more than is left, and very many beside: %+v, want a rejection with a time", r.Limit, d)
		}
		if d := decide(7, 0, false); !d.Allowed || d.Remaining != 0 {
			t.Errorf("%s: without units beside: %+v, want all 10 used", r.Limit, d)
		}
	}
}

func slotConfig(a rate.Algorithm) rate.LimitConfig {
	c := rate.LimitConfig{Algorithm: a, Requests: 10, Period: time.Minute}
	if a == rate.SlidingWindowSegments {
		c.Segments = 6
	}
	return c
}
