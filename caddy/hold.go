package ratelimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/core"
)

// statusClientClosedRequest is what Caddy's reverse proxy, too, logs for a client that left before it was answered.
const statusClientClosedRequest = 499

// hold waits for the turn of a request in a leaky bucket, and returns true when it has come. A client that leaves gives its
// place up: it is not served, and its slot stays used. When the configuration is replaced or the server shuts down, those
// that wait are not kept: they are answered 503, and told when their turn would have come.
func (h *Handler) hold(w http.ResponseWriter, r *http.Request, delay time.Duration) (passed bool, err error) {
	due := time.Now().Add(delay)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-r.Context().Done():
		return false, caddyhttp.HandlerError{StatusCode: statusClientClosedRequest, Err: r.Context().Err()}
	case <-h.stopping:
	case <-h.ctx.Done():
	}
	header := w.Header()
	header.Set("Retry-After", strconv.FormatInt(core.RetrySeconds(time.Until(due).Microseconds()), 10))
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte("The server is restarting. Try again.\n"))
	return false, nil
}
