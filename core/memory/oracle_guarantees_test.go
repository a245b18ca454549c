package memory

import (
	"math/big"
	"math/rand"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// What each algorithm promises about the requests that it allows, whatever came before. The tests look only at these requests,
// without a model of the decisions. The clock only goes forward here.

// passed is a request that was allowed.
type passed struct {
	at, cost, delay int64
}

// flood sends requests under a limit, mostly more than it allows, and returns those that passed.
func flood(t *testing.T, r *rand.Rand, l *rate.Limit, requests int) []passed {
	now := 1_700_000_000_000_000 + r.Int63n(1_000_000_000)
	store := New(Config{Clock: func() int64 { return now }})
	rule, err := core.NewRule(core.RuleConfig{Name: "r", Limit: l})
	must.Succeed(t, err)
	must.Succeed(t, store.Open(rule))
	each := l.Period/l.Requests + 1
	var through []passed
	checks := []core.Check{{Rule: rule, Key: "k"}}
	for i := 0; i < requests; i++ {
		switch r.Intn(20) {
		case 0:
			now += r.Int63n(2 * l.Period)
		case 1:
			now += l.Period - now%l.Period // the beginning of an aligned window
		case 2, 3, 4, 5, 6, 7:
			now += r.Int63n(2 * each)
		}
		c := &checks[0]
		c.Cost = 1
		if r.Intn(6) == 0 && l.Algorithm != rate.LeakyBucket {
			c.Cost = 1 + r.Int63n(l.Quota)
		}
		must.Succeed(t, store.Decide(checks, false))
		if c.Decision.Allowed {
			through = append(through, passed{now, c.Cost, c.Decision.Delay})
		} else if c.Decision.RetryAfter != rate.Never && r.Intn(3) == 0 {
			now += c.Decision.RetryAfter // a client that retries as soon as it may
		}
	}
	return through
}

// floods checks what passes limits of that kind, which are small enough to go through pairs of requests.
func floods(t *testing.T, c rate.LimitConfig, check func(l *rate.Limit, through []passed)) {
	r := rand.New(rand.NewSource(1))
	limits, requests := 60, 400
	if interpreted {
		limits, requests = 3, 80
	}
	for i := 0; i < limits; i++ {
		c.Requests = 1 + r.Int63n(20)
		c.Period = time.Duration(spread(r, 1000, 100_000_000_000)) * time.Microsecond
		if c.Algorithm == rate.TokenBucket || c.Algorithm == rate.LeakyBucket {
			c.Burst = 1 + r.Int63n(20)
		}
		if c.Algorithm == rate.LeakyBucket {
			c.MaxDelay = time.Duration(spread(r, 1, 3600_000_000)) * time.Microsecond
		}
		l, err := rate.NewLimit(c)
		must.Succeed(t, err)
		through := flood(t, r, l, requests)
		if len(through) < requests/40 {
			t.Errorf("%s: only %d of %d passed: nothing is shown", l.String(), len(through), requests)
		}
		check(l, through)
	}
}

func TestSlidingWindowLogNeverAdmitsMoreThanRequestsInAnyPeriod(t *testing.T) {
	underrace.OneGoroutine(t)
	floods(t, rate.LimitConfig{Algorithm: rate.SlidingWindowLog}, func(l *rate.Limit, through []passed) {
		for i := range through {
			sum := int64(0)
			for j := i; j >= 0 && through[j].at > through[i].at-l.Period; j-- {
				sum += through[j].cost
			}
			if sum > l.Requests {
				t.Fatalf("%s: %d units in the period up to %d", l.String(), sum, through[i].at)
			}
		}
	})
}

func TestSegmentsNeverAdmitMoreThanRequestsInAPeriodWithoutOneSegment(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, segments := range []int64{2, 5, 60} {
		floods(t, rate.LimitConfig{Algorithm: rate.SlidingWindowCounter, Segments: segments}, func(l *rate.Limit, through []passed) {
			for i := range through {
				sum := int64(0)
				for j := i; j >= 0 && through[j].at >= through[i].at-(l.Period-l.Period/segments); j-- {
					sum += through[j].cost
				}
				if sum > l.Requests {
					t.Fatalf("%s: %d units in the time up to %d", l.String(), sum, through[i].at)
				}
			}
		})
	}
}

func TestTokenBucketNeverAdmitsMoreThanBurstAndRefillInAnyInterval(t *testing.T) {
	underrace.OneGoroutine(t)
	floods(t, rate.LimitConfig{Algorithm: rate.TokenBucket}, func(l *rate.Limit, through []passed) {
		for i := range through {
			sum := int64(0)
			for j := i; j >= 0; j-- {
				sum += through[j].cost
				refill := product(through[i].at-through[j].at, l.Requests, l.Period)
				if whole(sum-l.Quota).Cmp(refill) > 0 {
					t.Fatalf("%s burst %d: %d units from %d to %d", l.String(), l.Quota, sum, through[j].at, through[i].at)
				}
			}
		}
	})
}

func TestIntervalRefillNeverAdmitsMoreThanBurstAndItsRefills(t *testing.T) {
	underrace.OneGoroutine(t)
	floods(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Interval: true}, func(l *rate.Limit, through []passed) {
		for i := range through {
			sum := int64(0)
			for j := i; j >= 0; j-- {
				sum += through[j].cost
				refills := through[i].at/l.Period - through[j].at/l.Period
				if sum > l.Quota+refills*l.Requests {
					t.Fatalf("%s burst %d: %d units from %d to %d", l.String(), l.Quota, sum, through[j].at, through[i].at)
				}
			}
		}
	})
}

