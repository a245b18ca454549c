package answer

import (
	"math"
	"math/rand"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// forever is the longest time that core tells: a hundred years.
const forever = 100 * 365 * 24 * 3600 * 1_000_000

func mustLimit(t testing.TB, c rate.LimitConfig) *rate.Limit {
	l, err := rate.NewLimit(c)
	must.Succeed(t, err)
	return l
}

func mustRule(t testing.TB, c core.RuleConfig) *core.Rule {
	if c.Limit == nil {
		c.Limit = mustLimit(t, rate.LimitConfig{Requests: 10, Period: time.Minute})
	}
	r, err := core.NewRule(c)
	must.Succeed(t, err)
	return r
}

// decided returns a check of a rule of that name and quota a minute, decided as said.
func decided(t *testing.T, name string, quota int64, d rate.Decision) core.Check {
	d.Limit = quota
	return core.Check{
		Rule:     mustRule(t, core.RuleConfig{Name: name, Limit: mustLimit(t, rate.LimitConfig{Requests: quota, Period: time.Minute})}),
		Decision: d,
	}
}

// spread returns a number from low to high, of which each order of magnitude is as likely.
func spread(r *rand.Rand, low, high int64) int64 {
	x := int64(math.Round(math.Exp(math.Log(float64(low)) + r.Float64()*(math.Log(float64(high))-math.Log(float64(low))))))
	if x < low {
		return low
	}
	if x > high {
		return high
	}
	return x
}
