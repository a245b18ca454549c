package ratelimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// letters replaces the characters of a subtest's name that are special in the name of a file.
func letters(r rune) rune {
	if strings.ContainsRune("{}%'\"$ =", r) {
		return '_'
	}
	return r
}

// Another spelling of a host, method or path does not reach another counter, whichever placeholder the key has, alone or with
// others.
func TestKeysTakeTheSpellingsOfOneHostMethodOrPathForTheSame(t *testing.T) {
	hosts := []string{"http://shop.test/", "http://sHOP.test/", "http://shop.test./", "http://Shop.Test.:PORT/", "http://shop.test:PORT/", "http://shop.test:1/"}
	paths := []string{"http://a.test/a/login", "http://a.test/A/LoGiN", "http://a.test//a//login", "http://a.test/a/./login", "http://a.test/x/../a/login", "http://a.test/%61/log%69n"}
	for _, c := range []struct {
		key   string
		same  []string
		other string
	}{
		{"{host}", hosts, "http://other.test/"},
		{"{hostport}", []string{"http://shop.test/", "http://Shop.test./"}, "http://shop.test:81/"},
		{"{path}", paths, "http://a.test/a/login/"},
		{"{uri}", []string{"http://a.test/a?Q=1", "http://a.test/A?Q=1", "http://a.test//a?Q=1"}, "http://a.test/a?q=1"},
		{"{method}{host}{client_ip}", []string{"GET http://a.test/a", "get http://A.test./A"}, "POST http://a.test/a"},
	} {
		t.Run(strings.Map(letters, c.key), func(t *testing.T) {
			s := startSite(t, fmt.Sprintf("rate_limit {\nzone z {\nkey %q\nlimit %d/366d\n}\n}\nrespond ok", c.key, len(c.same)))
			for _, request := range c.same {
				s.admit(1, s.fill(request))
			}
			for _, request := range c.same {
				s.reject(s.fill(request))
			}
			s.admit(1, c.other)
		})
	}
}

// A request line may lack a path, which upstreams get as "/". This does not evade a limit for that path, wherever it is written.
func TestARequestWithoutAPathIsOneForTheRoot(t *testing.T) {
	for name, site := range map[string]string{
		"a path":        "zone z {\nmatch {\npath /\n}\nkey all\nlimit 5/366d\n}",
		"an expression": "zone z {\nmatch {\nexpression \"{path} == '/' && {orig_path} == '/' && {dir} == '/'\"\n}\nkey all\nlimit 5/366d\n}",
		"a key":         "zone z {\nkey {path}\non_missing_key skip\nlimit 5/366d\n}",
		"a tier":        "zone z {\nkey all\ntiers {path} {\n/ 5/366d\n* unlimited\n}\n}",
		"a rule file":   "rules_file DIR/rules/a.yaml",
		"a descriptor":  "rules_file DIR/rules/d.yaml\ndescriptor path {path}",
	} {
		t.Run(strings.Map(letters, name), func(t *testing.T) {
			s := startFiles(t, "rate_limit {\n"+site+"\n}\nrespond ok",
				"a.yaml", rulesOf("{name: root, match: {paths: [/]}, limit: 5/366d, key: ['static:all']}"),
				"d.yaml", "domain: d\ndescriptors:\n  - {key: path, value: /, rate_limit: {unit: year, requests_per_unit: 5}}\n")
			for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
				for _, line := range []string{"GET / HTTP/1.1", "GET http://a.test HTTP/1.1", "GET http://a.test?q HTTP/1.1", "GET foo: HTTP/1.1", "GET foo:? HTTP/1.1"} {
					must.Equal(t, raw(t, s, line+"\r\nHost: a.test\r\n\r\n"), want, "%s: status", line)
				}
			}
		})
	}
}

