package traefik

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func TestARuleCoversWhatItMatches(t *testing.T) {
	match := object{
		"methods":      "POST, PUT",
		"hosts":        []interface{}{"api.example.com", "*.shop.example"},
		"paths":        "/login",
		"pathPrefixes": "/v1",
		"headers":      object{"x-plan": "free", "X-Any": "*"},
		"exceptIPs":    "10.0.0.0/8,2001:db8::1",
	}
	good := func(r *http.Request) {
		r.Method = "POST"
		r.Host = "api.example.com:8080"
		r.URL.Path = "/login"
		r.Header.Set("X-Plan", "free")
		r.Header.Set("X-Any", "thing")
	}
	tests := []struct {
		what    string
		from    string
		change  func(*http.Request)
		covered bool
	}{
		{"all of it", "192.0.2.1", func(r *http.Request) {}, true},
		{"another method", "192.0.2.1", func(r *http.Request) { r.Method = "PUT" }, true},
		{"the method in lower case", "192.0.2.1", func(r *http.Request) { r.Method = "post" }, true},
		{"no such method", "192.0.2.1", func(r *http.Request) { r.Method = "GET" }, false},
		{"a host by wildcard", "192.0.2.1", func(r *http.Request) { r.Host = "a.shop.example" }, true},
		{"no such host", "192.0.2.1", func(r *http.Request) { r.Host = "shop.example" }, false},
		{"a prefix", "192.0.2.1", func(r *http.Request) { r.URL.Path = "/v1/users" }, true},
		{"no whole segment", "192.0.2.1", func(r *http.Request) { r.URL.Path = "/v10" }, false},
		{"more than the path", "192.0.2.1", func(r *http.Request) { r.URL.Path = "/login/x" }, false},
		{"another value", "192.0.2.1", func(r *http.Request) { r.Header.Set("X-Plan", "paid") }, false},
		{"no value", "192.0.2.1", func(r *http.Request) { r.Header.Del("X-Any") }, false},
		{"an exception", "10.1.2.3", func(r *http.Request) {}, false},
		{"an exception of IPv6", "2001:db8::1", func(r *http.Request) {}, false},
		{"its neighbour", "2001:db8::2", func(r *http.Request) {}, true},
	}
	for _, test := range tests {
		s := newStage(t)
		h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1h", Match: match}}, "m@file")
		change := func(r *http.Request) {
			good(r)
			test.change(r)
		}
		get(h, test.from, change)
		must.Equal(t, get(h, test.from, change).StatusCode == 429, test.covered, "%s: covered", test.what)
	}
}

func TestKeysTellClientsApart(t *testing.T) {
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	cookie := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "session", Value: value}) }
	}
	url := func(text string) func(*http.Request) {
		return func(r *http.Request) {
			path, query, _ := strings.Cut(text, "?")
			r.URL.Path = path
			r.URL.RawQuery = query
		}
	}
	pair := func(a, b string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("X-A", a)
			r.Header.Set("X-B", b)
		}
	}
	tests := []struct {
		key          string
		first, other func(*http.Request)
		shared       bool
	}{
		{"", nil, nil, true},
		{"client_ip", nil, from("192.0.2.2"), false},
		{"client_ip", nil, from("::ffff:192.0.2.1"), true},
		{"client_ip", from("2001:db8::1"), from("2001:db8:0:0:ffff::2"), true}, // one /64
		{"client_ip", from("2001:db8::1"), from("2001:db8:0:1::1"), false},
		{"remote_ip", nil, from("192.0.2.2"), false},
		{"host", set("Host", ""), func(r *http.Request) { r.Host = "other.example" }, false},
		{"host", nil, func(r *http.Request) { r.Host = "EXAMPLE.com:80" }, true},
		{"method", nil, func(r *http.Request) { r.Method = "POST" }, false},
		{"path", nil, url("/other"), false},
		{"path", nil, url("/?q"), true},
		{"header:x-a", set("X-A", "1"), set("X-A", "2"), false},
		{"header:x-a", set("X-A", "2001:db8::1"), set("X-A", "2001:DB8:0::2"), true}, // an address, of one /64
		{"header:x-a", nil, set("X-B", "1"), true},
		{"cookie:session", cookie("1"), cookie("2"), false},
		{"cookie:session", cookie("1"), cookie("1"), true},
		{"query:user", url("/a?user=1"), url("/a?user=2"), false},
		{"query:user", url("/a?user=1"), url("/b?user=1&x=y"), true},
		{"static:all", nil, from("192.0.2.2"), true},
		{"client_ip, path", nil, url("/other"), false},
		{"header:X-A,header:X-B", pair("a", "bc"), pair("ab", "c"), false},
		{"header:X-A,header:X-B", pair("1:a", ""), pair("1:", "a"), false},
		{"header:X-A,header:X-B", pair("a", "b"), pair("a", "b"), true},
	}
	for _, test := range tests {
		s := newStage(t)
		c := &Config{Rule: Rule{Limit: "1/1h"}}
		if test.key != "" {
			c.Key = strings.Split(test.key, ",")
		}
		h := s.handler(context.Background(), c, "m@file")
		get(h, "192.0.2.1", test.first)
		must.Equal(t, get(h, "192.0.2.1", test.other).StatusCode == 429, test.shared, "key %s: shared", test.key)
	}
}

