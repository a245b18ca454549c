package traefik

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// Defects found: what candidates would have decided was said at the level of errors, also where it was nothing; and after reloads once
// for each configuration that there had been.
func TestWhatShadowsAndCandidatesWouldHaveDoneIsSaidOnceForAllConfigurationsOfAMinute(t *testing.T) {
	s := newStage(t)
	config := func(n int) *Config {
		return &Config{Rules: []Rule{
			{Name: "alike", Limit: "100/1h", Candidate: object{"limit": "200/1h"}},
			{Name: "laxer", Limit: "2/1h", Candidate: object{"limit": fmt.Sprint(50+n, "/1h")}},
			{Name: "shadow", Limit: "1/1h", Enforcement: "shadow"},
		}}
	}
	const configurations = 4
	for n := 0; n < configurations; n++ {
		ctx, cancel := context.WithCancel(context.Background())
		h := s.handler(ctx, config(n), "m@file")
		statuses(h, "192.0.2.1", 3)
		if n < configurations-1 {
			s.end(ctx, cancel)
			s.step(2 * time.Second)
		} else {
			defer cancel()
		}
	}
	s.handler(context.Background(), config(0), "other@file")
	got := fmt.Sprint(s.takeReports())
	const want = `[{m@file rule "laxer", of 12 requests in the last minute: the candidate would have rejected 0 that the limit allowed, and allowed 10 that it rejected false} ` +
		`{m@file rule "shadow", a shadow, would have rejected 11 requests in the last minute true}]`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if again := s.takeReports(); len(again) != 0 {
		t.Errorf("said again: %v", again)
	}
}

// Each path logs a rejection in the same words: of a rule, the first of each key in an interval, at most fifty, and at its end how many others there were.
func TestRejectionsAreLoggedInASample(t *testing.T) {
	one := []Rule{{Name: "api", Limit: "1/1h", Algorithm: "token_bucket", Key: []string{"header:X-Key"}}}
	two := []Rule{one[0], {Name: "all", Limit: "1000/1h"}}
	answered := []Rule{one[0]}
	answered[0].Answer = object{"status": "403"}
	keyless := []Rule{one[0]}
	keyless[0].OnMissingKey = "reject"
	ask := func(h http.Handler, key string) {
		get(h, "192.0.2.1", func(r *http.Request) {
			r.URL.Path, r.URL.RawQuery = "/a\nb", "secret"
			if key != "" {
				r.Header.Set("X-Key", key)
			}
		})
	}
	const line = `rate limit exceeded: rule "api", retry after 3600s, client "192.0.2.1", "GET" "example.com/a\nb"`
	for name, rules := range map[string][]Rule{"one rule": one, "two rules": two, "an answer": answered, "keys that are missing": keyless} {
		s := newStage(t)
		h := s.handler(context.Background(), &Config{Rules: rules, LogLevel: "error", LogInterval: "5m", LogKey: "true"}, "m@file")
		for i := 0; i < 3; i++ {
			ask(h, "b")
		}
		must.Equal(t, s.log.count("weir: middleware m@file: "+line+", key \"b\"\n"), 1, "%s: %s", name, s.log.String())
		for i := 0; i < 120; i++ {
			ask(h, strconv.Itoa(i/2))
		}
		must.Equal(t, s.log.count("rate limit exceeded"), 50, "%s: lines", name)
		s.step(5 * time.Minute)
		must.Equal(t, s.log.count(`more requests exceeded the rate limit: rule "api", 12 in 5m0s; their keys are logged already, or are past the number that is logged`), 1, "%s: %s", name, s.log.String())
		ask(h, "b")
		must.Equal(t, s.log.count("rate limit exceeded"), 51, "%s: in the next interval", name)
		if rules[0].OnMissingKey != "" {
			ask(h, "")
			must.Equal(t, s.log.count(`never to be retried`), 1, "%s: %s", name, s.log.String())
		}
		must.Equal(t, s.log.count("secret"), 0, "%s: the query", name)
	}
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rules: one}, "m@file")
	ask(h, "b")
	ask(h, "b")
	must.Equal(t, s.log.String(), "", "without logLevel")
}
