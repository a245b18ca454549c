package traefik

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// quotas asks a handler how its client stands.
func quotas(t *testing.T, h http.Handler, from string, change func(*http.Request)) string {
	t.Helper()
	r := httptest.NewRequest("GET", "http://example.com/_weir/quota", nil)
	r.RemoteAddr = from + ":1234"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("answered with %d, %v", w.Code, w.Header())
	}
	return strings.TrimSuffix(w.Body.String(), "\n")
}

func wantQuotas(t *testing.T, h http.Handler, from string, change func(*http.Request), want string) {
	t.Helper()
	for i := 0; i < 2; i++ {
		if got := quotas(t, h, from, change); got != `{"quotas":[`+want+`]}` {
			t.Errorf("%s, asked for the %d. time: %s, want %s", from, i+1, got, want)
		}
	}
}

func withStatus(c Config) *Config {
	c.StatusPath = "/_weir/quota"
	return &c
}

// Whichever way requests go, what the client has left is what its last response said, and asking costs nothing.
func TestClientsCanAskForTheirOwnQuotas(t *testing.T) {
	for _, c := range []Config{
		{Rule: Rule{Name: "r", Limit: "5/1m", Algorithm: "token_bucket"}},
		{Rule: Rule{Name: "r", Limit: "5/1m", Algorithm: "fixed_window"}},
		{Rule: Rule{Name: "r", Limit: "5/1m"}},
		{Rule: Rule{Name: "r", Limit: "5/1m", Algorithm: "sliding_window_log"}},
		{Rule: Rule{Name: "r", Limit: "5/1m", Match: object{"paths": "/", "methods": "GET"}}},
		{Rule: Rule{Name: "r", Limit: "5/1m"}, Headers: []string{"x_ratelimit"}},
		{Rule: Rule{Name: "r", Limit: "5/1m"}, Metrics: object{"path": "/metrics"}},
		{Rules: []Rule{{Name: "r", Limit: "5/1m"}, {Name: "watched", Limit: "1/1m", Enforcement: "shadow"}}},
	} {
		s := newStage(t)
		s.step(23 * time.Second)
		h := s.handler(context.Background(), withStatus(c), "m@file")
		wantQuotas(t, h, "192.0.2.1", nil, `{"name":"r","limit":5,"remaining":5,"reset":0}`)
		statuses(h, "192.0.2.1", 2)
		last := get(h, "192.0.2.1", nil)
		wantQuotas(t, h, "192.0.2.1", nil, `{"name":"r","limit":5,"remaining":2,"reset":`+last.Header.Get("X-Ratelimit-Reset")+`}`)
		wantQuotas(t, h, "192.0.2.2", nil, `{"name":"r","limit":5,"remaining":5,"reset":0}`) // nobody else's
		must.Equal(t, statuses(h, "192.0.2.1", 3), "200 200 429", "after asking")
		last = get(h, "192.0.2.1", nil)
		wantQuotas(t, h, "192.0.2.1", nil, `{"name":"r","limit":5,"remaining":0,"reset":`+last.Header.Get("X-Ratelimit-Reset")+`,"retry_after":`+last.Header.Get("Retry-After")+`}`)
		must.Equal(t, s.passed, 5, "%d requests reached the service", s.passed)
	}
}

