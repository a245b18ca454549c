package command

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/traefik"
	"github.com/proxyweir/weir/traefik/dynamic"
)

// inRedis is a configuration whose middleware api counts in Redis, and local in memory. store is what store.redis has further.
func inRedis(address, store string) string {
	return fmt.Sprintf(`
http:
  middlewares:
    api:
      plugin:
        weir:
          namespace: shop
          rules:
            - {name: logins, match: {pathPrefixes: [/login], methods: POST}, limit: 3/300d, algorithm: fixed_window}
            - {name: plans, key: ["header:X-Key", path], tiers: {source: "header:X-Plan", limits: {gold: 1000/300d, "*": 10/300d}}, algorithm: token_bucket, onMissingKey: skip}
            - {name: busy, match: {paths: [/busy]}, limit: 5/300d, concurrency: 5, candidate: {limit: 1/300d}}
          store: {redis: {address: %q, nodes: 2, timeout: 2s%s}}
    local:
      plugin:
        weir: {limit: 5/1m}
`, address, store)
}

// proxy is the middleware api of a configuration, as Traefik runs it.
type proxy struct {
	t    *testing.T
	file string
	http.Handler
}

func newProxy(t *testing.T, text string) *proxy {
	t.Helper()
	name := file(t, "dynamic.yml", text)
	all, _, err := dynamic.Read(name, "weir")
	must.Succeed(t, err)
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	h, err := traefik.New(ctx, http.NotFoundHandler(), all[0].Config, all[0].Name)
	must.Succeed(t, err)
	return &proxy{t, name, h}
}

// get makes a request, and returns the status.
func (p *proxy) get(method, path, address string, header ...string) int {
	r := httptest.NewRequest(method, "http://shop.example"+path, nil)
	r.RemoteAddr = address + ":40000"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Code
}

// becomes waits until a request has a status: proxies obey within a second.
func (p *proxy) becomes(want int, method, path, address string) {
	p.t.Helper()
	got := 0
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = p.get(method, path, address); got == want {
			return
		}
	}
	p.t.Fatalf("%s %s of %s: %d, want %d", method, path, address, got, want)
}

// says runs a command on the configuration, and returns what it prints, with single spaces.
func (p *proxy) says(args ...string) string {
	p.t.Helper()
	out, problems, err := weir(append(args, "--traefik", p.file)...)
	if err != nil {
		p.t.Fatalf("%q: %s", args, problems)
	}
	return plain(out + problems)
}

