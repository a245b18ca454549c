package deferred

import (
	"bytes"
	"io"
	"net/http"

	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/deferral"
)

// resultWriter is the response writer of a deferred request: it keeps the response.
type resultWriter struct {
	header, sent http.Header
	status       int
	body         bytes.Buffer
	size         int64 // of the whole body
	most         int64
	cut          bool
}

// Header implements http.ResponseWriter.
func (w *resultWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *resultWriter) WriteHeader(status int) {
	if w.status == 0 && protect.IsFinal(status) {
		w.status = status
		w.sent = w.header.Clone()
	}
}

// Write implements http.ResponseWriter.
func (w *resultWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.size += int64(len(b))
	if w.cut || int64(w.body.Len()+len(b)) > w.most {
		w.cut = true
		w.body.Reset()
		return len(b), nil
	}
	return w.body.Write(b)
}

// Flush implements http.Flusher. There is nobody who waits for a part of the response.
func (w *resultWriter) Flush() { w.WriteHeader(http.StatusOK) }

// answer returns the response, with those of its header fields.
func (w *resultWriter) answer(fields map[string]bool) *deferral.Answer {
	a := &deferral.Answer{Status: w.status, Header: make(http.Header), Body: w.body.Bytes(), Cut: w.cut}
	for name, values := range w.sent {
		if fields[name] {
			a.Header[name] = values
		}
	}
	return a
}

// Interface guards
var (
	_ http.Flusher = (*resultWriter)(nil)
	_ io.Writer    = (*resultWriter)(nil)
)
