package traefik

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// plan makes a request one of a plan.
func plan(name string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("X-Plan", name) }
}

// admitted returns how many of some requests pass.
func admitted(h http.Handler, from string, n int, change func(*http.Request)) int {
	passed := 0
	for i := 0; i < n; i++ {
		if get(h, from, change).StatusCode == 200 {
			passed++
		}
	}
	return passed
}

func TestATierChoosesTheLimit(t *testing.T) {
	forms := []interface{}{
		object{"source": "header:X-Plan", "limits": object{"free": "2/1h", "pro": "4/1h", "*": "1/1h", "staff": "unlimited"}},
		object{"Source": "header:x-plan", "LIMITS": map[string]string{"free": "2/1h", "pro": "4/1h", "*": "1/1h", "staff": " unlimited "}},
	}
	for i, form := range forms {
		s := newStage(t)
		h := s.handler(context.Background(), &Config{Rule: Rule{Tiers: form}}, "m@file")
		for _, test := range []struct {
			from, plan string
			want       int
		}{{"192.0.2.1", "free", 2}, {"192.0.2.2", "pro", 4}, {"192.0.2.3", "", 1}, {"192.0.2.4", "gold", 1}, {"192.0.2.5", "staff", 9}} {
			if got := admitted(h, test.from, 9, plan(test.plan)); got != test.want {
				t.Errorf("form %d, plan %q: %d were admitted, want %d", i, test.plan, got, test.want)
			}
		}
		// Who changes its plan takes along what it has used.
		must.Equal(t, admitted(h, "192.0.2.1", 9, plan("pro")), 2, "form %d: more with a better plan", i)
		if got := s.log.count("tiers: the header X-Plan is what the client sends, so that it can choose its own limit"); got != 1 && i == 0 {
			t.Errorf("the log: %s", s.log)
		}
	}
}

func TestTheRulesLimitIsThatOfAllOtherTiers(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1h", Tiers: object{"source": "method", "limits": object{"PUT": "3/1h"}}}}, "m@file")
	must.Equal(t, admitted(h, "192.0.2.1", 9, nil), 1, "of another value were admitted")
	must.Equal(t, admitted(h, "192.0.2.2", 9, func(r *http.Request) { r.Method = "PUT" }), 3, "of the tier were admitted")
	if s.log.count("m@file") > 0 {
		t.Errorf("the log: %s", s.log)
	}
}

func TestOverridesAreLimitsOfSingleKeys(t *testing.T) {
	list := func(members ...interface{}) []interface{} { return members }
	tests := []struct {
		rule Rule
		want string // how many of nine are admitted from 192.0.2.1, 192.0.2.2, 192.0.2.3 and 192.0.2.4
	}{
		{Rule{Limit: "1/1h", Overrides: list(object{"key": list("192.0.2.1"), "limit": "5/1h"}, object{"key": "192.0.2.2", "limit": "unlimited"})}, "5 9 1 1"},
		{Rule{Limit: "1/1h", Overrides: []object{{"Key": "192.0.2.1", "Limit": "5/1h"}}}, "5 1 1 1"},
		{Rule{Limit: "1/1h", IPv4Prefix: "31", Overrides: list(object{"key": "192.0.2.2/31", "limit": "5/1h"})}, "1 5 0 1"},
		{Rule{Limit: "1/1h", Key: []string{"client_ip", "header:X-Plan"}, Overrides: list(object{"key": "192.0.2.1, free", "limit": "5/1h"}, object{"key": list("192.0.2.2", "free"), "limit": "4/1h"})}, "5 4 1 1"},
		{Rule{Limit: "unlimited", Overrides: list(object{"key": "192.0.2.3", "limit": "2/1h"})}, "9 9 2 9"},
		{Rule{Limit: "unlimited"}, "9 9 9 9"},
		{Rule{Limit: "1/1h", Overrides: ""}, "1 1 1 1"},
		{Rule{Limit: "1/1h", Overrides: list(object{"key": "192.0.2.1", "limit": "3/1h"}), Tiers: object{"source": "header:X-Plan", "limits": object{"free": "2/1h"}}}, "3 2 2 2"},
	}
	for i, test := range tests {
		s := newStage(t)
		h := s.handler(context.Background(), &Config{Rule: test.rule}, "m@file")
		got := make([]string, 0, 4)
		for _, from := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"} {
			n := admitted(h, from, 9, plan("free"))
			got = append(got, string(rune('0'+n)))
		}
		must.Equal(t, strings.Join(got, " "), test.want, "%d: admitted", i)
	}
}

