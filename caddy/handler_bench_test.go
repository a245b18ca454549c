package ratelimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/tools/must"
)

// BenchmarkHandler shows what the handler itself costs a request, without Caddy or the network.
func BenchmarkHandler(b *testing.B) {
	for _, bm := range []struct{ name, config string }{
		{"allowed", `{"rate_limits": {"z": {"requests": 1000000000, "period": "1m"}}}`},
		{"allowed, no fields", `{"rate_limits": {"z": {"requests": 1000000000, "period": "1m"}}, "headers": ["none"]}`},
		{"allowed, no fields, adapt", `{"rate_limits": {"z": {"requests": 500000000, "period": "1m", "adapt": {"ceiling": "1000000000/1m"}}}, "headers": ["none"]}`},
		{"allowed, no fields, guard", `{"rate_limits": {"z": {"requests": 1000000000, "period": "1m"}}, "headers": ["none"], "guard": {"max": 100000}}`},
		{"guard alone", `{"guard": {"max": 100000}}`},
		{"rejected", `{"rate_limits": {"z": {"requests": 1, "period": "24h", "algorithm": "sliding_window_log"}}}`},
		{"rejected, no fields", `{"rate_limits": {"z": {"requests": 1, "period": "24h", "algorithm": "sliding_window_log"}}, "headers": ["none"]}`},
	} {
		b.Run(bm.name, func(b *testing.B) {
			handler := provisionHandler(b, bm.config)
			if zones := handler.zones; len(zones) > 0 && zones[0].instance != nil { // with another limit in force than the configured one
				must.Succeed(b, zones[0].instance.Put(&advice.Outcome{Requests: 1_000_000_000, Algorithm: "sliding_window_counter"}))
			}
			w := &discardWriter{header: make(http.Header)}
			r := requestInCaddy(w)
			next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				must.Succeed(b, handler.ServeHTTP(w, r, next))
			}
		})
	}
}

func provisionHandler(tb testing.TB, config string) *Handler {
	tb.Helper()
	ctx, err := caddy.ProvisionContext(new(caddy.Config))
	must.Succeed(tb, err)
	handler := new(Handler)
	must.Succeed(tb, json.Unmarshal([]byte(config), handler))
	must.Succeed(tb, handler.Provision(ctx))
	tb.Cleanup(func() { _ = handler.Cleanup() })
	return handler
}

// requestInCaddy returns a request with the values that Caddy's server puts into its context.
func requestInCaddy(w http.ResponseWriter) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://example.com/", nil)
	return caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, nil)
}

// discardWriter is a response writer that discards everything.
type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *discardWriter) WriteHeader(int)             {}

// BenchmarkRuleFiles shows the cost of a request under one of many rules or descriptors of files. With n clients in rotation, each
// request touches another part of the memory; so it does with a single rule.
func BenchmarkRuleFiles(b *testing.B) {
	const (
		rules       = `{"rules_files": [%q]}`
		descriptors = `{"rules_files": [%q], "descriptors": [[{"key": "client", "value": "{http.request.header.X-Client}"}]]}`
		exact       = "  - {key: client, value: client-%d, rate_limit: {unit: minute, requests_per_unit: 1000000000}}\n"
		any         = "  - {key: client, rate_limit: {unit: minute, requests_per_unit: 1000000000}} # %d\n"
		path        = "  - {name: rule-%d, match: {paths: [/client-%[1]d]}, limit: 1000000000/1m}\n"
		prefix      = "  - {name: rule-%d, match: {path_prefixes: [/client-%[1]d]}, limit: 1000000000/1m}\n"
		host        = "  - {name: rule-%d, match: {hosts: [client-%[1]d]}, limit: 1000000000/1m}\n"
		byHeader    = "  - {name: rule-%d, key: header:X-Client, limit: 1000000000/1m}\n"
	)
	for _, bm := range []struct {
		name, config, begin, line string
		n, clients                int
	}{
		{"1 descriptor", descriptors, "domain: d\ndescriptors:\n", exact, 1, 1},
		{"10000 descriptors", descriptors, "domain: d\ndescriptors:\n", exact, 10_000, 1},
		{"1 descriptor, 10000 clients", descriptors, "domain: d\ndescriptors:\n", any, 1, 10_000},
		{"10000 descriptors, 10000 clients", descriptors, "domain: d\ndescriptors:\n", exact, 10_000, 10_000},
		{"10 rules by path", rules, "rules:\n", path, 10, 1},
		{"10000 rules by path", rules, "rules:\n", path, 10_000, 1},
		{"1 rule, 10000 clients", rules, "rules:\n", byHeader, 1, 10_000},
		{"10000 rules by path, 10000 clients", rules, "rules:\n", path, 10_000, 10_000},
		{"10 rules by prefix", rules, "rules:\n", prefix, 10, 1},
		{"10000 rules by prefix", rules, "rules:\n", prefix, 10_000, 1},
		{"10 rules by host", rules, "rules:\n", host, 10, 1},
		{"10000 rules by host", rules, "rules:\n", host, 10_000, 1},
	} {
		b.Run(bm.name, func(b *testing.B) {
			file := filepath.Join(b.TempDir(), "rules.yaml")
			must.Succeed(b, os.WriteFile(file, []byte(bm.begin+lines(bm.n, bm.line)), 0o600))
			handler := provisionHandler(b, fmt.Sprintf(bm.config, file))
			w := &discardWriter{header: make(http.Header)}
			r := requestInCaddy(w)
			clients := make([]string, bm.clients)
			paths := make([]string, bm.clients)
			for i := range clients {
				clients[i] = fmt.Sprintf("client-%d", (bm.n/2+i*7919)%max(bm.n, bm.clients))
				paths[i] = "/" + clients[i]
			}
			r.Header.Set("X-Client", "")
			values := r.Header["X-Client"]
			next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				values[0], r.Host, r.URL.Path = clients[i], clients[i], paths[i]
				if i++; i == len(clients) {
					i = 0
				}
				clear(w.header)
				must.Succeed(b, handler.ServeHTTP(w, r, next))
			}
			if w.header.Get("RateLimit") == "" {
				b.Fatal("the request comes under no rule")
			}
		})
	}
}

// lines returns n lines of a format, numbered.
func lines(n int, format string) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, format, i)
	}
	return all.String()
}
