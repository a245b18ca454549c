package match

import (
	"fmt"
	"math/rand"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// Few words, so that they meet; with slashes and stars where those matter.
var (
	indexHosts    = []string{"a.com", "b.com", "x.a.com", "*.a.com", "*.b.com", "A.com", "!b.com", "!*.a.com"}
	indexPaths    = []string{"/", "/a", "/a/b", "/a/b/c", "/b", "//", "/a/", "/a*", "*b", "*a/*", "!/a/b", "!*c"}
	indexPrefixes = []string{"/", "/a", "/a/", "/a/b", "/b", "//", "/a//b", "!/a/b", "!/b"}
	indexHeaders  = []string{"X-A", "x-b", "X-C", "X-D", "X-E"}
	indexValues   = []string{"1", "2", "*", "", "a:b", "1*", "!*2", "*a*", "!2"}
	indexMethods  = []string{"GET", "POST", "LINK", "!GET", "!CONNECT"}
	indexNetworks = []string{"192.0.2.0/24", "192.0.2.7", "2001:db8::/32", "::ffff:198.51.100.0/120", "fe80::/10"}
)

func someOf(r *rand.Rand, list []string) []string {
	var some []string
	for n := r.Intn(3); n > 0; n-- {
		some = append(some, list[r.Intn(len(list))])
	}
	return some
}

func randomMatch(r *rand.Rand) Match {
	var m Match
	if r.Intn(3) == 0 {
		m.Hosts = someOf(r, indexHosts)
	}
	if r.Intn(3) == 0 {
		m.Paths = someOf(r, indexPaths)
	}
	if r.Intn(3) == 0 {
		m.PathPrefixes = someOf(r, indexPrefixes)
	}
	if r.Intn(3) == 0 {
		m.Headers = make(map[string]string)
		for _, name := range someOf(r, indexHeaders) {
			m.Headers[name] = indexValues[r.Intn(len(indexValues))]
		}
	}
	if r.Intn(5) == 0 {
		m.Query = map[string]string{"q": indexValues[r.Intn(len(indexValues))]}
	}
	if r.Intn(5) == 0 {
		m.Cookies = map[string]string{"c": indexValues[r.Intn(len(indexValues))]}
	}
	if r.Intn(5) == 0 {
		m.Methods = someOf(r, indexMethods)
	}
	if r.Intn(5) == 0 {
		m.ExceptIPs = someOf(r, indexNetworks)
	}
	return m
}

func randomRequest(r *rand.Rand) *http.Request {
	hosts := []string{"a.com", "A.COM:443", "b.com:80", "x.a.com", "y.b.com", "x.y.a.com", "", "[::1]:80"}
	paths := []string{"", "/", "*", "/a", "/a/", "/a/b", "/a/b/c/d", "/ab", "/b", "//", "//a", "/a//b", "/a/b/c"}
	methods := []string{"GET", "POST", "get", "LINK", "CONNECT", "x"}
	remotes := []string{"192.0.2.1:80", "192.0.2.7:80", "203.0.113.1:80", "[2001:db8::1]:80", "[::ffff:198.51.100.7]:80", "[fe80::1%eth0]:80", "@", "", "192.0.2.1", ":80", "[::1]:80"}
	req := &http.Request{RemoteAddr: remotes[r.Intn(len(remotes))], Method: methods[r.Intn(len(methods))], ProtoMajor: 2, Host: hosts[r.Intn(len(hosts))], URL: &url.URL{Path: paths[r.Intn(len(paths))]}, Header: http.Header{}}
	for _, name := range indexHeaders {
		name = http.CanonicalHeaderKey(name)
		for n := r.Intn(6) - 3; n > 0; n-- {
			req.Header[name] = append(req.Header[name], indexValues[r.Intn(len(indexValues))])
		}
	}
	if r.Intn(2) == 0 {
		req.URL.RawQuery = "q=" + url.QueryEscape(indexValues[r.Intn(len(indexValues))]) + "&q=3"
		req.Header.Set("Cookie", "c="+[]string{"1", "2", "11", "bab"}[r.Intn(4)]+"; d=1")
	}
	return req
}

// Whoever covers a request is among the candidates, in ascending order and once, behind what was there before.
func TestCandidatesAreAllThatCover(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	rounds := 2000
	if interpreted {
		rounds = 50
	}
	covered, left := 0, 0
	for round := 0; round < rounds; round++ {
		matchers := make([]*Matcher, r.Intn(30))
		for i := range matchers {
			if r.Intn(10) == 0 {
				continue // one that covers all
			}
			m, err := randomMatch(r).Compile()
			must.Succeed(t, err)
			matchers[i] = m
		}
		x := NewIndex(matchers)
		for i := 0; i < 20; i++ {
			req := randomRequest(r)
			room := make([]int, 1, 1+r.Intn(40))
			room[0] = 99
			list := x.Candidates(req, room)
			if list[0] != 99 {
				t.Fatalf("what was there is %d", list[0])
			}
			if got := x.CandidatesFunc()(req); len(got) != len(list)-1 || len(got) > 0 && !reflect.DeepEqual(got, list[1:]) {
				t.Fatalf("candidates are %d, by a function %d", list[1:], got)
			}
			candidate := make(map[int]bool)
			for j := 1; j < len(list); j++ {
				if j > 1 && list[j] <= list[j-1] {
					t.Fatalf("not in ascending order: %d", list)
				}
				candidate[list[j]] = true
			}
			for at, m := range matchers {
				covers := m == nil || m.Covers(req, connected(req.RemoteAddr))
				if m != nil && (m.CoversFunc(nil, nil)(req) != covers || m.CoversFunc(func(r *http.Request) string { return connected(r.RemoteAddr) }, nil)(req) != covers) {
					t.Fatalf("%+v of %q %s %q %q %v: a function does not say %v", m, req.RemoteAddr, req.Method, req.Host, req.URL.Path, req.Header, covers)
				}
				if covers {
					covered++
					if !candidate[at] {
						t.Fatalf("%+v covers %s %q %q %v, and is not found", m, req.Method, req.Host, req.URL.Path, req.Header)
					}
				} else if !candidate[at] {
					left++
				}
			}
		}
	}
	if covered == 0 || left == 0 {
		t.Errorf("%d covered, %d left out", covered, left)
	}
}

func mustIndex(t *testing.T, matches []Match) *Index {
	matchers := make([]*Matcher, 0, len(matches))
	for _, match := range matches {
		m, err := match.Compile()
		must.Succeed(t, err)
		matchers = append(matchers, m)
	}
	return NewIndex(matchers)
}

// Of a thousand rules that each have a value of their own in some field, a request finds its own.
func TestOfManyRulesARequestFindsItsOwn(t *testing.T) {
	const many = 1000
	kinds := []string{"paths", "prefixes", "hosts", "headers", "one host", "one prefix", "one header"}
	for _, kind := range kinds {
		matches := make([]Match, many)
		for i := range matches {
			n := strconv.Itoa(i)
			switch kind {
			case "paths":
				matches[i] = Match{Paths: []string{"/p" + n}}
			case "prefixes":
				matches[i] = Match{PathPrefixes: []string{"/p" + n}}
			case "hosts":
				matches[i] = Match{Hosts: []string{"h" + n}}
			case "headers":
				matches[i] = Match{Headers: map[string]string{"X-N": n}}
			case "one host": // and in it a path each
				matches[i] = Match{Hosts: []string{"h"}, Paths: []string{"/p" + n}, Methods: []string{"GET"}}
			case "one prefix":
				matches[i] = Match{PathPrefixes: []string{"/p"}, Headers: map[string]string{"X-N": n}}
			case "one header":
				matches[i] = Match{Headers: map[string]string{"X-A": "*", "X-N": n}, PathPrefixes: []string{"/"}}
			}
		}
		x := mustIndex(t, matches)
		for i := 0; i < many; i += 37 {
			n := strconv.Itoa(i)
			req := &http.Request{Method: "GET", Host: "h" + n, URL: &url.URL{Path: "/p" + n}, Header: http.Header{"X-N": {n}, "X-A": {"a"}}}
			switch kind {
			case "prefixes":
				req.URL.Path += "/users"
			case "one host":
				req.Host = "h"
			}
			if list := x.Candidates(req, nil); len(list) != 1 || list[0] != i {
				t.Fatalf("%s: request %d has the candidates %d", kind, i, list)
			}
			for n := 0; n < 2; n++ { // in another spelling at last
				must.Equal(t, fmt.Sprint(x.CandidatesFunc()(req)), fmt.Sprint([]int{i}), "%s: the candidates of request %d, by a function", kind, i)
				req.Host, req.URL.Path = strings.ToUpper(req.Host), "/"+req.URL.Path
			}
		}
	}
}

// A path of many slashes has no more beginnings looked up than the longest prefix has.
func TestALongPathIsLookedUpNoFurtherThanThePrefixesGo(t *testing.T) {
	x := mustIndex(t, []Match{{PathPrefixes: []string{"/a"}}, {PathPrefixes: []string{"/x/x/x/b"}}, {PathPrefixes: []string{"/"}}})
	must.Equal(t, x.longestPrefix, len("/x/x/x/b"), "the longest")
	req := &http.Request{URL: &url.URL{Path: strings.Repeat("/x", 4000)}, Header: http.Header{}}
	if list := x.Candidates(req, nil); len(list) != 1 || list[0] != 2 {
		t.Errorf("candidates %d", list)
	}
	req.URL.Path = "/x/x/x/b/" + strings.Repeat("/x", 4000)
	if list := x.Candidates(req, nil); len(list) != 2 || list[0] != 1 || list[1] != 2 {
		t.Errorf("candidates %d", list)
	}
}

func TestAnEmptyIndexHasNoCandidates(t *testing.T) {
	if list := NewIndex(nil).Candidates(&http.Request{URL: &url.URL{Path: "/"}}, nil); len(list) != 0 {
		t.Error(list)
	}
}

// A field that is sent ten thousand times costs no more than one that is sent once, and is no way round.
func TestAFieldThatIsSentManyTimesIsLookedUpOnce(t *testing.T) {
	matches := make([]Match, 100)
	for i := range matches {
		matches[i] = Match{Headers: map[string]string{"X-Env": "prod"}}
	}
	x := mustIndex(t, matches)
	last, err := matches[0].Compile()
	must.Succeed(t, err)
	for _, n := range []int{1, 2, 64, 65, 10_000} {
		values := make([]string, n)
		for i := range values {
			values[i] = "prod"
		}
		r := &http.Request{URL: &url.URL{Path: "/"}, Header: http.Header{"X-Env": values}}
		list := x.Candidates(r, nil)
		if len(list) != len(matches) || cap(list) > 4*len(matches) {
			t.Errorf("%d values: %d candidates, room for %d", n, len(list), cap(list))
		}
	}
	other := make([]string, 65)
	r := &http.Request{URL: &url.URL{Path: "/"}, Header: http.Header{"X-Env": other}}
	if !last.Covers(r, "") {
		t.Error("65 values, none of which is looked at: not covered")
	}
	r.Header["X-Env"] = other[:64]
	if last.Covers(r, "") {
		t.Error("64 other values: covered")
	}
}
