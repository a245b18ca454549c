//go:build gc
// +build gc

package traefik

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/underrace"
)

// kindsInRedis returns each combination that has a fast path in Redis. The tests of package redis compare it interpreted.
func kindsInRedis() []kind {
	var list []kind
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"} {
		for _, metered := range []bool{false, true} {
			for _, guarded := range []bool{false, true} {
				for number := 1; number <= 4; number++ {
					for form, change := range map[string]func(c *Config){
						"client_ip":      func(c *Config) {},
						"header:X-Key":   eachBy("header:X-Key"),
						"depth 1":        func(c *Config) { c.IPStrategy = object{"depth": 1} },
						"unsaid":         func(c *Config) { c.IPStrategy = nil },
						"different keys": func(c *Config) { c.Rules[number-1].Key = []string{"header:X-Key"} },
						"a match":        func(c *Config) { c.Rules[0].Match = object{"methods": []string{"GET"}} },
						"no fields":      func(c *Config) { c.Headers = []string{"none"} },
						"ietf":           func(c *Config) { c.Headers = []string{"ietf"} },
						"a message":      func(c *Config) { c.Rules[number-1].Message = "Slowly." },
					} {
						if form != "client_ip" && (algorithm != "token_bucket" || number > 2 || metered != guarded || metered && form != "a match") { // these do not depend on each other
							continue
						}
						rules := []Rule{
							{Name: "a", Limit: "4/2s", Algorithm: algorithm}, {Name: "b", Limit: "20000/5h", Algorithm: "sliding_window_counter"},
							{Name: "c", Limit: "8/5s", Algorithm: "token_bucket"}, {Name: "d", Limit: "6/3s", Algorithm: "fixed_window"},
						}
						if algorithm == "leaky_bucket" {
							rules[0].MaxDelay = "1ms"
						}
						c := Config{Rules: rules[:number], Headers: []string{}, IPStrategy: object{}}
						if metered {
							c.Metrics = object{"path": "/metrics"}
						}
						if guarded {
							c.Guard = object{"max": 512, "min": 512}
						}
						change(&c)
						list = append(list, kind{fmt.Sprintf("%s, %d rules, %s, metered %v, guarded %v", algorithm, number, form, metered, guarded), c})
					}
				}
			}
		}
	}
	return list
}

// onServers makes two handlers as onBothPaths does, of which each counts in a Redis of its own. step lets time pass for all. The servers are
// empty.
func onServers(t *testing.T, servers [2]*redistest.Server, c Config) (stages [2]*stage, handlers [2]http.Handler, step func(span time.Duration)) {
	for i, server := range servers {
		server.MustDo(t, "FLUSHALL")
		config := c
		config.Store = object{"redis": patient(object{"address": server.Addr(), "nodes": 1})}
		stages[i] = newStage(t)
		stages[i].near = stages[i].wall
		handlers[i] = pathOn(stages[i], config, i == 1)
	}
	step = func(span time.Duration) {
		for i, s := range stages {
			s.step(span)
			servers[i].SetTime(s.wall())
		}
	}
	step(0)
	return stages, handlers, step
}

func TestEachFastPathInRedisAnswersAsTheGeneralPath(t *testing.T) {
	underrace.OneGoroutine(t)
	servers := [2]*redistest.Server{redistest.Start(t, redistest.WithClock()), redistest.Start(t, redistest.WithClock())}
	for number, k := range kindsInRedis() {
		stages, handlers, step := onServers(t, servers, k.config)
		compareAnswers(t, k.name, stages, handlers, int64(number), 200, step)
	}
}

// TestEachFastPathInRedisIsTaken sends plain requests until one passes where the general path cannot decide. It also tests that rejections are
// answered there, once they are remembered.
func TestEachFastPathInRedisIsTaken(t *testing.T) {
	servers := [2]*redistest.Server{redistest.Start(t, redistest.WithClock()), redistest.Start(t, redistest.WithClock())}
	for _, k := range kindsInRedis() {
		stages, handlers, step := onServers(t, servers, k.config)
		e := stages[0].newest("m@file")
		e.forwarded.Store(true) // else the general path notes that once
		limiter, fixed := e.limiter, e.fixed
		send := func(general bool) int {
			r := httptest.NewRequest("GET", "http://example.com/", nil)
			r.RemoteAddr = "192.0.2.1:1234"
			r.Header.Set("X-Key", "a")
			r.Header.Set("X-Forwarded-For", "192.0.2.1")
			e.limiter = nil
			if k.config.Guard == nil { // which needs it
				e.fixed = nil // without which a decision of the store cannot be concluded
			}
			if general {
				e.limiter = limiter
				e.fixed = fixed
			}
			return panicking(handlers[0], r)
		}
		until(t, func() bool {
			step(10 * time.Second)
			send(true) // so that the key is known, and the connection is there
			step(10 * time.Second)
			return send(false) == http.StatusOK
		})
		if strings.HasPrefix(k.name, "leaky_bucket") { // whose queue has room, but the wait would be too long
			continue
		}
		for i := 0; i < 6; i++ {
			send(true)
		}
		if code := send(false); code != http.StatusTooManyRequests {
			t.Errorf("%s: a rejection that is remembered is answered %d", k.name, code)
		}
	}
}
