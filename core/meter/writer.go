package meter

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// NewWriter returns the writer of a response that feeds a Meter. The handler writes to it, and it passes all on at once.
func NewWriter(w http.ResponseWriter, m *Meter) http.ResponseWriter {
	return &writer{inner: w, meter: m}
}

// writer can do what the writers of net/http can. What the one inside cannot do returns http.ErrNotSupported.
type writer struct {
	inner http.ResponseWriter
	meter *Meter
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.inner }

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.inner.Header() }

// WriteHeader implements http.ResponseWriter. Any number of informational responses may precede the final one.
func (w *writer) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.meter.Begin(status, w.inner.Header())
	}
	w.inner.WriteHeader(status)
}

// begin reads the header of a response that begins without WriteHeader.
func (w *writer) begin() { w.meter.Begin(http.StatusOK, w.inner.Header()) }

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	w.begin()
	n, err := w.inner.Write(p)
	w.meter.Write(p[:n])
	return n, err
}

// ReadFrom implements io.ReaderFrom, by which the kernel sends files. A body that the Meter reads is copied as it comes.
func (w *writer) ReadFrom(r io.Reader) (int64, error) {
	w.begin()
	from, can := w.inner.(io.ReaderFrom)
	if !can || w.meter.form != unread {
		return io.Copy(onlyWriter{w}, r)
	}
	n, err := from.ReadFrom(r)
	w.meter.count(n)
	return n, err
}

// onlyWriter hides ReadFrom from io.Copy.
type onlyWriter struct{ w *writer }

func (o onlyWriter) Write(p []byte) (int, error) { return o.w.Write(p) }

// Flush implements http.Flusher.
func (w *writer) Flush() { w.FlushError() } //nolint:errcheck // Flush has no result

// FlushError is what http.ResponseController calls.
func (w *writer) FlushError() error {
	w.begin()
	return http.NewResponseController(w.inner).Flush()
}

// Hijack implements http.Hijacker. Who takes the connection over answers himself, with the status of an upgrade.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.inner).Hijack()
	if err == nil {
		w.meter.Begin(http.StatusSwitchingProtocols, w.inner.Header())
	}
	return conn, buffered, err
}

// Push implements http.Pusher.
func (w *writer) Push(target string, options *http.PushOptions) error {
	pusher, can := w.inner.(http.Pusher)
	if !can {
		return http.ErrNotSupported
	}
	return pusher.Push(target, options)
}
