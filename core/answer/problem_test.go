package answer

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func TestBodiesArePlainTextUnlessJSONIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		accept []string
		want   bool
	}{
		{nil, false},
		{[]string{"*/*"}, false},
		{[]string{"text/html,application/xhtml+xml"}, false},
		{[]string{"application/json"}, true},
		{[]string{"text/html", "application/problem+json;q=0.5"}, true},
		{[]string{"APPLICATION/JSON"}, true},
		{[]string{"application/json;q=0, text/plain"}, false},
		{[]string{"application/json; charset=utf-8; q=0.0"}, false},
	} {
		must.Equal(t, WantsProblem(http.Header{"Accept": c.accept}), c.want, "Accept %q", c.accept)
	}
}

func TestTextSaysWhenToComeBack(t *testing.T) {
	for _, c := range []struct {
		message string
		retry   int64
		want    string
	}{
		{"", 1, "Too many requests: you have used up what you may send for now. Try again in 1 second.\n"},
		{"", 1_000_001, "Too many requests: you have used up what you may send for now. Try again in 2 seconds.\n"},
		{"", rate.Never, "This request is over its limit, and waiting does not change that.\n"},
		{"Slow down.", 1, "Slow down.\n"},
	} {
		kind, body := Body(429, false, c.message, nil, &core.Verdict{Outcome: core.Reject, RetryAfter: c.retry})
		if string(body) != c.want || kind != "text/plain; charset=utf-8" {
			t.Errorf("%q of %q, want %q", body, kind, c.want)
		}
	}
}

func TestProblemNamesTheRulesThatRejected(t *testing.T) {
	checks := []core.Check{
		decided(t, "a", 10, rate.Decision{RetryAfter: 3_000_000}),
		decided(t, "b", 10, rate.Decision{Allowed: true}),
		{Rule: mustRule(t, core.RuleConfig{Name: "s", Shadow: true}), Key: "secret"},
		decided(t, "c", 10, rate.Decision{RetryAfter: 1_000_000}),
	}
	checks[0].Key = "secret"
	kind, body := Body(429, true, "", checks, &core.Verdict{Outcome: core.Reject, RetryAfter: 3_000_000})
	must.Equal(t, kind, "application/problem+json", "the content type")
	var p struct {
		Type, Title, Detail string
		Status              int
		Violated            []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatal(err)
	}
	if p.Type != QuotaExceeded || p.Status != 429 || p.Title == "" || !strings.HasSuffix(p.Detail, "Try again in 3 seconds.") {
		t.Errorf("%+v", p)
	}
	must.Equal(t, strings.Join(p.Violated, " "), "a c", "violated-policies %q, want a and c", p.Violated)
	if strings.Contains(string(body), "secret") {
		t.Error("a key is in the body")
	}
	if _, body := Body(429, true, "\"<\x00>", checks, &core.Verdict{}); !json.Valid(body) {
		t.Errorf("no JSON: %s", body)
	}
}

func TestAMessageThatIsAPageIsSentAsOne(t *testing.T) {
	const page = "<!doctype html>\n<title>Slow down</title>"
	v := &core.Verdict{RetryAfter: 5_000_000}
	for _, c := range []struct {
		message, contentType, body string
		asProblem                  bool
	}{
		{page, "text/html; charset=utf-8", page + "\n", false},
		{"  \n<p>Slow down", "text/html; charset=utf-8", "  \n<p>Slow down\n", false},
		{"Slow down: 5 < 6", "text/plain; charset=utf-8", "Slow down: 5 < 6\n", false},
	} {
		if contentType, body := Body(429, c.asProblem, c.message, nil, v); contentType != c.contentType || string(body) != c.body {
			t.Errorf("%q: %s, %q", c.message, contentType, body)
		}
		if got := NewRefusal(c.message, "r").Plain; got.ContentType != c.contentType || got.Text != c.body {
			t.Errorf("%q: %+v", c.message, got)
		}
	}
	if contentType, body := Body(429, true, page, nil, v); contentType != "application/problem+json" || strings.Contains(string(body), "doctype") || !strings.Contains(string(body), "Try again in 5 seconds.") {
		t.Errorf("as a problem: %s, %s", contentType, body)
	}
}
