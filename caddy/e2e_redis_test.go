package ratelimit_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	ratelimit "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/redis/redistest"
)

// These tests run a real Caddy in this process with real Redis servers. Timeouts are long, except in tests about missing answers.
const patiently = "timeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 1"

// storeAt returns the store redis at an address, with further settings.
func storeAt(addr string, words ...string) string {
	return "store redis " + addr + " {\n" + strings.Join(words, "\n") + "\n}\n"
}

// zoneIn returns a site with one zone for all clients, in a store.
func zoneIn(store, lines string) string {
	return "rate_limit {\nzone z {\nkey everyone\n" + lines + "\n}\n" + store + "\n}\nrespond ok"
}

// clientsIn returns the same with a zone that counts each X-Client.
func clientsIn(store, lines string) string {
	return strings.Replace(zoneIn(store, lines), "key everyone", "key {header.X-Client}", 1)
}

// connections returns the IDs of the connections to a server, without the one that asks.
func connections(t testing.TB, server *redistest.Server) []string {
	t.Helper()
	var ids []string
	for line := range strings.Lines(server.MustDo(t, "CLIENT", "LIST").Text) {
		if id, rest, _ := strings.Cut(line, " "); !strings.Contains(rest, "cmd=client|list ") {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// calls returns how many scripts a server has been asked to run.
func calls(t testing.TB, server *redistest.Server) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(server.MustDo(t, "INFO", "commandstats").Text) {
		name, stats, _ := strings.Cut(line, ":")
		if name != "cmdstat_evalsha" && name != "cmdstat_eval" {
			continue
		}
		var calls int
		if _, err := fmt.Sscanf(stats, "calls=%d,", &calls); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		n += calls
	}
	return n
}

// keys returns the keys of a server, without those of probes, which end at once.
func keys(t testing.TB, server *redistest.Server) []string {
	t.Helper()
	list := server.MustDo(t, "KEYS", "*").Strings()
	return slices.DeleteFunc(list, func(key string) bool { return strings.HasSuffix(key, "}:probe") || strings.Contains(key, "{rules}:") })
}

// Messages of the log.
const (
	saysNodes         = "nodes is not set: if Redis cannot be reached, each node lets the whole limit through"
	saysOtherNetworks = "another proxy that shares the zone by Redis takes other networks for one client, so each of them counts apart and lets the whole limit through; " +
		"write the same ipv4_prefix and ipv6_prefix on both (32 and 128 leave addresses whole)"
	saysNotYet    = "Redis cannot be used yet; until it can, rate limits go by the zones' on_error"
	saysDown      = "Redis does not answer; until it does, rate limits go by the zones' on_error"
	saysUpAgain   = "Redis answers again"
	saysOfRequest = "the store of rate limits has failed"
)

// said checks how often the log has messages.
func (s *server) said(times int, messages ...string) {
	s.t.Helper()
	for _, message := range messages {
		lines := s.logs(message)
		for deadline := time.Now().Add(patience); len(lines) < times && time.Now().Before(deadline); lines = s.logs(message) {
			time.Sleep(2 * time.Millisecond)
		}
		if len(lines) != times {
			s.t.Errorf("the log has %d lines %q, want %d: %v", len(lines), message, times, lines)
		}
	}
}

// awaitStore waits until Redis decides. Loading a configuration waits for only a quarter of a second. On a busy machine a Cluster
// or a Sentinel may not be found by then, which is logged, and so is when it is found.
func (s *server) awaitStore() {
	s.t.Helper()
	eventually(s.t, "Redis can be used", func() bool { return len(s.logs(saysNotYet)) == len(s.logs(saysUpAgain)) })
	s.said(0, saysDown)
}

// serious returns Weir's lines in the log that are warnings or worse.
func (s *server) serious() []string {
	s.t.Helper()
	data, err := os.ReadFile(s.logFile)
	if err != nil {
		s.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "rate_limit") && (strings.Contains(line, `"level":"warn"`) || strings.Contains(line, `"level":"error"`)) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Numbers in an answer that depend on the second at which it was given.
var numbers = regexp.MustCompile(`\d+`)

// The answers do not depend on the store.
func TestStoreRedisAnswersAsMemoryDoes(t *testing.T) {
	redis := redistest.Start(t)
	for i, sp := range spellings {
		zone := func(store string) string { return clientsIn(store, sp.caddyfile) }
		answers := func(s *server) []response {
			var list []response
			for range sp.admits {
				list = append(list, s.do("/", "X-Client", "anna"))
			}
			for range 3 {
				list = append(list, s.reject("/", "X-Client", "anna"))
			}
			list = append(list, s.do("/", "X-Client", "anna", "Accept", "application/json"))
			return append(list, s.do("/", "X-Client", "bert"))
		}
		var want []response
		t.Run(sp.name+" in memory", func(t *testing.T) { want = answers(startSite(t, zone(""))) })
		for where, begin := range map[string]func(t *testing.T, store string) *server{
			"handler": func(t *testing.T, store string) *server { return startSite(t, zone(store)) },
			"global option": func(t *testing.T, store string) *server {
				return start(t, "rate_limit {\n"+store+"}\n", ":PORT {\n"+zone("")+"\n}")
			},
		} {
			t.Run(sp.name+" in the store of the "+where, func(t *testing.T) {
				before := len(keys(t, redis))
				s := begin(t, storeAt(redis.Addr(), patiently, "prefix "+strings.Fields(where)[0]+strconv.Itoa(i)+":"))
				for j, got := range answers(s) {
					want := want[j]
					if got.status != want.status || numbers.ReplaceAllString(got.body, "") != numbers.ReplaceAllString(want.body, "") {
						t.Errorf("request %d: %d %q, and by memory %d %q", j, got.status, got.body, want.status, want.body)
					}
					for _, field := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "RateLimit-Policy", "Cache-Control", "Content-Type"} {
						if got, want := got.header.Values(field), want.header.Values(field); !slices.Equal(got, want) {
							t.Errorf("request %d: %s: %q, and by memory %q", j, field, got, want)
						}
					}
					for _, field := range []string{"X-RateLimit-Reset", "Retry-After", "X-RateLimit-Retry-After"} {
						if want.header.Get(field) == "" {
							got.want(t, field, "-")
							continue
						}
						n, _ := strconv.Atoi(want.header.Get(field)) // some seconds later
						got.seconds(t, field, n-300, n+1)
					}
				}
				if n := len(keys(t, redis)) - before; n != 2 {
					t.Errorf("%d keys in Redis, want one for each client", n)
				}
				if errors := s.serious(); len(errors) != 0 {
					t.Errorf("log: %s", errors)
				}
			})
		}
	}
}

func TestCountsInRedisOutliveReloadsAndCaddy(t *testing.T) {
	redis := redistest.Start(t)
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"} {
		t.Run(algorithm, func(t *testing.T) {
			site := zoneIn(storeAt(redis.Addr(), patiently), "algorithm "+algorithm+"\nlimit 7/366d")
			left := 7
			for range 2 {
				s := startSite(t, site)
				for i := range 3 {
					left--
					if r := s.do("/"); r.status != http.StatusOK || r.remaining(t) != left {
						t.Fatalf("status %d, %d remaining, want 200 and %d", r.status, r.remaining(t), left)
					}
					s.reload(strings.Replace(site, "respond ok", "respond again", i%2))
				}
				if err := caddy.Stop(); err != nil {
					t.Fatal(err)
				}
				if n := ratelimit.RedisStoresInUse(); n != 0 {
					t.Fatalf("%d stores outlive Caddy", n)
				}
			}
			s := startSite(t, site)
			s.admit(1, "/")
			s.reject("/")
		})
	}
}

func TestOneClientServesAllHandlersWithTheSameSettings(t *testing.T) {
	redis := redistest.Start(t)
	s := startSite(t, "respond ok")
	store := func(words ...string) string {
		return storeAt(redis.Addr(), append([]string{patiently, "pool_size 1"}, words...)...)
	}
	route := func(path, store string) string {
		return "route /" + path + " {\nrate_limit {\nzone " + path + " {\nlimit 1000000/366d\n}\n" + store + "}\nrespond ok\n}\n"
	}
	s.reload(route("a", store()) + route("b", store()) + route("c", store()) + "respond ok")
	burst := func(paths ...string) {
		t.Helper()
		client := s.newClient(nil)
		client.Transport.(*http.Transport).DisableKeepAlives = true // so that no server waits for one
		var clients sync.WaitGroup
		for i := range 24 {
			clients.Go(func() {
				for range 5 {
					if r, err := s.try(client, "/"+paths[i%len(paths)]); err != nil || r.status != http.StatusOK {
						t.Errorf("status %d, %v", r.status, err)
					}
				}
			})
		}
		clients.Wait()
	}
	burst("a", "b", "c")
	first := connections(t, redis)
	if len(first) != 1 || ratelimit.RedisStoresInUse() != 1 {
		t.Fatalf("connections %v of %d stores, want one of one", first, ratelimit.RedisStoresInUse())
	}

	// A reload keeps the client, even if handlers come and go.
	s.reload(route("d", store()) + route("a", store()) + "respond ok")
	burst("a", "d")
	if kept := connections(t, redis); !slices.Equal(kept, first) {
		t.Errorf("connections %v after a reload, want %v as before", kept, first)
	}

	// Other settings have another client. The one that is no longer used is closed.
	s.reload(route("a", store()) + route("b", store("database 1")) + "respond ok")
	burst("a", "b")
	if both := connections(t, redis); len(both) != 2 || !slices.Contains(both, first[0]) || ratelimit.RedisStoresInUse() != 2 {
		t.Errorf("connections %v, want %v and one more", both, first)
	}
	s.reload(route("b", store("database 1")) + "respond ok")
	burst("b")
	eventually(t, "the first client is closed", func() bool {
		ids := connections(t, redis)
		return len(ids) == 1 && ids[0] != first[0]
	})

	// Without the store nothing remains of it.
	s.reload("respond ok")
	eventually(t, "Redis has no connections any more", func() bool { return len(connections(t, redis)) == 0 })
	if n := ratelimit.RedisStoresInUse(); n != 0 {
		t.Errorf("%d stores are left", n)
	}
	eventually(t, "no goroutine of it is left", func() bool { return !strings.Contains(stacks(), "goredis") })
}

func TestTheStoreOfAHandlerIsTheGlobalOneIfItsSettingsAreEqual(t *testing.T) {
	redis := redistest.Start(t)
	store := storeAt(redis.Addr(), patiently)
	s := start(t, "rate_limit {\n"+store+"}\n", ":PORT {\n"+route("a", "limit 3/366d", "")+route("b", "limit 3/366d", store)+route("c", "limit 3/366d", "store memory\n")+"}")
	for _, path := range []string{"/a", "/b", "/c"} {
		s.admit(3, path)
		s.reject(path)
	}
	if n := ratelimit.RedisStoresInUse(); n != 1 {
		t.Errorf("%d stores are in use, want 1", n)
	}
	if list := keys(t, redis); len(list) != 2 {
		t.Errorf("keys in Redis: %q, want those of a and b", list)
	}
}

// Defect found: a request that the servers of the previous configuration had accepted came to a store that was closed, or that no
// longer knew its rule.
func TestReloadsUnderLoadLoseNoRequestAndNoCountInRedis(t *testing.T) {
	redis := redistest.Start(t)
	const reloads = 60
	// After two configurations with the same settings come others, so that one client is opened and one closed.
	site := func(i int) string {
		return zoneIn(storeAt(redis.Addr(), patiently, "prefix "+strconv.Itoa(i/2%2)+":"), fmt.Sprintf("limit %d/366d", 1_000_000+i))
	}
	s := startSite(t, site(0))
	admitted := s.underReloads(reloads, site)
	counted := int64(-2)
	for i := range 2 {
		s.reload(site(2 * i))
		counted += int64(1_000_000 + 2*i - s.do("/").remaining(t))
	}
	if counted != admitted {
		t.Errorf("%d requests were admitted and %d counted", admitted, counted)
	}
	s.said(0, saysOfRequest, saysDown, saysNotYet)
}

// The same, with a request that is certainly under way.
func TestARequestFromBeforeAReloadIsCountedInRedis(t *testing.T) {
	redis := redistest.Start(t)
	for name, words := range map[string]string{"with the same settings": "", "with others": `,"prefix":"other:"`, "without a store": "none"} {
		t.Run(name, func(t *testing.T) {
			redis.MustDo(t, "FLUSHALL")
			gate := make(chan *http.Request) // a probe blocks here until the test receives
			probes.Store("gate", gate)
			t.Cleanup(func() { probes.Delete("gate") })
			config := func(limit int, words string) string {
				handler := fmt.Sprintf(`{"handler":"rate_limit","store":{"store":"redis","addresses":[%q],"nodes":1,"timeout":"20s","read_timeout":"20s"%s},"rate_limits":{"z":{"key":"everyone","requests":%d,"period":"366d","on_error":"closed"}}},`, redis.Addr(), words, limit)
				if words == "none" {
					handler = ""
				}
				return httpApp(`[{"handler":"weir_test_probe","name":"gate"},` + handler + `{"handler":"static_response","body":"ok"}]`)
			}
			s := newServer(t)
			s.load(s.json(config(5, "")))
			answer := make(chan response, 1)
			go func() {
				r, err := s.once(s.client, "/gated")
				if err != nil {
					t.Error(err)
				}
				answer <- r
			}()
			eventually(t, "the request is under way", func() bool { return strings.Contains(stacks(), "probe).ServeHTTP") })
			s.load(s.json(config(7, words)))
			awaitOne(t, "the request", gate)
			r := awaitOne(t, "the answer", answer)
			if r.status != http.StatusOK || r.header.Get("X-RateLimit-Limit") != "5" || r.remaining(t) != 4 {
				t.Errorf("status %d, %s of %s remaining, want 200 and 4 of 5", r.status, r.header.Get("X-RateLimit-Remaining"), r.header.Get("X-RateLimit-Limit"))
			}
			if list := keys(t, redis); len(list) != 1 {
				t.Errorf("keys in Redis: %q, want one", list)
			}
			s.said(0, saysOfRequest, saysDown)
		})
	}
}

func TestARefusedReloadChangesNothingInRedis(t *testing.T) {
	redis := redistest.Start(t)
	store := func(more string) string {
		return `{"store":"redis","addresses":["` + redis.Addr() + `"],"nodes":1,"timeout":"20s","read_timeout":"20s"` + more + `}`
	}
	config := func(store, zones string) string {
		return httpApp(`[{"handler":"rate_limit","store":` + store + `,"rate_limits":{` + zones + `}},{"handler":"static_response","body":"ok"}]`)
	}
	with := func(app, config string) string { return config[:len(config)-1] + "," + app + "}" }
	const (
		good    = `"z":{"key":"everyone","requests":5,"period":"366d"}`
		lowered = `"z":{"key":"everyone","requests":1,"period":"366d"}`
		bad     = `,"zz":{"requests":5,"period":"366d","ipv4_prefix":99}`
	)
	s := startJSON(t, config(store(""), good))
	s.admit(2, "/")
	before := connections(t, redis)
	for _, test := range []struct{ name, config, why string }{
		{"a bad zone", config(store(""), lowered+bad), `zone "zz"`},
		{"a bad zone, another prefix", config(store(`,"prefix":"other:"`), good+bad), `zone "zz"`},
		{"a bad store", config(store(`,"nodes":-1`), lowered), "nodes -1"},
		{"a store with a bad address", config(`{"store":"redis","addresses":["a b"]}`, lowered), "address"},
		{"a store with an unknown field", config(store(`,"adress":"x"`), lowered), "adress"},
		{"an app that does not start", with(`"weir_test_failing":{},"rate_limit":{"store":`+store(`,"database":1`)+`}`, config(store(""), lowered)), "never starts"},
	} {
		for range 4 { // apps start in any order
			if why := s.refused(s.json(test.config)); !strings.Contains(why, test.why) {
				t.Errorf("%s: refused with %q, want it to say %q", test.name, why, test.why)
			}
		}
		if n := ratelimit.RedisStoresInUse(); n != 1 {
			t.Errorf("%s: %d stores are in use, want 1", test.name, n)
		}
	}
	for left := 2; left >= 0; left-- {
		if r := s.do("/"); r.status != http.StatusOK || r.remaining(t) != left || r.header.Get("X-RateLimit-Limit") != "5" {
			t.Fatalf("status %d, %d of %s remaining, want 200 and %d of 5", r.status, r.remaining(t), r.header.Get("X-RateLimit-Limit"), left)
		}
	}
	s.reject("/")
	eventually(t, "the connections are those from before", func() bool { return slices.Equal(connections(t, redis), before) })
}

func TestAChangedLimitAppliesAtOnceToTheCountsInRedis(t *testing.T) {
	redis := redistest.Start(t)
	for i, words := range []string{
		"algorithm token_bucket\nlimit %d/366d",
		"algorithm fixed_window\nlimit %d/366d",
		"limit %d/month",
		"algorithm sliding_window_log\nlimit %d/366d",
		"algorithm sliding_window_counter\nlimit %d/366d",
	} {
		t.Run(words, func(t *testing.T) {
			limit := func(n int) string {
				return zoneIn(storeAt(redis.Addr(), patiently, "prefix "+strconv.Itoa(i)+":"), fmt.Sprintf(words, n))
			}
			s := startSite(t, limit(10))
			s.admit(10, "/")
			s.reject("/")
			s.reload(limit(30)) // a remembered rejection no longer counts
			s.admit(20, "/")
			s.reject("/")
			s.reload(limit(10))
			if r := s.reject("/"); r.remaining(t) != 0 {
				t.Errorf("%d remaining, want 0", r.remaining(t))
			}
			s.reload(limit(31))
			s.admit(1, "/")
			s.reject("/")
		})
	}
}

// A reload changes the algorithm. Nobody gains by it, and penalties go on when it is over, in all slots of a Cluster.
func TestAChangedAlgorithmGivesNobodyMoreInRedis(t *testing.T) {
	for _, name := range []string{"single", "cluster"} {
		t.Run(name, func(t *testing.T) {
			words := patiently
			addr := ""
			if name == "cluster" {
				addr = redistest.StartCluster(t).Addrs()[0]
				words += "\ncluster"
			} else {
				addr = redistest.Start(t).Addr()
			}
			site := func(lines string) string { return clientsIn(storeAt(addr, words), lines+"\npenalty 1h") }
			s := startSite(t, site("algorithm fixed_window\nlimit 2/1s"))
			s.awaitStore()
			var penalized []string
			for i := range 12 {
				client := "mallory" + strconv.Itoa(i)
				penalized = append(penalized, client)
				for s.do("/", "X-Client", client).status == 200 {
				}
			}
			s.reload(site("algorithm sliding_window_log\nlimit 20/1s"))
			if r := s.do("/", "X-Client", "alice"); r.status != 200 || r.remaining(t) != 1 {
				t.Errorf("another client has %d left (status %d), want 1 of the former limit", r.remaining(t), r.status)
			}
			fresh := 0
			eventually(t, "the transition is over", func() bool {
				fresh++
				return s.do("/", "X-Client", "fresh"+strconv.Itoa(fresh)).remaining(t) == 19
			})
			for _, client := range penalized {
				s.reject("/", "X-Client", client)
			}
			s.said(1, saysKeeps)
		})
	}
}

// All zones of a handler are decided in one call, which charges all or none.
func TestZonesInRedisAreDecidedTogether(t *testing.T) {
	redis := redistest.Start(t)
	s := startSite(t, `
		rate_limit {
			zone all {
				key everyone
				limit 100/366d
			}
			zone client {
				key {header.X-Client}
				limit 3/366d
				algorithm token_bucket
			}
			zone shadow {
				key everyone
				limit 1/366d
				enforcement shadow
			}
			`+storeAt(redis.Addr(), patiently)+`
		}
		respond ok`)
	s.admit(1, "/", "X-Client", "anna") // from here on Redis has the script
	before := calls(t, redis)
	s.admit(2, "/", "X-Client", "anna")
	s.reject("/", "X-Client", "anna")
	if n := calls(t, redis) - before; n != 3 {
		t.Errorf("3 requests took %d calls, want one each", n)
	}
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 10 {
				if r, err := s.try(s.client, "/", "X-Client", "anna"); err != nil || r.status != http.StatusTooManyRequests {
					t.Errorf("status %d, %v; want 429", r.status, err)
				}
			}
		})
	}
	clients.Wait()
	r := s.do("/", "X-Client", "bert")
	if fields := r.header.Get("RateLimit"); !strings.Contains(fields, `"all";r=96;`) || !strings.Contains(fields, `"client";r=2;`) || strings.Contains(fields, "shadow") {
		t.Errorf("RateLimit: %s; want 96 left of all, since rejections have taken none, and 2 of the client's", fields)
	}
}

