package protect

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/core/guard"
)

// inflight is a request that the guard has let through. It is the response writer of what comes behind, and sees its first byte.
type inflight struct {
	begun, under int64 // atomic; first, where 64 bits are aligned on every machine

	Writer
	g     *Guarded
	rule  *guard.Rule
	state int32 // inflightUnderWay, and so on; atomic
	body  guardedBody
	timer *time.Timer // pauses an upload; nil: there is none
}

// The states of a request in flight.
const (
	inflightUnderWay int32 = iota
	inflightUploads        // the body has not come yet; the service may work on the request nevertheless
	inflightWaits          // the same, for longer than the service usually takes: it waits for the body
	inflightOver
)

var inflights = sync.Pool{New: func() any {
	p := new(inflight)
	p.Writer = Writer{new(caddyhttp.ResponseWriterWrapper), p.begins}
	return p
}}

// Admit passes a request on to what the guard protects, if that has room for it. A guard that is nil passes all on.
func (g *Guarded) Admit(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, i Asker) error {
	if g == nil {
		return next.ServeHTTP(w, r)
	}
	now := i.At
	if now == 0 {
		now = GuardNow()
	}
	if g.encloses(w) {
		return next.ServeHTTP(w, r)
	}
	under := int64(guard.Tightened)
	if !i.over || !guard.Tighten(g.Guard, i.key, now) {
		under = guard.Begin(g.Guard, i.key, g.priority != nil && g.values[g.priority.Value(r)], now)
	}
	if under < 0 {
		guard.Reject(g.Guard, i.rule, i.key, now)
		return g.turnAway(w, r, under)
	}
	p := inflights.Get().(*inflight)
	p.ResponseWriter, p.g, p.rule, p.begun, p.under, p.state = w, g, i.rule, now, under, inflightUnderWay
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		body := r.Body
		p.uploads(r)
		defer func() { r.Body = body }()
	}
	panicked := true
	defer func() {
		if panicked {
			p.end(endFailed)
		}
	}()
	err := next.ServeHTTP(p, r)
	panicked = false
	switch {
	case r.Context().Err() != nil:
		p.end(endLeft)
	case err != nil:
		p.end(endFailed)
	default:
		p.end(endAnswered)
	}
	if p.body.p == nil { // nobody else has it
		*p.ResponseWriterWrapper = caddyhttp.ResponseWriterWrapper{}
		p.g, p.rule = nil, nil
		inflights.Put(p)
	}
	return err
}

// encloses reports whether a request, with that response writer, has passed the same guard already: in a handler around this one.
func (g *Guarded) encloses(w http.ResponseWriter) bool {
	for {
		if p, ok := w.(*inflight); ok && p.g.GuardState == g.GuardState {
			return true
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = wrapper.Unwrap()
	}
}

// uploads sees to a request with a body. While the service waits for that, a slow client keeps it from nothing, and holds no place. But what a
// service does before it has read the body nobody sees. So the request holds its place for as long as an answer usually takes.
func (p *inflight) uploads(r *http.Request) {
	p.body = guardedBody{ReadCloser: r.Body, p: p}
	r.Body = &p.body
	usual := guard.Usual(p.g.Guard)
	if usual <= 0 {
		p.state = inflightWaits
		guard.Pause(p.g.Guard)
		return
	}
	p.state = inflightUploads
	p.timer = time.AfterFunc(time.Duration(usual)*time.Microsecond, func() {
		if atomic.CompareAndSwapInt32(&p.state, inflightUploads, inflightWaits) {
			guard.Pause(p.g.Guard)
		}
	})
}

// What a request in flight ends with.
const (
	endAnswered = iota
	endFailed   // its time says nothing of how the service keeps up
	endLeft     // its client has left before the answer began
)

// end ends the request, if it has not ended before.
func (p *inflight) end(with int) {
	state := atomic.SwapInt32(&p.state, inflightOver)
	if state == inflightOver {
		return
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	if state == inflightWaits {
		guard.Abandon(p.g.Guard)
		return
	}
	g, under, took := p.g.Guard, atomic.LoadInt64(&p.under), GuardNow()-atomic.LoadInt64(&p.begun)
	switch {
	case with == endLeft:
		waited := took
		if state == inflightUploads {
			waited = 0 // for the service
		}
		if rest := guard.Usual(g) - took; rest > 0 {
			time.AfterFunc(time.Duration(rest)*time.Microsecond, func() { guard.Leave(g, under, waited) })
			return
		}
		guard.Leave(g, under, waited)
	case with == endFailed || state == inflightUploads:
		guard.End(g, under, -1)
	default:
		guard.Took(p.rule, took)
		guard.End(g, under, took)
	}
}

// resume has the request be under way, since its body has come.
func (p *inflight) resume() {
	state := atomic.LoadInt32(&p.state)
	if state != inflightUploads && state != inflightWaits {
		return
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	atomic.StoreInt64(&p.begun, GuardNow())
	if atomic.CompareAndSwapInt32(&p.state, inflightUploads, inflightUnderWay) {
		return
	}
	under := guard.Resume(p.g.Guard)
	atomic.StoreInt64(&p.under, under)
	if !atomic.CompareAndSwapInt32(&p.state, inflightWaits, inflightUnderWay) {
		guard.Pause(p.g.Guard) // it has been answered meanwhile
	}
}

// statusLeft is what Caddy's reverse_proxy answers to a client that has left, for the access log.
const statusLeft = 499

// begins ends the request by the status with which its answer begins.
func (p *inflight) begins(status int) {
	switch {
	case status == statusLeft:
		p.end(endLeft)
	case status >= http.StatusInternalServerError:
		p.end(endFailed)
	default:
		p.end(endAnswered)
	}
}

// guardedBody is the body of a request, whose end it sees.
type guardedBody struct {
	io.ReadCloser
	p *inflight
}

// Read implements io.Reader.
func (b *guardedBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if err != nil {
		b.p.resume()
	}
	return n, err
}