// from makes a request one of another address.
func from(address string) func(*http.Request) {
	return func(r *http.Request) {
		r.RemoteAddr = address + ":9"
		if strings.Contains(address, ":") {
			r.RemoteAddr = "[" + address + "]:9"
		}
	}
}

func TestWhatIsMadeOfAMissingKey(t *testing.T) {
	tests := []struct {
		word    string
		key     string
		without string // of three requests without
	}{
		{"", "header:X-A", "200 200 429"},
		{"share", "header:X-A", "200 200 429"},
		{"skip", "header:X-A", "200 200 200"},
		{"reject", "header:X-A", "429 429 429"},
		{"skip", "client_ip,header:X-A", "200 200 200"},
		{"reject", "client_ip,header:X-A", "429 429 429"},
	}
	for _, test := range tests {
		s := newStage(t)
		c := &Config{Rule: Rule{Limit: "2/1h", Key: strings.Split(test.key, ","), OnMissingKey: test.word}}
		h := s.handler(context.Background(), c, "m@file")
		must.Equal(t, statuses(h, "192.0.2.1", 3), test.without, "%s: without", test.word)
		with := func(r *http.Request) { r.Header.Set("X-A", "1") }
		must.Equal(t, get(h, "192.0.2.1", with).StatusCode, 200, "%s: with it", test.word)
		if test.word == "reject" {
			response := get(h, "192.0.2.1", nil)
			if response.Header["Retry-After"] != nil || !strings.Contains(bodyOf(response), "lacks what its limit tells clients apart by") {
				t.Errorf("a request that lacks its key: %v", response.Header)
			}
			dear := s.handler(context.Background(), &Config{Rule: Rule{Limit: "2/1h", Cost: "header:X-Cost"}}, "dear@file")
			response = get(dear, "192.0.2.1", func(r *http.Request) { r.Header.Set("X-Cost", "3") })
			if strings.Contains(bodyOf(response), "lacks") {
				t.Error("the response to the next request, which costs too much, says that it lacks its key")
			}
		}
	}
}

