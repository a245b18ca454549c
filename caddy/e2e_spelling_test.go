package ratelimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// letters leaves out what stands for something in the name of a file.
func letters(r rune) rune {
	if strings.ContainsRune("{}%'\"$ =", r) {
		return '_'
	}
	return r
}

// Another spelling of one host, method or path is no way to another counter, whatever placeholder a key has of it, and alone or beside
// others.
func TestKeysTakeTheSpellingsOfOneHostMethodOrPathForTheSame(t *testing.T) {
	hosts := []string{"http://shop.test/", "http://sHOP.test/", "http://shop.test./", "http://Shop.Test.:PORT/", "http://shop.test:PORT/", "http://shop.test:1/"}
	withPort := []string{"http://shop.test:81/", "http://sHOP.test:81/", "http://shop.test.:81/"}
	methods := []string{"POST /", "post /", "pOST /"}
	paths := []string{"http://a.test/a/login", "http://a.test/A/LoGiN", "http://a.test//a//login", "http://a.test/a/./login", "http://a.test/x/../a/login", "http://a.test/%61/log%69n"}
	for _, c := range []struct {
		key   string
		same  []string
		other string
	}{
		{"{host}", hosts, "http://other.test/"},
		{"{http.request.host}", hosts, "http://shop.test.test/"},
		{"{hostport}", withPort, "http://shop.test:82/"},
		{"{hostport}", []string{"http://shop.test/", "http://Shop.test./"}, "http://shop.test:81/"},
		{"{labels.0}-{labels.1}", hosts, "http://shop.test2/"},
		{"{method}", methods, "GET /"},
		{"{orig_method}", methods, "GET /"},
		{"{path}", paths, "http://a.test/a/login/"},
		{"{http.request.orig_uri.path}", paths, "http://a.test/a/login2"},
		{"{%path}", paths, "http://a.test/a/login2"},
		{"{path.0} {path.1}", paths, "http://a.test/b/login"},
		{"{file}", paths, "http://a.test/a/logout"},
		{"{dir}", paths, "http://a.test/b/login"},
		{"{http.request.orig_uri.path.1}", paths, "http://a.test/a/logout"},
		{"{file.base}", []string{"http://a.test/a.html", "http://a.test/A.HTML", "http://a.test/./a.html"}, "http://a.test/b.html"},
		{"{file.ext}", []string{"http://a.test/a.html", "http://a.test/A.HTML"}, "http://a.test/a.css"},
		{"{uri}", []string{"http://a.test/a?Q=1", "http://a.test/A?Q=1", "http://a.test//a?Q=1"}, "http://a.test/a?q=1"},
		{"{%uri}", []string{"http://a.test/a?Q=1", "http://a.test/A?Q=1", "http://a.test//a?Q=1"}, "http://a.test/a?q=1"},
		{"{orig_uri}", []string{"http://a.test/a", "http://a.test/A", "http://a.test//a", "http://a.test/a?"}, "http://a.test/a?q=1"},
		{"{method} {path}", []string{"GET http://a.test/a", "get http://a.test/A", "Get http://a.test//a"}, "POST http://a.test/a"},
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

// What a key is made of where something has rewritten the request is what it was rewritten to, as elsewhere in Caddy.
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
	s.reject("/API/b") // which is not rewritten: its path is another, its original the same after one more
	s.admit(1, "/API/c")
}

// A zone's matchers are asked about a method in upper case, and a host without a dot at its end; what answers sees what was sent.
func TestAnotherSpellingOfAMethodOrHostIsNoWayRoundAZonesMatchers(t *testing.T) {
	for match, c := range map[string]struct{ covered, free []string }{
		"method POST":                           {[]string{"POST /", "post /", "pOst /"}, []string{"GET /", "get /"}},
		"not method GET":                        {[]string{"POST /", "post /", "PROPFIND /"}, []string{"GET /", "get /"}},
		`expression "{method} == 'POST'"`:       {[]string{"POST /", "post /"}, []string{"GET /"}},
		`expression "method('POST')"`:           {[]string{"POST /", "post /"}, []string{"GET /"}},
		"host a.test":                           {[]string{"http://a.test/", "http://A.test./", "http://a.test.:81/"}, []string{"http://b.test/"}},
		`expression "{host} == 'a.test'"`:       {[]string{"http://a.test/", "http://a.test./", "http://a.test.:81/"}, []string{"http://b.test./"}},
		"path /login":                           {[]string{"/login", "//LOGIN", "/x/../login"}, []string{"/login/"}},
		`expression "{hostport} == 'a.test:1'"`: {[]string{"http://a.test:1/", "http://a.test.:1/"}, []string{"http://a.test./"}},
	} {
		t.Run(strings.Map(letters, match), func(t *testing.T) {
			s := startSite(t, fmt.Sprintf("rate_limit {\nzone z {\nmatch {\n%s\n}\nkey all\nlimit %d/366d\n}\n}\nrespond \"{method} {hostport}\"", match, len(c.covered)))
			for _, request := range c.covered {
				r := s.do(request)
				if r.status != http.StatusOK {
					t.Fatalf("%s: status %d", request, r.status)
				}
				sent, _, found := strings.Cut(request, " ")
				if !found {
					sent = "GET"
				}
				if !strings.HasPrefix(r.body, sent+" ") || strings.Contains(request, "test.") != strings.Contains(r.body, "test.") {
					t.Errorf("%s: the response was made for %q", request, r.body)
				}
			}
			for _, request := range c.covered {
				s.reject(request)
			}
			for _, request := range c.free {
				s.admit(1, request)
			}
		})
	}
}

// Tiers and descriptors are read from requests in the same spelling, and an override is for a key however either is written.
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

// Rules of files cover a request, and count it, in whatever spelling it comes.
func TestRuleFilesTakeAllSpellingsForTheSame(t *testing.T) {
	s := startFiles(t, "rate_limit {\nrules_file DIR/rules/*.yaml\n}\nrespond ok", "a.yaml",
		rulesOf("{name: posts, match: {methods: [POST], hosts: [a.test]}, limit: 3/366d, key: ['static:all']}", "{name: each, limit: 6/366d, key: [method, host]}"))
	s.admit(1, "POST http://a.test/")
	s.admit(1, "post http://A.test./")
	s.admit(1, "Post http://a.test:1/")
	s.reject("pOST http://a.test/")
	s.admit(6, "get http://a.test/")
	s.reject("GET http://a.test/")
}
