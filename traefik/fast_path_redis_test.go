package traefik

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// kindsInRedis returns each combination that has a fast path in Redis.
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
						if form != "client_ip" && (algorithm != "token_bucket" || number > 2 || metered != guarded || metered && form != "a match") ||
							interpreted && algorithm != "token_bucket" && number%2 == 0 { // these do not depend on each other
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
						name := fmt.Sprintf("%s, %d rules, %s, metered %v, guarded %v", algorithm, number, form, metered, guarded)
						list = append(list, kind{name: name, config: c})
						if number == 1 && algorithm != "leaky_bucket" {
							list = append(list, consistently(name, c, "lease", "40/10s"), consistently(name, c, "eventual 1m", "6/2m"))
						}
					}
				}
			}
		}
	}
	return append(list, kindsOfSettings()...)
}

// consistently returns the kind of a configuration of one rule with that consistency, and a limit for which that makes sense.
func consistently(name string, c Config, consistency, limit string) kind {
	rule := c.Rules[0]
	rule.Limit = limit
	rule.Consistency = consistency
	c.Rules = []Rule{rule}
	return kind{name: consistency + ", " + name, config: c}
}

// clockedServer is a Redis whose clock a test sets.
type clockedServer struct {
	addr    string
	setTime func(micros int64)
}

// startServers returns two servers, which are empty. In the interpreter they are running already. (The compiled tests have another function here.)
var startServers = serversOfEnvironment

func serversOfEnvironment(t *testing.T) [2]clockedServer {
	var servers [2]clockedServer
	addresses, clocks := strings.Split(os.Getenv("WEIR_TEST_REDIS"), ","), strings.Split(os.Getenv("WEIR_TEST_CLOCK"), ",")
	if len(addresses) != 2 || len(clocks) != 2 {
		t.Skip("WEIR_TEST_REDIS and WEIR_TEST_CLOCK do not name two servers: TestUnderTheInterpreter does")
	}
	for i := range servers {
		servers[i] = clockedServer{addresses[i], clockIn(t, clocks[i])}
	}
	return servers
}

// clockIn returns a function that sets a server's clock, which is in a file.
func clockIn(t *testing.T, file string) func(micros int64) {
	return func(micros int64) {
		b := make([]byte, 8)
		binary.NativeEndian.PutUint64(b, uint64(micros))
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt(b, 0)
			_ = f.Close()
		}
		must.Succeed(t, err)
	}
}

// flush empties a server.
func (s *clockedServer) flush(t *testing.T) {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	must.Succeed(t, err)
	defer c.Close()
	_, _ = c.Write([]byte("FLUSHALL\r\n"))
	if line, err := bufio.NewReader(c).ReadString('\n'); line != "+OK\r\n" {
		t.Fatal(line, err)
	}
}

// onServers makes two handlers as onBothPaths does, of which each counts in a Redis of its own. step lets time pass for all, and waits until no call
// is under way that no request waits for. The servers are empty.
//
// What the plugin does now and then by the real time it must not do here. So little time passes for leases that none is given back; and the interval
// of consistency eventual is longer than the test, in which much time passes.
func onServers(t *testing.T, servers [2]clockedServer, c Config) (stages [2]*stage, handlers [2]http.Handler, step func(span time.Duration)) {
	slower, faster := time.Duration(1), time.Duration(1)
	switch c.Rules[0].Consistency {
	case "lease":
		slower = 200
	case "eventual 1m":
		faster = 10
	}
	for i, server := range servers {
		server.flush(t)
		config := c
		config.Store = object{"redis": patient(object{"address": server.addr, "nodes": 1})}
		stages[i] = newStage(t)
		stages[i].near = stages[i].wall
		handlers[i] = pathOn(stages[i], config, i == 1)
	}
	step = func(span time.Duration) {
		for i, s := range stages {
			store := s.newest("m@file").shared.store
			until(t, func() bool { return store.LeaseStats().UnderWay == 0 })
			s.step(span / slower * faster)
			servers[i].setTime(s.wall())
		}
	}
	step(0)
	return stages, handlers, step
}

// closeStores ends what onServers has begun, which goes on otherwise while other tests run.
func closeStores(stages [2]*stage) {
	for _, s := range stages {
		shared := s.newest("m@file").shared
		shared.ended.Store(true)
		_ = shared.store.CloseNow()
	}
}

