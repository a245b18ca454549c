package ratelimit

import (
	"fmt"
	"net/http"
	"time"

	"github.com/proxyweir/weir/core"
)

// statusClientClosedRequest is what Caddy's reverse proxy, too, logs for a client that left before it was answered.
const statusClientClosedRequest = 499

// hold waits for the turn of a request, and returns the request to go on with when it has come, else nil. A client that leaves is not
// served. When the configuration is replaced or the server shuts down, those that wait are not kept: they are answered 503, and told
// when their turn would have come.
func (h *Handler) hold(w http.ResponseWriter, r *http.Request, delay time.Duration) (passed *http.Request, err error) {
	passed = r
	if mayReadAhead(r) {
		same, ahead := core.ReadAhead(r)
		defer ahead.Stop()
		passed = same
	}
	due := time.Now().Add(delay)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return passed, nil
	case <-r.Context().Done():
		return nil, h.refuse(w, statusClientClosedRequest, r.Context().Err())
	case <-h.stopping:
	case <-h.ctx.Done():
	}
	unavailable(w, r, time.Until(due), "The server is restarting.")
	return nil, nil
}

// stops reports whether the configuration is replaced, or the server shuts down.
func (h *Handler) stops() bool {
	select {
	case <-h.stopping:
	case <-h.ctx.Done():
	default:
		return false
	}
	return true
}

// mayReadAhead reports whether another goroutine may read a request's body: whether it is one that net/http or Caddy's server has made.
// Readers that a module has put around it may act on the response as they read, such as that of request_body, where the body exceeds
// max_size. It does not where the length is announced, since a length above max_size is refused beforehand.
func mayReadAhead(r *http.Request) bool {
	switch fmt.Sprintf("%T", r.Body) {
	case "*http.body", "*http.expectContinueReader", "*caddyhttp.IdleTimeoutReader", "*caddyhttp.lengthReader":
		return true
	case "requestbody.errorWrapper":
		return r.ContentLength >= 0
	}
	return false
}
