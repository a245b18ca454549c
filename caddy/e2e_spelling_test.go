package ratelimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
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

// A request line may lack a path, which upstreams get as "/". This does not evade a limit for that path, wherever it is written.
func TestARequestWithoutAPathIsOneForTheRoot(t *testing.T) {
	lines := []string{"GET / HTTP/1.1", "GET http://a.test HTTP/1.1", "GET http://a.test?q HTTP/1.1", "GET foo: HTTP/1.1", "GET foo:? HTTP/1.1"}
	for name, zone := range map[string]string{
		"a path":         "match {\npath /\n}\nkey all",
		"any path":       "match {\npath /*\n}\nkey all",
		"a regexp":       "match {\npath_regexp ^/$\n}\nkey all",
		"an expression":  `match {` + "\n" + `expression "{path} == '/' && {orig_path} == '/' && path('/')"` + "\n}\nkey all",
		"its pieces":     `match {` + "\n" + `expression "{http.request.uri.path_escaped} == '%2F' && {dir} == '/' && {http.request.orig_uri.path.dir} == '/'"` + "\n}\nkey all",
		"not a path":     "match {\nnot path /login\npath /*\n}\nkey all",
		"a shared key":   "key {path}",
		"a skipped key":  "key {path}\non_missing_key skip",
		"a directory":    "key {dir}\non_missing_key skip",
		"several":        "key {method}{orig_path}\non_missing_key reject",
		"a tier":         "key all\ntiers {path} {\n/ 5/366d\n* unlimited\n}",
		"an escaped one": "key {%path}",
	} {
		t.Run(strings.Map(letters, name), func(t *testing.T) {
			limit := "limit 5/366d"
			if strings.Contains(zone, "tiers") {
				limit = ""
			}
			s := startSite(t, "rate_limit {\nzone z {\n"+zone+"\n"+limit+"\n}\n}\nrespond ok")
			for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
				for _, line := range lines {
					if got := raw(t, s, line+"\r\nHost: a.test\r\n\r\n"); got != want {
						t.Errorf("%s: status %d, want %d", line, got, want)
					}
				}
			}
		})
	}
	t.Run("a_rule_file", func(t *testing.T) {
		s := startFiles(t, "rate_limit {\nrules_file DIR/rules/*.yaml\n}\nrespond ok", "a.yaml",
			rulesOf("{name: root, match: {paths: [/]}, limit: 5/366d, key: ['static:all']}"))
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			for _, line := range lines {
				if got := raw(t, s, line+"\r\nHost: a.test\r\n\r\n"); got != want {
					t.Errorf("%s: status %d, want %d", line, got, want)
				}
			}
		}
	})
	t.Run("a_descriptor", func(t *testing.T) {
		s := startFiles(t, byFiles("descriptor path {path}"), "d.yaml", "domain: d\ndescriptors:\n  - {key: path, value: /, rate_limit: {unit: year, requests_per_unit: 5}}\n")
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			for _, line := range lines {
				if got := raw(t, s, line+"\r\nHost: a.test\r\n\r\n"); got != want {
					t.Errorf("%s: status %d, want %d", line, got, want)
				}
			}
		}
	})
}

// Brackets are for IPv6 addresses. Around a name they do not evade a zone's matchers.
func TestBracketsRoundANameAreNoWayRoundAZonesMatchers(t *testing.T) {
	for _, match := range []string{"host a.test", `expression "{host} == 'a.test'"`, "vars {host} a.test", "header Host a.test"} {
		t.Run(strings.Map(letters, match), func(t *testing.T) {
			s := startSite(t, fmt.Sprintf("rate_limit {\nzone z {\nmatch {\n%s\n}\nkey all\nlimit 1/366d\n}\n}\nrespond ok", match))
			s.admit(1, "http://a.test/")
			for _, host := range []string{"[a.test]", "[a.test.]", "[A.TEST]"} {
				if got := raw(t, s, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); got != http.StatusTooManyRequests {
					t.Errorf("Host: %s: status %d, want 429", host, got)
				}
			}
		})
	}
}

// A tier whose source has text around a placeholder applies in every spelling.
func TestATierRoundAPlaceholderApplies(t *testing.T) {
	s := startSite(t, `rate_limit {
		zone z {
			key {path}
			tiers "m-{path}" {
				m-/t/Login 2/366d
				*          3/366d
			}
		}
	}
	respond ok`)
	s.admit(1, "/t/Login")
	s.admit(1, "/t/login")
	s.reject("/t/Login")
	s.admit(3, "/t")
	_, err := s.adapt("", ":PORT {\nrate_limit {\nzone z {\ntiers m-{path} {\nn-/t 1/366d\n* unlimited\n}\n}\n}\n}")
	if err == nil || !strings.Contains(err.Error(), `tiers: "n-/t": is no text of m-{http.request.uri.path}`) {
		t.Error(err)
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
		"method POST":                           {[]string{"POST /", "post /", "pOst /"}, []string{"GET /", "get /"}},
		"not method GET":                        {[]string{"POST /", "post /", "PROPFIND /"}, []string{"GET /", "get /"}},
		`expression "{method} == 'POST'"`:       {[]string{"POST /", "post /"}, []string{"GET /"}},
		`expression "method('POST')"`:           {[]string{"POST /", "post /"}, []string{"GET /"}},
		"host a.test":                           {[]string{"http://a.test/", "http://A.test./", "http://a.test.:81/"}, []string{"http://b.test/"}},
		`expression "{host} == 'a.test'"`:       {[]string{"http://a.test/", "http://a.test./", "http://a.test.:81/"}, []string{"http://b.test./"}},
		"path /login":                           {[]string{"/login", "//LOGIN", "/x/../login"}, []string{"/login/"}},
		`expression "{host} == 'b.test'"`:       {[]string{"http://b.test/", "http://B.tEst/", "http://b.test:1/"}, []string{"http://a.test/"}},
		"vars {host} a.test":                    {[]string{"http://a.test/", "http://A.TEST:81/"}, []string{"http://b.test/"}},
		"vars {labels.1} a":                     {[]string{"http://a.test/", "http://a.test./"}, []string{"http://test.a/"}},
		"header Host a.test":                    {[]string{"http://a.test/", "http://A.Test/", "http://a.test./"}, []string{"http://b.test/"}},
		"header_regexp Host ^a\\.test(:\\d+)?$": {[]string{"http://a.test/", "http://A.Test:81/", "http://a.test.:81/"}, []string{"http://b.test/"}},
		"host 2001:db8::1":                      {[]string{"http://[2001:db8::1]/", "http://[2001:DB8::1]:81/"}, []string{"http://[2001:db8::2]/"}},
		`expression "{hostport} == 'a.test:1'"`: {[]string{"http://a.test:1/", "http://a.test.:1/"}, []string{"http://a.test./"}},
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
				if r.body != sent+" "+host {
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

// Rules in files cover and count a request in every spelling.
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
