package core

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// Clients are told to come back later if quotas are renewed for all keys at once, in periods of a minute and more, or where a rule says so.
func TestJitterIsForQuotasThatAreRenewedAtOnce(t *testing.T) {
	none, tenth := 0.0, 0.1
	second := int64(1_000_000)
	for _, c := range []struct {
		limit     string
		config    rate.LimitConfig
		jitter    *float64
		penalties []time.Duration
		want      int64
		reset     bool
	}{
		{"5/1m", rate.LimitConfig{Algorithm: rate.FixedWindow}, nil, nil, 6 * second, false},
		{"5/59s", rate.LimitConfig{Algorithm: rate.FixedWindow}, nil, nil, 0, false},
		{"5/5m", rate.LimitConfig{Algorithm: rate.FixedWindow}, nil, nil, 30 * second, false},
		{"5/1h", rate.LimitConfig{Algorithm: rate.FixedWindow}, nil, nil, 60 * second, false},
		{"5/month", rate.LimitConfig{}, nil, nil, 60 * second, false},
		{"5/1m", rate.LimitConfig{Algorithm: rate.TokenBucket, Interval: true}, nil, nil, 6 * second, false},
		{"5/1m", rate.LimitConfig{Algorithm: rate.TokenBucket}, nil, nil, 0, false},
		{"5/1m", rate.LimitConfig{}, nil, nil, 0, false},
		{"5/1m", rate.LimitConfig{Algorithm: rate.FixedWindow, Start: rate.Spread}, nil, nil, 0, false},
		{"5/1m", rate.LimitConfig{Algorithm: rate.FixedWindow, Start: rate.FirstRequest}, nil, nil, 0, false},
		{"5/1m", rate.LimitConfig{Algorithm: rate.FixedWindow}, nil, []time.Duration{time.Hour}, 0, false},
		{"5/1m", rate.LimitConfig{Algorithm: rate.FixedWindow}, &none, nil, 0, false},
		{"5/10s", rate.LimitConfig{Algorithm: rate.FixedWindow}, &tenth, nil, second, true},
		{"5/1h", rate.LimitConfig{Algorithm: rate.FixedWindow}, &tenth, nil, 360 * second, true},
	} {
		must.Succeed(t, rate.ParseLimit(c.limit, &c.config))
		limit, err := rate.NewLimit(c.config)
		must.Succeed(t, err)
		r, err := NewRule(RuleConfig{Name: "r", Limit: limit, Jitter: c.jitter, OverflowPolicy: OverflowPolicy{Penalties: c.penalties}})
		must.Succeed(t, err)
		for _, one := range []*Rule{r, r.sharedBy(1)} {
			must.Equal(t, one.Jitter, c.want, limit.String(), "jitter")
			must.Equal(t, one.JittersReset, c.reset, limit.String(), "of Reset, too")
			must.Equal(t, one.JitterIsOwn, c.jitter != nil, limit.String(), "written")
		}
	}
}
