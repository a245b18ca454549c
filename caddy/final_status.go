package ratelimit

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// isFinal reports whether a status ends the header of a response. The other 1xx inform a client that waits for it, and any number of them may
// precede it; after 101 the connection is no longer HTTP's.
func isFinal(status int) bool {
	return status >= http.StatusOK || status == http.StatusSwitchingProtocols
}

// statusWriter is the response writer of a request whose rule counts by status.
type statusWriter struct {
	*caddyhttp.ResponseWriterWrapper
	status int // the first final one; 0: the client has got none yet
}

// wrote notes that a status was written.
func (w *statusWriter) wrote(status int) {
	if w.status == 0 && isFinal(status) {
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
