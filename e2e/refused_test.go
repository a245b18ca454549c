package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each is refused with an error that has the rule, the field, the value, and what would be accepted. These are what Traefik hands over in a way of its own,
// and one of each other kind; package traefik has the rest.
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
		{"{name: 'a b', limit: 5/1m}", []string{`"a b"`, "A-Z a-z 0-9 _ . -"}},
		{"{name: a, limit: 5/1m, algorithm: token_bucket, burst: -1}", []string{`rule "a"`, `burst "-1"`}},
		{"{name: a, limit: 5/1m, count: [401, 5xy]}", []string{`rule "a"`, `count "5xy": must be the status code of a response`, "header:X-Login=failed"}},
		{"{name: a, limit: 5/1m, candidate: {limt: 6/1m}}", []string{`rule "a"`, "candidate", `"limt" is not a field`, "limit"}},
		{"{name: a, limit: 5/1m, match: {path: [/a]}}", []string{`rule "a"`, "match", `"path" is not a field`, "paths"}},
		{"{name: a, limit: 5/1m, match: {exceptIPs: [10.0.0.0/99]}}", []string{`rule "a"`, "exceptIPs", `10.0.0.0/99`}},
		{"{rules: [{limit: 5/1m}]}", []string{"rules[0]", "name", "is missing"}},
		{"{rules: [{name: a, limit: 5/1m}, {name: b, limitt: 5/1m}]}", []string{`rule "b"`, `"limitt" is not a field`, "did you mean limit?"}},
		{"{rulesFile: a.json, descriptors: [{key: a, source: path}]}", []string{"descriptors[0]: write its entries as a list"}},
		{"{tiers: {source: 'header:X-Plan', limits: {1: 5/1m, '*': 1/1m}}}", []string{"tiers: limits: a value is a number"}},
		{"{rulesFile: " + missing + "}", []string{"rulesFile: " + missing + ": no such file or directory"}},
		{"{limit: 5/1m, ipStrategy: {dept: 2}}", []string{"ipStrategy", `"dept" is not a field`, "depth"}},
		{"{limit: 5/1m, store: {rediss: {address: a}}}", []string{"store", `"rediss" is not a field`, "did you mean redis?"}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:6379', adress: a}}}", []string{"store: redis", `"adress" is not a field`, "address"}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:6379', password: 'file:" + missing + "'}}}", []string{"store: redis", "password", missing}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:6379', password: 'env:WEIR_NO_SUCH'}}}", []string{"store: redis", "password", "WEIR_NO_SUCH"}},
		{"{limit: 5/1m, store: {redis: {address: '127.0.0.1:6379', tls: {ca: " + missing + "}}}}", []string{"store: redis", "tls", "ca", missing}},
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
