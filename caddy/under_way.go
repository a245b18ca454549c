package ratelimit

import (
	"cmp"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
)

// serveUnderWay serves a request that was admitted and has reserved something: a place in the queue, where it waits, a place among
// the requests in flight, or a charge that depends on the response's status. It settles or cancels these reservations in every
// case.
func (h *Handler) serveUnderWay(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, q *front.Inquiry, of protect.Asker) error {
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
	defer func() { h.limiter.Settle(reservations, status) }()
	if !core.ByStatus(reservations) {
		return h.guarded.Admit(w, r, next, of)
	}
	first := 0                                        // the first final status; 0: the client has got none yet
	defer func() { status = cmp.Or(first, status) }() // a status may come before a panic, or before an error
	err := h.guarded.Admit(protect.NewWriter(w, func(status int) { first = cmp.Or(first, status) }), r, next, of)
	status = protect.StatusOf(err)
	return err
}