func TestFixedWindowNeverAdmitsMoreThanRequestsInAWindow(t *testing.T) {
	underrace.OneGoroutine(t)
	floods(t, rate.LimitConfig{Algorithm: rate.FixedWindow}, atMostRequestsInAWindow(t))
}

// Two windows meet in the middle of a sliding period. The counter's estimate allows at most R in any aligned window, and so at
// most 2R in a sliding one.
func TestSlidingWindowCounterNeverAdmitsMoreThanRequestsInAWindow(t *testing.T) {
	underrace.OneGoroutine(t)
	floods(t, rate.LimitConfig{Algorithm: rate.SlidingWindowCounter}, atMostRequestsInAWindow(t))
}

// atMostRequestsInAWindow checks what passed in each window that is aligned to the epoch.
func atMostRequestsInAWindow(t *testing.T) func(l *rate.Limit, through []passed) {
	return func(l *rate.Limit, through []passed) {
		windows := make(map[int64]int64)
		for i := range through {
			window := through[i].at / l.Period
			windows[window] += through[i].cost
			if windows[window] > l.Requests {
				t.Fatalf("%s: %d units in window %d", l.String(), windows[window], window)
			}
		}
	}
}

// The queue as a list: each request's slot begins a whole P/R after that of the previous request, or at its arrival.
func TestLeakyBucketReleasesRequestsInOrderOneAtATime(t *testing.T) {
	waited := 0
	floods(t, rate.LimitConfig{Algorithm: rate.LeakyBucket}, func(l *rate.Limit, through []passed) {
		var slots []*big.Rat
		next := new(big.Rat) // when the next request may leave
		spacing := product(l.Period, 1, l.Requests)
		for i := range through {
			at := whole(through[i].at)
			waiting := int64(0) // requests ahead of this one
			for j := len(slots) - 1; j >= 0 && slots[j].Cmp(at) > 0; j-- {
				waiting++
			}
			slot := at
			if next.Cmp(at) > 0 {
				slot = next
				waited++
				if waiting+1 > l.Quota {
					t.Fatalf("%s: %d wait at %d, and another was admitted", l.String(), waiting, through[i].at)
				}
			}
			slots = append(slots, slot)
			next = new(big.Rat).Add(slot, spacing)
			if left := through[i].at + through[i].delay; left != ceilOf(slot) {
				t.Fatalf("%s: the request of %d leaves at %d, its slot is %s", l.String(), through[i].at, left, slot.FloatString(3))
			}
			if through[i].delay > l.MaxDelay {
				t.Fatalf("%s: a delay of %d, at most %d", l.String(), through[i].delay, l.MaxDelay)
			}
		}
	})
	if waited == 0 {
		t.Error("nobody waited: nothing is shown")
	}
}

// A client used up a large bucket, which was then made small. Its RetryAfter is right: by then what it has used has drained at
// the new rate.
func TestALoweredBurstLeavesADebtThatIsReportedExactlyAndDrains(t *testing.T) {
	for _, interval := range []bool{false, true} {
		large, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1000, Period: time.Minute, Interval: interval})
		must.Succeed(t, err)
		small, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Minute, Interval: interval})
		must.Succeed(t, err)
		var s, next rate.State
		var d rate.Decision
		now := int64(1_700_000_010_000_000)
		rate.Decide(large, &s, now, 1000, &s, &d)
		if !d.Allowed {
			t.Fatal("a whole bucket was refused")
		}
		rate.Decide(small, &s, now, 1, &next, &d)
		want := int64(991 * 6_000_000) // of 1000 tokens, 10 may be used
		if interval {
			want = 100*60_000_000 - now%60_000_000 // ten at each minute
		}
		if d.Allowed || d.RetryAfter != want {
			t.Fatalf("interval %v: from an exhausted bucket: %+v; want no, and %d", interval, d, want)
		}
		retry := now + d.RetryAfter
		if rate.Decide(small, &s, retry-1, 1, &next, &d); d.Allowed {
			t.Errorf("interval %v: admitted before RetryAfter was over", interval)
		}
		if rate.Decide(small, &s, retry, 1, &next, &d); !d.Allowed {
			t.Errorf("interval %v: not admitted when RetryAfter was over", interval)
		}
	}
}

// For a defect that the oracle found: a log that had grown under a large limit kept more rejections than its limit when that was
// lowered, and counted them when the limit was raised again.
func TestALogUnderALoweredLimitKeepsNoMoreThanItsLimit(t *testing.T) {
	large, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 100, Period: time.Minute})
	must.Succeed(t, err)
	small, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 2, Period: time.Minute})
	must.Succeed(t, err)
	var log rate.EventLog
	now := int64(1_700_000_000_000_000)
	rate.ChargeLog(large, &log, now, 100, 100)
	now += 60_000_000
	var d rate.Decision
	rate.DecideLog(small, &log, now-60_000_000, now, 1, &d) // all have expired
	for i := 0; i < 50; i++ {
		rate.ChargeLog(small, &log, now, 1, 2)
	}
	must.Equal(t, log.N, 2, "a log of at most 2 holds")
}

// The two counts share a word: if one grew past its half, it would change the other.
func TestRejectionsPastWhatACounterHoldsAreNotCounted(t *testing.T) {
	l, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.SlidingWindowCounter, Requests: 10, Period: time.Second})
	must.Succeed(t, err)
	var s rate.State
	var d rate.Decision
	for i := 0; i < 5; i++ {
		rate.Decide(l, &s, 1_700_000_000_000_000, rate.Unaffordable, &s, &d)
	}
	if previous, current := s.B>>32, s.B&(1<<32-1); previous != 0 || current != 1<<32-1 {
		t.Errorf("previous %d and current %d, want 0 and all that 32 bits can say", previous, current)
	}
}
