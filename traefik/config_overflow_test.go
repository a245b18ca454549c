package traefik

import (
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func TestMistakesInTheOverflowPolicyAreSaidInTheWordsOfThePlugin(t *testing.T) {
	one := func(r Rule) *Config { return &Config{Rule: r} }
	const needs = `: needs a limit, and concurrency is none; write one such as 100/1m beside it, or leave it out`
	for _, test := range []struct {
		config *Config
		want   string
	}{
		{one(Rule{Limit: "5/1m", Enforcement: "soft 10%"}), `enforcement "soft 10%": soft takes a percentage and a duration, such as soft 20% 30s`},
		{one(Rule{Limit: "5/1m", Enforcement: "soft 10% 1m"}), `enforcement soft: 10 % of 5/1m sliding_window_counter is less than one request, so that there would be no tolerance`},
		{one(Rule{Limit: "5/1m", OnLimit: "delay"}), `onLimit delay: sliding_window_counter cannot say when a request may leave; choose the algorithm token_bucket, sliding_window_log or fixed_window`},
		{one(Rule{Limit: "5/1m", OnLimit: "delay", Algorithm: "token_bucket", CountRejected: "true"}), `onLimit delay and countRejected are mutually exclusive: a rejected request has no place in the queue; remove one`},
		{one(Rule{Limit: "5/1m", OnLimit: "delay", Algorithm: "token_bucket", MaxWaiting: "0"}), `maxWaiting "0": must be a whole number from 1 to 1000000`},
		{one(Rule{Limit: "5/1m", MaxWaiting: "5"}), `maxWaiting 5: requests wait only with onLimit delay`},
		{one(Rule{Limit: "5/1m", MaxWaitingPerKey: "5"}), `maxWaitingPerKey 5: requests wait only with onLimit delay`},
		{one(Rule{Limit: "5/1m", OnLimit: "delay", Algorithm: "token_bucket", MaxWaiting: "3", MaxWaitingPerKey: "5"}), `maxWaitingPerKey 5: must be from 1 to 3, the maxWaiting of all keys together`},
		{one(Rule{Limit: "5/1m", Count: []string{"x", ""}}), `count "x": must be the status code of a response, 101 or 200 to 599, a class of them such as 4xx, or a field such as header:X-Login, header:X-Login=failed or trailer:Grpc-Status=16`},
		{one(Rule{Limit: "5/1m", Penalty: []string{"10m", "soon"}}), `penalty "soon": must be a duration from 1ms to 366d, in whole microseconds, such as 10m or 1d`},
		{one(Rule{Limit: "5/1m", Penalty: []string{""}}), `penalty: names no duration; write how long a key is blocked that exceeds the limit, such as 10m, or 1m 10m 1h`},
		{one(Rule{Limit: "5/1m", Penalty: []string{"1m"}, Enforcement: "shadow"}), `penalty and enforcement shadow are mutually exclusive: a shadow blocks nobody; remove one`},
		{one(Rule{Limit: "5/1m", Concurrency: "0"}), `concurrency "0": must be a whole number from 1 to 1000000000`},
		{one(Rule{Limit: "unlimited", Concurrency: "5"}), `concurrency: has no effect beside unlimited, which counts no request; remove unlimited to have concurrency alone`},
		{one(Rule{Concurrency: "5", MaxWaiting: "5"}), `maxWaiting` + needs},
		{one(Rule{Concurrency: "5", CountRejected: "true"}), `countRejected` + needs},
		{one(Rule{Concurrency: "5", CountMatch: object{"methods": "POST"}}), `countMatch` + needs},
		{one(Rule{Limit: "5/1m", CountMatch: object{}}), `countMatch: is empty; write what a request that counts has, such as methods: POST, or leave it out`},
		{one(Rule{Limit: "5/1m", CountMatch: object{"paths": "login"}}), `countMatch: paths: "login" must begin with /`},
		{one(Rule{Limit: "5/1m", Algorithm: "leaky_bucket", CountMatch: object{"methods": "POST"}}), `countMatch: leaky_bucket has each request wait for its turn, which one that is not counted does not have; choose another algorithm`},
		{&Config{SourceCriterion: object{"requestHost": true}, Rule: Rule{Concurrency: "5", Burst: "5"}}, `burst` + needs},
		{one(Rule{Limit: "5/1m", Candidate: "50/1m"}), `candidate "50/1m": must be an object with some of limit, algorithm, burst, refill, segments, windowStart, timeZone`},
		{one(Rule{Limit: "5/1m", Candidate: object{}}), `candidate: limit: is missing; write one such as 100/1m`},
		{one(Rule{Limit: "5/1m", Candidate: "true"}), `candidate: limit: is missing; write one such as 100/1m`},
		{one(Rule{Limit: "5/1m", Candidate: object{"limt": "5/1m"}}), `candidate: "limt" is not a field (did you mean limit?)`},
		{one(Rule{Limit: "5/1m", Candidate: object{"limit": "5/1m", "Limit": "5/1m"}}), `duplicate, in upper and lower case; keep one`},
		{one(Rule{Limit: "5/1m", Candidate: object{"limit": "6/1m", "timeZone": "UTC"}}), `candidate: timeZone "UTC": only windows of the calendar have one (limit <requests>/day, /week or /month)`},
		{one(Rule{Limit: "5/1m", Candidate: object{"limit": "5/1m"}}), `candidate: is the same as the limit, 5/1m sliding_window_counter, so that it would say nothing; write what is to be tried out, or leave it out`},
		{one(Rule{Limit: "5/1m", Candidate: object{"limit": "6/1m"}, Algorithm: "token_bucket", OnLimit: "delay"}), `candidate and onLimit delay are mutually exclusive: a candidate can be compared only with a limit that rejects; remove one`},
		{one(Rule{Candidate: object{"limit": "6/1m"}, Tiers: object{"source": "path", "limits": object{"*": "5/1m"}}}), `candidate is mutually exclusive with tiers, limit_from and overrides: it can be compared with one limit only; remove one`},
	} {
		s := newStage(t)
		got := s.refused(test.config, "api@file")
		if want := `middleware "api@file": rule "api": `; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, test.want) || strings.Count(got, `rule "api"`) != 1 {
			t.Errorf("got  %s\nwant %s%s", got, want, test.want)
		}
	}
}