func TestAFloodOfOneClientHardlyReachesRedis(t *testing.T) {
	redis := redistest.Start(t)
	s := startSite(t, clientsIn(storeAt(redis.Addr(), patiently), "limit 2/366d"))
	s.admit(2, "/", "X-Client", "mallory")
	s.reject("/", "X-Client", "mallory")
	before := calls(t, redis)
	const flood = 3000
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range flood / 8 {
				if r, err := s.try(s.client, "/", "X-Client", "mallory"); err != nil || r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" {
					t.Errorf("status %d, %v; want 429 with Retry-After", r.status, err)
				}
			}
		})
	}
	clients.Wait()
	if n := calls(t, redis) - before; n > flood/100 {
		t.Errorf("%d requests that are over the limit came to %d calls of Redis", flood, n)
	}
	s.admit(1, "/", "X-Client", "anna")
}

func TestOnErrorRulesWhileRedisIsDown(t *testing.T) {
	for _, test := range []struct {
		name, lines string
		store       string
		before      int // requests before Redis goes down
		want        []int
	}{
		{"open", "limit 1/366d\non_error open", patiently, 1, []int{200, 200, 200, 200, 200, 200, 200, 200}},
		{"closed", "limit 100/366d\non_error closed", patiently, 1, []int{503, 503, 503, 503, 503, 503, 503, 503}},
		{"local is the default", "limit 3/366d", patiently, 0, []int{200, 200, 200, 429, 429, 429, 429, 429}},
		{"local, at a share", "limit 8/366d\non_error local", strings.Replace(patiently, "nodes 1", "nodes 4", 1), 0, []int{200, 200, 429, 429, 429, 429}},
		{"local, a limit of 1 stays 1", "limit 1/366d\non_error local", strings.Replace(patiently, "nodes 1", "nodes 4", 1), 0, []int{200, 429, 429, 429, 429, 429}},
		{"local goes on from what was known", "limit 10/366d\non_error local", patiently, 6, []int{200, 200, 200, 200, 429, 429, 429, 429}},
		{"local goes on from what was known, at a share", "limit 20/366d\non_error local", strings.Replace(patiently, "nodes 1", "nodes 4", 1), 12, []int{200, 200, 429, 429, 429, 429, 429, 429}},
		{"local, and the limit was used up", "limit 2/366d\non_error local", patiently, 2, []int{429, 429, 429, 429, 429, 429, 429, 429}},
		{"local, a token bucket", "limit 10/366d\nalgorithm token_bucket", patiently, 6, []int{200, 200, 200, 200, 429, 429, 429, 429}},
		{"local, a fixed window", "limit 10/366d\nalgorithm fixed_window", patiently, 6, []int{200, 200, 200, 200, 429, 429, 429, 429}},
		{"local, a log", "limit 10/366d\nalgorithm sliding_window_log", patiently, 6, []int{200, 200, 200, 200, 429, 429, 429, 429}},
	} {
		t.Run(test.name, func(t *testing.T) {
			redis := redistest.Start(t)
			s := startSite(t, zoneIn(storeAt(redis.Addr(), test.store), test.lines))
			s.admit(test.before, "/")
			redis.Kill()
			for i, want := range test.want {
				r := s.do("/")
				if r.status != want {
					t.Errorf("request %d: status %d, want %d", i, r.status, want)
				}
				switch r.status {
				case 503:
					r.seconds(t, "Retry-After", 1, 1)
					r.want(t, "Cache-Control", "no-store", "X-RateLimit-Limit", "-", "RateLimit", "-")
				case 429:
					r.seconds(t, "Retry-After", 1, 2*366*86400)
				}
				if strings.HasPrefix(test.name, "open") {
					r.want(t, "X-RateLimit-Limit", "-", "RateLimit", "-", "Retry-After", "-")
				}
			}
		})
	}
}

