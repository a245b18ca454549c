package traefik

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

func TestTraefiksOwnWordsAreATokenBucket(t *testing.T) {
	tests := []struct {
		config   Config
		requests int64
		period   time.Duration
		burst    int64
	}{
		{Config{Average: "10"}, 10, time.Second, 1},
		{Config{Average: "10", Rule: Rule{Burst: "50"}}, 10, time.Second, 50},
		{Config{Average: "10", Rule: Rule{Burst: "0"}}, 10, time.Second, 1},
		{Config{Average: "6", Period: "1m"}, 6, time.Minute, 1},
		{Config{Average: "6", Period: "60"}, 6, time.Minute, 1},
		{Config{Average: "6", Period: "0"}, 6, time.Second, 1},
		{Config{Average: "6", Period: "1h30m"}, 6, 90 * time.Minute, 1},
		{Config{Average: "6", Rule: Rule{Algorithm: "token_bucket"}}, 6, time.Second, 1},
	}
	for _, test := range tests {
		s := newStage(t)
		e := s.made(&test.config, "m@file")
		l := e.fixed.rules[0].Only.Limit
		if l.Algorithm.String() != "token_bucket" || l.Requests != test.requests || l.Period != int64(test.period/time.Microsecond) || l.Quota != test.burst {
			t.Errorf("%+v: is %s", test.config, l)
		}
	}
}

func TestNoAverageIsNoLimit(t *testing.T) {
	for _, c := range []*Config{
		{Average: "0"},
		{Average: "0", Period: "1m", Rule: Rule{Burst: "1"}},
		{Period: "1m"},
		{SourceCriterion: object{"requestHost": "true"}, Rule: Rule{Burst: "5"}},
	} {
		s := newStage(t)
		h := s.handler(context.Background(), c, "m@file")
		for i := 0; i < 10; i++ {
			response := get(h, "192.0.2.1", nil)
			if response.StatusCode != 200 || len(response.Header) != 0 {
				t.Fatalf("%+v: %s %v", *c, response.Status, response.Header)
			}
		}
		if got, want := s.log.count("nothing is limited"), strings.Count("x"+c.Average, "x")-len(c.Average); got != want {
			t.Errorf("%+v: %d warnings, want %d", *c, got, want)
		}
	}
}

func TestSourceCriterionTellsClientsApart(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }
	tests := []struct {
		criterion    interface{}
		first, other func(*http.Request)
		shared       bool
	}{
		{nil, header("X-A", "1"), header("X-A", "2"), true},
		{"", header("X-A", "1"), header("X-A", "2"), true},
		{object{"requestHeaderName": "x-a"}, header("X-A", "1"), header("X-A", "2"), false},
		{object{"requestHeaderName": "x-a"}, header("X-B", "1"), header("X-B", "2"), true}, // who has none shares one
		{object{"requestHost": true}, host("a.example"), host("b.example"), false},
		{object{"requestHost": true}, host("a.example"), host("A.example:80"), true},
		{object{"ipStrategy": object{"depth": "1"}}, header(forwardedFor, "198.51.100.1"), header(forwardedFor, "198.51.100.2"), false},
		{object{"ipStrategy": object{"depth": "2"}}, header(forwardedFor, "198.51.100.1"), header(forwardedFor, "198.51.100.2"), true},
		{object{"ipStrategy": object{"depth": 1}}, header(forwardedFor, "2001:db8::1"), header(forwardedFor, "2001:db8::2"), false},
		{object{"ipStrategy": object{"depth": 1, "ipv6Subnet": 64}}, header(forwardedFor, "2001:db8::1"), header(forwardedFor, "2001:db8::2"), true},
	}
	for i, test := range tests {
		s := newStage(t)
		h := s.handler(context.Background(), &Config{Average: "1", Period: "1h", SourceCriterion: test.criterion}, "m@file")
		must.Equal(t, get(h, "192.0.2.1", test.first).StatusCode, 200, "%d: the first request", i)
		must.Equal(t, get(h, "192.0.2.1", test.first).StatusCode, 429, "%d: the second request", i)
		want := 200
		if test.shared {
			want = 429
		}
		must.Equal(t, get(h, "192.0.2.1", test.other).StatusCode, want, "%d, %v: another client", i, test.criterion)
	}
}

func TestOurOptionsMayStandBesideTraefiksWords(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{
		Average:   "1",
		Period:    "1m",
		Namespace: "shop",
		Message:   "Slowly.",
		Headers:   []string{"ietf"},
		Rule:      Rule{Name: "calm", Burst: "2", Key: []string{"path"}, Match: object{"methods": "GET"}, CountRejected: "true", OnError: "open"},
	}, "m@file")
	must.Equal(t, statuses(h, "192.0.2.1", 3), "200 200 429")
	response := get(h, "192.0.2.2", nil)
	if got := response.Header["Ratelimit-Policy"]; len(got) != 1 || got[0] != `"calm";q=2;w=120` || response.Header["X-Ratelimit-Limit"] != nil {
		t.Errorf("%v", response.Header)
	}
	post := func(r *http.Request) { r.Method = "POST" }
	must.Equal(t, get(h, "192.0.2.1", post).StatusCode, 200, "what the rule does not cover")
	e := s.newest("m@file")
	if r := e.fixed.rules[0].Only; r.Namespace != "shop" || !r.CountRejected {
		t.Errorf("%s", r.Identity)
	}
}
