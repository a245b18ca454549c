package memory_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/underrace"
)

// For a defect: the rule with more keys paid for the memory of a few large logs of another.
func TestLargeLogsOfOneRuleDoNotResetAnother(t *testing.T) {
	underrace.OneGoroutine(t)
	const clients = 3000
	m := newMemory(memory.Config{MaxKeys: 5000})
	login := m.open(t, "login", rate.LimitConfig{Algorithm: rate.SlidingWindowLog}, 5, time.Hour)
	bulk := m.open(t, "bulk", rate.LimitConfig{Algorithm: rate.SlidingWindowLog}, rate.MaxLogRequests, time.Hour)
	for i := 0; i < fewer(clients); i++ {
		m.exhaust(login, strconv.Itoa(i))
	}
	for i := 0; i < 40; i++ {
		m.take(bulk, "bulk "+strconv.Itoa(i), rate.MaxLogRequests)
	}
	if n := m.Stats().LogBytes; n > 4*10*rate.MaxLogRequests {
		t.Errorf("the logs hold %d bytes; want at most %d", n, 4*10*rate.MaxLogRequests)
	}
	for i := 0; i < fewer(clients); i++ {
		if d := m.take(login, strconv.Itoa(i), 1); d.Allowed {
			t.Fatalf("login's client %d was forgotten: %+v", i, d)
		}
	}
}

// For a defect: among keys that are all being rejected the oldest went first, which is the victim of a flood.
func TestFloodOfRejectedKeysDoesNotResetAnOlderVictimOfItsOwnRule(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, algorithm := range []rate.Algorithm{rate.TokenBucket, rate.SlidingWindowLog} {
		m := newMemory(memory.Config{MaxKeys: 1000})
		r := m.open(t, "flooded", rate.LimitConfig{Algorithm: algorithm}, 5, time.Hour)
		m.exhaust(r, "victim")
		m.take(r, "victim", 1)
		for i := 0; i < fewer(8000); i++ {
			m.clock.Add(100)
			m.exhaust(r, strconv.Itoa(i))
			m.take(r, strconv.Itoa(i), 1)
		}
		if d := m.take(r, "victim", 1); d.Allowed {
			t.Errorf("%s: the victim was forgotten: %+v", algorithm, d)
		}
	}
}

// A log that is smaller than a key's share of the budget does not pay for larger ones, not even for those of its own rule.
func TestSmallLogsDoNotPayForLargeOnes(t *testing.T) {
	m := newMemory(memory.Config{MaxKeys: 5000})
	r := m.open(t, "bulk", rate.LimitConfig{Algorithm: rate.SlidingWindowLog}, rate.MaxLogRequests, time.Hour)
	for i := 0; i < fewer(2000); i++ {
		m.take(r, "small "+strconv.Itoa(i), 5)
	}
	for i := 0; i < 30; i++ {
		m.take(r, "costly "+strconv.Itoa(i), rate.MaxLogRequests)
	}
	for i := 0; i < fewer(2000); i++ {
		if d := m.take(r, "small "+strconv.Itoa(i), 1); d.Remaining != rate.MaxLogRequests-6 {
			t.Fatalf("small %d was forgotten: %+v", i, d)
		}
	}
}

// For a defect: a costly request evicted only a few small logs, so that the logs grew past their budget.
func TestACostlyRequestEvictsAsMuchAsItAdds(t *testing.T) {
	underrace.OneGoroutine(t)
	m := newMemory(memory.Config{MaxKeys: 20_000})
	r := m.open(t, "bulk", rate.LimitConfig{Algorithm: rate.SlidingWindowLog}, rate.MaxLogRequests, time.Hour)
	for i := 0; i < fewer(9900); i++ {
		m.take(r, "cheap "+strconv.Itoa(i), 66) // just above a key's share
	}
	const budget = 64 * 20_000
	most := int64(0)
	for i := 0; i < 100; i++ {
		m.take(r, "costly "+strconv.Itoa(i), rate.MaxLogRequests)
		if n := m.Stats().LogBytes / 4; n > most {
			most = n
		}
	}
	if most > budget+5*rate.MaxLogRequests {
		t.Errorf("the logs held up to %d times; want %d, and a few large logs at most", most, budget)
	}
}

// For a defect: keys of different rules were compared by age, too, so that those with the longer period always lost.
func TestFloodOnAShortPeriodDoesNotResetVictimsOfALongOne(t *testing.T) {
	m := newMemory(memory.Config{MaxKeys: 1000})
	day := m.open(t, "day", rate.LimitConfig{Algorithm: rate.TokenBucket}, 5, 24*time.Hour)
	minute := m.open(t, "minute", rate.LimitConfig{Algorithm: rate.TokenBucket}, 5, time.Minute)
	for i := 0; i < 120; i++ {
		m.exhaust(day, strconv.Itoa(i))
		m.take(day, strconv.Itoa(i), 1)
	}
	for i := 0; i < fewer(4000); i++ {
		m.clock.Add(10)
		m.exhaust(minute, strconv.Itoa(i))
		m.take(minute, strconv.Itoa(i), 1)
	}
	for i := 0; i < 120; i++ {
		if d := m.take(day, strconv.Itoa(i), 1); d.Allowed {
			t.Fatalf("victim %d was forgotten", i)
		}
	}
}

// For a defect: among many rules, none of which has many large logs, the search for one never ended at a log of a rule with few large ones.
func TestALargeLogOfARuleWithManySmallOnesEndsNoSearch(t *testing.T) {
	m := newMemory(memory.Config{MaxKeys: 2000})
	mixed := m.open(t, "mixed", rate.LimitConfig{Algorithm: rate.SlidingWindowLog}, rate.MaxLogRequests, time.Hour)
	for i := 0; i < 100; i++ {
		m.take(mixed, "small "+strconv.Itoa(i), 1)
	}
	m.take(mixed, "costly", 3000)
	for i := 0; i < 40; i++ {
		bulk := m.open(t, "bulk."+strconv.Itoa(i), rate.LimitConfig{Algorithm: rate.SlidingWindowLog}, rate.MaxLogRequests, time.Hour)
		m.take(bulk, "costly", rate.MaxLogRequests/3)
	}
	if n := m.Stats().LogBytes; n > 4*10*rate.MaxLogRequests {
		t.Errorf("the logs hold %d bytes; want at most %d", n, 4*10*rate.MaxLogRequests)
	}
	if d := m.take(mixed, "costly", 1); d.Remaining != rate.MaxLogRequests-3001 {
		t.Errorf("the log of a rule that holds less than its share was forgotten: %+v", d)
	}
}
