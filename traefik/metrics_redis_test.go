//go:build gc
// +build gc

package traefik

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/redis/redistest"
)

func TestDecisionsInRedisAreCountedTimedAndTheirFailuresToo(t *testing.T) {
	server := redistest.Start(t)
	settings := patient(object{"address": server.Addr(), "nodes": 1})
	s := newStage(t)
	rule := func(name, onError string) Rule {
		return Rule{Name: name, Limit: "3/1h", OnError: onError}
	}
	config := func(r Rule) *Config {
		c := withMetrics(*inRedis(r, settings))
		c.StatusPath = "/_weir/quota"
		return c
	}
	open := s.handler(context.Background(), config(rule("open", "open")), "m@file")
	closed := s.handler(context.Background(), config(rule("closed", "closed")), "m@docker")
	local := s.handler(context.Background(), config(Rule{Name: "local", Limit: "3/1h", Key: []string{"client_ip", "host"}}), "m@redis")
	until(t, func() bool { return get(open, "192.0.2.99", nil).Header.Get("X-Ratelimit-Limit") == "3" })
	base := requests(scrape(t, open), "m.file/open") // of the tries
	for i := 0; i < 5; i++ {
		get(closed, "192.0.2.1", nil)
		get(local, "192.0.2.1", nil)
		get(closed, "2001:db8::1", nil)
	}
	wantRequests(t, open, "m.docker/closed", "allowed 6, rejected 4")
	wantRequests(t, open, "m.redis/local", "allowed 3, rejected 2")
	wantQuotas(t, local, "192.0.2.2", nil, `{"name":"local","limit":3,"remaining":3,"reset":0}`)
	if got := quotas(t, closed, "192.0.2.1", nil); !strings.HasPrefix(got, `{"quotas":[{"name":"closed","limit":3,"remaining":0,"reset":`) || !strings.Contains(got, `"retry_after":`) {
		t.Errorf("a client over the limit gets %s", got)
	}
	found := scrape(t, open)
	if got := found[`weir_breaker_open{server="`+server.Addr()+`"}`]; got != "0" {
		t.Errorf("the breaker: %q", got)
	}
	if n, err := strconv.Atoi(found[`weir_decision_duration_seconds_count{store="redis"}`]); err != nil || n < 3 {
		t.Errorf("%d were timed, %v", n, err)
	}
	if _, there := found[`weir_keys{rule="m.docker/closed"}`]; there {
		t.Error("keys in Redis are shown as those in memory")
	}
	server.Stop()
	until(t, func() bool {
		get(open, "192.0.2.1", nil)
		return scrape(t, open)[`weir_breaker_open{server="`+server.Addr()+`"}`] == "1"
	})
	for i := 0; i < 2; i++ {
		get(closed, "192.0.2.3", nil)
		get(local, "192.0.2.3", nil)
	}
	found = scrape(t, open)
	for label, want := range map[string]string{"m.docker/closed": "error_closed 2", "m.redis/local": "fallback 2"} {
		if got := requests(found, label); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", label, got, want)
		}
	}
	asked := failures(t, found)
	for i := 0; i < 5; i++ {
		get(local, "192.0.2.3", nil)
	}
	if again := get(local, "192.0.2.3", nil); again.StatusCode != http.StatusTooManyRequests || again.Header.Get("Retry-After") != "3600" {
		t.Errorf("what the node rejects without Redis: %d with %v", again.StatusCode, again.Header)
	}
	after := scrape(t, open)
	if got, n := requests(after, "m.redis/local"), failures(t, after)-asked; got != "allowed 3, rejected 7, fallback 3" || n != 2 { // the third, and the first that was rejected
		t.Errorf("what is rejected again without Redis: %s, and %d requests have missed it", got, n)
	}
	if got := requests(found, "m.file/open"); !strings.HasPrefix(got, base) || !strings.Contains(got, "error_open ") {
		t.Errorf("m.file/open: %s", got)
	}
	if unavailable, _ := strconv.Atoi(found[`weir_store_errors_total{kind="unavailable"}`]); asked < 9 || unavailable < 4 || found[`weir_store_errors_total{kind="reply"}`] != "0" {
		t.Errorf("%d failures, %d since it was unavailable, of replies %s", asked, unavailable, found[`weir_store_errors_total{kind="reply"}`])
	}
	r := httptest.NewRequest("GET", "http://example.com/_weir/quota", nil)
	r.RemoteAddr = "192.0.2.77:1234" // of whom nothing is remembered
	w := httptest.NewRecorder()
	local.ServeHTTP(w, r)
	if w.Code != 503 || w.Body.String() != "{\"error\":\"the rate limits cannot be read\"}\n" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("quotas without Redis: %d %v %s", w.Code, w.Header(), w.Body)
	}
}

// failures returns how often the store has failed, of all kinds.
func failures(t *testing.T, found map[string]string) int {
	sum := 0
	for _, kind := range metrics.StoreErrors.Labels[0].Values {
		n, err := strconv.Atoi(found[`weir_store_errors_total{kind="`+kind+`"}`])
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		sum += n
	}
	return sum
}

func TestFailuresAreOfTheKindThatTheyAre(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("hunter2"))
	s := newStage(t)
	h := s.handler(context.Background(), withMetrics(*inRedis(Rule{Name: "r", Limit: "3/1h"}, object{"address": server.Addr(), "password": "hunter2"})), "m@file")
	until(t, func() bool {
		return requests(scrape(t, h), "m.file/r") != "" || get(h, "192.0.2.1", nil).StatusCode == 200
	})
	server.MustDo(t, "CONFIG", "SET", "maxmemory", "1")
	until(t, func() bool {
		get(h, "192.0.2.2", nil)
		return scrape(t, h)[`weir_store_errors_total{kind="reply"}`] != "0"
	})
}

// Leases are in the metrics, and their counts do not fall when a store has ended.
func TestLeasesAreInTheMetrics(t *testing.T) {
	server := redistest.Start(t)
	s := newStage(t)
	config := func(prefix string) *Config {
		return withMetrics(*inRedis(Rule{Name: "r", Limit: "1000000/1m", Consistency: "lease"}, patient(object{"address": server.Addr(), "nodes": 1, "prefix": prefix})))
	}
	h, ctx, cancel := generationOf(s, config("a:"), "m@file", 1)
	granted, held := `weir_lease_calls_total{outcome="granted"}`, `weir_lease_requests_total{outcome="held"}`
	until(t, func() bool {
		for i := 0; i < 50; i++ {
			get(h[0], "192.0.2.1", nil)
		}
		found := scrape(t, h[0])
		return found[granted] != "" && found[granted] != "0" && found[held] != "0"
	})
	found := scrape(t, h[0])
	if _, err := strconv.Atoi(found[`weir_lease_units{rule="m.file/r"}`]); err != nil {
		t.Errorf("units: %v", err)
	}
	before, _ := strconv.Atoi(found[held])
	s.end(ctx, cancel)
	s.step(2 * lingering)
	again, ctx, cancel := generationOf(s, config("b:"), "m@file", 1)
	if after, err := strconv.Atoi(scrape(t, again[0])[held]); err != nil || after < before {
		t.Errorf("%d held before the store has ended, %d after it, %v", before, after, err)
	}
	s.end(ctx, cancel)
}
