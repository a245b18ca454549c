package e2e

import (
	"net/http"
	"testing"
)

// Each rule covers the requests of one list, and none of the other.
func TestMatchSaysWhichRequestsAreCovered(t *testing.T) {
	for _, c := range []struct {
		match      string
		covers     []string
		not        []string
		withFields []string // header fields of the requests in both lists
	}{
		{match: "{methods: [POST, PUT]}", covers: []string{"POST /", "PUT /"}, not: []string{"/", "DELETE /"}},
		{match: "{methods: 'POST, PUT'}", covers: []string{"POST /", "PUT /"}, not: []string{"/"}},
		{match: "{paths: [/login]}", covers: []string{"/login", "/login?a=b"}, not: []string{"/", "/login/x", "/log"}},
		{match: "{pathPrefixes: [/v1, /v2]}", covers: []string{"/v1", "/v1/users", "/v2/"}, not: []string{"/v10", "/"}},
		{match: "{headers: {X-Plan: free}}", covers: []string{"/"}, withFields: []string{"X-Plan", "free"}},
		{match: "{headers: {x-plan: free}}", covers: []string{"/"}, withFields: []string{"X-Plan", "free"}},
		{match: "{headers: {X-Plan: free}}", not: []string{"/"}, withFields: []string{"X-Plan", "paid"}},
		{match: "{headers: {X-Plan: free}}", not: []string{"/"}},
		{match: "{headers: {X-Plan: '*'}}", covers: []string{"/"}, withFields: []string{"X-Plan", "any"}},
		{match: "{headers: {X-Plan: '*'}}", not: []string{"/"}},
		{match: "{exceptIPs: [127.0.0.0/8]}", not: []string{"/"}},
		{match: "{exceptIPs: [127.0.0.1]}", not: []string{"/"}},
		{match: "{exceptIPs: [10.0.0.0/8, '::1']}", covers: []string{"/"}},
		{match: "{methods: [GET], pathPrefixes: [/a]}", covers: []string{"/a", "/a/b"}, not: []string{"/", "POST /a"}},
	} {
		t.Run(c.match, func(t *testing.T) {
			s := limited(t, "{limit: 1000/366d, match: "+c.match+"}")
			for _, request := range c.covers {
				if r := s.admit(1, request, c.withFields...); r.header.Get("X-RateLimit-Limit") == "" {
					t.Errorf("%s is not covered", request)
				}
			}
			for _, request := range c.not {
				if r := s.admit(1, request, c.withFields...); r.header.Get("X-RateLimit-Limit") != "" {
					t.Errorf("%s is covered", request)
				}
			}
		})
	}
}

func TestMatchByHost(t *testing.T) {
	s := newSite(t)
	s.limit("limit", "{limit: 1/366d, match: {hosts: ["+s.host()+"]}}")
	s.limit("other", "{limit: 1/366d, match: {hosts: [other.test]}}")
	s.limit("wide", "{limit: 1/366d, match: {hosts: ['*.test']}}")
	s.route("/", "limit")
	s.route("/other", "other")
	s.route("/wide", "wide")
	s.apply()
	s.exactly(1, "/")
	s.admit(3, "/other")
	s.exactly(1, "/wide")
}

// One rule covers everything, and one a part of it.
func TestARequestIsCountedByEveryRuleThatCoversIt(t *testing.T) {
	s := limited(t, `
		rules:
		  - name: all
		    limit: 5/366d
		  - name: logins
		    match: {methods: [POST], paths: [/login]}
		    limit: 2/366d`)
	s.exactly(2, "POST /login")
	s.exactly(3, "/")
}

// Clients that differ in the key have their own counters; no other difference matters.
func TestEverySourceOfAKeyTellsClientsApart(t *testing.T) {
	for _, c := range []struct {
		key              string
		one, other       string // requests
		oneHas, otherHas []string
	}{
		{"method", "/", "POST /", nil, nil},
		{"path", "/a", "/b", nil, nil},
		{"query:user", "/?user=a", "/?user=b", nil, nil},
		{"header:X-User", "/", "/", []string{"X-User", "a"}, []string{"X-User", "b"}},
		{"cookie:sid", "/", "/", []string{"Cookie", "x=1; sid=a"}, []string{"Cookie", "sid=b"}},
		{"[header:X-User, path]", "/a", "/a", []string{"X-User", "a"}, []string{"X-User", "b"}},
		{"header:X-User, path", "/a", "/b", []string{"X-User", "a"}, []string{"X-User", "a"}},
		{"[header:X-A, header:X-B]", "/", "/", []string{"X-A", "a", "X-B", "bc"}, []string{"X-A", "ab", "X-B", "c"}},
	} {
		t.Run(c.key, func(t *testing.T) {
			s := limited(t, "{limit: 2/366d, key: "+quoteList(c.key)+"}")
			s.exactly(2, c.one, c.oneHas...)
			s.exactly(2, c.other, c.otherHas...)
			s.reject(c.one, c.oneHas...)
		})
	}
}

