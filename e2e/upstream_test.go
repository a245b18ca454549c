package e2e

import (
	"net/http"
	"net/http/httptest"
	"sync"
)

// backend is the server behind Traefik. It answers 200, unless a test has its own handler for its host, and counts requests.
type backend struct {
	*httptest.Server
	url      string
	mu       sync.Mutex
	counts   map[string]int // by host and path
	handlers map[string]http.HandlerFunc
}

// upstream is the backend of all tests.
var upstream = func() *backend {
	b := &backend{counts: make(map[string]int), handlers: make(map[string]http.HandlerFunc)}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(b.serve))
	b.Config.Protocols = new(http.Protocols)
	b.Config.Protocols.SetHTTP1(true)
	b.Config.Protocols.SetUnencryptedHTTP2(true)
	b.Start()
	b.url = b.Server.URL
	return b
}()

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	b.counts[r.Host+r.URL.Path]++
	handler := b.handlers[r.Host]
	b.mu.Unlock()
	if handler != nil {
		handler(w, r)
		return
	}
	_, _ = w.Write([]byte("ok"))
}

// handle sets the handler for a host; nil restores the backend's own answer.
func (b *backend) handle(host string, handler http.HandlerFunc) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if handler == nil {
		delete(b.handlers, host)
		return
	}
	b.handlers[host] = handler
}

// reached returns how many requests have come for a host and path.
func (b *backend) reached(host, path string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[host+path]
}
