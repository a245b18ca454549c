package protect

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Writer is a response writer that tells with which status the response begins.
type Writer struct {
	*caddyhttp.ResponseWriterWrapper
	begins func(status int) // may be called again
}

// NewWriter returns a Writer over another writer.
func NewWriter(w http.ResponseWriter, begins func(status int)) Writer {
	return Writer{&caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, begins}
}

// WriteHeader implements http.ResponseWriter.
func (w Writer) WriteHeader(status int) {
	if IsFinal(status) {
		w.begins(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w Writer) Write(b []byte) (int, error) {
	w.begins(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (w Writer) ReadFrom(r io.Reader) (int64, error) {
	w.begins(http.StatusOK)
	return w.ResponseWriterWrapper.ReadFrom(r)
}

// Hijack implements http.Hijacker. Who takes the connection without a status writes one himself, and that is of an upgrade.
func (w Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begins(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

// FlushError is what http.ResponseController calls. It begins the response, if nothing has been written.
func (w Writer) FlushError() error {
	w.begins(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// IsFinal reports whether a status ends the header of a response. The other 1xx inform a client that waits for it, and any number of them may
// precede it; after 101 the connection is no longer HTTP's.
func IsFinal(status int) bool {
	return status >= http.StatusOK || status == http.StatusSwitchingProtocols
}