// quoteList quotes a comma-separated list, as in labels, and leaves a list in YAML unchanged.
func quoteList(text string) string {
	if text[0] == '[' {
		return text
	}
	return `"` + text + `"`
}

func TestTheHostAsAKey(t *testing.T) {
	s := newSite(t)
	s.limit("limit", "{limit: 1/366d, key: [host], namespace: "+s.name+"}")
	s.route("/", "limit")
	s.apply()
	other := sharedTraefik(t).newSite(t)
	other.limit("limit", "{limit: 1/366d, key: [host], name: "+s.name+"-limit, namespace: "+s.name+"}")
	other.route("/", "limit")
	other.apply()
	s.exactly(1, "/")
	other.exactly(1, "/")
}

func TestAStaticKeyIsOneCounterForAll(t *testing.T) {
	s := limited(t, "{limit: 2/366d, key: [static:everyone]}")
	s.admit(1, "/", "X-Forwarded-For", "192.0.2.1")
	s.admit(1, "POST /b", "X-Forwarded-For", "192.0.2.2")
	s.reject("/c")
}

func TestTheAddressIsTheKeyUnlessAnotherIsSaid(t *testing.T) {
	for _, key := range []string{"", "key: client_ip", "key: [remote_ip]"} {
		t.Run(key, func(t *testing.T) {
			s := limited(t, "limit: 2/366d\n"+key)
			s.exactly(2, "/")
			s.from("127.0.0.2").exactly(2, "/")
		})
	}
}

func TestAddressesAreMaskedToTheirNetwork(t *testing.T) {
	s := limited(t, "{limit: 2/366d, ipv4Prefix: 24, ipv6Prefix: 56, ipStrategy: {depth: 1}}")
	s.exactly(2, "/", "X-Forwarded-For", "192.0.2.1")
	s.reject("/", "X-Forwarded-For", "192.0.2.200")
	s.admit(1, "/", "X-Forwarded-For", "192.0.3.1")
	s.exactly(2, "/", "X-Forwarded-For", "2001:db8:0:ff::1")
	s.reject("/", "X-Forwarded-For", "2001:db8:0:1::2")
	s.admit(1, "/", "X-Forwarded-For", "2001:db8:0:100::1")
}

func TestARequestWithoutTheKey(t *testing.T) {
	for word, statuses := range map[string][]int{
		"":                     {http.StatusOK, http.StatusTooManyRequests},
		"onMissingKey: share":  {http.StatusOK, http.StatusTooManyRequests},
		"onMissingKey: skip":   {http.StatusOK, http.StatusOK},
		"onMissingKey: reject": {http.StatusTooManyRequests, http.StatusTooManyRequests},
	} {
		t.Run(word, func(t *testing.T) {
			s := limited(t, "key: [header:X-User]\nlimit: 1/366d\n"+word)
			for i, want := range statuses {
				if r := s.do("/"); r.status != want {
					t.Errorf("request %d: status %d, want %d", i+1, r.status, want)
				}
			}
			s.exactly(1, "/", "X-User", "a")
		})
	}
}

func TestARequestTakesItsCost(t *testing.T) {
	for _, source := range []string{"header:X-Cost", "query:cost", "cookie:cost"} {
		t.Run(source, func(t *testing.T) {
			s := limited(t, "{limit: 10/366d, cost: '"+source+"'}")
			with := func(n string) (string, []string) {
				return "/?cost=" + n, []string{"X-Cost", n, "Cookie", "cost=" + n}
			}
			request, fields := with("6")
			s.exactly(1, request, fields...)
			request, fields = with("4")
			s.exactly(1, request, fields...)
			for _, hostile := range []string{"-5", "0", "x", "", "99999999999999999999", "1e3"} {
				request, fields = with(hostile)
				s.reject(request, fields...)
			}
		})
	}
}
