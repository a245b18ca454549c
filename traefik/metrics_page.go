package traefik

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
)

// page writes the text of the metrics for all requests, one at a time, since with thousands of rules an interpreter takes a while. Requests
// that come while it is written wait, and all get the next text.
type page struct {
	asked int64 // how many times; changed with functions of sync/atomic; first, as in meter
	write func() []byte

	mu   sync.Mutex
	upTo int64 // the value of asked when writing began
	text []byte
}

// get returns a text of the metrics as of now or later. The caller must not change it.
func (p *page) get() []byte {
	turn := atomic.AddInt64(&p.asked, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.upTo < turn {
		p.upTo = atomic.LoadInt64(&p.asked)
		p.text = p.write()
	}
	text := p.text
	return text
}

// servePage answers a GET or HEAD with the metrics.
func servePage(w http.ResponseWriter, r *http.Request, p *page) {
	text := p.get()
	header := w.Header()
	header["Content-Type"] = []string{"text/plain; version=0.0.4; charset=utf-8"}
	header["Cache-Control"] = []string{"no-store"}
	header["Content-Length"] = []string{strconv.Itoa(len(text))}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // the client may be gone; there is nobody to tell
	}
}