func TestAGRPCCallIsUnavailableWhileRedisIsDown(t *testing.T) {
	redis := redistest.Start(t)
	s := start(t, "servers {\nprotocols h1 h2c\n}\n", ":PORT {\n"+zoneIn(storeAt(redis.Addr(), patiently), "limit 5/366d\non_error closed")+"\n}")
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := s.newClient(protocols)
	defer client.CloseIdleConnections()
	redis.Kill()
	for range 8 {
		r, err := s.try(client, "POST /package.Service/Method", "Content-Type", "application/grpc")
		if err != nil {
			t.Fatal(err)
		}
		if r.status != http.StatusOK || r.header.Get("Grpc-Status") != "14" {
			t.Errorf("status %d, grpc-status %q; want 200 and 14, UNAVAILABLE", r.status, r.header.Get("Grpc-Status"))
		}
		r.want(t, "Retry-After", "1", "Content-Type", "application/grpc")
	}
}

// The zones of one request may have different on_error: the strictest counts.
func TestZonesDisagreeOnWhatToDoWithoutRedis(t *testing.T) {
	redis := redistest.Start(t)
	zone := func(name, lines string) string { return "zone " + name + " {\nkey everyone\n" + lines + "\n}\n" }
	site := func(zones string) string {
		return "rate_limit {\n" + zones + storeAt(redis.Addr(), patiently) + "}\nrespond ok"
	}
	s := startSite(t, site(zone("a", "limit 2/366d\non_error open")+zone("b", "limit 3/366d")))
	redis.Kill()
	for i, want := range []int{200, 200, 200, 429, 429} {
		r := s.do("/")
		if r.status != want {
			t.Errorf("open and local, request %d: status %d, want %d", i, r.status, want)
		}
		if fields := r.header.Get("RateLimit"); strings.Contains(fields, `"a"`) || !strings.Contains(fields, `"b"`) {
			t.Errorf("RateLimit: %s; want the zone that is counted alone", fields)
		}
	}
	s.reload(site(zone("a", "limit 2/366d\non_error open") + zone("c", "limit 3/366d\non_error closed")))
	if r := s.do("/"); r.status != http.StatusServiceUnavailable {
		t.Errorf("open and closed: status %d, want 503", r.status)
	}
	s.reload(site(zone("a", "limit 2/366d\non_error open") + zone("d", "limit 1/366d\non_error closed\nenforcement shadow")))
	s.admit(3, "/")
}

