package answer

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// draft-ietf-httpapi-ratelimit-headers-10, 4.1.2: t is the seconds until additional quota is made available, and not until all of it is.
func TestRateLimitSaysWhenThereIsMoreAndTheXFieldsWhenThereIsAll(t *testing.T) {
	for _, c := range []struct {
		limit                rate.LimitConfig
		first, third, beyond string // RateLimit and X-RateLimit-Reset
	}{
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 6, Period: time.Minute}, `r=5;t=10 10`, `r=3;t=10 30`, `r=0;t=10 60`},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1, Period: time.Second, Burst: 6}, `r=5;t=1 1`, `r=3;t=1 3`, `r=0;t=1 6`},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 2, Period: time.Minute, Burst: 6, Interval: true}, `r=5;t=60 60`, `r=3;t=60 120`, `r=0;t=60 180`},
		{rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 6, Period: time.Minute, Burst: 5, MaxDelay: time.Hour}, `r=5 10`, `r=3 30`, `r=0;t=10 60`},
		{rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 6, Period: time.Minute}, `r=5;t=60 60`, `r=3;t=60 60`, `r=0;t=60 60`},
		{rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 6, Period: time.Minute}, `r=5;t=60 60`, `r=3;t=60 60`, `r=0;t=60 60`},
		{rate.LimitConfig{Algorithm: rate.SlidingWindowCounter, Requests: 6, Period: time.Minute}, `r=5;t=61 61`, `r=3;t=61 101`, `r=0;t=61 111`},
	} {
		d := newDesk(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, c.limit)})
		for i, want := range map[int]string{1: c.first, 3: c.third, 7: c.beyond} {
			d.now += 10 * 3_600_000_000
			v, checks := d.spend(i)
			h := http.Header{}
			WriteHeaders(h, allFields, checks, &v)
			if got := strings.TrimPrefix(h.Get("RateLimit"), `"r";`) + " " + h.Get("X-RateLimit-Reset"); got != want {
				t.Errorf("%s, the %d. request: %s, want %s", mustLimit(t, c.limit), i, got, want)
			}
		}
	}
}

// As above, where the units that are used are not all of one moment.
func TestRateLimitSaysWhenTheOldestIsGivenBack(t *testing.T) {
	for _, c := range []struct {
		limit rate.LimitConfig
		want  string
	}{
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 6, Period: time.Minute}, `"r";r=3;t=9`},               // a tenth of a token has come since the last whole one
		{rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 6, Period: time.Minute}, `"r";r=3;t=36`},         // the first, of 24 s ago
		{rate.LimitConfig{Algorithm: rate.SlidingWindowCounter, Requests: 6, Period: 20 * time.Second}, `"r";r=4;t=7`}, // the weight of 2 falls below 1 when half of it is left behind
	} {
		d := newDesk(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, c.limit)})
		d.now -= 1_000_000
		d.now -= d.now % 60_000_000
		d.spend(1)
		d.now += 12_000_000
		d.spend(1)
		d.now += 12_000_000
		if c.limit.Algorithm == rate.TokenBucket {
			d.spend(2)
			d.now += 1_000_000
		}
		v, checks := d.spend(1)
		h := http.Header{}
		WriteHeaders(h, Fields{IETF: true}, checks, &v)
		if got := h.Get("RateLimit"); got != c.want {
			t.Errorf("%s: %s, want %s", mustLimit(t, c.limit), got, c.want)
		}
	}
}

func TestOnARejectionNoPolicyHasATimeAfterRetryAfter(t *testing.T) {
	for _, f := range []Fields{allFields, {IETF: true}} {
		d := newDesk(t,
			core.RuleConfig{Name: "day", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 50, Period: 24 * time.Hour})},
			core.RuleConfig{Name: "second", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1, Period: 5 * time.Second, Burst: 2})},
			core.RuleConfig{Name: "quick", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 9, Period: time.Second})},
			core.RuleConfig{Name: "unused", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 9, Period: 500 * time.Microsecond * 2})},
		)
		d.spend(2)
		d.now += 50_000
		v, checks := d.spend(1)
		h := http.Header{}
		WriteHeaders(h, f, checks, &v)
		if got, want := h.Get("RateLimit"), `"day";r=48, "second";r=0;t=5, "quick";r=7;t=1, "unused";r=9`; got != want || h.Get("Retry-After") != "5" {
			t.Errorf("%+v: %s with Retry-After %s, want %s with 5", f, got, h.Get("Retry-After"), want)
		}
	}
}

