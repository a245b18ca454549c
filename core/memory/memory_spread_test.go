package memory

import (
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// The quotas of 10,000 keys that are used up are all renewed in one second, unless they are spread over the period. docs/algorithms.md has the figures.
func TestQuotasThatAreSpreadAreNotAllRenewedInOneSecond(t *testing.T) {
	keys := 10_000
	if interpreted {
		keys = 500
	}
	for _, c := range []struct {
		start  rate.WindowStart
		period time.Duration
		most   int // keys that are renewed in a second
	}{{rate.ByClock, time.Minute, keys}, {rate.ByClock, time.Hour, keys}, {rate.Spread, time.Minute, keys/60 + keys/100 + 10}, {rate.Spread, time.Hour, keys/3600 + 20}} {
		now := int64(1_800_000_000_123_456)
		m := New(Config{Clock: func() int64 { return now }})
		l := mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: c.period, Start: c.start})
		r, err := core.NewRule(core.RuleConfig{Name: "r", Limit: l})
		must.Succeed(t, err)
		must.Succeed(t, m.Open(r))
		seconds := make(map[int64]int)
		busiest := 0
		for i := 0; i < keys; i++ {
			checks := []core.Check{{Rule: r, Key: "192.0." + strconv.Itoa(i/256) + "." + strconv.Itoa(i%256), Cost: 1}}
			must.Succeed(t, m.Decide(checks, false))
			second := (now + checks[0].Decision.ResetAfter) / 1_000_000
			seconds[second]++
			if seconds[second] > busiest {
				busiest = seconds[second]
			}
		}
		t.Logf("%s, %s: of %d keys the busiest second renews %d; %.1f would be even", c.period, c.start.String(), keys, busiest, float64(keys)/c.period.Seconds())
		if busiest > c.most || c.start == rate.ByClock && busiest != keys {
			t.Errorf("%s, %s: the busiest second renews %d of %d keys, want %d at most", c.period, c.start.String(), busiest, keys, c.most)
		}
	}
}