// Requests are answered while Redis hangs, and Redis is used again when it goes on.
func TestRequestsAreAnsweredWhileRedisHangs(t *testing.T) {
	redis := redistest.Start(t)
	// The store's default timeouts, since the test is about them.
	s := startSite(t, zoneIn(storeAt(redis.Addr(), "nodes 1"), "limit 1000000/366d\non_error open"))
	counted := func(r response) bool { return r.header.Get("X-RateLimit-Limit") != "" }
	said := func(message string) int { return len(s.logs(message)) }
	eventually(t, "Redis counts", func() bool { return counted(s.do("/")) })
	notYet, down := said(saysNotYet), said(saysDown) // on a busy machine it may have been late before
	redis.Pause()
	var clients sync.WaitGroup
	for range 32 {
		clients.Go(func() {
			for range 20 {
				// Once: the first try must be answered.
				if r, err := s.once(s.client, "/"); err != nil || r.status != http.StatusOK || r.body != "ok" {
					t.Errorf("a request was lost: status %d, %v", r.status, err)
				}
			}
		})
	}
	clients.Wait()
	eventually(t, "the log says so", func() bool { return said(saysDown) > down })
	s.said(down+1, saysDown)
	if counted(s.do("/")) {
		t.Error("a Redis that hangs has counted a request")
	}
	s.said(notYet, saysNotYet)

	// A configuration with another client loads as well.
	s.reload(zoneIn(storeAt(redis.Addr(), "nodes 1", "prefix other:"), "limit 1000000/366d\non_error open"))
	s.said(notYet+1, saysNotYet)
	s.admit(8, "/")
	s.said(down+2, saysDown) // one for each client
	up := said(saysUpAgain)
	redis.Resume()
	eventually(t, "Redis counts again", func() bool { return counted(s.do("/")) })
	// Only for the second client, since the first is gone. The log line may come later than the first answers.
	eventually(t, "the log says so, as often as Redis was away", func() bool { return said(saysUpAgain)-up == said(saysDown)-down-1 })
	s.said(notYet+1, saysNotYet)
}

