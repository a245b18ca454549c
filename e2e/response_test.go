package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// On a first request, the fields of a bucket, and of a log with a period below 35 minutes, are exact.
func TestResponsesHaveTheQuotaFields(t *testing.T) {
	const rules = `
		rules:
		  - {name: bucket, algorithm: token_bucket, limit: 2/1h, burst: 5}
		  - {name: log, algorithm: sliding_window_log, limit: 2/30m}
		  - {name: short, match: {paths: [/short]}, algorithm: token_bucket, limit: 1/1500ms, burst: 1001}
		  - {name: unseen, enforcement: shadow, limit: 1/1h}`
	s := limited(t, rules)
	s.admit(1, "/").want(t,
		"X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1800", // the log is stricter
		"RateLimit", `"bucket";r=4;t=1800, "log";r=1;t=1800`, "RateLimit-Policy", `"bucket";q=5;w=9000, "log";q=2;w=1800`, "Retry-After", "-", "Cache-Control", "-")
	s = limited(t, rules+"\n\t\theaders: [ietf]")
	s.admit(1, "/short").want(t, "X-RateLimit-Limit", "-", // no w if a burst is not refilled in whole seconds
		"RateLimit", `"bucket";r=4;t=1800, "log";r=1;t=1800, "short";r=1000;t=2`, "RateLimit-Policy", `"bucket";q=5;w=9000, "log";q=2;w=1800, "short";q=1001`)
}

func TestFieldsHaveTheFormThatIsConfigured(t *testing.T) {
	for _, rules := range []string{"limit: 1/30m, algorithm: sliding_window_log", "rules: [{name: a, limit: 1/30m, algorithm: sliding_window_log}, {name: b, limit: 9/1h, algorithm: sliding_window_log}]"} {
		s := limited(t, "{headerPrefix: X-Acme, headerReset: epoch, "+rules+"}")
		begun := int(time.Now().Unix())
		r := s.admit(1, "/")
		r.want(t, "X-Acme-Limit", "1", "X-Acme-Remaining", "0", "X-RateLimit-Limit", "-", "X-RateLimit-Reset", "-")
		r.number(t, "X-Acme-Reset", begun+1800, begun+1900)
		r = s.reject("/")
		r.want(t, "X-Acme-Retry-After", r.header.Get("Retry-After"), "X-RateLimit-Retry-After", "-")
		r.number(t, "X-Acme-Reset", begun+1800, begun+1900)
	}
}

func TestARejectionSaysWhenToTryAgain(t *testing.T) {
	s := limited(t, "{name: hourly, limit: 1/1h, algorithm: token_bucket}")
	s.admit(1, "/")
	r := s.reject("/")
	wait := r.number(t, "Retry-After", 3500, 3600)
	r.want(t,
		"X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Retry-After", fmt.Sprint(wait),
		"RateLimit", fmt.Sprintf(`"hourly";r=0;t=%d`, wait), "RateLimit-Policy", `"hourly";q=1;w=3600`,
		"Cache-Control", "no-store", "Content-Type", "text/plain; charset=utf-8")
	if want := fmt.Sprintf("Too many requests: you have used up what you may send for now. Try again in %d seconds.\n", wait); r.body != want {
		t.Errorf("body %q, want %q", r.body, want)
	}
	s.reject("HEAD /")
}

func TestTheBackendsOwnFieldsStay(t *testing.T) {
	for headers, want := range map[string][]string{
		"none":        {"X-RateLimit-Limit", "999", "RateLimit", `"theirs";r=998;t=5`, "Retry-After", "7"},
		"x_ratelimit": {"X-RateLimit-Limit", "2 & 999", "RateLimit", `"theirs";r=998;t=5`, "Retry-After", "7"},
	} {
		t.Run(headers, func(t *testing.T) {
			s := limited(t, "{limit: 2/366d, headers: ["+headers+"]}")
			upstream.handle(s.host(), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-RateLimit-Limit", "999")
				w.Header().Set("RateLimit", `"theirs";r=998;t=5`)
				w.Header().Set("Retry-After", "7")
			})
			s.admit(1, "/").want(t, want...)
		})
	}
}

func TestAGRPCCallGetsAGRPCStatus(t *testing.T) {
	s := limited(t, "limit: 1/366d")
	for i := range 2 {
		r := s.overHTTP2().admit(1, "POST /package.Service/Method", "Content-Type", "application/grpc+proto", "Te", "trailers")
		if i == 0 {
			r.want(t, "Grpc-Status", "-")
			continue
		}
		r.want(t, "Grpc-Status", "8", "Content-Type", "application/grpc")
		r.number(t, "Retry-After", 1, 366*86400)
		must.Equal(t, r.body, "", "body %q, want none", r.body)
	}
	s.reject("/") // a client that does not speak gRPC gets an HTTP status
}

// The values of keys are private to the clients.
func TestNoKeyIsInAHeaderOrTheLog(t *testing.T) {
	const secret = "sekretkey4711"
	s := limited(t, "{limit: 1/366d, key: [header:X-Key], logLevel: debug}")
	s.admit(1, "/", "X-Key", secret)
	r := s.reject("/", "X-Key", secret)
	if strings.Contains(fmt.Sprint(r.header)+r.body, secret) {
		t.Errorf("%v %q has the key", r.header, r.body)
	}
	for _, e := range s.log() {
		if strings.Contains(e.raw, secret) {
			t.Errorf("the log has the key: %s", e.raw)
		}
	}
}