func TestARequestThatLacksItsKeyIsRejectedWhereItHasNoLimit(t *testing.T) {
	s := newStage(t)
	rule := Rule{Limit: "unlimited", Key: []string{"header:X-Plan"}, OnMissingKey: "reject", Overrides: []interface{}{object{"key": "free", "limit": "2/1h"}}}
	h := s.handler(context.Background(), &Config{Rule: rule}, "m@file")
	if response := get(h, "192.0.2.1", nil); response.StatusCode != 429 || !strings.Contains(bodyOf(response), "lacks what its limit tells clients apart by") {
		t.Errorf("%s %v", response.Status, response.Header)
	}
	must.Equal(t, admitted(h, "192.0.2.1", 9, plan("pro")), 9, "without a limit were admitted")
}

func TestAverageIsTheLimitOfAllWithoutOneOfTheirOwn(t *testing.T) {
	s := newStage(t)
	c := &Config{Average: "1", Period: "1h", Rule: Rule{Burst: "2", Overrides: []interface{}{object{"key": "192.0.2.1", "limit": "9/1h"}, object{"key": "192.0.2.2", "limit": "unlimited"}}}}
	h := s.handler(context.Background(), c, "m@file")
	for from, want := range map[string]int{"192.0.2.1": 2, "192.0.2.2": 9, "192.0.2.3": 2} { // all hold burst
		if got := admitted(h, from, 9, nil); got != want {
			t.Errorf("%s: %d were admitted, want %d", from, got, want)
		}
	}
	h = s.handler(context.Background(), &Config{Average: "0", Rule: Rule{Burst: "2", Overrides: []interface{}{object{"key": "192.0.2.1", "limit": "9/1h"}}}}, "none@file")
	for from, want := range map[string]int{"192.0.2.1": 2, "192.0.2.2": 9} {
		if got := admitted(h, from, 9, nil); got != want {
			t.Errorf("without average, %s: %d were admitted, want %d", from, got, want)
		}
	}
}

func TestRequestsBringTheirLimits(t *testing.T) {
	brings := func(value string) func(r *http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Limit", value) }
	}
	s := newStage(t)
	h := s.handler(context.Background(), withMetrics(Config{Rules: []Rule{
		{Name: "brought", Limit: "2/1h", LimitFrom: object{"source": "header:x-limit", "max": "5"}},
		{Name: "beside", Limit: "8/1h"},
	}}), "m@file")
	for i, test := range []struct {
		value string
		want  int
	}{{"", 2}, {"4", 4}, {"3/1h", 3}, {"9", 5}, {"0", 0}, {"nine", 2}} {
		if got := admitted(h, "192.0.2."+strconv.Itoa(i+1), 9, brings(test.value)); got != test.want {
			t.Errorf("with %q %d were admitted, want %d", test.value, got, test.want)
		}
	}
	page := string(s.writeMetrics())
	for series, want := range map[string]string{`outcome="malformed"`: "9", `outcome="above"`: "9", `outcome="crowded"`: "0"} {
		must.Contain(t, page, `weir_request_limits_total{rule="m.file/brought",`+series+`} `+want+"\n")
	}
	for line, want := range map[string]int{
		`rule "brought": limitFrom: the header X-Limit is what the client sends, so that it can choose its own limit`:             1,
		`rule "brought": a request brings the limit "9", which is not taken as it is: it is above max 5/1h`:                       1,
		`rule "brought": a request brings the limit "nine", which is not taken as it is: limit "nine/1h": the requests must be a`: 0, // in the same minute
	} {
		must.Equal(t, s.log.count(line), want, line)
	}
}