// What a client may know is what concerns it, whatever it asks by: rules are shown that it comes under by host, header fields and
// address, and left out where they only watch, where they do not limit it, and where they tell apart what is asked for.
func TestQuotasAreOfTheRulesThatTheClientComesUnder(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), withStatus(Config{Rules: []Rule{
		{Name: "logins", Match: object{"methods": "POST", "pathPrefixes": "/login"}, Limit: "5/1h", Algorithm: "fixed_window"},
		{Name: "host", Match: object{"hosts": "other.com"}, Limit: "5/1h"},
		{Name: "field", Match: object{"headers": object{"X-Beta": "*"}}, Limit: "6/1h", Algorithm: "fixed_window"},
		{Name: "address", Match: object{"exceptIPs": "192.0.2.0/24"}, Limit: "5/1h"},
		{Name: "by-path", Key: []string{"client_ip", "path"}, Limit: "5/1h"},
		{Name: "by-key", Key: []string{"header:X-Key"}, Limit: "7/1h", Algorithm: "fixed_window", OnMissingKey: "skip"},
		{Name: "must", Key: []string{"header:X-Key"}, Limit: "8/1h", Algorithm: "fixed_window", OnMissingKey: "reject"},
		{Name: "tiers", Tiers: object{"source": "header:X-Plan", "limits": object{"pro": "9/1h", "*": "unlimited"}}, Algorithm: "fixed_window"},
		{Name: "watched", Limit: "1/1h", Enforcement: "shadow"},
		{Name: "tried", Limit: "4/1h", Algorithm: "fixed_window", Candidate: object{"limit": "1/1h"}, Concurrency: "3"},
	}}), "m@file")
	always := `{"name":"logins","limit":5,"remaining":5,"reset":0},`
	tried := `{"name":"tried","limit":4,"remaining":4,"reset":0},{"name":"tried.concurrency","limit":3,"remaining":3,"reset":0}`
	wantQuotas(t, h, "192.0.2.1", nil, always+tried)
	wantQuotas(t, h, "192.0.2.1", func(r *http.Request) {
		r.Header.Set("X-Beta", "yes")
		r.Header.Set("X-Key", "k")
		r.Header.Set("X-Plan", "pro")
		r.Host = "other.com"
	}, always+`{"name":"host","limit":5,"remaining":5,"reset":0},{"name":"field","limit":6,"remaining":6,"reset":0},`+
		`{"name":"by-key","limit":7,"remaining":7,"reset":0},{"name":"must","limit":8,"remaining":8,"reset":0},{"name":"tiers","limit":9,"remaining":9,"reset":0},`+tried)
	wantQuotas(t, h, "198.51.100.1", nil, always+`{"name":"address","limit":5,"remaining":5,"reset":0},`+tried)
}

func TestQuotasOfRuleFilesAreBoundedInNumber(t *testing.T) {
	s := newStage(t)
	text := ""
	for i := 0; i < 3*mostQuotas; i++ {
		text += `, {"name": "r` + strconv.Itoa(i) + `", "match": {"paths": ["/x"]}, "limit": "5/1h"}`
	}
	file := writeFile(t, t.TempDir()+"/rules.json", `{"rules": [`+strings.TrimPrefix(text, ", ")+`]}`)
	h := s.handler(context.Background(), withStatus(Config{RulesFile: []string{file}}), "m@file")
	must.Equal(t, strings.Count(quotas(t, h, "192.0.2.1", nil), `"name"`), mostQuotas, "quotas")
}

func TestQuotasAreOnlyRead(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), withStatus(Config{Rule: Rule{Name: "r", Limit: "1/1h"}}), "m@file")
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405, "PUT": 405, "DELETE": 405, "OPTIONS": 405} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "http://example.com/_weir/quota", nil)
		r.RemoteAddr = "192.0.2.1:1234"
		h.ServeHTTP(w, r)
		if w.Code != want || want == 405 && w.Header().Get("Allow") != "GET, HEAD" || method == "HEAD" && w.Body.Len() > 0 {
			t.Errorf("%s: %d %v %s", method, w.Code, w.Header(), w.Body)
		}
	}
	if got := get(h, "192.0.2.1", func(r *http.Request) { r.URL.Path = "/_weir/quota/" }); got.StatusCode != 200 || s.passed != 1 {
		t.Errorf("another path: %s, %d passed", got.Status, s.passed)
	}
	wantQuotas(t, h, "192.0.2.1", nil, `{"name":"r","limit":1,"remaining":0,"reset":3601,"retry_after":3601}`)
}