// After a rewrite, a key has the rewritten values, as elsewhere in Caddy.
func TestKeysOfARewrittenPathAreOfWhatItCameTo(t *testing.T) {
	s := startSite(t, `route {
		uri strip_prefix /api
		rate_limit {
			zone now {
				key {path}
				limit 2/366d
			}
			zone then {
				key {orig_path}
				limit 3/366d
			}
		}
		respond ok
	}`)
	s.admit(1, "/api/a")
	s.admit(1, "/A")
	s.reject("/a")
	s.admit(2, "/api/b")
	s.reject("/API/b") // not rewritten: its path differs, and its original is the same after one more request
	s.admit(1, "/API/c")
}

// A zone's matchers see the method in upper case, and the host without a dot at its end. Later handlers see what was sent.
func TestAnotherSpellingOfAMethodOrHostIsNoWayRoundAZonesMatchers(t *testing.T) {
	for match, c := range map[string]struct{ covered, free []string }{
		"method POST":                     {[]string{"POST /", "post /", "pOst /"}, []string{"GET /", "get /"}},
		`expression "{method} == 'POST'"`: {[]string{"POST /", "post /"}, []string{"GET /"}},
		"host a.test":                     {[]string{"http://a.test/", "http://A.test./", "http://a.test.:81/"}, []string{"http://b.test/"}},
		`expression "{host} == 'a.test'"`: {[]string{"http://a.test/", "http://a.test./", "http://a.test.:81/"}, []string{"http://b.test./"}},
		"vars {host} a.test":              {[]string{"http://a.test/", "http://A.TEST:81/"}, []string{"http://b.test/"}},
		"header Host a.test":              {[]string{"http://a.test/", "http://A.Test/", "http://a.test./"}, []string{"http://b.test/"}},
	} {
		t.Run(strings.Map(letters, match), func(t *testing.T) {
			s := startSite(t, fmt.Sprintf("rate_limit {\nzone z {\nmatch {\n%s\n}\nkey all\nlimit %d/366d\n}\n}\nrespond \"{method} {hostport}\"", match, len(c.covered)))
			for _, request := range c.covered {
				r := s.do(request)
				if r.status != http.StatusOK {
					t.Fatalf("%s: status %d", request, r.status)
				}
				sent, url, found := strings.Cut(request, " ")
				if !found {
					sent, url = "GET", request
				}
				host := s.addr
				if !strings.HasPrefix(url, "/") {
					host = strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/")
				}
				must.Equal(t, r.body, sent+" "+host, "%s: the response was made for", request)
			}
			for _, request := range c.covered {
				s.reject(request)
			}
			for _, request := range c.free {
				s.admit(1, request)
			}
			if strings.Contains(match, "a.test") { // brackets are for IPv6 addresses
				if got := raw(t, s, "GET / HTTP/1.1\r\nHost: [A.test.]\r\n\r\n"); got != http.StatusTooManyRequests {
					t.Errorf("Host: [A.test.]: status %d, want 429", got)
				}
			}
		})
	}
}

// Tiers and descriptors read requests in the normalized spelling; an override applies in every spelling of it and of the request.
func TestTiersAndOverridesTakeAllSpellingsForTheSame(t *testing.T) {
	s := startSite(t, `rate_limit {
		zone methods {
			key all
			tiers {method} {
				post 2/366d
				*    100/366d
			}
		}
		zone hosts {
			key {host}
			limit 100/366d
			override Small.Test.:80 3/366d
		}
		zone both {
			key {method}
			tiers "{method} {host}" {
				"PUT a.test" 1/366d
				*            100/366d
			}
		}
	}
	respond ok`)
	s.admit(1, "post /")
	s.admit(1, "POST /")
	s.reject("Post /")
	s.admit(1, "http://small.test/")
	s.admit(1, "http://SMALL.test/")
	s.admit(1, "http://small.test.:8/")
	s.reject("http://small.test/")
	s.admit(1, "put http://A.test./")
	s.reject("PUT http://a.test/")
}
