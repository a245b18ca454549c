package ratelimit

import (
	"bufio"
	"io"
	"net"
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
	written := &statusWriter{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}}
	defer func() {
		if written.status != 0 { // before a panic, or before an error
			status = written.status
		}
	}()
	err := h.guarded.Admit(written, r, next, of)
	status = protect.StatusOf(err)
	return err
}

// statusWriter is the response writer of a request whose rule counts by status.
type statusWriter struct {
	*caddyhttp.ResponseWriterWrapper
	status int // the first final one; 0: the client has got none yet
}

// wrote notes that a status was written.
func (w *statusWriter) wrote(status int) {
	if w.status == 0 && protect.IsFinal(status) {
		w.status = status
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.wrote(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	w.wrote(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (w *statusWriter) ReadFrom(r io.Reader) (int64, error) {
	w.wrote(http.StatusOK)
	return w.ResponseWriterWrapper.ReadFrom(r)
}

// Hijack implements http.Hijacker. Who takes the connection without a status writes one himself, and that is of an upgrade.
func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.wrote(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

// FlushError is what http.ResponseController calls. It begins the response.
func (w *statusWriter) FlushError() error {
	w.wrote(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}
