package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each is refused with an error that has the rule, the field, the value, and what would be accepted.
func TestAWrongConfigurationIsRefusedInTheLog(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "password")
	cases := []struct {
		config string
		says   []string
	}{
		{"{}", []string{"limit", "is missing", "100/1m"}},
		{"{limt: 5/1m}", []string{`"limt" is not a field`, "did you mean limit?"}},
		{"{limit: 5/1m, whatever: 1}", []string{`"whatever" is not a field`}},
		{"{name: a, limit: 5}", []string{`rule "a"`, `limit "5"`}},
		{"{name: a, limit: 0/1m}", []string{`rule "a"`, `limit "0/1m"`, "from 1 to 1000000000"}},
		{"{name: a, limit: 5/0s}", []string{`rule "a"`, `limit "5/0s"`, "from 1ms to 366d"}},
		{"{name: a, limit: -5/1m}", []string{`rule "a"`, `limit "-5/1m"`}},
		{"{name: 'a b', limit: 5/1m}", []string{`"a b"`, "A-Z a-z 0-9 _ . -"}},
		{"{name: a, limit: 5/1m, algorithm: tokenbucket}", []string{`rule "a"`, `algorithm "tokenbucket"`, "token_bucket"}},
		{"{name: a, limit: 5/1m, algorithm: token_bucket, burst: some}", []string{`rule "a"`, `burst "some"`, "whole number"}},
		{"{name: a, limit: 5/1m, algorithm: token_bucket, burst: -1}", []string{`rule "a"`, `burst "-1"`}},
		{"{name: a, limit: 5/1m, burst: 3}", []string{`rule "a"`, "burst"}},
		{"{name: a, limit: 5/1m, cost: 9}", []string{`rule "a"`, "cost 9"}},
		{"{name: a, limit: 5/1m, key: [client-ip]}", []string{`rule "a"`, `"client-ip"`, "client_ip"}},
		{"{name: a, limit: 5/1m, key: ['header:']}", []string{`rule "a"`, `"header:"`}},
		{"{name: a, limit: 5/1m, ipv4Prefix: 33}", []string{`rule "a"`, `ipv4Prefix "33"`, "from 1 to 32"}},
		{"{name: a, limit: 5/1m, enforcement: soft 80}", []string{`rule "a"`, `enforcement "soft 80"`, "soft 20% 30s"}},
		{"{name: a, limit: 5/1m, onLimit: delay}", []string{`rule "a"`, "onLimit delay", "token_bucket"}},
		{"{name: a, limit: 5/1m, onLimit: defer}", []string{`rule "a"`, `onLimit "defer"`, "reject or delay"}},
		{"{name: a, limit: 5/1m, maxWaiting: 5}", []string{`rule "a"`, "maxWaiting 5", "onLimit delay"}},
		{"{name: a, limit: 5/1m, count: [401, 4xx]}", []string{`rule "a"`, "count: is not available in Traefik", "Caddy"}},
		{"{name: a, limit: 5/1m, penalty: [1m, soon]}", []string{`rule "a"`, `penalty "soon"`, "from 1ms to 366d"}},
		{"{name: a, concurrency: 0}", []string{`rule "a"`, `concurrency "0"`, "whole number"}},
		{"{name: a, limit: 5/1m, candidate: {limt: 6/1m}}", []string{`rule "a"`, "candidate", `"limt" is not a field`, "limit"}},
		{"{name: a, limit: 5/1m, candidate: {limit: 5/1m}}", []string{`rule "a"`, "candidate: is the same as the limit"}},
		{"{name: a, limit: 5/1m, onError: maybe}", []string{`rule "a"`, `onError`, `"maybe"`, "open", "closed", "local"}},
		{"{name: a, limit: 5/1m, onMissingKey: ski}", []string{`rule "a"`, `onMissingKey "ski"`, "skip"}},
		{"{name: a, limit: 5/1m, countRejected: perhaps}", []string{`rule "a"`, `countRejected "perhaps"`, "true or false"}},
		{"{name: a, limit: 5/week, timeZone: Mars/Olympus}", []string{`rule "a"`, `timeZone "Mars/Olympus"`}},
		{"{name: a, limit: 5/1m, match: {path: [/a]}}", []string{`rule "a"`, "match", `"path" is not a field`, "paths"}},
		{"{name: a, limit: 5/1m, match: {exceptIPs: [10.0.0.0/99]}}", []string{`rule "a"`, "exceptIPs", `10.0.0.0/99`}},
		{"{name: a, limit: 5/1m, match: {pathPrefixes: [v1]}}", []string{`rule "a"`, "pathPrefixes", `"v1"`}},
		{"{rules: [{limit: 5/1m}]}", []string{"rules[0]", "name", "is missing"}},
		{"{rules: [{name: a, limit: 5/1m}, {name: a, limit: 5/1m}]}", []string{`rule "a"`, "duplicate name"}},
		{"{rules: [{name: a, limit: 5/1m}, {name: b, limitt: 5/1m}]}", []string{`rule "b"`, `"limitt" is not a field`, "did you mean limit?"}},
		{"{limit: 5/1m, rules: [{name: a, limit: 5/1m}]}", []string{"limit and rules are mutually exclusive"}},
		{"{limit: 5/1m, average: 5}", []string{"average", "limit"}},
		{"{average: some}", []string{"average", `"some"`}},
		{"{average: 5, period: -1s}", []string{"period", "-1s"}},
		{"{limit: 5/1m, headers: [x-ratelimit]}", []string{"headers", `"x-ratelimit"`, "x_ratelimit"}},
		{"{limit: 5/1m, headers: [none, ietf]}", []string{"headers", "none excludes all other words"}},
		{"{limit: 5/1m, jitter: 11}", []string{`jitter "11"`, "from 0 to 10"}},
		{"{limit: 5/1m, namespace: 'a b'}", []string{`namespace "a b"`}},
		{"{limit: 5/1m, ipStrategy: {depth: two}}", []string{"ipStrategy", `depth "two"`}},
		{"{limit: 5/1m, ipStrategy: {dept: 2}}", []string{"ipStrategy", `"dept" is not a field`, "depth"}},
		{"{limit: 5/1m, ipStrategy: {excludedIPs: [10.0.0]}}", []string{"ipStrategy", "excludedIPs", `"10.0.0"`}},
		{"{limit: 5/1m, ipStrategy: {ipv6Subnet: 129}}", []string{"ipStrategy", `ipv6Subnet "129"`, "128"}},
		{"{limit: 5/1m, store: {memory: {maxKeys: 0}}}", []string{"store", "memory", `maxKeys "0"`}},
		{"{limit: 5/1m, store: {rediss: {address: a}}}", []string{"store", `"rediss" is not a field`, "did you mean redis?"}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:6379', adress: a}}}", []string{"store: redis", `"adress" is not a field`, "address"}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:99999'}}}", []string{"store: redis", "address", "127.0.0.1:99999"}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:6379', password: 'file:" + missing + "'}}}", []string{"store: redis", "password", missing}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:6379', password: 'env:WEIR_NO_SUCH'}}}", []string{"store: redis", "password", "WEIR_NO_SUCH"}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:6379', timeout: soon}}}", []string{"store: redis", `timeout "soon"`}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:6379', database: -1}}}", []string{"store: redis", `database "-1"`}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:6379', tls: {ca: " + missing + "}}}}", []string{"store: redis", "tls", "ca", missing}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:6379', masterName: m, cluster: true}}}", []string{"store: redis", "masterName", "cluster"}},
		{"{limit: 5/1m, store: {redis: {address: ['127.0.0.1:1', '127.0.0.1:2']}}}", []string{"store: redis", "address"}},
	}
	// All at the same time: each has a router, and one further router is correct.
	s := newSite(t)
	s.limit("right", "limit: 1/366d")
	s.route("/right", "right")
	name := func(i int) string { return "wrong" + string(rune('a'+i/26)) + string(rune('a'+i%26)) }
	for i, c := range cases {
		s.limit(name(i), c.config)
		s.route("/"+name(i), name(i))
	}
	s.apply()
	s.exactly(1, "/right")
	for i, c := range cases {
		t.Run(c.config, func(t *testing.T) {
			if r := s.do("/" + name(i)); r.status != http.StatusNotFound {
				t.Errorf("status %d, want 404: the router must not be there", r.status)
			}
			errors := strings.Join(s.errors(name(i)), "\n")
			for _, want := range c.says {
				if !strings.Contains(errors, want) {
					t.Errorf("the log says %q, want %q in it", errors, want)
				}
			}
			if n := len(s.errors(name(i))); n > 1 {
				t.Errorf("the log says it %d times: %q", n, s.errors(name(i)))
			}
		})
	}
}

