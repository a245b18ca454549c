//go:build gc
// +build gc

package ruleset

// The second line above is for Yaegi, which knows no other spelling of a build constraint and no compiler: it leaves this
// file out. It allocates where compiled programs do not.

import (
	"net/http"
	"net/url"
	"testing"
	_ "time/tzdata" // so that calendars do not depend on the machine
)

func init() {
	interpreted = false
}

func TestLookingUpDoesNotAllocate(t *testing.T) {
	d := domainOf(t, `{"domain": "d", "descriptors": [
	{"key": "a", "value": "b", "rate_limit": {"unit": "day", "requests_per_unit": 5}},
	{"key": "a", "value": "c*", "rate_limit": {"unit": "day", "requests_per_unit": 5, "name": "wild"}},
	{"key": "a", "value": "*e*f*", "rate_limit": {"unit": "day", "requests_per_unit": 5}},
	{"key": "a", "rate_limit": {"unit": "day", "requests_per_unit": 5}, "descriptors": [
		{"key": "x", "value": "y", "rate_limit": {"unlimited": true, "replaces": [{"name": "wild"}]}}]}]}`)
	var l Lookup
	for _, entries := range [][]Entry{
		{{"a", "b"}}, {{"a", "cc"}}, {{"a", "1e2f3"}}, {{"a", "z"}}, {{"b", "z"}}, {{"a", "z"}, {"x", "y"}},
	} {
		list := entries
		if n := testing.AllocsPerRun(100, func() {
			l.Begin()
			l.Add(d, list)
			l.Add(d, list)
			l.Finish()
		}); n != 0 {
			t.Errorf("%v: %v allocations", entries, n)
		}
	}
}

func TestFindingTheRulesOfARequestDoesNotAllocate(t *testing.T) {
	for _, many := range []int{5, 500} {
		s := setOf(t, manyRules(many, byPath))
		r := &http.Request{Method: "GET", Host: "example.com", URL: &url.URL{Path: "/p3"}, Header: http.Header{"X-Plan": {"free"}}}
		room := make([]int, 0, 100)
		if n := testing.AllocsPerRun(100, func() {
			for _, i := range s.Covering(r, room) {
				rule := s.Rules[i]
				if rule.Matcher == nil || rule.Matcher.Covers(r, "192.0.2.1") {
					key, _ := KeyOf(rule, r, "192.0.2.1", nil)
					_ = LimitOf(rule, r, "192.0.2.1", key)
				}
			}
		}); n != 0 {
			t.Errorf("%d rules: %v allocations", many, n)
		}
	}
}
