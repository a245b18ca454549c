package answer

import (
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// desk is a limiter whose time changes only with now, with rules that cover one client.
type desk struct {
	t       *testing.T
	now     int64
	limiter *core.Limiter
	rules   []*core.Rule
}

func newDesk(t *testing.T, rules ...core.RuleConfig) *desk {
	d := &desk{t: t, now: 1_800_000_000_000_000}
	store := memory.New(memory.Config{Clock: func() int64 { return d.now }})
	d.limiter = core.NewLimiter(store)
	for _, c := range rules {
		r := mustRule(t, c)
		must.Succeed(t, d.limiter.Open(r))
		d.rules = append(d.rules, r)
	}
	return d
}

func (d *desk) checks() []core.Check {
	checks := make([]core.Check, 0, len(d.rules))
	for _, r := range d.rules {
		checks = append(checks, core.Check{Rule: r, Key: "192.0.2.1", Cost: 1})
	}
	return checks
}

// spend makes so many requests, and returns the last verdict with its checks.
func (d *desk) spend(n int) (core.Verdict, []core.Check) {
	d.t.Helper()
	var v core.Verdict
	checks := d.checks()
	for i := 0; i < n; i++ {
		must.Succeed(d.t, d.limiter.Decide(checks, false, &v))
	}
	return v, checks
}

// look returns the quotas that the client gets.
func (d *desk) look() string {
	d.t.Helper()
	var v core.Verdict
	checks := d.checks()
	must.Succeed(d.t, d.limiter.Look(checks, &v))
	return strings.TrimSuffix(string(AppendQuotas(nil, checks, &v)), "\n")
}

func (d *desk) want(what, quotas string) {
	d.t.Helper()
	for i := 0; i < 3; i++ { // asking changes nothing
		if got := d.look(); got != `{"quotas":[`+quotas+`]}` {
			d.t.Errorf("%s, asked for the %d. time: %s, want %s", what, i+1, got, quotas)
		}
	}
}

func TestAClientCanAskHowItStandsAtNoCost(t *testing.T) {
	for _, c := range []struct {
		limit             rate.LimitConfig
		unused, used, out string
	}{
		{rate.LimitConfig{Requests: 6, Period: time.Minute, Algorithm: rate.TokenBucket}, `"remaining":6,"reset":0`, `"remaining":2,"reset":40`, `"remaining":0,"reset":60,"retry_after":10`},
		{rate.LimitConfig{Requests: 6, Period: time.Minute, Algorithm: rate.FixedWindow}, `"remaining":6,"reset":0`, `"remaining":2,"reset":60`, `"remaining":0,"reset":60,"retry_after":60`},
		{rate.LimitConfig{Requests: 6, Period: time.Minute, Algorithm: rate.SlidingWindowLog}, `"remaining":6,"reset":0`, `"remaining":2,"reset":60`, `"remaining":0,"reset":60,"retry_after":60`},
		{rate.LimitConfig{Requests: 6, Period: time.Minute, Algorithm: rate.SlidingWindowCounter}, `"remaining":6,"reset":0`, `"remaining":2,"reset":106`, `"remaining":0,"reset":111,"retry_after":61`},
		{rate.LimitConfig{Requests: 6, Period: time.Minute, Algorithm: rate.LeakyBucket, Burst: 6, MaxDelay: time.Hour}, `"remaining":6,"reset":0`, `"remaining":3,"reset":40`, `"remaining":0,"reset":70,"retry_after":10`},
	} {
		d := newDesk(t, core.RuleConfig{Name: "everyone", Limit: mustLimit(t, c.limit)})
		begin := `{"name":"everyone","limit":6,`
		name := c.limit.Algorithm.String()
		d.want(name+", unused", begin+c.unused+"}")
		_, checks := d.spend(4)
		d.want(name+", used", begin+c.used+"}")
		if told := seconds(checks[0].Decision.ResetAfter); !strings.HasSuffix(c.used, `"reset":`+decimal(told)) {
			t.Errorf("%s: the header fields have a reset of %d", name, told)
		}
		d.spend(6)
		d.want(name+", used up", begin+c.out+"}")
	}
}

func TestTheQuotasOfALogBecomeWholeWhileAClientOnlyAsks(t *testing.T) {
	d := newDesk(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Requests: 5, Period: time.Minute, Algorithm: rate.SlidingWindowLog})})
	d.spend(2)
	d.now += 45_000_000
	d.want("after 45 s", `{"name":"r","limit":5,"remaining":3,"reset":15}`)
	d.now += 16_000_000
	d.want("after a minute", `{"name":"r","limit":5,"remaining":5,"reset":0}`)
}