// A wrong middleware takes out only its own routers. The other middlewares keep their counters.
func TestAWrongMiddlewareTakesOutItsOwnRoutersAlone(t *testing.T) {
	s := newSite(t)
	s.limit("one", "limit: 3/366d")
	s.limit("two", "limit: 3/366d")
	s.route("/one", "one")
	s.route("/one/again", "one")
	s.route("/two", "two")
	s.route("/free")
	s.apply()
	s.admit(1, "/one")
	s.admit(1, "/two")

	s.limit("one", "{limit: 3/366d, algorithm: best}")
	s.apply()
	for _, path := range []string{"/one", "/one/again"} {
		if r := s.do(path); r.status != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", path, r.status)
		}
	}
	s.exactly(2, "/two")
	s.admit(3, "/free")

	// After the repair it works, and its counters survive, since it was gone only for moments.
	s.limit("one", "limit: 3/366d")
	s.apply()
	s.admit(1, "/one/again")
	s.exactly(1, "/one")
	s.reject("/two")
}

// As the manual says, a catch-all router needs its own limits.
func TestACatchAllServesTheRequestsOfARouterThatIsOut(t *testing.T) {
	s := newSite(t)
	s.limit("logins", "{limit: 3/366d, algorithm: best}")
	s.limit("all", "limit: 5/366d")
	s.route("/login", "logins")
	s.route("/")
	s.apply()
	s.admit(9, "/login")

	s.route("/", "all")
	s.apply()
	s.exactly(5, "/login")

	s.limit("logins", "limit: 3/366d")
	s.apply()
	s.exactly(3, "/login")
}

func TestASecretInAFileThatComesLater(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	s := newSite(t)
	config := "{limit: 1/366d, onError: open, store: {redis: {address: '" + freeAddr() + "', keySecret: 'file:" + secret + "'}}}"
	s.limit("limit", config)
	s.route("/", "limit")
	s.apply()
	if r := s.do("/"); r.status != http.StatusNotFound {
		t.Errorf("status %d, want 404", r.status)
	}
	if errors := strings.Join(s.errors("limit"), "\n"); !strings.Contains(errors, "keySecret") || !strings.Contains(errors, secret) {
		t.Errorf("the log says %q, want keySecret and the file in it", errors)
	}
	if err := os.WriteFile(secret, []byte("hush-hush-hush-hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.route("/again", "limit") // any change of the configuration
	s.apply()
	s.admit(1, "/")
	for _, e := range s.log() {
		if strings.Contains(e.raw, "hush-hush") {
			t.Errorf("the log has the secret: %s", e.raw)
		}
	}
}
