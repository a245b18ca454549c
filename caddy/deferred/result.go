package deferred

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/syntax"
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

// Caddy's server writes a line of the access log for each request of a client. What is done later does not pass through the server, so these
// functions write the line, into the same logs.

// attemptMessage is the message of such a line. It is not that of Caddy's server, so that nobody counts a request twice.
const attemptMessage = "handled deferred request"

// logged returns a function that writes the line about an attempt at a job when it has ended. An attempt that was turned away has none.
func (d *Deferral) logged(r *http.Request, job *deferral.Job) func(w *resultWriter) {
	var names []string
	if d.server.Logs != nil {
		names = logNames(d.server.Logs, r.Host)
	}
	if skip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.LogSkipVar).(bool); skip || len(names) == 0 {
		return func(*resultWriter) {}
	}
	began, credentials := time.Now(), d.server.Logs.ShouldLogCredentials
	asked := r.Clone(r.Context()) // as it is before handlers change it
	return func(w *resultWriter) {
		if protect.DispatchOf(r).Wait > 0 {
			return
		}
		level := zap.InfoLevel
		if w.status >= http.StatusInternalServerError {
			level = zap.ErrorLevel
		}
		user, _ := syntax.ReplacerOf(r).GetString("http.auth.user.id")
		for _, name := range names {
			d.accessLog.Named(name).Log(level, attemptMessage,
				zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: asked, ShouldLogCredentials: credentials}),
				zap.String("job", job.ID), zap.Int("attempt", job.Attempts), zap.Int64("bytes_read", asked.ContentLength), zap.String("user_id", user),
				zap.Duration("duration", time.Since(began)), zap.Int64("size", w.size), zap.Int("status", w.status),
				zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{Header: w.sent, ShouldLogCredentials: credentials}))
		}
	}
}

// logNames returns the names of the access logs in which a server logs requests for a host; "" is the server's own. There are none if it does
// not log them.
func logNames(logs *caddyhttp.ServerLogConfig, host string) []string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	patterns := hostPatterns(host)
	for _, pattern := range patterns {
		if names, found := logs.LoggerNames[pattern]; found {
			return names
		}
	}
	skipped := slices.ContainsFunc(logs.SkipHosts, func(pattern string) bool { return slices.Contains(patterns, strings.ToLower(pattern)) })
	if skipped || logs.SkipUnmappedHosts {
		return nil
	}
	return []string{logs.DefaultLoggerName}
}

// hostPatterns returns what may stand for a host in a server's configuration of logs, the host itself first: of a.example.com it is followed by
// *.example.com, *.*.com and *.*.*.
func hostPatterns(host string) []string {
	host = strings.ToLower(host)
	patterns := []string{host}
	labels := strings.Split(host, ".")
	for i := range labels {
		if labels[i] != "" {
			labels[i] = "*"
			patterns = append(patterns, strings.Join(labels, "."))
		}
	}
	return patterns
}