func TestTheLimitIsThatOfRedisAgainAfterItsRestart(t *testing.T) {
	redis := redistest.Start(t)
	s := startSite(t, clientsIn(storeAt(redis.Addr(), "timeout 20s", "read_timeout 20s", "nodes 4"), "limit 8/366d"))
	for round := range 2 {
		client := "client" + strconv.Itoa(round)
		s.admit(3, "/", "X-Client", client)
		redis.Kill()
		for range 2 { // a share of 8 is 2, and 3 of 8 is 1 of 2
			s.do("/", "X-Client", client)
		}
		s.reject("/", "X-Client", client)
		eventually(t, "the log says that Redis is down", func() bool {
			s.do("/", "X-Client", "another")
			return len(s.logs(saysDown)) == round+1
		})
		s.reject("/", "X-Client", client)
		redis.Restart()
		eventually(t, "the log says that Redis is there", func() bool { return len(s.logs(saysUpAgain)) == round+1 })
		for left := 7; left >= 0; left-- { // it came back empty
			if r := s.do("/", "X-Client", client); r.status != http.StatusOK || r.remaining(t) != left {
				t.Fatalf("round %d: status %d, %d remaining, want 200 and %d", round, r.status, r.remaining(t), left)
			}
		}
		s.reject("/", "X-Client", client)
		s.said(round+1, saysDown, saysUpAgain)
		if keys := keys(t, redis); len(keys) != 1 {
			t.Errorf("keys in Redis: %q, want one", keys)
		}
	}
}

