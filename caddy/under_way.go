package ratelimit

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/front"
)

// serveUnderWay serves a request that was admitted and has reserved something: its turn, for which it waits, a place among those in
// flight, or a charge that depends on the response's status. Whatever becomes of the request, what it has reserved comes to an end.
func (h *Handler) serveUnderWay(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, q *front.Inquiry) error {
	reservations := core.AppendReservations(nil, q.Checks)
	delay := q.Verdict.Delay
	front.Free(q)
	if delay > 0 {
		h.app.line.enter()
		come, err := h.wait(w, r, time.Duration(delay)*time.Microsecond)
		if !come {
			h.limiter.failed(h.limiter.Leave(reservations))
			h.app.line.leave()
			if h.stops() {
				h.app.line.awaitEmpty()
			}
			return err
		}
		h.app.line.leave()
		h.limiter.Depart(reservations)
	}
	if !core.UnderWay(reservations) {
		return next.ServeHTTP(w, r)
	}
	status := http.StatusInternalServerError // of a handler that panics
	defer func() { h.limiter.failed(h.limiter.Finish(reservations, status)) }()
	if !core.ByStatus(reservations) {
		return next.ServeHTTP(w, r)
	}
	recorder := caddyhttp.NewResponseRecorder(w, nil, nil)
	defer func() {
		if written := recorder.Status(); written != 0 { // before a panic, or an error
			status = written
		}
	}()
	err := next.ServeHTTP(recorder, r)
	status = statusOf(err)
	return err
}

// statusOf returns the status of a response that a handler has left to others by returning an error; of one that has returned none,
// and written nothing, it is 200.
func statusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	var failed caddyhttp.HandlerError
	if errors.As(err, &failed) && failed.StatusCode != 0 {
		return failed.StatusCode
	}
	return http.StatusInternalServerError
}