// plain returns a table with single spaces.
func plain(text string) string {
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestWhatTheCommandsDoInRedisTraefikObeys(t *testing.T) {
	server := redistest.Start(t)
	p := newProxy(t, inRedis(server.Addr(), ""))
	for range 3 {
		must.Equal(t, p.get("POST", "/login", "192.0.2.7"), 404)
	}
	must.Equal(t, p.get("POST", "/login", "192.0.2.7"), 429)
	must.Equal(t, p.get("POST", "/login", "192.0.2.8"), 404)

	login := []string{"explain", "--method", "POST", "--url", "https://shop.example/login", "--ip", "192.0.2.7"}
	said := p.says(login...)
	must.Contain(t, said, "middleware api@file\n")
	must.Contain(t, said, "shop/logins 192.0.2.7 3/300d fixed_window 0 rejects for ")
	must.Contain(t, said, "verdict: reject\n")
	must.Contain(t, said, "note: middleware local@file counts in Traefik's memory")
	must.Contain(t, p.says("explain", "--method", "POST", "--url", "https://shop.example/login", "--ip", "192.0.2.8"), "shop/logins 192.0.2.8 3/300d fixed_window 2 allows\nverdict: allow")
	must.Contain(t, p.says("explain", "--url", "https://shop.example/a", "--ip", "192.0.2.8", "-H", "X-Key: secret-of-a-client", "-H", "X-Plan: gold"), "/a 1000/300d token_bucket")

	said = p.says("explain", "--url", "https://shop.example/busy", "--ip", "192.0.2.9")
	must.Contain(t, said, "shop/busy 192.0.2.9 1/300d sliding_window_counter 1 allows (candidate)\n")
	must.Contain(t, said, "shop/busy 192.0.2.9 concurrency 5 5 allows\n")

	top := p.says("top", "--rule", "shop/logins")
	must.Contain(t, top, " 3/300d fixed_window 0 100 %\n")
	must.Contain(t, top, " 3/300d fixed_window 2 33 %\n")
	must.Contain(t, top, "keys are hashes")

	key := []string{"--rule", "shop/logins", "--key", "192.0.2.7"}
	must.Equal(t, p.says(append([]string{"reset"}, key...)...), "1 key\n")
	p.becomes(404, "POST", "/login", "192.0.2.7")
	must.Equal(t, p.says(append([]string{"block", "--for", "1h", "--note", "ticket 4711", "--by", "me"}, key...)...), "done\n")
	p.becomes(429, "POST", "/login", "192.0.2.7")
	must.Contain(t, p.says("explain", "--method", "POST", "--url", "https://shop.example/login", "--ip", "192.0.2.7"), " (block or penalty)\n")
	must.Contain(t, p.says("list"), "\nshop/logins 192.0.2.7 block 2")
	must.Contain(t, p.says("list", "--rule", "shop/logins"), " me ticket 4711\n")
	must.Equal(t, p.says("list", "--rule", "shop/plans"), "RULE KEY WHAT UNTIL BY NOTE\n")
	must.Equal(t, p.says(append([]string{"unblock"}, key...)...), "1 key\n")
	p.becomes(404, "POST", "/login", "192.0.2.7")

	must.Contain(t, p.says(append([]string{"limit", "5/300d", "--for", "1d"}, key...)...), "until 2")
	must.Contain(t, p.says(login...), " 5/300d fixed_window ")
	must.Equal(t, p.says(append([]string{"end"}, key...)...), "1 key\n")
	must.Contain(t, p.says(login...), " 3/300d fixed_window ")
	p.becomes(429, "POST", "/login", "192.0.2.7")
	must.Equal(t, p.says(append([]string{"credit", "2"}, key...)...), "2 units given back\n")
	p.becomes(404, "POST", "/login", "192.0.2.7")
}

func TestTheStateOfRuleFilesIsInTheRedisThatFlagsName(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("of-the-test"))
	p := newProxy(t, inRedis(server.Addr(), `, password: "of-the-test", plainKeys: true, prefix: "a:"`))
	must.Equal(t, p.get("POST", "/login", "192.0.2.7"), 404)
	must.Equal(t, p.get("GET", "/a%7bb", "192.0.2.7", "X-Key", "k{%}"), 404)
	must.Contain(t, p.says("top", "--rule", "shop/logins"), "192.0.2.7 3/300d fixed_window 2 33 %")
	must.Contain(t, p.says("top", "--rule", "shop/plans"), " /a{b 10/300d token_bucket 9 10 %")

	rules := file(t, "limits.yaml", `rules: [{name: logins, limit: 3/300d, algorithm: fixed_window, match: {path_prefixes: [/login]}}]`)
	flags := []string{"--rules", rules, "--redis", server.Addr(), "--prefix", "a:", "--plain-keys", "--namespace", "shop"}
	t.Setenv("WEIR_REDIS_PASSWORD", "of-the-test")
	out, problems, err := weir(append([]string{"explain", "--url", "http://x/login", "--ip", "192.0.2.7"}, flags...)...)
	must.Succeed(t, err)
	must.Contain(t, plain(out), "shop/logins 192.0.2.7 3/300d fixed_window 2 allows", problems)
	t.Setenv("WEIR_REDIS_PASSWORD", "another-one")
	_, problems, err = weir(append([]string{"list"}, flags...)...)
	if err == nil || strings.Contains(problems, "another-one") || strings.Contains(problems, "of-the-test") {
		t.Errorf("%v: %s", err, problems)
	}
	must.Contain(t, problems, "Redis at "+server.Addr()+": ")
}

