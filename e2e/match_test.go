package e2e

import (
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
