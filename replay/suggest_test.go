package replay

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/underrace"
)

// crowd is a log of clients of which some send far more than others, in bursts.
func crowd(random *rand.Rand, clients, requests int) string {
	hits := make([]hit, 0, requests)
	end := 0.0
	for range requests {
		end += random.ExpFloat64() * 0.02
		client := int(random.Float64() * random.Float64() * float64(clients))
		h := hit{end: end, duration: random.ExpFloat64() * 0.3, client: address(client), path: fmt.Sprintf("/?c=%d", 1+random.IntN(3)), status: [...]int{200, 401}[random.IntN(2)]}
		if random.IntN(50) == 0 {
			end += random.Float64() * 3
		}
		hits = append(hits, h)
	}
	return linesOf(hits...)
}

// The least limit that touches no more than a share of clients is just that: a replay with it touches so few, and with one less more.
func TestTheSuggestedLimitIsTheLeast(t *testing.T) {
	underrace.OneGoroutine(t)
	theLeastIsSuggested(t, logIn(t, "a.log", crowd(rand.New(rand.NewPCG(3, 4)), 100, 2500)), 0, 0.03, 0.3)
}

// Each pass over the log reads it in other goroutines than those that decide.
func TestTheSuggestedLimitOfAShortLogIsTheLeast(t *testing.T) {
	theLeastIsSuggested(t, logIn(t, "a.log", crowd(rand.New(rand.NewPCG(5, 6)), 30, 300)), 0.1)
}

func theLeastIsSuggested(t *testing.T, log string, shares ...float64) {
	for _, test := range []struct {
		name, rule string // with LIMIT in place of its numbers
		now        string
		with       func(n int64) string
	}{
		{"sliding_window_counter", "{name: a, LIMIT}", "limit: 1/2s", func(n int64) string { return fmt.Sprintf("limit: %d/2s", n) }},
		{"fixed_window", "{name: a, algorithm: fixed_window, LIMIT}", "limit: 10/3s", func(n int64) string { return fmt.Sprintf("limit: %d/3s", n) }},
		{"the calendar's", "{name: a, time_zone: Europe/Berlin, LIMIT}", "limit: 10/day", func(n int64) string { return fmt.Sprintf("limit: %d/day", n) }},
		{"sliding_window_log, with costs", "{name: a, algorithm: sliding_window_log, cost: 'query:c', LIMIT}", "limit: 5/5s", func(n int64) string { return fmt.Sprintf("limit: %d/5s", n) }},
		{"by status", "{name: a, algorithm: sliding_window_log, count: [401], LIMIT}", "limit: 5/5s", func(n int64) string { return fmt.Sprintf("limit: %d/5s", n) }},
		{"token_bucket", "{name: a, algorithm: token_bucket, LIMIT}", "limit: 100/5s", func(n int64) string { return fmt.Sprintf("limit: %d/5s", n) }},
		{"token_bucket with a burst, and costs", "{name: a, algorithm: token_bucket, cost: 'query:c', LIMIT}", "limit: 10/10s, burst: 25", func(n int64) string { return fmt.Sprintf("limit: %d/10s, burst: %d", n, n*5/2) }},
		{"token_bucket with a small one", "{name: a, algorithm: token_bucket, LIMIT}", "limit: 100/1m, burst: 10", func(n int64) string { return fmt.Sprintf("limit: %d/1m, burst: %d", n, max(n/10, 1)) }},
		{"token_bucket by status", "{name: a, algorithm: token_bucket, count: [401], LIMIT}", "limit: 3/10s", func(n int64) string { return fmt.Sprintf("limit: %d/10s", n) }},
		{"token_bucket with refill interval", "{name: a, algorithm: token_bucket, refill: interval, LIMIT}", "limit: 1/2s", func(n int64) string { return fmt.Sprintf("limit: %d/2s", n) }},
		{"leaky_bucket", "{name: a, algorithm: leaky_bucket, max_delay: 2s, LIMIT}", "limit: 10/10s, burst: 5", func(n int64) string { return fmt.Sprintf("limit: %d/10s, burst: %d", n, max(n/2, 1)) }},
		{"concurrency", "{name: a, LIMIT}", "concurrency: 1", func(n int64) string { return fmt.Sprintf("concurrency: %d", n) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, share := range shares {
				replayed := func(limit string, suggest bool) *Report {
					r, _ := run(t, Config{Rules: filesOf(t, rulesOf(strings.Replace(test.rule, "LIMIT", limit, 1))), Logs: []string{log}, Suggest: suggest, Share: share})
					return r
				}
				s := replayed(test.now, true).Suggestions
				if len(s) != 1 || s[0].Limit == "" || s[0].Inexact {
					t.Fatalf("%+v", s)
				}
				n := s[0].Requests
				most := int64(share * float64(s[0].Clients))
				if r := replayed(test.with(n), false).Rules[0]; r.Touched != s[0].Touched || r.Touched > most || r.Clients != s[0].Clients {
					t.Errorf("share %v: %s touches %d of %d clients, want at most %d, as is said: %+v", share, test.with(n), r.Touched, r.Clients, most, s[0])
				}
				if n == 1 {
					continue
				}
				if r := replayed(test.with(n-1), false).Rules[0]; r.Touched <= most {
					t.Errorf("share %v: %s touches %d clients, which is no more than %d, and less than %+v", share, test.with(n-1), r.Touched, most, s[0])
				}
			}
		})
	}
}

func TestRulesWithoutALimitThatCouldBeFoundSaySo(t *testing.T) {
	log := logIn(t, "a.log", linesOf(each("x", 0, 1, 2)...))
	r, _ := run(t, Config{Logs: []string{log}, Suggest: true, Share: 0.001, Rules: filesOf(t, rulesOf(
		"{name: none, limit: unlimited}",
		"{name: never, match: {paths: [/never]}, limit: 1/1m, algorithm: token_bucket}",
		"{name: both, limit: 9/1m, concurrency: 3}",
		"{name: tiers, tiers: {source: 'query:p', limits: {'*': 7/1m, pro: 9/1m}}}",
		"{name: lacking, key: 'header:K', on_missing_key: reject, limit: 9/1m}",
	))})
	got := ""
	for _, s := range r.Suggestions {
		got += fmt.Sprintf("%s %s %s: %s (%s)\n", s.Rule, s.Of, s.Now, s.Limit, s.Note)
	}
	want := `none limit unlimited:  (has no limit of its own)
never limit 1/1m:  (no request of the logs has come under it)
both limit 9/1m: 3/1m ()
both concurrency 3: 1 ()
tiers limit 7/1m: 3/1m ()
lacking limit 9/1m:  (no request of the logs has come under it)
`
	if got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// A bucket that delays, and says for how long, was an error.
func TestTheSuggestedLimitOfABucketThatDelaysIsThatOfOneThatDoesNot(t *testing.T) {
	log := logIn(t, "a.log", crowd(rand.New(rand.NewPCG(5, 6)), 30, 300))
	var limits []string
	for _, more := range []string{"", ", on_limit: delay, max_delay: 5s"} {
		r, _ := run(t, Config{Logs: []string{log}, Suggest: true, Share: 0.1, Rules: filesOf(t, rulesOf("{name: a, algorithm: token_bucket, limit: 5/10s"+more+"}"))})
		limits = append(limits, r.Suggestions[0].Limit)
	}
	if limits[0] == "" || limits[0] != limits[1] {
		t.Errorf("%q are suggested", limits)
	}
}