func TestCommandsSayWhyTheyCannotSeeOrChangeAState(t *testing.T) {
	server := redistest.Start(t)
	name := file(t, "dynamic.yml", inRedis(server.Addr(), ""))
	eventual := file(t, "limits.yaml", "rules: [{name: a, limit: 5/1m, consistency: eventual}]")
	for want, args := range map[string][]string{
		"middleware local@file counts in Traefik's memory, which no other program can reach": {"reset", "--traefik", name, "--rule", "local.file/local", "--key", "192.0.2.7"},
		`rule "shop/login": there is none of that name (did you mean shop/logins?)`:          {"reset", "--traefik", name, "--rule", "shop/login", "--key", "192.0.2.7"},
		`key: has 1 part, and this rule's has 2: header:X-Key, path`:                         {"block", "--traefik", name, "--rule", "shop/plans", "--key", "a", "--for", "1h"},
		`key: client_ip: `: {"unblock", "--traefik", name, "--rule", "shop/logins", "--key", "a"},
		`for "": must be a duration from 1ms to 366d`:                      {"block", "--traefik", name, "--rule", "shop/logins", "--key", "192.0.2.7"},
		`--rules says which rules there are, and --redis where they count`: {"list", "--rules", eventual},
		`--address and --config are of a Caddy`:                            {"list", "--traefik", name, "--address", "localhost:2019"},
		`-n -1: must be how many keys are wanted, 1 or more`:               {"top", "--rules", eventual, "--redis", server.Addr(), "--rule", "a", "-n", "-1"},
		`has consistency eventual`:                                         {"top", "--rules", eventual, "--redis", server.Addr(), "--rule", "a"},
		`--by: Redis knows what is used of limits`:                         {"top", "--traefik", name, "--rule", "shop/logins", "--by", "rejections"},
		`--ip "a": must be an address`:                                     {"explain", "--traefik", name, "--url", "http://x/", "--ip", "a"},
		`--url: must be whole`:                                             {"explain", "--traefik", name, "--url", "/login", "--ip", "192.0.2.7"},
		`rule "logins": limit "3/24"`:                                      {"list", "--traefik", file(t, "d.yml", strings.Replace(inRedis(server.Addr(), ""), "3/300d", "3/24", 1))},
		`Redis at 127.0.0.1:1: `:                                           {"list", "--rules", eventual, "--redis", "127.0.0.1:1"},
		`the admin endpoint at 127.0.0.1:1 (--address says where it is; for a Traefik write --traefik FILE): `: {"list", "--address", "127.0.0.1:1"},
		`--address "localhost": must be one address, such as localhost:2019`:                                   {"list", "--address", "localhost"},
	} {
		_, problems, err := weir(args...)
		if err == nil {
			t.Errorf("%q are taken", args)
		}
		must.Contain(t, problems, want, "%q", args)
	}
}

// A Caddy's admin endpoint answers what its own tests say; here it is one that has the same words.
func TestTheAdminEndpointIsAsked(t *testing.T) {
	caddy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]string{
			"POST /rate_limit/reset":   `{"keys":1}`,
			"POST /rate_limit/unblock": `{"keys":0}`,
			"POST /rate_limit/explain": `{"handlers":[{"rules":[{"rule":"a","covers":true,"key":["k"],"limit":"5/1m","allowed":false,"remaining":0,"retry_after_seconds":1.5}],"verdict":"reject"},{"rules":[{"rule":"b","covers":false,"allowed":true}],"verdict":"allow"},{"rules":[],"verdict":"allow"}],"notes":["n"]}`,
			"GET /rate_limit/top":      `{"window_seconds":600,"keys":[{"key":["k","l"],"id":"HENTvHkIF6QOSxV5","requests":7,"rejections":2,"error":0}]}`,
		}
		text := answers[r.Method+" "+r.URL.Path]
		if text == "" || r.Header.Get("Origin") != "http://"+r.Host {
			w.WriteHeader(http.StatusNotFound)
			text = `{"error":"there is no such thing"}`
		}
		_, _ = w.Write([]byte(text))
	}))
	defer caddy.Close()
	at := strings.TrimPrefix(caddy.URL, "http://")
	for want, args := range map[string][]string{
		"1 key\n": {"reset", "--rule", "a", "--key", "k"},
		"RULE KEY LIMIT REMAINING DECISION\na k 5/1m 0 rejects for 1.5s\nverdict: reject\nno rule covers the request: match leaves it out, or except has it\nverdict: allow\nno rule covers the request: there are none\nverdict: allow\nnote: n\n": {"explain", "--url", "http://x/", "--ip", "192.0.2.7"},
		"KEY REQUESTS REJECTIONS TOO HIGH BY AT MOST ID\nk l 7 2 0 HENTvHkIF6QOSxV5\n":                   {"top", "--rule", "a"},
		"0 keys: nothing has changed. Is the key spelt in full? Of a Caddy, --id takes what top shows\n": {"unblock", "--rule", "a", "--id", "x"},
	} {
		out, problems, err := weir(append(args, "--address", at)...)
		must.Succeed(t, err)
		must.Equal(t, plain(out), want, problems)
	}
	_, problems, err := weir("block", "--rule", "a", "--key", "k", "--address", at)
	if err == nil {
		t.Error("an error of the endpoint is none")
	}
	must.Contain(t, problems, "HTTP 404: there is no such thing\n")
}