func TestEachFastPathInRedisAnswersAsTheGeneralPath(t *testing.T) {
	underrace.OneGoroutine(t)
	servers := startServers(t)
	steps := asMany(120, 20)
	if interpreted {
		steps = 20
	}
	for number, k := range kindsInRedis() {
		stages, handlers, step := onServers(t, servers, k.config)
		compareAnswers(t, k.name, stages, handlers, seedOf(number), steps, step)
		closeStores(stages)
	}
}

// TestEachFastPathInRedisIsTaken sends plain requests until one passes where the general path cannot decide. It also tests that rejections are
// answered there, once they are remembered.
func TestEachFastPathInRedisIsTaken(t *testing.T) {
	servers := startServers(t)
	for _, k := range kindsInRedis() {
		if strings.Contains(k.name, "a shadow's candidate") || strings.Contains(k.name, "a cost") || strings.Contains(k.name, "tiers, a concurrency") || strings.Contains(k.name, "tiers beside") { // which have none
			continue
		}
		stages, handlers, step := onServers(t, servers, k.config)
		e := stages[0].newest("m@file")
		e.forwarded.Store(true) // else the general path notes that once
		e.open.Store(0)
		limiter, fixed := e.limiter, e.fixed
		send := func(general bool) int {
			if !strings.Contains(k.name, "concurrency") && !strings.Contains(k.name, "mixed") { // whose reservations it ends
				e.limiter = nil
			}
			if k.config.Guard == nil { // which needs it
				e.fixed = nil // without which a decision of the store cannot be concluded
			}
			if general {
				e.limiter = limiter
				e.fixed = fixed
			}
			return panicking(handlers[0], plainRequest("192.0.2.1"))
		}
		taken := func() bool {
			step(10 * time.Second)
			send(true) // so that the key is known, and the connection is there
			if strings.HasPrefix(k.name, "eventual") {
				send(true) // so that it is to be synchronised
			} else {
				step(10 * time.Second)
			}
			return send(false) == http.StatusOK
		}
		until(t, taken)
		// A leaky bucket's queue has room, but the wait would be too long.
		if remembers := k.config.Rules[0].Consistency == "" && !strings.HasPrefix(k.name, "leaky_bucket") && !k.leaves && !k.passes; remembers {
			for i := 0; i < 6; i++ {
				send(true)
			}
			must.Equal(t, send(false), http.StatusTooManyRequests, "%s: a rejection that is remembered is answered", k.name)
		}
		if k.config.Rules[0].Consistency == "" {
			for i := 0; i < 6; i++ {
				send(true)
			}
			until(t, taken) // again, after rejections
		}
		closeStores(stages)
	}
}

// TestRulesOfFilesAreServedOverRedis is about a defect: what a fast path left to be concluded, such as the first request of a key, panicked.
func TestRulesOfFilesAreServedOverRedis(t *testing.T) {
	server := startServers(t)[0]
	for _, text := range []string{`{"rules":[{"name":"a","limit":"2/1h"}]}`, `{"rules":[{"name":"a","limit":"2/1h"},{"name":"b","limit":"3/1h"}]}`} {
		server.flush(t)
		s := newStage(t)
		file := writeFile(t, filepath.Join(t.TempDir(), "rules.json"), text)
		c := &Config{RulesFile: []string{file}, Metrics: object{"path": "/metrics"}, Store: object{"redis": patient(object{"address": server.addr})}}
		must.Equal(t, statuses(s.handler(context.Background(), c, "m@file"), "192.0.2.1", 3), "200 200 429")
		must.Equal(t, s.newest("m@file").inForce().meters["a"].Requests[front.Rejected], 1, "rejections of the rule")
		must.Succeed(t, s.newest("m@file").shared.store.CloseNow())
	}
}

// TestRulesWithoutAFastPathInRedisAreServed is about a defect: a router of several rules of which one leases had no handler at all.
func TestRulesWithoutAFastPathInRedisAreServed(t *testing.T) {
	server := startServers(t)[0]
	for _, key := range []string{"client_ip", "header:X-User"} {
		server.flush(t)
		s := newStage(t)
		c := &Config{
			Rules: []Rule{{Name: "a", Limit: "2/1h"}, {Name: "b", Limit: "3/1h", Key: []string{key}, Consistency: "lease"}},
			Store: object{"redis": patient(object{"address": server.addr})},
		}
		must.Equal(t, statuses(s.handler(context.Background(), c, "m@file"), "192.0.2.1", 3), "200 200 429")
		must.Succeed(t, s.newest("m@file").shared.store.CloseNow())
	}
}
