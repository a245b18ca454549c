package ratelimit

import (
	"net/http"
	"time"
)

// statusClientClosedRequest is what Caddy's reverse proxy, too, logs for a client that left before it was answered.
const statusClientClosedRequest = 499

// hold waits for the turn of a request in a leaky bucket, and returns true when it has come. A client that leaves gives its
// place up: it is not served, and its slot stays used. (net/http notices one over HTTP/1 only when it has no body that is
// still to be read; what has one waits its turn in any case, which is at most max_delay.) When the configuration is replaced or the server shuts down, those
// that wait are not kept: they are answered 503, and told when their turn would have come.
func (h *Handler) hold(w http.ResponseWriter, r *http.Request, delay time.Duration) (passed bool, err error) {
	due := time.Now().Add(delay)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-r.Context().Done():
		return false, h.refuse(w, statusClientClosedRequest, r.Context().Err())
	case <-h.stopping:
	case <-h.ctx.Done():
	}
	unavailable(w, r, time.Until(due), "The server is restarting.")
	return false, nil
}
