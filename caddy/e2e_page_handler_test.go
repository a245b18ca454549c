package ratelimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// raw sends a request line as it is, without what a client does to paths. It returns the status and the body.
func (s *server) raw(line string) (int, string) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	if _, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", line, s.addr); err != nil {
		s.t.Fatal(err)
	}
	method, _, _ := strings.Cut(line, " ")
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	return answer.StatusCode, string(body)
}

// secretSite has a secret in its configuration, which the admin API gives to whom reaches /config/.
const secretSite = `:PORT {
	header X-Secret s3cr3t
	%s
	rate_limit /limited 5/1h
	respond /limited ok
}`

// Defect found: the recipe that the manual had, `reverse_proxy /rate_limit/* localhost:2019`, forwarded whatever a path such as
// /rate_limit/id/x/..%2f..%2fconfig is after decoding. Only the path matcher, and how the admin endpoint cleans paths, kept it from the
// configuration. It also forwarded all methods, and other modules' endpoints below /rate_limit/.
func TestThePageOfASiteReachesNoOtherPartOfTheAdminAPI(t *testing.T) {
	a := startAdmin(t, "", fmt.Sprintf(secretSite, "rate_limit_page"))
	for _, path := range []string{
		"/rate_limit/id/x/..%2f..%2fconfig", "/rate_limit/..%2fconfig/", "/rate_limit/..%2Fconfig", "/rate_limit/%2e%2e/config/", "/rate_limit/%2E%2E/config",
		"/rate_limit/../config/", "/rate_limit/../../config/", "/rate_limit//config/", "//config/", "/rate_limit/./../config/", "/rate_limit/..%5cconfig/",
		"/rate_limit/..\\config/", "/rate_limit/..;/config/", "/rate_limit/%252e%252e/config/", "/rate_limit/rules/../../config/", "/rate_limit/rules%2f..%2f..%2fconfig",
		"/rate_limit%2f..%2fconfig/", "/rate_limit/config/", "/config/", "/id/x", "/adapt", "/stop", "/debug/pprof/", "/metrics", "/reverse_proxy/upstreams",
		"http://localhost:2019/config/", "http://localhost:2019/rate_limit/..%2fconfig",
		"/RATE_LIMIT/RULES", "/rate_limit/Rules", "/Rate_Limit/", "/rate_limit//rules", "//rate_limit/rules", "/rate_limit/./rules", "/rate_limit/rules/",
		"/rate_limit/%72ules", "/rate_limit/rules;x", "/rate_limit/deferred//job", "/rate_limit/deferred%2fjob", "/rate_limit/echo_for_tests",
	} {
		status, body := a.raw("GET " + path)
		if strings.Contains(body, "s3cr3t") || strings.Contains(body, `"apps"`) || strings.Contains(body, `"rules"`) {
			t.Errorf("%s: status %d, with what nobody may read: %.200s", path, status, body)
		}
		if strings.HasPrefix(path, "/rate_limit/") && status != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404: %.200s", path, status, body)
		}
	}
}

