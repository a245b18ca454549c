package traefik

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

func TestAChangedAlgorithmGivesNobodyMore(t *testing.T) {
	for _, metered := range []bool{false, true} {
		for _, algorithm := range []string{"token_bucket", "sliding_window_log", "fixed_window"} {
			s := newStage(t)
			config := func(limit, algorithm string) *Config {
				c := &Config{Rule: Rule{Name: "r", Limit: limit, Algorithm: algorithm}}
				if metered {
					c = withMetrics(*c)
				}
				return c
			}
			h, ctx, cancel := generationOf(s, config("3/1m", "sliding_window_counter"), "m@file", 1)
			if got := statuses(h[0], "192.0.2.1", 4); got != "200 200 200 429" {
				t.Fatal(got)
			}
			s.end(ctx, cancel)
			h, ctx, cancel = generationOf(s, config("9/2m", algorithm), "m@file", 2)
			must.Equal(t, statuses(h[0], "192.0.2.1", 1)+" "+statuses(h[1], "192.0.2.2", 4), "429 200 200 200 429", "%s: after the reload", algorithm)
			r := get(h[1], "192.0.2.2", nil)
			if r.Header.Get("X-RateLimit-Limit") != "9" || r.Header.Get("X-RateLimit-Remaining") != "0" || strings.Count(r.Header.Get("RateLimit-Policy"), "q=") != 1 {
				t.Errorf("%s: the fields are %v, want those of the new limit, with what is left of the former", algorithm, r.Header)
			}
			if metered {
				want := map[string]string{`weir_requests_total{rule="m.file/r",outcome="allowed"}`: "6", `weir_requests_total{rule="m.file/r",outcome="rejected"}`: "4"}
				got := scrape(t, h[0])
				for name, n := range want {
					must.Equal(t, got[name], n, "%s: %s", algorithm, name)
				}
			}
			if _, is := h[0].(*transitional); !is {
				t.Errorf("%s: the handler of a transition is a %T", algorithm, h[0])
			}
			s.end(ctx, cancel) // the same configuration again
			h, _, cancel = generationOf(s, config("9/2m", algorithm), "m@file", 1)
			must.Equal(t, statuses(h[0], "192.0.2.2", 1), "429", "%s: after another reload", algorithm)
			s.step(6 * time.Minute)
			must.Equal(t, statuses(h[0], "192.0.2.1", 10), "200 200 200 200 200 200 200 200 200 429", "%s: when the transition is over", algorithm)
			cancel()
		}
	}
}

// Traefik may make a configuration again that was replaced a moment ago, and whose engine still lives.
func TestAConfigurationThatComesBackGivesNobodyMore(t *testing.T) {
	s := newStage(t)
	first := &Config{Rule: Rule{Limit: "3/1m", Algorithm: "fixed_window"}}
	h, ctx, cancel := generationOf(s, first, "m@file", 1)
	statuses(h[0], "192.0.2.1", 1)
	s.end(ctx, cancel)
	h, ctx, cancel = generationOf(s, &Config{Rule: Rule{Limit: "2/1h", Algorithm: "token_bucket"}}, "m@file", 1)
	if got := statuses(h[0], "192.0.2.1", 3) + " " + statuses(h[0], "192.0.2.2", 3); got != "200 200 429 200 200 429" {
		t.Fatal(got)
	}
	s.end(ctx, cancel)
	h, ctx, cancel = generationOf(s, first, "m@file", 1)
	must.Equal(t, statuses(h[0], "192.0.2.1", 1)+" "+statuses(h[0], "192.0.2.2", 1), "429 429", "of the first configuration again")
	s.end(ctx, cancel)
	s.step(2 * lingering)
	if len(s.engines) != 0 || s.memory != nil {
		t.Errorf("%d engines are left", len(s.engines))
	}
}

func TestPenaltiesAndTiersSurviveAChangedAlgorithm(t *testing.T) {
	s := newStage(t)
	config := func(limit, gold, algorithm string) *Config {
		return &Config{Rule: Rule{Limit: limit, Algorithm: algorithm, Penalty: []string{"1h"}, Tiers: object{"source": "header:X-Plan", "limits": object{"gold": gold}}}}
	}
	h, ctx, cancel := generationOf(s, config("2/1s", "4/1s", "fixed_window"), "m@file", 1)
	if got := statuses(h[0], "192.0.2.1", 3); got != "200 200 429" {
		t.Fatal(got)
	}
	gold := func(r *http.Request) { r.Header.Set("X-Plan", "gold") }
	for i := 0; i < 5; i++ {
		get(h[0], "192.0.2.2", gold)
	}
	s.end(ctx, cancel)
	h, _, cancel = generationOf(s, config("20/1s", "40/1s", "token_bucket"), "m@file", 1)
	defer cancel()
	s.step(2 * time.Minute)
	must.Equal(t, statuses(h[0], "192.0.2.3", 3), "200 200 200", "another client")
	must.Equal(t, statuses(h[0], "192.0.2.1", 1), "429", "the penalized client")
	must.Equal(t, get(h[0], "192.0.2.2", gold).StatusCode, 429, "the penalized client of a tier")
	s.leap(time.Hour)
	must.Equal(t, statuses(h[0], "192.0.2.1", 1), "200", "when the penalty is over")
}

func TestFilesThatChangeAnAlgorithmGiveNobodyMore(t *testing.T) {
	domain := func(unit string) string {
		return `{"domain": "d", "descriptors": [{"key": "k", "rate_limit": {"unit": "` + unit + `", "requests_per_unit": 2}}], "rules": [{"name": "a", "limit": "3/1h"}]}`
	}
	f := newFiled(t, domain("day"), &Config{Descriptors: []interface{}{object{"entries": []interface{}{object{"key": "k", "source": "header:X-K"}}}}})
	k := func(r *http.Request) { r.Header.Set("X-K", "v") }
	if got := statuses(f.h, "192.0.2.1", 1); got != "200" {
		t.Fatal(got)
	}
	for i := 0; i < 2; i++ {
		get(f.h, "192.0.2.2", k)
	}
	f.edit(strings.Replace(domain("hour"), `"3/1h"`, `"3/1h", "algorithm": "token_bucket"`, 1))
	must.Equal(t, statuses(f.h, "192.0.2.1", 3), "200 200 429", "of a rule in a file")
	must.Equal(t, get(f.h, "192.0.2.3", k).StatusCode, 429, "of a descriptor")
	f.step(2 * lingering) // the rules before are released
	must.Equal(t, statuses(f.h, "192.0.2.1", 1)+statuses(f.h, "192.0.2.4", 1), "429200", "two minutes later")
	f.edit(strings.Replace(domain("hour"), `"3/1h"`, `"3/1h", "algorithm": "token_bucket", "key": ["header:X-Other"]`, 1))
	if got := f.log.count("m@file"); got > 0 {
		t.Errorf("the log: %s", f.log)
	}
}