func TestCost(t *testing.T) {
	cost := func(text string) func(*http.Request) { return func(r *http.Request) { r.Header.Set("X-Cost", text) } }
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "10/1h", Cost: "header:X-Cost"}}, "m@file")
	for _, test := range []struct{ cost, status, remaining string }{
		{"4", "200", "6"},
		{" 2 ", "200", "4"},
		{"5", "429", "4"},
		{"", "200", "3"},
		{"-7", "200", "2"},
		{"x", "200", "1"},
		{"11", "429", "1"},
		{"99999999999999999999999", "429", "1"},
		{"-99999999999999999999999", "200", "0"},
	} {
		response := get(h, "192.0.2.1", cost(test.cost))
		if got := response.Header["X-Ratelimit-Remaining"]; response.Status[:3] != test.status || len(got) != 1 || got[0] != test.remaining {
			t.Errorf("cost %q: %s, remaining %v; want %s, %s", test.cost, response.Status, got, test.status, test.remaining)
		}
	}
	s = newStage(t)
	h = s.handler(context.Background(), &Config{Rule: Rule{Limit: "10/1h", Cost: "5"}}, "m@file")
	must.Equal(t, statuses(h, "192.0.2.1", 3), "200 200 429", "cost 5 of 10")
}

// One Redis serves several proxies: where namespace, name and limit agree, so do the counters.
func TestARuleHasTheIdentityThatCaddyGivesIt(t *testing.T) {
	limit := func(text string, algorithm rate.Algorithm) *rate.Limit {
		c := rate.LimitConfig{Algorithm: algorithm}
		must.Succeed(t, rate.ParseLimit(text, &c))
		l, err := rate.NewLimit(c)
		must.Succeed(t, err)
		return l
	}
	tests := []struct {
		rule  Rule
		caddy core.RuleConfig // of a zone with the key {client_ip}
	}{
		{ // ipv6_prefix 64
			Rule{Name: "login", Limit: "5/1m"},
			core.RuleConfig{KeySpec: "client_ip /0 /64", Limit: limit("7/60s", 0)},
		},
		{ // neither prefix
			Rule{Name: "login", Limit: "5/1m", IPv6Prefix: "128"},
			core.RuleConfig{KeySpec: "client_ip", Limit: limit("5/1m", 0)},
		},
		{
			Rule{Name: "login", Limit: "5/1m", IPv4Prefix: "24", IPv6Prefix: "48", Algorithm: "token_bucket", Burst: "9"},
			core.RuleConfig{KeySpec: "client_ip /24 /48", Limit: limit("5/1m", rate.TokenBucket)},
		},
		{
			Rule{Name: "login", Limit: "5/day", Key: []string{"client_ip"}, IPv6Prefix: "64"},
			core.RuleConfig{KeySpec: "client_ip /0 /64", Limit: limit("5/day", 0)},
		},
	}
	for _, test := range tests {
		test.caddy.Namespace = "shop"
		test.caddy.Name = "login"
		want, err := core.NewRule(test.caddy)
		must.Succeed(t, err)
		s := newStage(t)
		c := &Config{Rules: []Rule{test.rule}, Namespace: "shop"}
		got := s.made(c, "m@file").fixed.rules[0].Only
		if got.Identity != want.Identity {
			t.Errorf("%+v: %s, in Caddy %s", test.rule, got.Identity, want.Identity)
		}
	}
}

func TestTheKeyIsPartOfTheIdentity(t *testing.T) {
	tests := []struct {
		rule Rule
		want string
	}{
		{Rule{}, "client_ip /0 /64"},
		{Rule{IPv6Prefix: "128"}, "client_ip"},
		{Rule{IPv4Prefix: "32", IPv6Prefix: "56"}, "client_ip /0 /56"},
		{Rule{Key: []string{"path"}}, "path"},
		{Rule{Key: []string{"path"}, IPv4Prefix: "24"}, "path"},
		{Rule{Key: []string{"header:x-api-key"}}, "header:X-Api-Key"},
		{Rule{Key: []string{"client_ip", "header:x-a", "static:t"}, IPv4Prefix: "24"}, "client_ip header:X-A static:t /24 /64"},
	}
	for _, test := range tests {
		s := newStage(t)
		test.rule.Limit = "5/1m"
		e := s.made(&Config{Rule: test.rule}, "m@file")
		must.Equal(t, e.fixed.rules[0].Ruled.Limits.Own().KeySpec(), test.want, "%+v", test.rule)
	}
}

