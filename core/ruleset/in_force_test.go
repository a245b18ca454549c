package ruleset

import (
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/tools/must"
)

func TestTheLimitOfAnExceptionIsWhatIsWritten(t *testing.T) {
	for _, c := range []struct {
		rule       written
		text, want string // a limit, or an error
	}{
		{written{Limit: "100/1m"}, "500/1h", "500/1h sliding_window_counter"},
		{written{Limit: "100/1m"}, "+1000", "1100/1m sliding_window_counter"},
		{written{Limit: "100/1m", Segments: "6"}, "+1", "101/1m sliding_window_counter segments 6"},
		{written{Limit: "100/day", TimeZone: "Europe/Berlin"}, "+1000", "1100/day fixed_window"},
		{written{Limit: "100/1m", Algorithm: "token_bucket", Burst: "10"}, "+5", "105/1m token_bucket burst 15"},
		{written{Limit: "100/1m", Algorithm: "leaky_bucket", Burst: "10", MaxDelay: "3s"}, "+5", "105/1m leaky_bucket burst 15"},
		{written{Limit: "100/1m", Overrides: []override{{[]string{"192.0.2.1"}, "5/1m"}}}, "+1", "6/1m sliding_window_counter"},
		{written{Limit: "100/1m"}, "500", `limit "500": has no period`},
		{written{Limit: "100/1m"}, "unlimited", `limit "unlimited": is not available for a single key; write a large limit such as 1000000/1m`},
		{written{Limit: "100/1m"}, "+x", `limit "+x": must be + and a whole number from 1 to 1000000000`},
		{written{Limit: "100/1m"}, "+1000000000", `limit "+1000000000": requests 1000000100`},
		{written{Limit: "100/1m", Algorithm: "sliding_window_log"}, "500/day", `fixed_window`},
		{written{Limit: "unlimited"}, "5/1m", `limit "5/1m": the rule has no limit at all`},
		{written{Tiers: tiers("path", "/a", "9/1m", "*", "5/1m")}, "+1", `limit "+1": the rule's tiers say how much the key has`},
		{written{Limit: "100/1m", Overrides: []override{{[]string{"192.0.2.1"}, "unlimited"}}}, "+1", `limit "+1": the key is unlimited`},
		{written{Limit: "100/1m", Cost: "20"}, "5/1m", `limit "5/1m": can never hold what a request costs, 20`},
	} {
		c.rule.Name = "r"
		r := mustCompile(t, c.rule)
		limit, err := NewException(r, nil, "192.0.2.1", c.text)
		if err != nil {
			must.Contain(t, err.Error(), c.want)
			continue
		}
		must.Equal(t, limit.String(), c.want, c.text)
		must.Equal(t, limit.TimeZone() == "Europe/Berlin", c.rule.TimeZone != "", "the time zone of "+c.text)
		must.Equal(t, limit.MaxDelay == 3_000_000, c.rule.MaxDelay != "", "max_delay of "+c.text)
	}
}

// A key has the limit of its exception at once, even if a transition has begun, whatever advice does to the others, and no longer than that lasts.
func TestExceptionsAndAdviceAreInForceTogether(t *testing.T) {
	r := mustCompile(t, written{Name: "r", Limit: "3/1h", Key: []string{"header:X-Key"}})
	now := int64(1_790_000_000_000_000)
	l := core.NewLimiter(memory.New(memory.Config{Clock: func() int64 { return now }}))
	_, err := l.OpenAll(r.Limits.Rules())
	must.Succeed(t, err)
	pass := func(key string, want bool, limit int64) {
		t.Helper()
		rule := r.Active.Of("", key)
		checks := []core.Check{{Rule: rule, Key: key, Cost: 1, Previous: r.Active.Previous("", key, rule)}}
		var v core.Verdict
		must.Succeed(t, l.Decide(checks, false, &v))
		if got := v.Outcome == core.Allow; got != want || checks[0].Decision.Limit != limit {
			t.Fatalf("%s: allowed %t of %d, want %t of %d", key, got, checks[0].Decision.Limit, want, limit)
		}
	}
	for i := 0; i < 3; i++ {
		pass("acme", true, 3)
		pass("other", true, 3)
	}
	pass("acme", false, 3)
	must.Succeed(t, PutExceptions(r, l, map[string]string{"acme": "+1"}))
	pass("acme", true, 4)
	pass("acme", false, 4)
	pass("other", false, 3)
	must.Succeed(t, PutExceptions(r, l, map[string]string{"acme": "9/1m"}))
	pass("acme", true, 9) // which has counters of its own
	other, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 5, Period: 3600_000_000_000})
	must.Succeed(t, err)
	must.Succeed(t, PutOwn(r, l, other)) // a transition begins
	pass("other", false, 5)
	pass("acme", true, 9)
	must.Succeed(t, PutExceptions(r, l, map[string]string{"acme": "+2"}))
	pass("acme", true, 7) // of the limit that is in force
	var none *rate.Limit
	must.Succeed(t, PutOwn(r, l, none))
	pass("acme", true, 5)
	var noKeys map[string]string
	must.Succeed(t, PutExceptions(r, l, noKeys))
	pass("acme", false, 3)
	must.Equal(t, r.Active.Limits() == r.Limits, true, "the configured limits are in force")
}

// tenfold is a store in which regions divide limits of ten requests and more.
type tenfold struct{ core.Store }

func (tenfold) Fits(r *core.Rule) error {
	if r.Limit.Requests < 10 {
		return words.Wrong("regions", "lease", "the limit is too small")
	}
	return nil
}

// A limit by hand that regions cannot divide is refused, and if it is there already it leaves those of other keys in force.
func TestAnExceptionThatRegionsCannotDivideIsRefused(t *testing.T) {
	r := mustCompile(t, written{Name: "r", Limit: "30/1h", Key: []string{"header:X-Key"}, Regions: "lease"})
	l := core.NewLimiter(tenfold{memory.New(memory.Config{})})
	_, err := l.OpenAll(r.Limits.Rules())
	must.Succeed(t, err)
	_, err = NewException(r, l, "a", "5/1h")
	must.Contain(t, err.Error(), `limit "5/1h": regions lease: the limit is too small`)
	must.Succeed(t, PutExceptions(r, l, map[string]string{"a": "5/1h", "b": "20/1h"}))
	must.Equal(t, r.Active.Of("", "a").Limit.Requests, 30, "what holds for a")
	must.Equal(t, r.Active.Of("", "b").Limit.Requests, 20, "what holds for b")
}
