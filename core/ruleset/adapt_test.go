package ruleset

import (
	"strings"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// compiled compiles a rule named a, with 100/1m if it has no other limit, and fails the test if that has errors.
func compiled(t *testing.T, w written) *Rule {
	t.Helper()
	w.Name = "a"
	if w.Limit == "" && w.Tiers == nil {
		w.Limit = "100/1m"
	}
	r, errors := Compile(textOf(w), Context{Namespace: "shop", Prefixes: Standard})
	if len(errors) > 0 {
		t.Fatalf("%+v: %v", w, errors[0])
	}
	return r
}

func TestAnAdaptableRuleHasItsBoundsAndDefaults(t *testing.T) {
	if r := compiled(t, written{}); r.Adapt != nil {
		t.Error("a rule without adapt is adaptable")
	}
	a := compiled(t, written{Adapt: &adapt{Ceiling: "200/60s"}}).Adapt
	if a.Floor != 100 || a.Ceiling != 200 || a.StepPercent != 25 || a.StepEvery != 30_000_000 || len(a.Algorithms) != 1 || a.Algorithms[0] != rate.SlidingWindowCounter {
		t.Errorf("%+v", a)
	}
	a = compiled(t, written{Adapt: &adapt{Floor: "50/1m", Step: "10 2m", Algorithms: []string{"token_bucket, fixed_window", "token_bucket"}}}).Adapt
	var names []string
	for _, algorithm := range a.Algorithms {
		names = append(names, algorithm.String())
	}
	if a.Floor != 50 || a.Ceiling != 100 || a.StepPercent != 10 || a.StepEvery != 120_000_000 || strings.Join(names, " ") != "fixed_window sliding_window_counter token_bucket" {
		t.Errorf("%+v, %v", a, names)
	}
}

func TestAdaptSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		of   written
		want string
	}{
		{written{Adapt: &adapt{Step: "25%"}}, `adapt.step: adapt: step "25%": takes a percentage and a duration, such as 25% 30s`},
		{written{Adapt: &adapt{Step: "101% 30s"}}, `adapt.step: adapt: step "101% 30s": the percentage must be a whole number from 1 to 100, such as 25%`},
		{written{Adapt: &adapt{Step: "25% 500ms"}}, `adapt.step: adapt: step "25% 500ms": the duration must be from 1s to 1h, such as 30s`},
		{written{Adapt: &adapt{Floor: "101/1m"}}, `adapt.floor: adapt: floor 101/1m: is above the limit, 100/1m sliding_window_counter`},
		{written{Adapt: &adapt{Ceiling: "99/1m"}}, `adapt.ceiling: adapt: ceiling 99/1m: is below the limit, 100/1m sliding_window_counter`},
		{written{Adapt: &adapt{Ceiling: "200/day"}}, `adapt.ceiling: adapt: ceiling "200/day": must have the period of the limit, 100/1m sliding_window_counter`},
		{written{Adapt: &adapt{Ceiling: "unlimited"}}, `adapt.ceiling: adapt: ceiling: limit "unlimited": has no period; write <requests>/<period>, such as 100/1m`},
		{written{Limit: "unlimited", Overrides: []override{{[]string{"192.0.2.1"}, "5/1m"}}, Adapt: &adapt{Ceiling: "99/1m"}}, `adapt: adapt: the rule's own limit is unlimited, and has nothing to adapt; write a limit, or leave adapt out`},
		{written{Candidate: &candidate{Limit: "50/1m"}, Adapt: &adapt{Ceiling: "200/1m"}}, `adapt: adapt: is mutually exclusive with candidate, which is compared with one limit; remove one`},
		{written{Adapt: &adapt{}}, `adapt: adapt: is empty; write floor, ceiling or algorithms`},
		{written{Limit: "100/day", Adapt: &adapt{Algorithms: []string{"token_bucket"}}}, `adapt.algorithms: adapt: algorithms: 100 requests by token_bucket: period "day": only fixed_window follows the calendar, not token_bucket; write a duration such as 24h`},
		{written{Algorithm: "sliding_window_log", Adapt: &adapt{Ceiling: "100001/1m"}}, `adapt.ceiling: adapt: ceiling: 100001 requests by sliding_window_log: requests 100001: a sliding_window_log keeps a time for each request and takes at most 100000`},
		{written{Cost: "60", Adapt: &adapt{Floor: "50/1m"}}, `adapt.floor: adapt: floor: the cost, 60, is more than 50/1m sliding_window_counter can ever hold, which is 50`},
		{written{Enforcement: "soft 20% 30s", Adapt: &adapt{Algorithms: []string{"leaky_bucket"}}}, `adapt.algorithms: adapt: algorithms: 100 requests by leaky_bucket: `},
	} {
		c.of.Name = "a"
		if c.of.Limit == "" {
			c.of.Limit = "100/1m"
		}
		r, errors := Compile(textOf(c.of), Context{Prefixes: Standard})
		if len(errors) == 0 {
			t.Errorf("%+v: is accepted as %+v", c.of, r.Adapt)
			continue
		}
		if got := strings.Join(errors[0].Path, ".") + ": " + errors[0].Error(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v:\n got %s\nwant %s", c.of.Adapt, got, c.want)
		}
	}
}

