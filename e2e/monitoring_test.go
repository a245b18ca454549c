package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// A Prometheus with the alerts of the manual scrapes both proxies, whose limits are in one Redis. While all is well no alert fires.
// When Redis dies, the alerts about it fire for both. The alert about a rule that rejects most of its requests has the rule's name.
func TestARealPrometheusScrapesBothProxiesAndItsAlertsFire(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	caddy := startCaddyWith(t, "off", "metrics /metrics\nroute /limited {\nrate_limit {\nstore redis "+redis.Addr()+
		" {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 2\n}\nzone shared {\nlimit 20/366d\n}\n}\nrespond ok\n}\nrespond /up ok")
	s := newSite(t)
	metrics := freeAddr()
	s.limit("fleet", "{limit: 30/366d, metrics: {address: '"+metrics+"'}, store: {redis: {address: '"+redis.Addr()+"', timeout: 20s, readTimeout: 20s, dialTimeout: 20s, nodes: 2}}}")
	s.route("/", "fleet")
	s.apply()
	ask := func(times int) {
		t.Helper()
		for range times {
			if _, err := caddy.try("/limited"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.try("/"); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(10)
	p := startPrometheus(t, hastyAlerts(t), target{"caddy", caddy.addr}, target{"traefik", metrics})
	for _, job := range []string{"caddy", "traefik"} {
		eventually(t, "Prometheus has what was allowed, of "+job, func() bool {
			return len(p.query(t, fmt.Sprintf(`weir_requests_total{job=%q, outcome="allowed"} == 10`, job))) == 1
		})
		if n := len(p.query(t, fmt.Sprintf(`weir_breaker_open{job=%q, server=%q} == 0`, job, redis.Addr()))); n != 1 {
			t.Errorf("%s: %d breakers are closed, want 1", job, n)
		}
		must.Equal(t, len(p.query(t, fmt.Sprintf(`weir_decision_duration_seconds_count{job=%q, store="redis"} > 0`, job))), 1, "%s: no decision in Redis was timed", job)
		quiet(t, p, job)
	}
	eventually(t, "the alert about rejections fires", func() bool {
		ask(20)
		return slices.Contains(alertsOf(t, p, "caddy", "firing"), "WeirRuleRejectsMost") && slices.Contains(alertsOf(t, p, "traefik", "firing"), "WeirRuleRejectsMost")
	})
	redis.Kill()
	eventually(t, "the alerts about Redis fire", func() bool {
		ask(5)
		return slices.Contains(alertsOf(t, p, "caddy", "firing"), "WeirBreakerOpen") && slices.Contains(alertsOf(t, p, "traefik", "firing"), "WeirBreakerOpen")
	})
	redis.Restart()
	eventually(t, "it is over", func() bool {
		ask(1)
		return !slices.Contains(alertsOf(t, p, "caddy", "firing"), "WeirBreakerOpen") && !slices.Contains(alertsOf(t, p, "traefik", "firing"), "WeirBreakerOpen")
	})
}

// The page in front of a real Caddy shows what clients do, and an operator's actions take effect.
func TestThePageShowsAndChangesWhatARealCaddyLimits(t *testing.T) {
	admin := freeAddr()
	c := startCaddyWith(t, admin, "rate_limit /api {\nzone api {\nkey {header.X-Api-Key}\nlimit 3/366d\n}\n}\nrespond /api ok\nrespond /up ok")
	ask := func(key string) int {
		t.Helper()
		answer, err := c.try("/api", "X-Api-Key", key)
		must.Succeed(t, err)
		return answer.status
	}
	const hostile = `<img src=x onerror="document.title='owned'">`
	for range 5 {
		ask("sk-greedy-0001")
		ask(hostile)
	}
	b := open(t, pageOf(t, admin), phone)
	b.says("#rules", "api")
	b.click(row("api") + " h3 button")
	b.until("document.querySelectorAll('" + row("api") + " .by-rejections tbody tr').length === 2")
	b.says(row("api")+" .by-rejections tbody", "sk-…#")
	if title := js[string](b, "document.title"); title == "owned" {
		t.Error("a key was executed")
	}
	b.fits("a rule that is open")
	// Nobody can see which of the two it is, so both are reset.
	for _, place := range []string{"first", "last"} {
		b.click(row("api") + " .by-rejections tbody tr:" + place + "-child button.key")
		b.says("#key-state", "0 of 3")
		b.click("[data-do=reset]")
		b.click("#confirm-yes")
		b.says("#key-said", "The count was reset.")
		b.says("#key-state", "3 of 3")
		b.until("(document.querySelector('#keybox').close(), true)")
	}
	if status := ask("sk-greedy-0001"); status != http.StatusOK {
		t.Errorf("status %d after the reset, want 200", status)
	}
	b.click(row("api") + " .by-rejections tbody tr:first-child button.key")
	b.click("[data-do=block]")
	b.choose("#for", "24h")
	b.click("#confirm-yes")
	b.says("#key-said", "The key is blocked.")
	if a, b := ask("sk-greedy-0001"), ask(hostile); a+b != http.StatusOK+http.StatusTooManyRequests {
		t.Errorf("status %d and %d, want one of them to be blocked", a, b)
	}
}

// Both proxies have every metric that the dashboard and the alerts use, and no other.
func TestBothProxiesHaveTheMetricsOfTheDashboard(t *testing.T) {
	redis := redistest.Start(t)
	far := redistest.Start(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	must.Succeed(t, os.WriteFile(rules, []byte("rules: [{name: ofFile, limit: 5/1m}]\n"), 0o600))
	advisor := startAdvisor(t)
	advisor.says("")
	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "0.5") }))
	t.Cleanup(health.Close)
	caddy := startCaddyWithGlobal(t, "off", "rate_limit {\nadvisor "+advisor.URL+" {\ninterval 1s\n}\n}", `metrics /metrics
		rate_limit {
			store redis `+redis.Addr()+`
			zone orders {
				match {
					path /orders
				}
				limit 500/1m
				on_limit defer {
					durability best_effort
				}
			}
		}
		route /shared {
			rate_limit {
				store storage {
					storage file_system `+t.TempDir()+`
				}
				zone over_a_storage {
					limit 5/1m
				}
			}
		}
		route /limited {
			rate_limit {
				zone all {
					algorithm token_bucket
					limit 5/1m
					penalty 1h
					candidate {
						limit 3/1m
					}
				}
				zone adapted {
					limit 500/1m
					limit_from {header.X-Limit}
					adapt {
						ceiling 800/1m
					}
				}
				zone queue {
					algorithm token_bucket
					limit 50/1m
					on_limit delay
				}
				zone measured {
					limit 500/1m
					cost_response bytes
				}
			}
			rate_limit {
				guard {
					pressure `+health.URL+`
					shadow
				}
				rules_file `+rules+`
			}
			rate_limit {
				store redis `+redis.Addr()+` {
					region eu
					peers us `+far.Addr()+`
				}
				zone shared {
					limit 5/1m
					consistency lease
				}
				zone told {
					limit 500/1m
					consistency eventual
					regions eventual
				}
			}
			respond ok
		}
		respond /up ok`)
	s := newSite(t)
	address := freeAddr()
	withMetrics := ", metrics: {address: '" + address + "'}"
	s.limit("here", "{limit: 500/1m, algorithm: token_bucket, penalty: [1h], candidate: {limit: 3/1m}, guard: {shadow: true, pressure: {url: '"+health.URL+"'}}"+withMetrics+"}")
	s.limit("there", "{limit: 500/1m, consistency: lease"+withMetrics+", store: {redis: {address: '"+redis.Addr()+"', nodes: 1}}}")
	s.limit("told", "{limit: 500/1m, consistency: eventual 1s, regions: eventual 1s"+withMetrics+", store: {redis: {address: '"+far.Addr()+"', nodes: 1, region: us, peers: {eu: '"+redis.Addr()+"'}}}}")
	s.limit("adapted", "{limit: 500/1m, costResponse: [bytes], limitFrom: {source: 'header:X-Limit'}, adapt: {ceiling: 800/1m}, advisor: {url: '"+advisor.URL+"', interval: 1s}"+withMetrics+"}")
	s.route("/here", "here", "adapted")
	s.route("/there", "there", "told")
	s.apply()
	for _, path := range []string{"/here", "/there"} {
		for range 100 { // the duration of some is measured
			s.admit(1, path)
		}
	}
	if _, err := caddy.try("/limited"); err != nil {
		t.Fatal(err)
	}
	mustMetricsAt(t, address)
	for proxy, place := range map[string]string{"Caddy": caddy.addr, "Traefik": address} {
		var scraped map[string]*dto.MetricFamily
		eventually(t, proxy+" has taken advice, and has the numbers of its queues", func() bool {
			answer, err := http.Get("http://" + place + "/metrics")
			must.Succeed(t, err)
			defer answer.Body.Close()
			if scraped, err = parseScrape(answer.Body); err != nil {
				t.Fatalf("%s: %v", proxy, err)
			}
			return scraped["weir_advice_serial"] != nil && scraped["weir_region_age_seconds"] != nil && (proxy != "Caddy" || scraped["weir_deferred_jobs"] != nil)
		})
		names := checkScrape(t, scraped)
		for _, known := range knownMetrics() {
			if has := slices.Contains(names, known.name); has == (known.caddyOnly && proxy == "Traefik") {
				t.Errorf("%s: whether there is %s: %t", proxy, known.name, has)
			}
		}
	}
}