func TestQuotasLeaveOutShadows(t *testing.T) {
	limit := mustLimit(t, rate.LimitConfig{Requests: 5, Period: time.Minute, Algorithm: rate.FixedWindow})
	tight := mustLimit(t, rate.LimitConfig{Requests: 1, Period: time.Minute, Algorithm: rate.FixedWindow})
	d := newDesk(t,
		core.RuleConfig{Name: "shadow", Limit: tight, Shadow: true},
		core.RuleConfig{Name: "r", Limit: limit, Candidate: tight},
	)
	d.want("unused", `{"name":"r","limit":5,"remaining":5,"reset":0}`)
	d.spend(3)
	d.want("used", `{"name":"r","limit":5,"remaining":2,"reset":60}`)
	alone := newDesk(t, core.RuleConfig{Name: "shadow", Limit: tight, Shadow: true})
	alone.want("nothing else", "")
}

func TestQuotasSayWhichRuleRejectsAndWhatTheOthersHave(t *testing.T) {
	d := newDesk(t,
		core.RuleConfig{Name: "few", Limit: mustLimit(t, rate.LimitConfig{Requests: 2, Period: time.Minute, Algorithm: rate.FixedWindow})},
		core.RuleConfig{Name: "many", Limit: mustLimit(t, rate.LimitConfig{Requests: 9, Period: time.Minute, Algorithm: rate.FixedWindow})},
	)
	d.spend(4)
	d.want("one is used up", `{"name":"few","limit":2,"remaining":0,"reset":60,"retry_after":60},{"name":"many","limit":9,"remaining":7,"reset":60}`)
}

func TestQuotasOfEveryOverflowPolicy(t *testing.T) {
	bucket := rate.LimitConfig{Requests: 6, Period: time.Minute, Algorithm: rate.TokenBucket}
	delaying := bucket
	delaying.Delays = true
	places := newDesk(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, bucket), Concurrency: 2})
	places.want("concurrency, unused", `{"name":"r","limit":6,"remaining":6,"reset":0},{"name":"r.concurrency","limit":2,"remaining":2,"reset":0}`)
	places.spend(1)
	places.want("one is under way", `{"name":"r","limit":6,"remaining":5,"reset":10},{"name":"r.concurrency","limit":2,"remaining":1,"reset":0}`)
	places.spend(1)
	places.want("two are", `{"name":"r","limit":6,"remaining":4,"reset":20},{"name":"r.concurrency","limit":2,"remaining":0,"reset":0,"retry_after":1}`)

	soft := newDesk(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, bucket), OverflowPolicy: core.OverflowPolicy{SoftPercent: 50, SoftFor: time.Minute}})
	soft.spend(5)
	soft.want("soft, below the limit", `{"name":"r","limit":6,"remaining":1,"reset":50}`)
	soft.spend(3) // which counts down by the wider limit for as long as it holds
	soft.want("soft, beyond it", `{"name":"r","limit":6,"remaining":0,"reset":54}`)
	soft.spend(2)
	soft.want("soft, beyond the tolerance", `{"name":"r","limit":6,"remaining":0,"reset":60,"retry_after":7}`)

	queue := newDesk(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, delaying)})
	queue.spend(4)
	queue.want("delay, nobody waits", `{"name":"r","limit":6,"remaining":2,"reset":40}`)
	queue.spend(3)
	queue.want("delay, one waits", `{"name":"r","limit":6,"remaining":0,"reset":70,"retry_after":10}`)

	penalty := newDesk(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, bucket), OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{10 * time.Minute}}})
	penalty.spend(7)
	penalty.want("blocked", `{"name":"r","limit":6,"remaining":0,"reset":600,"retry_after":600}`)
}

func TestOfSeveralKeysUnderOneRuleQuotasHaveTheTightest(t *testing.T) {
	d := newDesk(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Requests: 5, Period: time.Minute, Algorithm: rate.FixedWindow})})
	d.spend(2)
	checks := []core.Check{{Rule: d.rules[0], Key: "other", Cost: 1}, {Rule: d.rules[0], Key: "192.0.2.1", Cost: 1}}
	var v core.Verdict
	must.Succeed(t, d.limiter.Look(checks, &v))
	must.Equal(t, string(AppendQuotas([]byte("# "), checks, &v)), `# {"quotas":[{"name":"r","limit":5,"remaining":3,"reset":60}]}`+"\n")
}