func TestThePageOfASiteReadsAndChangesNothing(t *testing.T) {
	s := start(t, "", fmt.Sprintf(secretSite, "rate_limit_page"))
	for path, want := range map[string]string{
		"/rate_limit/":                   `<html lang="en" class="read-only">`,
		"/rate_limit/rules":              `"limit":"5/1h"`,
		"/rate_limit/health":             `"stores":`,
		"/rate_limit/deferred":           `"queues":[]`,
		"/rate_limit/key?key=192.0.2.7":  `"remaining":5`,
		"/rate_limit/top?rule=nosuch":    `there is none of that name`,
		"/rate_limit/deferred/job?id=x":  `no zone defers`,
		"/rate_limit/advice":             `error`,
		"/rate_limit/rules?parameter=no": `takes none`,
	} {
		status, body := s.raw("GET " + path)
		if !strings.Contains(body, want) || status == http.StatusMethodNotAllowed {
			t.Errorf("%s: status %d, want %s: %.300s", path, status, want, body)
		}
		if headStatus, headBody := s.raw("HEAD " + path); headStatus != status || headBody != "" {
			t.Errorf("HEAD %s: status %d, want %d, and %q", path, headStatus, status, headBody)
		}
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECTED", "get"} {
			if status, body := s.raw(method + " " + path); status != http.StatusMethodNotAllowed || !strings.Contains(body, "takes GET and HEAD") {
				t.Errorf("%s %s: status %d, want 405: %.200s", method, path, status, body)
			}
		}
	}
	for _, name := range []string{"reset", "block", "unblock", "freeze", "revert", "explain", "deferred/retry", "deferred/cancel", "deferred/drain", "deferred/purge", "deferred/export"} {
		if status, body := s.raw("GET /rate_limit/" + name); status != http.StatusNotFound {
			t.Errorf("GET %s: status %d, want 404: %.200s", name, status, body)
		}
		if status, body := s.raw("POST /rate_limit/" + name); status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: status %d, want 405: %.200s", name, status, body)
		}
	}
	s.do("/rate_limit").want(t, "Location", "rate_limit/")
	s.do("/rate_limit/rules").want(t, "Content-Type", "application/json", "Cache-Control", "no-store", "Cross-Origin-Resource-Policy", "same-origin", "X-Content-Type-Options", "nosniff")
	s.do("/rate_limit/nosuch").want(t, "Content-Type", "application/json", "Cross-Origin-Resource-Policy", "same-origin")
	if r := s.do("/limited"); r.body != "ok" {
		t.Errorf("a request that is none of the page's does not reach the site: %d %s", r.status, r.body)
	}
}

func TestWhatStandsInFrontOfThePageOfASiteKeepsClientsOut(t *testing.T) {
	for name, front := range map[string]string{
		"a login":              "rate_limit_page\nbasic_auth {\nops $2a$14$9lVQeTx2BzCYVZmO5J7mWuV1vkMCx5hFDSTAmqFvCi0cFQIBF1bEO\n}",
		"a login for its path": "rate_limit_page\nbasic_auth /rate_limit* {\nops $2a$14$9lVQeTx2BzCYVZmO5J7mWuV1vkMCx5hFDSTAmqFvCi0cFQIBF1bEO\n}",
		"a matcher":            "@inside remote_ip 192.0.2.0/24\nrate_limit_page @inside",
		"an answer to others":  "rate_limit_page\n@outside not remote_ip 192.0.2.0/24\nrespond @outside 403",
		"an error for others":  "rate_limit_page\n@outside not remote_ip 192.0.2.0/24\nerror @outside 403",
		"another site's block": "handle_path /ops/* {\nrate_limit_page\n}",
	} {
		s := start(t, "", fmt.Sprintf(secretSite, front))
		for _, path := range []string{"/rate_limit/", "/rate_limit/rules", "/rate_limit/nosuch", "/rate_limit"} {
			if status, body := s.raw("GET " + path); strings.Contains(body, `"rules"`) || strings.Contains(body, "read-only") || strings.Contains(body, "the page is at") || status == http.StatusFound {
				t.Errorf("%s: %s: status %d: %.200s", name, path, status, body)
			}
		}
		if strings.Contains(front, "/ops/") {
			if status, body := s.raw("GET /ops/rate_limit/rules"); status != http.StatusOK || !strings.Contains(body, `"rules"`) {
				t.Errorf("behind handle_path: status %d: %.200s", status, body)
			}
		}
	}
}

func TestExplainKnowsThePageOfASite(t *testing.T) {
	a := startAdmin(t, "", ":PORT {\nroute {\nrate_limit_page\nrate_limit 5/1h\nrespond ok\n}\n}")
	_, port, _ := net.SplitHostPort(a.addr)
	for path, want := range map[string]int{"/rate_limit/rules": 0, "/other": 1} {
		answer := a.ask("explain", `{"url": "http://localhost:`+port+path+`", "client_ip": "192.0.2.7"}`)
		if got := len(at(t, answer, "handlers").([]any)); got != want {
			t.Errorf("%s: %d handlers, want %d: %v", path, got, want, answer)
		}
	}
}
