package ratelimit

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// BenchmarkHandler shows what the handler itself costs a request, without Caddy and the network around it.
func BenchmarkHandler(b *testing.B) {
	for _, bm := range []struct{ name, config string }{
		{"allowed", `{"rate_limits": {"z": {"requests": 1000000000, "period": "1m"}}}`},
		{"allowed, no fields", `{"rate_limits": {"z": {"requests": 1000000000, "period": "1m"}}, "headers": ["none"]}`},
		{"rejected", `{"rate_limits": {"z": {"requests": 1, "period": "24h", "algorithm": "sliding_window_log"}}}`},
		{"rejected, no fields", `{"rate_limits": {"z": {"requests": 1, "period": "24h", "algorithm": "sliding_window_log"}}, "headers": ["none"]}`},
	} {
		b.Run(bm.name, func(b *testing.B) {
			handler := provisionHandler(b, bm.config)
			w := &discardWriter{header: make(http.Header)}
			r := requestInCaddy(w)
			next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				if err := handler.ServeHTTP(w, r, next); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func provisionHandler(tb testing.TB, config string) *Handler {
	tb.Helper()
	ctx, err := caddy.ProvisionContext(new(caddy.Config))
	if err != nil {
		tb.Fatal(err)
	}
	handler := new(Handler)
	if err := json.Unmarshal([]byte(config), handler); err != nil {
		tb.Fatal(err)
	}
	if err := handler.Provision(ctx); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = handler.Cleanup() })
	return handler
}

// requestInCaddy returns a request with what Caddy's server puts into its context.
func requestInCaddy(w http.ResponseWriter) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://example.com/", nil)
	return caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, nil)
}

// discardWriter is a response that nobody reads.
type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *discardWriter) WriteHeader(int)             {}
