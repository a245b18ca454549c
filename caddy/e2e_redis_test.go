package ratelimit_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	ratelimit "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
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

// Counts of one store are not those of another, and the log says so: once, and of no reload that leaves the store as it is.
func TestAZoneThatChangesItsStoreStartsAfreshAndSaysSo(t *testing.T) {
	redis := redistest.Start(t)
	stores := []string{"", "", storeAt(redis.Addr(), patiently), storeAt(redis.Addr(), patiently), storeAt(redis.Addr(), patiently, "prefix other:")}
	s := startSite(t, zoneIn(stores[0], "limit 1/366d"))
	s.admit(1, "/")
	told := 0
	for i, store := range stores[1:] {
		s.reload(zoneIn(store, "limit 1/366d"))
		if store != stores[i] {
			told++
			s.admit(1, "/")
		}
		s.reject("/")
		s.said(told, "the zone counts in another store now, and takes no counts over")
	}
	must.Equal(t, told, 2, "changes")
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
		must.Equal(s.t, len(lines), times, "the log has %d lines %q, want %d: %v", len(lines), message, times, lines)
	}
}

// serious returns Weir's lines in the log that are warnings or worse.
func (s *server) serious() []string {
	s.t.Helper()
	data, err := os.ReadFile(s.logFile)
	must.Succeed(s.t, err)
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "rate_limit") && (strings.Contains(line, `"level":"warn"`) || strings.Contains(line, `"level":"error"`)) {
			lines = append(lines, line)
		}
	}
	return lines
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
	must.Equal(t, ratelimit.RedisStoresInUse(), 0, "stores are left")
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
	must.Equal(t, counted, admitted, "%d requests were admitted and %d counted", admitted, counted)
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
	} {
		t.Run(test.name, func(t *testing.T) {
			redis := redistest.Start(t)
			s := startSite(t, zoneIn(storeAt(redis.Addr(), test.store), test.lines))
			s.admit(test.before, "/")
			redis.Kill()
			for i, want := range test.want {
				r := s.do("/")
				must.Equal(t, r.status, want, "request %d: status", i)
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

// A configuration loads while Redis hangs, and requests are answered. Redis is used when it goes on.
func TestAConfigurationLoadsWhileRedisHangs(t *testing.T) {
	redis := redistest.Start(t)
	redis.Pause()
	// The store's default timeouts, since the test is about them.
	s := startSite(t, zoneIn(storeAt(redis.Addr(), "nodes 1"), "limit 1000000/366d\non_error open"))
	s.said(1, saysNotYet)
	s.admit(8, "/")
	s.said(1, saysDown)
	redis.Resume()
	eventually(t, "Redis counts", func() bool { return s.do("/").header.Get("X-RateLimit-Limit") != "" })
	eventually(t, "the log says so, as often as Redis was away", func() bool { return len(s.logs(saysUpAgain)) == len(s.logs(saysDown)) })
	s.said(1, saysNotYet)
}

func TestCaddyStartsValidatesAndReloadsWithoutRedis(t *testing.T) {
	redis := redistest.Start(t)
	redis.Kill()
	site := zoneIn(storeAt(redis.Addr(), "timeout 20s", "read_timeout 20s"), "limit 3/366d")
	s := newServer(t)

	var config caddy.Config
	must.Succeed(t, json.Unmarshal(s.caddyfile("", ":PORT {\n"+site+"\n}"), &config))
	if err := caddy.Validate(&config); err != nil {
		t.Errorf("caddy validate: %v", err)
	}
	s.said(1, saysNotYet, saysNodes)
	must.Succeed(t, os.Truncate(s.logFile, 0))

	s.load(s.caddyfile("", ":PORT {\n"+site+"\n}"))
	s.said(1, saysNotYet, saysNodes)
	for _, message := range []string{saysNotYet, saysNodes} {
		if line := s.logs(message)[0]; line["level"] != "warn" || line["server"] != redis.Addr() {
			t.Errorf("%v: want a warning that names the server", line)
		}
	}
	must.Contain(t, fmt.Sprint(s.logs(saysNotYet)[0]["error"]), "connection refused", "the warning's error")
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
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
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
		{"wrong, in the address", "redis://:{env.WEIR_TEST_WRONG}@" + redis.Addr(), "", "{env.WEIR_TEST_SECRET}", false},
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
			must.Succeed(t, err)
			defer answer.Body.Close()
			var shown bytes.Buffer
			if _, err := shown.ReadFrom(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
				t.Fatalf("%d, %v", answer.StatusCode, err)
			}
			if !strings.Contains(shown.String(), test.secret) || !strings.Contains(shown.String(), test.password) {
				t.Errorf("the admin API does not show the placeholders as they are configured: %s", &shown)
			}
			log, err := os.ReadFile(s.logFile)
			must.Succeed(t, err)
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
		"unknown CA":                   {user + "\ntls", "certificate"},
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

// The names of keys have the form in redis/encoding.go: <prefix>{<client>}:<rule>:<eight characters>.
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
	must.Equal(t, admitted, 4, "%d requests were admitted without Redis, want 4", admitted)
}
