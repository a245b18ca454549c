package ratelimit

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/meter"
	"github.com/proxyweir/weir/core/metrics"
)

// serveUnderWay serves a request that was admitted and has reserved something: a place in the queue, where it waits, a place among
// the requests in flight, or a charge that depends on the response's status. It settles or cancels these reservations in every
// case.
func (h *Handler) serveUnderWay(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, q *front.Evaluation, of protect.Asker) error {
	reservations := core.AppendReservations(nil, q.Checks)
	delay := q.Verdict.Delay
	front.Free(q)
	if delay > 0 {
		h.app.line.enter()
		come, err := h.wait(w, r, time.Duration(delay)*time.Microsecond)
		if !come {
			h.limiter.TakeBack(reservations)
			h.app.line.leave()
			if h.stops() {
				h.app.line.awaitEmpty()
			}
			return err
		}
		h.app.line.leave()
		h.limiter.Depart(reservations)
		of.At = 0
	}
	if !core.UnderWay(reservations) {
		return h.guarded.Admit(w, r, next, of)
	}
	status := http.StatusInternalServerError // for a handler that panics
	var costs *meter.Meter
	if slices.ContainsFunc(reservations, watched) {
		costs = meter.Of(reservations, r.Method)
	}
	defer func() {
		if costs != nil {
			costs.End(w.Header())
			h.measure(costs, reservations, status)
		}
		h.limiter.Settle(reservations, status)
	}()
	if !core.ByResponse(reservations) {
		return h.guarded.Admit(w, r, next, of)
	}
	first := 0                                        // the first final status; 0: the client has got none yet
	defer func() { status = cmp.Or(first, status) }() // a status may come before a panic, or before an error
	var told http.ResponseWriter = protect.NewWriter(w, func(status int) { first = cmp.Or(first, status) })
	if costs != nil {
		told = meter.NewWriter(told, costs)
	}
	err := h.guarded.Admit(told, r, next, of)
	status = protect.StatusOf(err)
	return err
}

// watched reports whether more of the response than its status decides what the request is charged.
func watched(r core.Reservation) bool { return r.Rule.Watches() }

// measure notes what the response says that the request has cost.
func (h *Handler) measure(costs *meter.Meter, reservations []core.Reservation, status int) {
	source := 0
	for i := range reservations {
		r := &reservations[i]
		if !r.Rule.Measures() {
			continue
		}
		units, known := costs.Cost(source)
		source++
		metrics.Measure(r.Rule.Noted().(*report.Reporter).Stats.Meter, r, units, known, status)
		if !known && costs.Encoded() && h.encoded.CompareAndSwap(false, true) {
			h.logger.Warn("a response that says what its request has cost came compressed, and was charged the rule's cost instead: write encode in front of rate_limit, in a route block; "+
				"if the service itself compresses, write header_up Accept-Encoding identity into reverse_proxy",
				zap.String("at", h.At), zap.String("cost_response", r.Rule.Overflow.Response.String()))
		}
	}
}

// wait waits until a request's reservation is due, and reports whether it is. If not, wait has answered the request, or returns the
// error for it. A client that leaves is not served. When the configuration is replaced or the server shuts down, waiting requests
// are answered at once with a 503, and a Retry-After that says when their reservations would have been due.
func (h *Handler) wait(w http.ResponseWriter, r *http.Request, delay time.Duration) (come bool, err error) {
	defer readAhead(r).Stop()
	due := time.Now().Add(delay)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-r.Context().Done():
		return false, h.errors.Refuse(w, front.StatusClientClosedRequest, r.Context().Err())
	case <-h.stopping:
	case <-h.ctx.Done():
	}
	front.Unavailable(w, r, time.Until(due).Microseconds(), "The server is restarting.")
	return false, nil
}

// stops reports whether the configuration is being replaced, or the server is shutting down.
func (h *Handler) stops() bool {
	select {
	case <-h.stopping:
	case <-h.ctx.Done():
	default:
		return false
	}
	return true
}

// readAhead begins to read the body of a waiting request, if another goroutine may read it: if net/http or Caddy's server has made
// the body's reader. Readers that modules add may act on the response while they read. The one of request_body does so when the
// body exceeds max_size. (It does not if the length is announced, since a length above max_size is refused before.)
//
// A server with an access log counts a body's bytes in a reader without a lock, and may log the count during a read. So readAhead
// inserts itself beneath that reader, which then counts what the service reads. It cannot insert itself beneath the reader of
// request_body.
//
// The request stays the same object, since Caddy's placeholders refer to the one that Caddy has made, which is not net/http's own.
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

// respecting returns a handler that passes a request on to next, and pauses the keys of its checks if the response asks for it: see respect_upstream. A request
// that waits until then, and whose key is paused meanwhile, is told to come later.
func (h *Handler) respecting(next caddyhttp.Handler, q *front.Evaluation) caddyhttp.Handler {
	respected, waits := front.Respected(q.Checks), q.Verdict.Delay > 0
	return caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		if waits {
			if wait := front.PausedFor(h.limiter.Limiter, respected); wait > 0 {
				front.Unavailable(w, r, wait, front.ServiceAsks)
				return nil
			}
		}
		return next.ServeHTTP(protect.NewWriter(w, func(status int) {
			front.Pause(h.limiter.Limiter, respected, status, w.Header(), time.Now(), func(c *core.Check, wait time.Duration, said string, err error) {
				h.limiter.Failed(err)
				report.Of(c).Paused(r, c.Key, wait, said)
			})
			respected = nil // it is called again
		}), r)
	})
}