// Windows begin as the rule says while the algorithm in force has such.
func TestAnAdaptedRuleKeepsItsWindowStart(t *testing.T) {
	r := compiled(t, written{Algorithm: "fixed_window", WindowStart: "first_request", Adapt: &adapt{Ceiling: "200/1m", Algorithms: []string{"sliding_window_counter", "token_bucket"}}})
	for algorithm, want := range map[rate.Algorithm]string{
		rate.FixedWindow: "150/1m fixed_window window_start first_request", rate.SlidingWindowCounter: "150/1m sliding_window_counter", rate.TokenBucket: "150/1m token_bucket",
	} {
		limits, err := LimitsWith(r.Adapt, 150, 0, algorithm)
		if err != nil || limits.Own().Limit.String() != want {
			t.Errorf("the limit is %s, %v, want %s", limits.Own().Limit, err, want)
		}
	}
}

// Segments are kept while the algorithm in force has some.
func TestAnAdaptedRuleKeepsItsSegments(t *testing.T) {
	r := compiled(t, written{Segments: "12", Adapt: &adapt{Ceiling: "200/1m", Algorithms: []string{"fixed_window"}}})
	for algorithm, want := range map[rate.Algorithm]string{
		rate.SlidingWindowCounter: "150/1m sliding_window_counter segments 12", rate.SlidingWindowSegments: "150/1m sliding_window_counter segments 12",
		rate.FixedWindow: "150/1m fixed_window",
	} {
		limits, err := LimitsWith(r.Adapt, 150, 0, algorithm)
		if err != nil || limits.Own().Limit.String() != want {
			t.Errorf("the limit is %s, %v, want %s", limits.Own().Limit, err, want)
		}
	}
}

func TestTheLimitsOfAnAdaptedRule(t *testing.T) {
	r := compiled(t, written{
		Algorithm: "token_bucket", Burst: "30", Refill: "interval", Overrides: []override{{[]string{"192.0.2.1"}, "7/1m"}},
		Adapt: &adapt{Floor: "50/1m", Ceiling: "200/1m", Algorithms: []string{"fixed_window", "leaky_bucket"}},
	})
	for _, c := range []struct {
		requests  int64
		algorithm rate.Algorithm
		burst     int64
		want      string
	}{
		{100, rate.TokenBucket, 30, "100/1m token_bucket burst 30"},
		{150, rate.TokenBucket, 45, "150/1m token_bucket burst 45"},
		{55, rate.TokenBucket, 16, "55/1m token_bucket burst 16"}, // 16.5
		{200, rate.FixedWindow, 60, "200/1m fixed_window"},
		{200, rate.LeakyBucket, 60, "200/1m leaky_bucket burst 60"},
	} {
		must.Equal(t, burstFor(r.Adapt, c.requests), c.burst, "%d requests have a burst of", c.requests)
		limits, err := LimitsWith(r.Adapt, c.requests, c.burst, c.algorithm)
		if err != nil {
			t.Fatal(err)
		}
		own := limits.Own()
		if own.Limit.String() != c.want || own.Name() != "a" || own.Namespace != "shop" || own.KeySpec() != r.Limits.Own().KeySpec() {
			t.Errorf("got %s of %s/%s, want %s", own.Limit, own.Namespace, own.Name(), c.want)
		}
		must.Equal(t, own.Limit.Interval(), c.algorithm == rate.TokenBucket, "%s: interval", c.want)
		if other := limits.Of("", "192.0.2.1"); other.Limit.Requests != 7 || other.Limit.Algorithm != rate.TokenBucket {
			t.Errorf("the override is %s", other.Limit)
		}
		same := own.Identity == r.Limits.Own().Identity
		must.Equal(t, same, c.algorithm == rate.TokenBucket, "%s: the same counters", c.want)
	}
}

func TestAnAdaptedLimitOfTheCalendarKeepsItsPeriod(t *testing.T) {
	r := compiled(t, written{Limit: "100/day", TimeZone: "Europe/Berlin", Adapt: &adapt{Ceiling: "200/day"}})
	limits, err := LimitsWith(r.Adapt, 150, 0, rate.FixedWindow)
	if err != nil || limits.Own().Identity != r.Limits.Own().Identity || limits.Own().Limit.Requests != 150 {
		t.Errorf("%v, %v", limits.Own().Limit, err)
	}
}

func TestRulesOfOneNameMustAdaptAlike(t *testing.T) {
	own := func(w written) *core.Rule { return compiled(t, w).Limits.Own() }
	a := own(written{Adapt: &adapt{Ceiling: "200/1m"}})
	must.Equal(t, core.Difference(a, own(written{Adapt: &adapt{Ceiling: "200/60s", Step: "25% 30s"}})), "", "the same in other words")
	for _, other := range []written{{}, {Adapt: &adapt{Ceiling: "201/1m"}}, {Adapt: &adapt{Ceiling: "200/1m", Algorithms: []string{"token_bucket"}}}} {
		must.Equal(t, core.Difference(a, own(other)), "another adapt", "%+v", other.Adapt)
	}
}