func TestNamesAreMadeValid(t *testing.T) {
	long := strings.Repeat("x", 70)
	tests := []struct{ middleware, namespace, rule string }{
		{"api-limit@file", "api-limit.file", "api-limit"},
		{"api", "api", "api"},
		{"default-api-limit@kubernetescrd", "default-api-limit.kubernetescrd", "default-api-limit"},
		{"a b@docker", "a_b.docker-e3108809", "a_b-c8687a08"},
		{long + "@file", long[:55] + "-", long[:55] + "-"},
		{"", "-e3b0c442", "-e3b0c442"},
		{"@", ".", "-e3b0c442"},
	}
	for _, test := range tests {
		s := newStage(t)
		r := s.made(&Config{Rule: Rule{Limit: "1/1s"}}, test.middleware).fixed.rules[0].Only
		if !strings.HasPrefix(r.Namespace, test.namespace) || !strings.HasPrefix(r.Name(), test.rule) || len(r.Namespace) > 64 || len(r.Name()) > 64 {
			t.Errorf("%q: namespace %q and rule %q, want %q and %q", test.middleware, r.Namespace, r.Name(), test.namespace, test.rule)
		}
	}
	namespace := func(middleware string) string {
		return newStage(t).made(&Config{Rule: Rule{Limit: "1/1s"}}, middleware).namespace
	}
	if namespace("a b") == namespace("a/b") {
		t.Error("two names became one")
	}
}

func TestEveryAlgorithmCounts(t *testing.T) {
	for _, algorithm := range rate.AlgorithmNames {
		s := newStage(t)
		want := "200 200 200 429 429"
		c := &Config{Rule: Rule{Limit: "3/1m", Algorithm: algorithm, MaxDelay: ""}}
		if algorithm == "leaky_bucket" {
			continue // which holds requests: see serve_test.go
		}
		h := s.handler(context.Background(), c, "m@file")
		must.Equal(t, statuses(h, "192.0.2.1", 5), want, "%s", algorithm)
		s.step(2 * time.Minute)
		must.Equal(t, statuses(h, "192.0.2.1", 5), want, "%s, later", algorithm)
	}
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "4/1m", Algorithm: "token_bucket", Refill: "interval"}}, "m@file")
	s.step(59 * time.Second)
	must.Equal(t, statuses(h, "192.0.2.1", 5), "200 200 200 200 429", "refill interval")
	s.step(time.Second)
	must.Equal(t, statuses(h, "192.0.2.1", 5), "200 200 200 200 429", "refill interval, with the next minute")
	s = newStage(t)
	h = s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/day", TimeZone: "Asia/Tokyo"}}, "m@file") // where it is ten
	s.leap(13*time.Hour + 59*time.Minute)
	must.Equal(t, statuses(h, "192.0.2.1", 2), "200 429", "a day in Tokyo")
	s.step(time.Minute)
	must.Equal(t, statuses(h, "192.0.2.1", 2), "200 429", "the next day in Tokyo")
}

// The spellings that services take for one credential have one counter, on the fast path, with several parts, and of a tier.
func TestSpellingsOfACredentialShareACounter(t *testing.T) {
	for _, rule := range []Rule{
		{Limit: "2/1m", Key: []string{"header:authorization"}},
		{Limit: "2/1m", Key: []string{"header:Authorization", "host"}},
		{Limit: "2/1m", Key: []string{"first(header:Authorization", "client_ip)"}},
	} {
		h := newStage(t).handler(context.Background(), &Config{Rule: rule}, "m@file")
		for i, spelling := range []string{"Bearer sk", "bearer sk", "Bearer   sk", "BEARER sk"} {
			want := 200
			if i > 1 {
				want = 429
			}
			must.Equal(t, get(h, "192.0.2.1", header("Authorization", spelling)).StatusCode, want, "%q of %v", spelling, rule.Key)
		}
		must.Equal(t, get(h, "192.0.2.1", header("Authorization", "Bearer SK")).StatusCode, 200, "another key of %v", rule.Key)
	}
}