func TestCaddyStartsValidatesAndReloadsWithoutRedis(t *testing.T) {
	redis := redistest.Start(t)
	redis.Kill()
	site := zoneIn(storeAt(redis.Addr(), "timeout 20s", "read_timeout 20s"), "limit 3/366d")
	s := newServer(t)

	var config caddy.Config
	if err := json.Unmarshal(s.caddyfile("", ":PORT {\n"+site+"\n}"), &config); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&config); err != nil {
		t.Errorf("caddy validate: %v", err)
	}
	s.said(1, saysNotYet, saysNodes)
	if err := os.Truncate(s.logFile, 0); err != nil {
		t.Fatal(err)
	}

	s.load(s.caddyfile("", ":PORT {\n"+site+"\n}"))
	s.said(1, saysNotYet, saysNodes)
	for _, message := range []string{saysNotYet, saysNodes} {
		if line := s.logs(message)[0]; line["level"] != "warn" || line["server"] != redis.Addr() {
			t.Errorf("%v: want a warning that names the server", line)
		}
	}
	if text := fmt.Sprint(s.logs(saysNotYet)[0]["error"]); !strings.Contains(text, "connection refused") {
		t.Errorf("the warning's error is %q, want it to say that the connection was refused", text)
	}
	if lines := s.serious(); len(lines) != 2 {
		t.Errorf("log: %s\nwant the two warnings alone", lines)
	}
	s.admit(2, "/")
	for i := range 3 {
		s.reload(strings.Replace(site, "limit 3", "limit "+strconv.Itoa(4+i), 1))
		s.admit(1, "/")
		s.reload(strings.Replace(site, "respond ok", "respond again", 1))
	}
	s.reject("/")
	s.said(1, saysNotYet, saysNodes)

	// When it comes up it is found, although it was never there before.
	eventually(t, "the breaker opens", func() bool { s.do("/"); return len(s.logs(saysDown)) == 1 })
	redis.Restart()
	eventually(t, "Redis is found", func() bool { return len(s.logs(saysUpAgain)) == 1 })
	s.admit(3, "/")
	s.reject("/")
	s.said(1, saysNotYet, saysNodes, saysDown, saysUpAgain)
}

// The log has the first few requests that Redis fails, and not the many after them.
func TestTheLogIsNotFloodedWhileRedisIsDown(t *testing.T) {
	redis := redistest.Start(t)
	s := startSite(t, zoneIn(storeAt(redis.Addr(), patiently), "limit 1000000/366d"))
	s.admit(1, "/")
	redis.Kill()
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 250 {
				if r, err := s.try(s.client, "/"); err != nil || r.status != http.StatusOK {
					t.Errorf("status %d, %v", r.status, err)
				}
			}
		})
	}
	clients.Wait()
	s.said(1, saysDown)
	line := s.logs(saysDown)[0]
	if line["level"] != "error" || line["server"] != redis.Addr() || line["error"] == nil {
		t.Errorf("%v: want an error that names the server and what went wrong", line)
	}
	// As many as were under way when the breaker opened, and ten a second of those; none in the next second, when sampling begins
	// again.
	before := s.serious()
	if len(before) > 1+16 {
		t.Errorf("2000 requests came to %d lines:\n%s", len(before), before)
	}
	for end := time.Now().Add(1100 * time.Millisecond); time.Now().Before(end); {
		s.admit(1, "/")
	}
	if after := s.serious(); len(after) != len(before) {
		t.Errorf("requests go on being in the log:\n%s", after[len(before):])
	}
}

// startWithAdmin runs Caddy on a JSON configuration with the admin API and a log of all levels, and returns the API's address.
func startWithAdmin(t testing.TB, apps string) (s *server, admin string) {
	t.Helper()
	s = newServer(t)
	admin = freeAddr(t)
	config := string(s.json(apps))
	config = strings.Replace(config, `"disabled": true`, `"listen": "`+admin+`"`, 1)
	config = strings.Replace(config, `"encoder"`, `"level": "DEBUG", "encoder"`, 1)
	s.load([]byte(config))
	return s, admin
}

func TestSecretsAreNeverShown(t *testing.T) {
	const password, secret = "correct-horse-battery", "staple-of-the-keys"
	redis := redistest.Start(t, redistest.WithPassword(password))
	old := redistest.Start(t, redistest.WithConfig(`rename-command AUTH ""`, `rename-command HELLO ""`))
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "{file." + path + "}"
	}
	t.Setenv("WEIR_TEST_PASSWORD", password)
	t.Setenv("WEIR_TEST_SECRET", secret)
	t.Setenv("WEIR_TEST_WRONG", "wrong-"+password)
	for _, test := range []struct {
		name, address, password, secret string
		works                           bool
	}{
		{"of the environment", redis.Addr(), "{env.WEIR_TEST_PASSWORD}", "{env.WEIR_TEST_SECRET}", true},
		{"of files", redis.Addr(), write("password", password+"\n"), write("secret", secret+"\r\n"), true},
		{"in the address", "redis://:{env.WEIR_TEST_PASSWORD}@" + redis.Addr(), "", "{env.WEIR_TEST_SECRET}", true},
		{"wrong, of the environment", redis.Addr(), "{env.WEIR_TEST_WRONG}", "{env.WEIR_TEST_SECRET}", false},
		{"wrong, of a file", redis.Addr(), write("wrong", "wrong-"+password+"\n"), write("secret", secret), false},
		{"wrong, in the address", "redis://:{env.WEIR_TEST_WRONG}@" + redis.Addr(), "", "{env.WEIR_TEST_SECRET}", false},
		{"missing", redis.Addr(), "", "{env.WEIR_TEST_SECRET}", false},
		{"of a server that does not know AUTH, and repeats it", old.Addr(), "{env.WEIR_TEST_PASSWORD}", "{env.WEIR_TEST_SECRET}", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := `{"store":"redis","addresses":["` + test.address + `"],"password":"` + test.password + `","key_secret":"` + test.secret + `","nodes":1,"timeout":"20s","read_timeout":"20s"}`
			s, admin := startWithAdmin(t, httpApp(`[{"handler":"rate_limit","store":`+store+`,"rate_limits":{"z":{"requests":20,"period":"366d"}}},{"handler":"static_response","body":"ok"}]`))
			redis.MustDo(t, "FLUSHALL")
			s.admit(8, "/")
			if test.works {
				s.said(0, saysNotYet, saysDown, saysOfRequest)
				if len(keys(t, redis)) != 1 {
					t.Errorf("keys %q, want one", keys(t, redis))
				}
			} else {
				s.said(1, saysNotYet, saysDown)
				if text := fmt.Sprint(s.logs(saysNotYet)[0]["error"]); !strings.Contains(text, "WRONGPASS") && !strings.Contains(text, "NOAUTH") && !strings.Contains(text, "unknown command") {
					t.Errorf("the log says %q, want that the password is not right, or not taken", text)
				}
			}
			answer, err := http.Get("http://" + admin + "/config/")
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			var shown bytes.Buffer
			if _, err := shown.ReadFrom(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
				t.Fatalf("%d, %v", answer.StatusCode, err)
			}
			if !strings.Contains(shown.String(), test.secret) || !strings.Contains(shown.String(), test.password) {
				t.Errorf("the admin API does not show the placeholders as they are configured: %s", &shown)
			}
			log, err := os.ReadFile(s.logFile)
			if err != nil {
				t.Fatal(err)
			}
			for place, text := range map[string]string{"the log": string(log), "the admin API": shown.String()} {
				for _, secret := range []string{password, secret} {
					if i := strings.Index(text, secret); i >= 0 {
						t.Errorf("%s shows a secret: …%s…", place, text[max(0, i-200):i+len(secret)])
					}
				}
			}
		})
	}
}

