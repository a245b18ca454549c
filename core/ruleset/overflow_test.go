package ruleset

import (
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/rate"
)

func TestCompileSaysAllThatIsWrongWithTheOverflowPolicy(t *testing.T) {
	const (
		soft   = "must be hard, shadow, soft <percent> <duration> or <percent>%"
		needs  = ": needs a limit, and concurrency is none; write one such as 100/1m beside it, or leave it out"
		effect = ": has no effect on a rule without any limit; write a limit, or leave it out"
	)
	status := func(word string) string {
		return `count "` + word + `": must be the status code of a response, 101 or 200 to 599, a class of them such as 4xx, or a field such as header:X-Login, header:X-Login=failed or trailer:Grpc-Status=16`
	}
	for _, c := range []struct {
		text written
		want []string
	}{
		{written{Enforcement: "soft"}, []string{`enforcement: enforcement "soft": soft takes a percentage and a duration, such as soft 20% 30s`}},
		{written{Enforcement: "soft 20%"}, []string{`enforcement: enforcement "soft 20%": soft takes a percentage and a duration, such as soft 20% 30s`}},
		{written{Enforcement: "soft 20 % 30s"}, []string{`enforcement: enforcement "soft 20 % 30s": soft takes a percentage and a duration, such as soft 20% 30s`}},
		{written{Enforcement: "soft 0% 30s"}, []string{`enforcement: enforcement "soft 0% 30s": the percentage must be a whole number from 1 to 1000, such as 20%`}},
		{written{Enforcement: "soft 1001 30s"}, []string{`enforcement: enforcement "soft 1001 30s": the percentage must be a whole number from 1 to 1000, such as 20%`}},
		{written{Enforcement: "soft 1.5 30s"}, []string{`enforcement: enforcement "soft 1.5 30s": the percentage must be a whole number from 1 to 1000, such as 20%`}},
		{written{Enforcement: "soft +5 30s"}, []string{`enforcement: enforcement "soft +5 30s": the percentage must be a whole number from 1 to 1000, such as 20%`}},
		{written{Enforcement: "soft 30s 20%"}, []string{`enforcement: enforcement "soft 30s 20%": the percentage must be a whole number from 1 to 1000, such as 20%`}},
		{written{Enforcement: "soft 20% 30"}, []string{`enforcement: enforcement "soft 20% 30": the duration must be from 1ms to 366d, in whole microseconds, such as 30s or 1d`}},
		{written{Enforcement: "soft 20% day"}, []string{`enforcement: enforcement "soft 20% day": the duration must be from 1ms to 366d, in whole microseconds, such as 30s or 1d`}},
		{written{Enforcement: "soft 20% 367d"}, []string{`enforcement: enforcement "soft 20% 367d": the duration must be from 1ms to 366d, in whole microseconds, such as 30s or 1d`}},
		{written{Enforcement: "Soft 20% 30s"}, []string{`enforcement: enforcement "Soft 20% 30s": ` + soft}},
		{written{Limit: "5/1m", Enforcement: "soft 10% 1h"}, []string{`enforcement: enforcement soft: 10 % of 5/1m sliding_window_counter is less than one request, so that there would be no tolerance`}},
		{written{Tiers: tiers("path", "/a", "100/1m", "*", "5/1m"), Enforcement: "soft 10% 1h"}, []string{`enforcement: enforcement soft: 10 % of 5/1m sliding_window_counter is less than one request, so that there would be no tolerance`}},
		{written{Limit: "unlimited", Enforcement: "soft 10% 1h"}, []string{`enforcement: enforcement soft` + effect}},

		{written{OnLimit: "delay"}, []string{`on_limit: on_limit delay: sliding_window_counter cannot say when a request may leave; choose the algorithm token_bucket, sliding_window_log or fixed_window`}},
		{written{OnLimit: "delay", Tiers: tiers("path", "*", "5/1m")}, []string{`on_limit: tiers: "*": on_limit delay: sliding_window_counter cannot say when a request may leave; choose the algorithm token_bucket, sliding_window_log or fixed_window`}},
		{written{OnLimit: "defer"}, []string{`on_limit: on_limit "defer": is only for zones of Caddy; use reject or delay`}},
		{written{OnLimit: "delays"}, []string{`on_limit: on_limit "delays": must be reject or delay (did you mean delay?)`}},
		{written{OnLimit: "delay", Algorithm: "token_bucket", MaxDelay: "2h"}, []string{`max_delay: max_delay "2h": must be a duration from 1ms to 1h`}},
		{written{OnLimit: "delay", Limit: "unlimited"}, []string{`on_limit: on_limit delay` + effect}},
		{written{MaxWaiting: "5"}, []string{`max_waiting: max_waiting 5: requests wait only with on_limit delay`}},
		{written{OnLimit: "delay", Algorithm: "token_bucket", MaxWaiting: "0"}, []string{`max_waiting: max_waiting "0": must be a whole number from 1 to 1000000`}},
		{written{OnLimit: "delay", Algorithm: "token_bucket", MaxWaiting: "1000001"}, []string{`max_waiting: max_waiting "1000001": must be a whole number from 1 to 1000000`}},
		{written{MaxWaiting: "5", Limit: "unlimited"}, []string{`max_waiting: max_waiting` + effect}},
		{written{MaxWaitingPerKey: "5"}, []string{`max_waiting_per_key: max_waiting_per_key 5: requests wait only with on_limit delay`}},
		{written{OnLimit: "delay", Algorithm: "token_bucket", MaxWaitingPerKey: "0"}, []string{`max_waiting_per_key: max_waiting_per_key "0": must be a whole number from 1 to 1000000`}},
		{written{OnLimit: "delay", Algorithm: "token_bucket", MaxWaiting: "5", MaxWaitingPerKey: "6"}, []string{`max_waiting_per_key: max_waiting_per_key 6: must be from 1 to 5, the max_waiting of all keys together`}},
		{written{MaxWaitingPerKey: "5", Limit: "unlimited"}, []string{`max_waiting_per_key: max_waiting_per_key` + effect}},

		{written{Count: []string{"401", "40x", "600"}}, []string{`count.1: ` + status("40x"), `count.2: ` + status("600")}},
		{written{Count: []string{"401, 99"}}, []string{`count.0: ` + status("99")}},
		{written{Count: []string{" "}}, []string{`count.0: count: names no status; write those of the responses that stay charged, such as 401 or 4xx`}},
		{written{Count: []string{}}, []string{`count: count: names no status; write those of the responses that stay charged, such as 401 or 4xx`}},
		{written{Count: []string{"401"}, Limit: "unlimited"}, []string{`count: count` + effect}},

		{written{Penalty: []string{"10m", "x", "0s"}}, []string{
			`penalty.1: penalty "x": must be a duration from 1ms to 366d, in whole microseconds, such as 10m or 1d`,
			`penalty.2: penalty "0s": must be a duration from 1ms to 366d, in whole microseconds, such as 10m or 1d`,
		}},
		{written{Penalty: []string{}}, []string{`penalty: penalty: names no duration; write how long a key is blocked that exceeds the limit, such as 10m, or 1m 10m 1h`}},
		{written{Penalty: []string{","}}, []string{`penalty.0: penalty: names no duration; write how long a key is blocked that exceeds the limit, such as 10m, or 1m 10m 1h`}},
		{written{Penalty: []string{"10m"}, Limit: "unlimited"}, []string{`penalty: penalty` + effect}},

		{written{Limit: "unlimited", Algorithm: "token_bucket", Burst: "5", MaxDelay: "1s", CountRejected: "true", OnError: "closed", Cost: "2"}, []string{
			`algorithm: algorithm` + effect, `burst: burst` + effect, `cost: cost` + effect, `max_delay: max_delay` + effect, `on_error: on_error` + effect,
			`count_rejected: count_rejected` + effect,
		}},
		{written{Tiers: tiers("path", "/a", "unlimited", "*", "unlimited"), Burst: "5"}, []string{`burst: burst` + effect}},
		{written{OnLimit: "reject", Algorithm: "leaky_bucket"}, []string{`on_limit: on_limit "reject": leaky_bucket makes requests wait, and rejects those that do not fit in its burst; choose another algorithm, or leave it out`}},

		{written{Concurrency: "0"}, []string{`concurrency: concurrency "0": must be a whole number from 1 to 1000000000`}},
		{written{Concurrency: "many", Limit: " "}, []string{`concurrency: concurrency "many": must be a whole number from 1 to 1000000000`}},
		{written{Concurrency: "5", Limit: "unlimited"}, []string{`concurrency: concurrency: has no effect beside unlimited, which counts no request; remove unlimited to have concurrency alone`}},
		{written{Concurrency: "5", Tiers: tiers("path", "*", "unlimited")}, []string{`concurrency: concurrency: has no effect beside unlimited, which counts no request; remove unlimited to have concurrency alone`}},
		{written{
			Concurrency: "5", Limit: " ", Overrides: []override{{[]string{"192.0.2.1"}, "5/1m"}}, TimeZone: "UTC", Algorithm: "token_bucket", Burst: "5", Refill: "interval", Cost: "header:X",
			OnLimit: "delay", MaxDelay: "1s", MaxWaiting: "5", MaxWaitingPerKey: "5", Enforcement: "soft 20% 30s", Count: []string{"401"}, Penalty: []string{"1m"}, CountRejected: "1", Candidate: &candidate{Limit: "5/1m"}, Adapt: &adapt{Ceiling: "5/1m"},
		}, []string{
			`overrides: overrides` + needs, `time_zone: time_zone` + needs, `algorithm: algorithm` + needs, `burst: burst` + needs, `refill: refill` + needs, `cost: cost` + needs,
			`enforcement: enforcement soft` + needs, `on_limit: on_limit delay` + needs, `max_delay: max_delay` + needs, `max_waiting: max_waiting` + needs, `max_waiting_per_key: max_waiting_per_key` + needs, `count: count` + needs,
			`penalty: penalty` + needs, `candidate: candidate` + needs, `adapt: adapt` + needs, `count_rejected: count_rejected` + needs,
		}},

		{written{Candidate: &candidate{}}, []string{`candidate.limit: candidate: limit: is missing; write one such as 100/1m`}},
		{written{Candidate: &candidate{Limit: "x", Refill: "y"}}, []string{`candidate.refill: candidate: refill "y": must be continuous or interval`}},
		{written{Candidate: &candidate{Limit: "x"}}, []string{`candidate.limit: candidate: limit "x": has no period; write <requests>/<period>, such as 100/1m`}},
		{written{Candidate: &candidate{Limit: "unlimited"}}, []string{`candidate.limit: candidate: limit "unlimited": there would be nothing to compare; write one such as 100/1m`}},
		{written{Candidate: &candidate{Limit: "50/1m", Burst: "5"}}, []string{`candidate.burst: candidate: burst 5: only token_bucket and leaky_bucket have a burst, not sliding_window_counter`}},
		{written{Candidate: &candidate{Limit: "50/1m", Algorithm: "bucket", Burst: "x"}}, []string{
			`candidate.algorithm: candidate: algorithm "bucket": must be one of token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter`,
			`candidate.burst: candidate: burst "x": must be a whole number from 1 to 1000000000`,
		}},
		{written{Candidate: &candidate{Limit: "50/1m", TimeZone: "UTC"}}, []string{`candidate.time_zone: candidate: time_zone "UTC": only windows of the calendar have one (limit <requests>/day, /week or /month)`}},
		{written{Algorithm: "token_bucket", Candidate: &candidate{Limit: "50/day"}}, []string{`candidate.limit: candidate: limit "50/day": period "day": only fixed_window follows the calendar, not token_bucket; write a duration such as 24h`}},
		{written{Candidate: &candidate{Limit: "100/60s"}}, []string{`candidate: candidate: is the same as the limit, 100/1m sliding_window_counter, so that it would say nothing; write what is to be tried out, or leave it out`}},
		{written{Algorithm: "leaky_bucket", MaxDelay: "1s", Candidate: &candidate{Limit: "100/1m"}}, []string{`candidate: candidate: is the same as the limit, 100/1m leaky_bucket, so that it would say nothing; write what is to be tried out, or leave it out`}},
		{written{Tiers: tiers("path", "*", "5/1m"), Candidate: &candidate{Limit: "x"}}, []string{`candidate: candidate is mutually exclusive with tiers, limit_from and overrides: it can be compared with one limit only; remove one`}},
		{written{Overrides: []override{{[]string{"192.0.2.1"}, "5/1m"}}, Candidate: &candidate{Limit: "50/1m"}}, []string{`candidate: candidate is mutually exclusive with tiers, limit_from and overrides: it can be compared with one limit only; remove one`}},
		{written{Limit: "unlimited", Candidate: &candidate{Limit: "50/1m"}}, []string{`candidate: candidate` + effect}},
		{written{Cost: "60", Candidate: &candidate{Limit: "50/1m"}}, []string{`cost: cost 60: is more than the candidate 50/1m sliding_window_counter can ever hold, which is 50, so that it would reject every request`}},
	} {
		r, got := compiledRule(c.text)
		if r != nil || strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%+v:\n got %s\nwant %s", c.text, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func TestOverflowPolicyIsWhatTheFieldsSay(t *testing.T) {
	var made origin
	config := &made.config
	_, errors := compile(textOf(written{
		Name: "r", Limit: "100/1m", Enforcement: " soft  20  1d12h ", Penalty: []string{"1m", "10m, 1d"}, Concurrency: " 5 ", Candidate: &candidate{Limit: "50/1m"},
	}), Context{Prefixes: Standard}, &made)
	co := config.OverflowPolicy
	if len(errors) > 0 || co.SoftPercent != 20 || co.SoftFor != 36*time.Hour || config.Shadow || config.Concurrency != 5 || config.Candidate.String() != "50/1m sliding_window_counter" {
		t.Errorf("%+v, %v", *config, errors)
	}
	if len(co.Penalties) != 3 || co.Penalties[0] != time.Minute || co.Penalties[1] != 10*time.Minute || co.Penalties[2] != 24*time.Hour {
		t.Errorf("%v", co.Penalties)
	}
	for text, want := range map[string]int64{"soft 1% 1ms": 1, "soft 1000 1m": 1000} { // from the least to the most
		var soft origin
		if _, errors := compile(textOf(written{Name: "r", Limit: "100/1m", Enforcement: text}), Context{}, &soft); len(errors) > 0 || soft.config.OverflowPolicy.SoftPercent != want {
			t.Errorf("%q: %d %%, %v", text, soft.config.OverflowPolicy.SoftPercent, errors)
		}
	}
	for text, want := range map[string]string{"401": "401", "401 403": "401,403", "401,4xx": "4xx", " 5XX, 404": "404,5xx"} {
		var counting origin
		if _, errors := compile(textOf(written{Name: "r", Limit: "100/1m", Count: []string{text}}), Context{}, &counting); len(errors) > 0 || counting.config.OverflowPolicy.Count.String() != want {
			t.Errorf("%q: %v, %v", text, counting.config.OverflowPolicy.Count, errors)
		}
	}
	delaying := mustCompile(t, written{
		OnLimit: "delay", MaxDelay: "3s", MaxWaiting: "7", Algorithm: "token_bucket", Tiers: tiers("path", "/a", "9/1m", "*", "5/1m"), Overrides: []override{{[]string{"192.0.2.1"}, "8/1m"}},
	})
	if len(delaying.Limits.Rules()) != 3 {
		t.Fatalf("%v", delaying.Limits.Rules())
	}
	for _, r := range delaying.Limits.Rules() {
		if !r.Limit.Delays || r.Limit.MaxDelay != 3_000_000 {
			t.Errorf("%s: %v, %d µs", r.Limit, r.Limit.Delays, r.Limit.MaxDelay)
		}
	}
	if l := mustCompile(t, written{OnLimit: "delay", Limit: "5/day"}).Limits.Own().Limit; !l.Delays || l.MaxDelay != 10_000_000 {
		t.Errorf("%s: %v, %d µs", l, l.Delays, l.MaxDelay)
	}
}

func TestConcurrencyStandsAloneOrBesideALimit(t *testing.T) {
	alone := mustCompile(t, written{Limit: " ", Concurrency: "5", Enforcement: "shadow", OnLimit: "reject", CountRejected: "false", OnMissingKey: "reject"})
	own := alone.Limits.Own()
	if own == nil || !own.Limit.InFlight || own.Limit.Requests != 5 || len(own.Linked()) != 0 || !alone.Shadow {
		t.Errorf("%+v", own)
	}
	beside := mustCompile(t, written{Concurrency: "5", Tiers: tiers("path", "/a", "9/1m", "/b", "unlimited", "*", "5/1m")})
	if len(beside.Limits.Rules()) != 2 {
		t.Fatalf("%v", beside.Limits.Rules())
	}
	for _, r := range beside.Limits.Rules() {
		if len(r.Linked()) != 1 || !r.Linked()[0].Limit.InFlight || r.Linked()[0].Limit.Requests != 5 {
			t.Errorf("%s: %v", r.Limit, r.Linked())
		}
	}
}

func TestACandidateHasTheRulesAlgorithmUnlessItSaysOne(t *testing.T) {
	for _, c := range []struct {
		text written
		want string
	}{
		{written{Candidate: &candidate{Limit: "50/1m"}}, "50/1m sliding_window_counter"},
		{written{Candidate: &candidate{Limit: "50/day", TimeZone: "Europe/Berlin"}}, "50/day fixed_window"},
		{written{Limit: "100/day", Candidate: &candidate{Limit: "50/1m"}}, "50/1m sliding_window_counter"},
		{written{Algorithm: "token_bucket", Burst: "9", Candidate: &candidate{Limit: "100/1m"}}, "100/1m token_bucket"},
		{written{Algorithm: "token_bucket", Candidate: &candidate{Limit: "100/1m", Burst: "9", Refill: "interval"}}, "100/1m token_bucket burst 9"},
		{written{Algorithm: "token_bucket", Candidate: &candidate{Limit: "100/1m", Algorithm: "fixed_window"}}, "100/1m fixed_window"},
		{written{Algorithm: "leaky_bucket", MaxDelay: "2s", Candidate: &candidate{Limit: "50/1m"}}, "50/1m leaky_bucket"},
		{written{Candidate: &candidate{Limit: "50/1m", Algorithm: "leaky_bucket", Burst: "3"}}, "50/1m leaky_bucket burst 3"},
	} {
		beside := mustCompile(t, c.text).Limits.Own().Linked()
		if len(beside) != 1 || !beside[0].IsCandidate() || beside[0].Limit.String() != c.want {
			t.Errorf("%+v: %v, want %s", c.text, beside, c.want)
			continue
		}
		want := int64(0)
		if beside[0].Limit.Algorithm == rate.LeakyBucket {
			want = 10_000_000
			if c.text.MaxDelay != "" {
				want = 2_000_000
			}
		}
		if got := beside[0].Limit.MaxDelay; got != want {
			t.Errorf("%+v: waits %d µs, want %d", c.text, got, want)
		}
	}
}