// Handlers in a row decide one after the other: what the first has written may be later than the second's Retry-After.
func TestOnARejectionNoEarlierHandlersPolicyHasATimeAfterRetryAfter(t *testing.T) {
	for earlier, want := range map[string]string{
		`"a";r=3;t=6`:                          `"a";r=3, "b";r=0;t=5`,
		`"a";r=3;t=5`:                          `"a";r=3;t=5, "b";r=0;t=5`,
		`"a";r=3;t=6, "x";r=2, "y";r=1;t=9;z`:  `"a";r=3, "x";r=2, "y";r=1;z, "b";r=0;t=5`,
		`"a";r=3;t=4;pk=:cHg=:, "x";r=2;t=700`: `"a";r=3;t=4;pk=:cHg=:, "x";r=2, "b";r=0;t=5`,
		`"a";r=3;t=soon`:                       `"a";r=3;t=soon, "b";r=0;t=5`,
	} {
		h := http.Header{"Ratelimit": {earlier}}
		written(h, allFields, []core.Check{decided(t, "b", 10, rate.Decision{RetryAfter: 5_000_000, ResetAfter: 9_000_000})})
		must.Equal(t, h.Get("RateLimit"), want, "after %s", earlier)
	}
}

// An unused quota, or one that other requests have reserved, gives nothing back at a known time; and what a request waits for is over by the time
// that its response is sent.
func TestRateLimitHasNoTimeWhereNoneIsKnown(t *testing.T) {
	bucket := rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 6, Period: time.Minute}
	slow := rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 6, Period: time.Minute, MaxDelay: time.Minute}
	for name, c := range map[string]struct {
		rules    []core.RuleConfig
		requests int
		want     string
	}{
		"requests in flight":     {[]core.RuleConfig{{Name: "r", Limit: mustLimit(t, bucket), Concurrency: 2}}, 1, `"r";r=5;t=10, "r.concurrency";r=1`},
		"beyond a soft limit":    {[]core.RuleConfig{{Name: "r", Limit: mustLimit(t, bucket), OverflowPolicy: core.OverflowPolicy{SoftPercent: 50, SoftFor: time.Minute}}}, 7, `"r";r=0`},
		"within a soft limit":    {[]core.RuleConfig{{Name: "r", Limit: mustLimit(t, bucket), OverflowPolicy: core.OverflowPolicy{SoftPercent: 50, SoftFor: time.Minute}}}, 6, `"r";r=0;t=10`},
		"a request that waits":   {[]core.RuleConfig{{Name: "r", Limit: mustLimit(t, bucket)}, {Name: "s", Limit: mustLimit(t, slow)}}, 2, `"r";r=4, "s";r=5`},
		"a queue that is unused": {[]core.RuleConfig{{Name: "r", Limit: mustLimit(t, bucket)}, {Name: "s", Limit: mustLimit(t, slow)}}, 1, `"r";r=5;t=10, "s";r=6`},
	} {
		for _, f := range []Fields{allFields, {IETF: true}} {
			d := newDesk(t, c.rules...)
			v, checks := d.spend(c.requests)
			h := http.Header{}
			WriteHeaders(h, f, checks, &v)
			must.Equal(t, h.Get("RateLimit"), c.want, "%s", name)
		}
	}
}

func TestPolicysWindowIsTheTimeInWhichItsQuotaIsRefilled(t *testing.T) {
	for _, c := range []struct {
		config rate.LimitConfig
		want   string
	}{
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1, Period: time.Second, Burst: 20}, `"r";q=20;w=20`},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 100, Period: time.Minute, Burst: 20}, `"r";q=20;w=12`},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 5, Period: time.Second, Burst: 9}, `"r";q=9`}, // 1.8 s
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 3, Period: time.Second, Burst: 10}, `"r";q=10`},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 2, Period: 500 * time.Millisecond, Burst: 8}, `"r";q=8;w=2`},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 5, Period: time.Minute}, `"r";q=5;w=60`},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 5, Period: 1500 * time.Millisecond}, `"r";q=5`},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 4, Period: time.Minute, Burst: 9, Interval: true}, `"r";q=9;w=180`}, // three refills
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1_000_000_000, Period: 3000 * time.Hour, Burst: 1_000_000_000}, `"r";q=1000000000;w=10800000`},
		{rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 1, Period: 2 * time.Second, Burst: 4}, `"r";q=4;w=8`},
	} {
		r := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, c.config)})
		must.Equal(t, r.PolicyText, c.want, "%+v", c.config)
	}
}