func TestStoreRedisSpeaksTLSWithACertificateAsAnACLUser(t *testing.T) {
	certificates := redistest.NewCertificates(t)
	redis := redistest.Start(t, redistest.WithTLS(certificates, "yes"),
		redistest.WithUser("limiter", "sesame", "~weir:*", "+@all", "-@dangerous"))
	t.Setenv("WEIR_TEST_PASSWORD", "sesame")
	client := "tls {\nca " + certificates.CAFile + "\nclient_certificate " + certificates.ClientCertFile + " " + certificates.ClientKeyFile + "\nserver_name localhost\n}"
	const user = "username limiter\npassword {env.WEIR_TEST_PASSWORD}"
	s := startSite(t, zoneIn(storeAt(redis.Addr(), patiently, user, client), "limit 3/366d"))
	s.admit(3, "/")
	s.reject("/")
	s.said(0, saysNotYet, saysDown)
	if list := redis.MustDo(t, "CLIENT", "LIST").Text; !strings.Contains(list, "user=limiter") {
		t.Errorf("no connection has the ACL user:\n%s", list)
	}
	for name, wrong := range map[string]struct{ words, want string }{
		"no certificate":               {user + "\ntls {\nca " + certificates.CAFile + "\n}", ""}, // the reset may overtake the alert
		"unknown CA":                   {user + "\ntls", "certificate"},
		"another name":                 {user + "\n" + strings.Replace(client, "server_name localhost", "server_name elsewhere", 1), "elsewhere"},
		"no TLS":                       {user, ""},
		"another user":                 {"username nobody\npassword {env.WEIR_TEST_PASSWORD}\n" + client, "WRONGPASS"},
		"keys that are not the user's": {user + "\nprefix other:\n" + client, "NOPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSite(t, zoneIn(storeAt(redis.Addr(), patiently, wrong.words), "limit 3/366d"))
			s.admit(1, "/")
			s.said(1, saysNotYet)
			if text := fmt.Sprint(s.logs(saysNotYet)[0]["error"]); !strings.Contains(text, wrong.want) || strings.Contains(text, "sesame") {
				t.Errorf("the log says %q, want it to speak of %q", text, wrong.want)
			}
		})
	}
}

func TestStoreRedisFollowsASentinel(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	s := startSite(t, zoneIn("store redis "+strings.Join(sentinel.Addrs(), " ")+" {\nmaster_name "+redistest.MasterName+"\n"+patiently+"\n}\n", "limit 1000/366d"))
	s.admit(3, "/")
	if len(keys(t, sentinel.Master())) != 1 {
		t.Errorf("keys of the master: %q", keys(t, sentinel.Master()))
	}
	s.said(0, saysNotYet, saysDown)
	before := sentinel.Master()
	done := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if r, err := s.once(s.client, "/"); err != nil || r.status != http.StatusOK && r.status != http.StatusTooManyRequests {
					t.Errorf("a request was lost in the failover: status %d, %v", r.status, err)
				}
			}
		})
	}
	after := sentinel.Failover()
	close(done)
	clients.Wait()
	if after == before {
		t.Fatal("the master is the old one")
	}
	eventually(t, "the new master counts", func() bool {
		before := calls(t, after)
		s.reload(zoneIn("store redis "+strings.Join(sentinel.Addrs(), " ")+" {\nmaster_name "+redistest.MasterName+"\n"+patiently+"\n}\n", "limit 1000000/366d"))
		s.admit(1, "/")
		return calls(t, after) > before
	})
}

func TestStoreRedisCountsInACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	s := startSite(t, `
		rate_limit {
			zone client {
				key {header.X-Client}
				limit 3/366d
			}
			zone site {
				key {header.X-Site}
				limit 20/366d
			}
			store redis `+cluster.Addrs()[0]+` {
				cluster
				`+patiently+`
			}
		}
		respond ok`)
	s.awaitStore()
	for i := range 5 { // of 20, whichever nodes have the slots
		client := "client" + strconv.Itoa(i)
		s.admit(3, "/", "X-Client", client, "X-Site", "a")
		s.reject("/", "X-Client", client, "X-Site", "a")
		s.reject("/", "X-Client", client, "X-Site", "a")
	}
	// What the client's zone rejected was refunded.
	if r := s.do("/", "X-Client", "last", "X-Site", "a"); !strings.Contains(r.header.Get("RateLimit"), `"site";r=4;`) {
		t.Errorf("RateLimit: %s, want 4 left of the site's 20", r.header.Get("RateLimit"))
	}
	masters := 0
	for _, node := range cluster.Nodes() {
		if role := node.MustDo(t, "ROLE").List[0].Text; role == "master" && len(keys(t, node)) > 0 {
			masters++
		}
	}
	if masters < 2 {
		t.Errorf("%d masters have keys, want them spread", masters)
	}
	s.said(0, saysDown, saysOfRequest)
}

func TestHostileRequestsWithStoreRedis(t *testing.T) {
	for name, words := range map[string]string{"hashed": "", "in plain": "plain_keys"} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t)
			s := start(t, "servers {\nmax_header_size 8MB\n}\n", ":PORT {\nrate_limit {\nzone z {\nkey {header.X-Key}{query.k}\nlimit 1/366d\n}\n"+storeAt(redis.Addr(), patiently, words)+"}\nrespond ok\n}")
			long := strings.Repeat("k", 1<<20)
			count := 0
			odd := []string{"", "\x00", "\x00\x00", "a\x00", "a", "\x1b[31m", "\r\nSET x 1\r\n", "\xff\xfe", "{a}", "}{", "}:z", "%7d", "%", "%%", `"`, "é"}
			for _, key := range odd {
				path := "/?k=" + url.QueryEscape(key)
				s.admit(1, path)
				s.reject(path)
				count++
			}
			for _, key := range []string{long + "a", long + "b"} { // they differ only in the last byte
				s.admit(1, "/", "X-Key", key)
				s.reject("/", "X-Key", key)
				count++
			}
			list := keys(t, redis)
			if len(list) != count {
				t.Errorf("%d keys in Redis, want %d: %q", len(list), count, list)
			}
			for _, key := range list {
				if len(key) > 1024 {
					t.Errorf("a key of %d bytes in Redis", len(key))
				}
				if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 {
					t.Errorf("the key %q has what does not print, or more braces than its own", key)
				}
				if ttl := redis.MustDo(t, "PTTL", key).Int; ttl <= 0 {
					t.Errorf("the key %q has no expiry: %d", key, ttl)
				}
			}
			for _, want := range []int{http.StatusTooManyRequests, http.StatusTooManyRequests} { // all clients without the fields share one counter
				if got := raw(t, s, "GET / HTTP/1.0\r\n\r\n"); got != want {
					t.Errorf("status %d, want %d", got, want)
				}
			}
			s.said(0, saysOfRequest, saysDown)
		})
	}
}

