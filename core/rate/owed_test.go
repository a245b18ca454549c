package rate_test

import (
	"math/rand"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/tools/must"
)

// owing returns a limit whose keys owe what is charged beyond it.
func owing(t *testing.T, c rate.LimitConfig) *rate.Limit {
	t.Helper()
	c.Owes = true
	l, err := rate.NewLimit(c)
	must.Succeed(t, err)
	return l
}

// What is charged beyond a limit is paid before the next request passes, and the decision says when that will be.
func TestDebtsArePaid(t *testing.T) {
	minute := rate.LimitConfig{Requests: 20, Period: time.Minute}
	for name, c := range map[string]rate.LimitConfig{
		"token_bucket":           {Algorithm: rate.TokenBucket, Requests: 32, Period: 1 << 20 * time.Microsecond, Burst: 40}, // exact in a double
		"fixed_window":           {Algorithm: rate.FixedWindow, Requests: minute.Requests, Period: minute.Period},
		"first_request":          {Algorithm: rate.FixedWindow, Requests: minute.Requests, Period: minute.Period, Start: rate.FirstRequest},
		"sliding_window_counter": {Algorithm: rate.SlidingWindowCounter, Requests: minute.Requests, Period: minute.Period},
		"month":                  {Algorithm: rate.FixedWindow, Requests: 20, Calendar: rate.Month},
	} {
		l := owing(t, c)
		random := rand.New(rand.NewSource(1))
		for round := 0; round < 100; round++ {
			now := 1_700_000_000_000_000 + random.Int63n(1<<45)
			d := storetest.NewDebtor(l, "", now)
			var s rate.State
			rejected := 0
			for step := 0; step < 300; step++ {
				now += random.Int63n(l.Period / 4)
				if random.Intn(20) == 0 {
					now += random.Int63n(12 * l.Period)
				}
				cost := random.Int63n(l.Requests) + 1
				var next rate.State
				var dec rate.Decision
				rate.Decide(l, &s, now, cost, &next, &dec)
				if want := d.Allows(now, cost); dec.Allowed != want {
					t.Fatalf("%s, round %d, step %d: allowed %t, want %t; the state is %+v, at %d, for %d", name, round, step, dec.Allowed, want, s, now, cost)
				}
				if !dec.Allowed {
					rejected++
					if c.Calendar != rate.Month { // whose windows are taken to be as long as usual
						early, late := *d, *d
						if !late.Allows(now+dec.RetryAfter, cost) || early.Allows(now+dec.RetryAfter-1, cost) {
							t.Fatalf("%s, round %d, step %d: Retry-After %d is wrong for %d; the state is %+v, at %d", name, round, step, dec.RetryAfter, cost, s, now)
						}
					}
					rate.Decide(l, &s, now, 0, &next, &dec)
					if c.Calendar != rate.Month && (!rate.Unused(l, &s, now+dec.ResetAfter) || rate.Unused(l, &s, now+dec.ResetAfter-1)) {
						t.Fatalf("%s, round %d, step %d: the quota is not whole after %d; the state is %+v, at %d", name, round, step, dec.ResetAfter, s, now)
					}
					if random.Intn(4) > 0 {
						continue
					}
				}
				units := random.Int63n(2*cost + 1)
				if random.Intn(10) == 0 {
					units += random.Int63n(10 * l.Requests)
				}
				rate.Charge(l, &s, now, units, &s)
				d.Charge(now, units)
			}
			if rejected < 10 {
				t.Errorf("%s: %d of 300 rejected, so this proves little", name, rejected)
			}
		}
	}
}
