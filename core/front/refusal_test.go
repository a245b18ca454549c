package front

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func TestJitterAddsToAWaitUpToItsFraction(t *testing.T) {
	seen := make(map[int64]bool)
	for i := 0; i < 200; i++ {
		wait := Jittered(1_000_000, 0.5)
		if wait < 1_000_000 || wait > 1_500_000 {
			t.Fatal(wait)
		}
		seen[wait] = true
	}
	if len(seen) < 2 {
		t.Error("all waits are alike")
	}
	if Jittered(7, 0) != 7 || Jittered(rate.Never, 0.5) != rate.Never || Jittered(0, 0.5) != 0 {
		t.Error("a wait has changed that has nothing to add to")
	}
}

// What a client is told is never too early, and always the same for its key; and what keys are told is spread over the rule's jitter.
func TestEachKeyIsToldATimeOfItsOwn(t *testing.T) {
	half := 0.5
	limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: 20 * time.Second})
	must.Succeed(t, err)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, oneKey := range []bool{false, true} {
		rule, err := core.NewRule(core.RuleConfig{Name: "r", Limit: limit, Jitter: &half, OverflowPolicy: core.OverflowPolicy{OneKey: oneKey}})
		must.Succeed(t, err)
		seconds := make([]int, 10)
		for i := 0; i < 1000; i++ {
			key := strconv.Itoa(i)
			if oneKey {
				key = "all"
				r.RemoteAddr = "192.0.2.1:" + strconv.Itoa(i)
			}
			set := &Set{JittersReset: true}
			q := &Evaluation{Set: set, Checks: []core.Check{{Rule: rule, Key: key}}, Verdict: core.Verdict{Outcome: core.Reject, RetryAfter: 7_000_000}}
			q.Checks[0].Decision = rate.Decision{RetryAfter: 7_000_000, ResetAfter: 7_000_000, MoreAfter: 0}
			SetLater(q, r, 0.2) // the rule's own goes before the proxy's
			wait := q.Verdict.RetryAfter
			must.Equal(t, q.Checks[0].Decision.ResetAfter, wait, "reset")
			must.Equal(t, q.Checks[0].Decision.MoreAfter, int64(0), "more")
			must.Equal(t, WaitOf(3_000_000, rule, key, r, -1)+4_000_000, wait, "the same instant, told later")
			seconds[(wait-7_000_000)/1_000_000]++
		}
		for second, n := range seconds {
			must.Equal(t, n > 50 && n < 150, true, "of 1000 in second", second, "are", n)
		}
		must.Equal(t, WaitOf(rate.Never, rule, "a", r, -1), rate.Never, "what is never allowed")
	}
	exact, err := core.NewRule(core.RuleConfig{Name: "r", Limit: limit})
	must.Succeed(t, err)
	must.Equal(t, WaitOf(7_000_000, exact, "a", r, -1), int64(7_000_000), "without any jitter")
	must.Equal(t, WaitOf(7_000_000, exact, "a", r, 0.5) > 7_000_000, true, "with the proxy's")
}

func TestRefusalsAreWrittenAsTheirClientsReadThem(t *testing.T) {
	never := core.Verdict{Outcome: core.Reject, Reported: -1, RetryAfter: rate.Never}
	for _, c := range []struct {
		name             string
		grpc, reject     bool
		lacking          bool
		message          string
		status           int
		body, grpcStatus string
	}{
		{"over a limit", false, true, false, "", 429, "This request is over its limit, and waiting does not change that.\n", ""},
		{"without a key", false, true, true, "", 429, "This request lacks what its limit tells clients apart by.\n", ""},
		{"with a message", false, true, true, "Slow down.", 429, "Slow down.\n", ""},
		{"over a limit of a gRPC call", true, true, true, "Slow down.", 200, "", "8"},
		{"unavailable", false, false, false, CannotCheck, 503, "The rate limit cannot be checked. Try again.\n", ""},
		{"unavailable to a gRPC call", true, false, false, CannotCheck, 200, "", "14"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		if c.grpc {
			r.ProtoMajor = 2
			r.Header.Set("Content-Type", "application/grpc")
		}
		w := httptest.NewRecorder()
		retry := ""
		if c.reject {
			Reject(w, r, &Evaluation{Lacking: c.lacking, Verdict: never}, c.message, nil)
		} else {
			Unavailable(w, r, 1_200_000, c.message)
			retry = "2"
		}
		if w.Code != c.status || w.Body.String() != c.body || w.Header().Get("Grpc-Status") != c.grpcStatus || w.Header().Get("Retry-After") != retry {
			t.Errorf("%s: %d %v %q", c.name, w.Code, w.Header(), w.Body.String())
		}
	}
}

// A path in which a client leaves the first values empty would begin with two slashes, and so with a host.
func TestARedirectToAPathStaysOnTheSite(t *testing.T) {
	limit, err := rate.NewLimit(rate.LimitConfig{Requests: 1, Period: time.Hour})
	must.Succeed(t, err)
	value := ""
	fill := func(text string, escape func(string) string) string {
		return strings.NewReplacer("{a}", "", "{b}", escape(value)).Replace(text)
	}
	for _, c := range []struct{ redirect, value, want string }{
		{"/{a}/{b}", "evil.example", "/evil.example"},
		{"/{a}/{a}/{b}", "evil.example", "/evil.example"},
		{"/{b}", "/evil.example", "/%2Fevil.example"},
		{"https://example.com/{a}/{b}", "x", "https://example.com//x"},
	} {
		value = c.value
		rule, err := core.NewRule(core.RuleConfig{Name: "a", Limit: limit, Answer: &core.Answer{Status: 302, Location: c.redirect}})
		must.Succeed(t, err)
		q := &Evaluation{Verdict: core.Verdict{Outcome: core.Reject, RetryAfter: 1_000_000}, Checks: []core.Check{{Rule: rule}}}
		w := httptest.NewRecorder()
		Reject(w, httptest.NewRequest(http.MethodGet, "/", nil), q, "", fill)
		if got := w.Header().Get("Location"); got != c.want {
			t.Errorf("%s with %q: %s, not %s", c.redirect, c.value, got, c.want)
		}
	}
}

// The text is the reported rule's, else the configuration's, and its placeholders are replaced.
func TestARejectionHasTheTextOfItsRule(t *testing.T) {
	limit, err := rate.NewLimit(rate.LimitConfig{Requests: 1, Period: time.Hour})
	must.Succeed(t, err)
	rule := func(message string) *core.Rule {
		made, err := core.NewRule(core.RuleConfig{Name: "a", Limit: limit, Message: message})
		must.Succeed(t, err)
		return made
	}
	fill := func(text string, _ func(string) string) string { return strings.Replace(text, "{who}", "you", -1) }
	for _, c := range []struct {
		rules       []string
		quotaFields int
		fill        Fill
		body        string
	}{
		{[]string{"First, {who}.", "Second, {who}."}, 1, fill, "Second, you.\n"},
		{[]string{"First, {who}.", ""}, 1, fill, "Any, you.\n"},
		{[]string{"First, {who}.", ""}, 0, nil, "First, {who}.\n"},
	} {
		q := &Evaluation{}
		for _, message := range c.rules {
			q.Checks = append(q.Checks, core.Check{Rule: rule(message)})
		}
		q.Verdict = core.Verdict{Outcome: core.Reject, Reported: c.quotaFields, RetryAfter: 1_000_000}
		w := httptest.NewRecorder()
		Reject(w, httptest.NewRequest(http.MethodGet, "/", nil), q, "Any, {who}.", c.fill)
		must.Equal(t, w.Body.String(), c.body, "%v: body", c)
	}
}