// Redis's clock stands still here: the slots are those at which the requests arrived.
func TestALeakyBucketInRedisDelaysRequests(t *testing.T) {
	redis := redistest.Start(t, redistest.WithClock())
	redis.SetTime(1_790_000_000_000_000)
	s := startSite(t, zoneIn(storeAt(redis.Addr(), patiently), "algorithm leaky_bucket\nlimit 50/1s\nburst 5"))
	var mu sync.Mutex
	counts := make(map[int]int)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			r, err := s.try(s.client, "/")
			mu.Lock()
			counts[r.status]++
			mu.Unlock()
			if err != nil || r.status == http.StatusTooManyRequests && r.header.Get("Retry-After") != "1" {
				t.Errorf("%v, Retry-After %q, want 1", err, r.header.Get("Retry-After"))
			}
		})
	}
	clients.Wait()
	if counts[http.StatusOK] != 6 || counts[http.StatusTooManyRequests] != 2 {
		t.Errorf("statuses %v, want one served at once, five that waited, two rejected", counts)
	}

	// A request whose reservation is due in half an hour waits until the site stops.
	s.reload(zoneIn(storeAt(redis.Addr(), patiently, "prefix slow:"), "algorithm leaky_bucket\nlimit 1/30m\nburst 1\nmax_delay 1h"))
	s.admit(1, "/")
	before := calls(t, redis)
	waiting := make(chan response, 1)
	clients.Go(func() {
		r, err := s.try(s.client, "/")
		if err != nil {
			t.Error(err)
		}
		waiting <- r
	})
	eventually(t, "Redis has decided on it", func() bool { return calls(t, redis) > before })
	s.reject("/").want(t, "Retry-After", "1800")
	select {
	case r := <-waiting:
		t.Errorf("it did not wait but was answered %d", r.status)
	default:
	}
	s.load(s.caddyfile("", ":PORT {\nrespond ok\n}"))
	if r := awaitOne(t, "the answer of the waiting request", waiting); r.status != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503", r.status)
	}
	clients.Wait()
}

func TestAShadowZoneInRedisRejectsNothing(t *testing.T) {
	redis := redistest.Start(t)
	s := startSite(t, zoneIn(storeAt(redis.Addr(), patiently), "limit 1/366d\nenforcement shadow"))
	s.admit(4, "/")
	lines := s.logs("rate limit exceeded in shadow")
	if len(lines) != 1 || lines[0]["zone"] != "z" {
		t.Errorf("%d lines: %v; want the first of z", len(lines), lines)
	}
	s.do("/").want(t, "RateLimit", "-", "X-RateLimit-Limit", "-")
	redis.Kill()
	s.admit(10, "/")
}

// The names of keys have the form in redis/key.go: <prefix>{<client>}:<rule>:<eight characters>.
func TestKeysInRedisAreNamedAsConfigured(t *testing.T) {
	const secret = "of the fleet"
	digest := func(sum []byte) string { return base64.RawURLEncoding.EncodeToString(sum[:16]) }
	hash := sha256.Sum256([]byte("192.0.2.1"))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("192.0.2.1"))
	identity := ""
	for _, test := range []struct{ name, store, handler, want string }{
		{"hashed", "", "", "weir:{" + digest(hash[:]) + "}:z:"},
		{"hashed with a secret", `key_secret "` + secret + `"`, "", "weir:{" + digest(mac.Sum(nil)) + "}:z:"},
		{"in plain", "plain_keys", "", "weir:{192.0.2.1}:z:"},
		{"in plain with a prefix", "plain_keys\nprefix shop-1.", "", "shop-1.{192.0.2.1}:z:"},
		{"in plain with a namespace", "plain_keys", "namespace blue", "weir:{192.0.2.1}:blue/z:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			redis := redistest.Start(t)
			s := startSite(t, "rate_limit {\nzone z {\nkey {header.X-Client}\nlimit 5/1h\n}\n"+test.handler+"\n"+storeAt(redis.Addr(), patiently, test.store)+"}\nrespond ok")
			s.admit(2, "/", "X-Client", "192.0.2.1")
			list := keys(t, redis)
			if len(list) != 1 || !strings.HasPrefix(list[0], test.want) || len(list[0]) != len(test.want)+8 {
				t.Fatalf("keys %q, want one that is %s and eight characters", list, test.want)
			}
			// The eight characters depend only on what the zone is, not on how it is stored: they are the same in each.
			if got := list[0][len(test.want):]; identity == "" {
				identity = got
			} else if got != identity && test.handler == "" {
				t.Errorf("the zone's characters are %s, and %s elsewhere", got, identity)
			}
			if ttl := redis.MustDo(t, "PTTL", list[0]).Int; ttl <= 0 || ttl > 2*3600_000 {
				t.Errorf("it expires in %d ms, want at most two periods", ttl)
			}
		})
	}
}

// TestLocalGoesOnFromWhatWasKnownAfterAReload: defect found: a reload while Redis was down gave every client a whole limit.
func TestLocalGoesOnFromWhatWasKnownAfterAReload(t *testing.T) {
	redis := redistest.Start(t)
	site := zoneIn(storeAt(redis.Addr(), patiently), "limit 10/366d")
	s := startSite(t, site)
	s.admit(6, "/")
	redis.Kill()
	s.reload(site)
	admitted := 0
	for range 12 {
		if s.do("/").status == http.StatusOK {
			admitted++
		}
	}
	if admitted != 4 {
		t.Errorf("%d requests were admitted without Redis, want 4", admitted)
	}
}