// In the words of Traefik's own middlewares, too: InFlightReq has the sourceCriterion of RateLimit.
func TestConcurrencyAloneHasASourceCriterion(t *testing.T) {
	for _, c := range []Config{
		{Rule: Rule{Concurrency: "5", Key: []string{"host"}}},
		{Rule: Rule{Concurrency: "5"}, SourceCriterion: object{"requestHost": true}},
		{Rule: Rule{Concurrency: "5"}, SourceCriterion: object{"requestHost": true}, Average: "0"},
	} {
		s := newStage(t)
		own := s.made(&c, "m@file").fixed.rules[0].Ruled.Limits.Own()
		if own == nil || !own.Limit.InFlight || own.Limit.Requests != 5 || !strings.HasSuffix(own.Identity, "|host") {
			t.Errorf("%+v: %v", c, own)
		}
		must.Equal(t, s.log.count("nothing is limited"), 0, "%+v: %s", c, s.log)
	}
	beside := newStage(t).made(&Config{Rule: Rule{Concurrency: "5"}, Average: "10"}, "m@file").fixed.rules[0].Ruled.Limits.Own()
	if beside.Limit.Algorithm != rate.TokenBucket || len(beside.Linked()) != 1 {
		t.Errorf("%v, beside it %v", beside.Limit, beside.Linked())
	}
}

func TestAnOverflowPolicyInARuleFileIsRefusedWithItsPlace(t *testing.T) {
	s := newStage(t)
	path := writeFile(t, t.TempDir()+"/rules.json", "{\"rules\": [\n  {\"name\": \"a\", \"limit\": \"5/1m\", \"count\": [401, \"5xy\"]},\n  {\"name\": \"b\", \"limit\": \"5/1m\", \"max_waiting\": 5}]}")
	got := s.refused(&Config{RulesFile: []string{path}}, "m@file")
	for _, want := range []string{
		path + `:2:49: rule "a": count "5xy": must be the status code of a response, 101 or 200 to 599, a class of them such as 4xx, or a field such as header:X-Login, header:X-Login=failed or trailer:Grpc-Status=16`,
		path + `:3:49: rule "b": max_waiting 5: requests wait only with on_limit delay`,
	} {
		must.Contain(t, got, want, "got")
	}
	f := newFiled(t, `{"rules": [{"name": "a", "limit": "5/1m", "enforcement": "soft 20% 30s", "penalty": ["1m"], "concurrency": 5, "candidate": {"limit": "6/1m"}}]}`, &Config{})
	must.Equal(t, len(f.newest("m@file").inForce().rules[0].Ruled.Limits.Own().Linked()), 2, "rules are beside that of the file")
}
