package ratelimit

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/front"
)

// statusClientClosedRequest is what Caddy's reverse proxy, too, logs for a client that left before it was answered.
const statusClientClosedRequest = 499

// hold waits for the turn of a request, and reports whether it has come. If not, the request has been answered, or the error is. A client that leaves is not
// served. When the configuration is replaced or the server shuts down, those that wait are not kept: they are answered 503, and told
// when their turn would have come.
func (h *Handler) hold(w http.ResponseWriter, r *http.Request, delay time.Duration) (come bool, err error) {
	defer readAhead(r).Stop()
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

// readAhead begins to read the body of a request that waits, if another goroutine may: if net/http or Caddy's server has made its
// reader. Readers that a module has put around it may act on the response as they read, such as that of request_body where the body
// exceeds max_size. (It does not where the length is announced, since a length above max_size is refused beforehand.)
//
// A server with an access log counts a body's bytes with a reader that has no lock, and logs the count even while a read lasts. So what
// is read ahead is put beneath that reader, which then counts what the service gets. Beneath request_body it cannot be reached.
//
// The request stays the same, since Caddy's placeholders are of the one that it has made. It is not net/http's own.
func readAhead(r *http.Request) *front.Ahead {
	switch fmt.Sprintf("%T", r.Body) {
	case "*http.body", "*http.expectContinueReader", "*caddyhttp.IdleTimeoutReader":
	case "requestbody.errorWrapper":
		server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
		if !ok || server.Logs != nil || r.ContentLength < 0 {
			return nil
		}
	case "*caddyhttp.lengthReader":
		counted := r.Body
		source := reflect.ValueOf(counted).Elem().FieldByName("Source")
		body, ok := source.Interface().(io.ReadCloser)
		if !ok {
			return nil
		}
		r.Body = body
		defer func() {
			source.Set(reflect.ValueOf(r.Body))
			r.Body = counted
		}()
	default:
		return nil
	}
	same, ahead := front.ReadAhead(r)
	r.Body = same.Body
	r.Trailer = same.Trailer
	return ahead
}
