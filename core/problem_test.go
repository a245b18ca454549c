package core

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
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
		if got := WantsProblem(http.Header{"Accept": c.accept}); got != c.want {
			t.Errorf("Accept %q: %v", c.accept, got)
		}
	}
}

func TestACallIsGRPCAsItsProtocolSays(t *testing.T) {
	for _, c := range []struct {
		method, kind string
		major        int
		want         bool
	}{
		{"POST", "application/grpc", 2, true},
		{"POST", "application/grpc+proto", 2, true},
		{"POST", "Application/GRPC; charset=utf-8", 3, true},
		{"POST", "application/grpc-web+proto", 2, false},
		{"POST", "application/grpcwhatever", 2, false},
		{"POST", "application/json", 2, false},
		{"POST", "", 2, false},
		{"GET", "application/grpc", 2, false},
		{"POST", "application/grpc", 1, false},
	} {
		r := &http.Request{Method: c.method, ProtoMajor: c.major, Header: http.Header{"Content-Type": {c.kind}}}
		if IsGRPC(r) != c.want {
			t.Errorf("%s with %q over HTTP/%d: gRPC must be %v", c.method, c.kind, c.major, c.want)
		}
	}
	if IsGRPC(&http.Request{Method: "POST", ProtoMajor: 2}) {
		t.Error("without a Content-Type it is no gRPC")
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
		{"", Never, "This request is over its limit, and waiting does not change that.\n"},
		{"Slow down.", 1, "Slow down.\n"},
	} {
		kind, body := Body(false, c.message, nil, &Verdict{Outcome: Reject, RetryAfter: c.retry})
		if string(body) != c.want || kind != "text/plain; charset=utf-8" {
			t.Errorf("%q of %q, want %q", body, kind, c.want)
		}
	}
}

func TestProblemNamesTheRulesThatRejected(t *testing.T) {
	checks := []Check{
		decided(t, "a", 10, Decision{RetryAfter: 3_000_000}),
		decided(t, "b", 10, Decision{Allowed: true}),
		{Rule: mustRule(t, RuleConfig{Name: "s", Shadow: true}), Key: "secret"},
		decided(t, "c", 10, Decision{RetryAfter: 1_000_000}),
	}
	checks[0].Key = "secret"
	kind, body := Body(true, "", checks, &Verdict{Outcome: Reject, RetryAfter: 3_000_000})
	if kind != "application/problem+json" {
		t.Errorf("the content type is %q", kind)
	}
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
	if strings.Join(p.Violated, " ") != "a c" {
		t.Errorf("violated-policies %q, want a and c", p.Violated)
	}
	if strings.Contains(string(body), "secret") {
		t.Error("a key is in the body")
	}
	if _, body := Body(true, "\"<\x00>", checks, &Verdict{}); !json.Valid(body) {
		t.Errorf("no JSON: %s", body)
	}
}
