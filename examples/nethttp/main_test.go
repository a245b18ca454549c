package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"

	_ "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/redis/redistest"
)

// Days and hours, since windows of minutes might end between a request to one server and the same to the other. Names end in a number for each
// test, since Caddy keeps its counts.
const rules = `
rules:
  - {name: login-N, match: {methods: [POST], paths: [/login]}, limit: 2/24h, algorithm: token_bucket, burst: 2}
  - {name: plans-N, key: "header:X-User", tiers: {source: "header:X-Plan", limits: {gold: 1000/24h}}, limit: 3/24h, on_missing_key: skip}
  - {name: trial-N, limit: 1/1h, enforcement: shadow}
  - {name: uploads-N, match: {path_prefixes: [/upload]}, concurrency: 1}
`

// Caddy's module answers requests under the same file in the same way, status for status and field for field.
func TestItAnswersAsCaddyDoes(t *testing.T) {
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "Hello.") })
	for i, address := range []string{"", redistest.Start(t).Addr()} {
		file := filepath.Join(t.TempDir(), "limits.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(rules, "-N,", fmt.Sprintf("-%d,", i))), 0o600); err != nil {
			t.Fatal(err)
		}
		limited, err := NewLimiter(site, file, address)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(limited)
		beside := startCaddy(t, file)
		statuses := map[string]int{}
		for _, line := range []string{
			"POST /login", "POST /login", "POST /login", "POST /login Accept=application/json", "GET /login",
			"GET / X-User=a", "GET / X-User=a", "GET / X-User=a", "GET / X-User=a", "GET / X-User=b", "GET / X-User=c X-Plan=gold", "GET /", "GET /upload",
			"GET /upload X-User=a",
		} {
			ours, theirs := ask(t, server.URL, line), ask(t, beside, line)
			if ours != theirs {
				t.Errorf("store %q, %s: answers\n%s\nand Caddy answers\n%s", address, line, ours, theirs)
			}
			statuses[ours[:3]]++
		}
		if statuses["200"] != 10 || statuses["429"] != 4 {
			t.Errorf("store %q: the statuses are %v", address, statuses)
		}
		server.Close()
	}
}

func TestAFaultyFileIsRefusedWithItsPlaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte("rules:\n  - name: a\n    limit: 5/0s\n  - name: b\n    limits: 5/1s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := NewLimiter(http.NotFoundHandler(), file, "")
	if err == nil || !strings.Contains(err.Error(), "limits.yaml:3:") || !strings.Contains(err.Error(), "limits.yaml:5:") {
		t.Errorf("the error is %v", err)
	}
}

// The manual's page shows what curl shows, and names what the program uses.
func TestThePageIsAsItIs(t *testing.T) {
	page, err := os.ReadFile("../../docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## What it uses")
	for _, name := range regexp.MustCompile("`((?:[a-z]+\\.)?[A-Z]\\w+)`").FindAllStringSubmatch(table, -1) {
		if !strings.Contains(string(program), name[1]) {
			t.Errorf("docs/go.md names %s, which the program does not use", name[1])
		}
	}
	limited, err := NewLimiter(http.NotFoundHandler(), "../rules/limits.yaml", "")
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for _, found := range regexp.MustCompile(`(?m)^\$ curl -si (-X POST )?http://127.0.0.1:8080(\S+) .*\nHTTP/1.1 200 OK\n([^$`+"`"+`]*)`).FindAllStringSubmatch(string(page), -1) {
		played++
		method := http.MethodGet
		if found[1] != "" {
			method = http.MethodPost
		}
		w := httptest.NewRecorder()
		limited.ServeHTTP(w, httptest.NewRequest(method, found[2], http.NoBody))
		if got := fmt.Sprintf("X-Ratelimit-Limit: %s\nX-Ratelimit-Remaining: %s\n", w.Header().Get("X-Ratelimit-Limit"), w.Header().Get("X-Ratelimit-Remaining")); got != found[3] {
			t.Errorf("docs/go.md: %s %s answers\n%snot\n%s", method, found[2], got, found[3])
		}
	}
	if played != 2 {
		t.Errorf("docs/go.md has %d requests", played)
	}
}

// times matches waits and periods: a second may pass between two requests.
var times = regexp.MustCompile(`\d{4,}`)

// startCaddy starts Caddy with a rule file, and returns its URL.
func startCaddy(t *testing.T, file string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	config := fmt.Sprintf(`{"admin": {"disabled": true}, "logging": {"logs": {"default": {"level": "ERROR"}}}, "apps": {"http": {"servers": {"s": {"listen": [%q],
		"automatic_https": {"disable": true}, "routes": [{"handle": [{"handler": "rate_limit", "rules_files": [%q]}, {"handler": "static_response", "body": "Hello."}]}]}}}}}`, address, file)
	if err := caddy.Load([]byte(config), true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caddy.Stop() })
	return "http://" + address
}

// ask sends a request, such as "GET /path Field=value", and returns the answer without what depends on the server and the time.
func ask(t *testing.T, server, line string) string {
	parts := strings.Fields(line)
	r, err := http.NewRequest(parts[0], server+parts[1], http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range parts[2:] {
		name, value, _ := strings.Cut(field, "=")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Date", "Server", "Content-Type"} {
		if name != "Content-Type" || response.StatusCode == http.StatusOK { // net/http guesses it
			response.Header.Del(name)
		}
	}
	var text strings.Builder
	fmt.Fprintln(&text, response.StatusCode)
	_ = response.Header.Write(&text)
	return times.ReplaceAllString(text.String()+string(body), "T")
}
