package traefik

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/meter"
	"github.com/proxyweir/weir/core/metrics"
)

// measured is the writer of a response whose status, header fields or body a rule charges. Of a writer that is wrapped, the interpreter passes on
// Header, Write, WriteHeader and Hijack only. So measured flushes by itself whatever is written, as Traefik's proxy flushes a body of unknown length:
// nothing comes later than without it, in more and smaller packets.
type measured struct {
	inner    http.ResponseWriter
	meter    *meter.Meter
	headOnly bool        // the response has no body
	upgraded bool        // somebody has taken the connection over
	respects *respecting // nil: no rule of the request has respect_upstream
}

// Header implements http.ResponseWriter.
func (m *measured) Header() http.Header { return m.inner.Header() }

// WriteHeader implements http.ResponseWriter. A header whose body may be long in coming is sent at once.
func (m *measured) WriteHeader(status int) {
	final := status >= http.StatusOK || status == http.StatusSwitchingProtocols
	if final {
		m.meter.Begin(status, m.inner.Header())
	}
	if m.respects != nil && final {
		pause(m.respects, status, m.inner.Header())
	}
	m.inner.WriteHeader(status)
	if status == http.StatusNoContent || status == http.StatusNotModified {
		m.headOnly = true
	}
	if status >= http.StatusOK && !m.headOnly && m.inner.Header()["Content-Length"] == nil {
		flush(m.inner)
	}
}

// Write implements http.ResponseWriter.
func (m *measured) Write(p []byte) (int, error) {
	m.meter.Begin(http.StatusOK, m.inner.Header())
	n, err := m.inner.Write(p)
	if n > 0 {
		m.meter.Write(p[:n])
		flush(m.inner)
	}
	return n, err
}

// flush sends what was written. A writer that cannot has buffered it for a purpose.
func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// Hijack implements http.Hijacker. Who takes the connection over answers himself, with the status of an upgrade. Traefik's proxy sets the header after that.
func (m *measured) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(m.inner).Hijack()
	m.upgraded = m.upgraded || err == nil
	return conn, buffered, err
}

// byResponse is a request that is charged when its response has ended.
type byResponse struct {
	writer       *measured
	reservations []core.Reservation
	set          *ruleSet
	over         bool // false: the handler has panicked
}

// serveByResponse serves a request that some of its rules charge by its response.
func serveByResponse(h *handler, w http.ResponseWriter, r *http.Request, s *ruleSet, reservations []core.Reservation, of *guard.Rule, key string) {
	b := &byResponse{reservations: reservations, set: s}
	b.writer = &measured{inner: w, meter: meter.Of(reservations, r.Method), headOnly: r.Method == http.MethodHead}
	defer charge(h.engine, b)
	serveAllowed(h, b.writer, r, of, key)
	b.over = true
}

// charge ends the reservations of a request by its response.
func charge(e *engine, b *byResponse) {
	costs := b.writer.meter
	if b.writer.upgraded {
		costs.Begin(http.StatusSwitchingProtocols, b.writer.inner.Header())
	}
	status := costs.Status()
	if status == 0 {
		status = http.StatusOK
		if !b.over {
			status = http.StatusInternalServerError
		}
	}
	costs.End(b.writer.inner.Header())
	source := 0
	for i := range b.reservations {
		r := &b.reservations[i]
		if !r.Rule.Measures() {
			continue
		}
		units, known := costs.Cost(source)
		source++
		metrics.Measure(b.set.meters[r.Rule.Name()], r, units, known, status)
		if !known && costs.Encoded() && !e.encoded.Swap(true) {
			e.host.log(e.name, "a response that says what its request has cost came compressed, and was charged the rule's cost instead; let the compress middleware stand before this one, "+
				"and have the headers middleware set Accept-Encoding to identity if the service itself compresses")
		}
	}
	if err := e.limiter.Finish(b.reservations, status); err != nil {
		e.reportFailure(err)
	}
}

// besides does what some rules want beside the decision: it counts what shadows would have done, and returns the handler with which the request goes on.
func besides(h *handler, s *ruleSet, q *front.Evaluation, r *http.Request, failed bool) *handler {
	if s.tallies != nil {
		countShadows(s, q, failed)
	}
	if !s.asked.Respects || q.Verdict.Outcome == core.Reject {
		return h
	}
	p := &respecting{next: h.next, engine: h.engine, respected: front.Respected(q.Checks), waits: q.Verdict.Delay > 0, request: r}
	own := &handler{next: p, engine: h.engine, guarded: h.guarded, of: h.of}
	if h.guarded != nil { // which the service's answers do not pass by
		p.next = h.guarded.next
		behind := *h.guarded
		behind.next = p
		own.guarded = &behind
		own.next = &behind
	}
	return own
}

// respecting passes a request on whose keys the service can have paused.
type respecting struct {
	next      http.Handler
	engine    *engine
	respected []core.Check // none: the answer has begun
	waits     bool         // it has waited in a queue until then
	request   *http.Request
}

// ServeHTTP implements http.Handler.
func (p *respecting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.waits {
		if wait := front.PausedFor(p.engine.limiter, p.respected); wait > 0 {
			front.Unavailable(w, r, wait, front.ServiceAsks)
			return
		}
	}
	var none []core.Reservation
	p.next.ServeHTTP(&measured{inner: w, meter: meter.Of(none, r.Method), headOnly: r.Method == http.MethodHead, respects: p}, r)
}

// pause has the keys of a request wait if the header of its answer says so.
func pause(p *respecting, status int, h http.Header) {
	e := p.engine
	front.Pause(e.limiter, p.respected, status, h, time.Now(), func(c *core.Check, wait time.Duration, said string, err error) {
		if err != nil {
			e.reportFailure(err)
		}
		if e.rejections != nil {
			tellPaused(e.rejections, c, wait, said, p.request)
		}
	})
	var none []core.Check
	p.respected = none
}
