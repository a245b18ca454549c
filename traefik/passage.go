package traefik

import (
	"hash/maphash"
	"math/rand"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/front"
	"github.com/proxyweir/weir/guard"
)

// guarded is a middleware's guard in one router: the handler of what it stands before. A response writer that is wrapped loses Flush, Hijack
// and Unwrap on the way through the interpreter. So it is Traefik's HTTP client that says when a request has been sent to the service, and when
// the answer begins. If another middleware answers, the client is not asked, and the request is under way until that has ended.
type guarded struct {
	next   http.Handler
	engine *engine
	rule   *front.Rule // the middleware's only one; nil: ServeHTTP tells clients apart by their addresses
	guard  *guard.Guard

	underWay, ample, stride *int64 // of the guard.Gauge
}

// newGuarded returns the guard of a router's handler; nil: the middleware has none.
func newGuarded(e *engine, next http.Handler) *guarded {
	var none *guarded
	if e.guard == nil {
		return none
	}
	gauge := guard.GaugeOf(e.guard)
	g := &guarded{next: next, engine: e, guard: e.guard, underWay: gauge.UnderWay, ample: gauge.Ample, stride: gauge.Stride}
	g.rule = onlyPlain(e)
	return g
}

// guardSeed is what the keys of guards are hashed with.
var guardSeed = maphash.MakeSeed()

// passer is a request that passes by the guard, since there is ample room.
type passer struct {
	underWay *int64
	over     int32 // 1: it is under way no more; changed with functions of sync/atomic
}

// ServeHTTP passes a request on that the limits allow. The fast paths call it.
func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p *passer
	if r.ContentLength == 0 {
		if atomic.AddInt64(g.underWay, 1) <= atomic.LoadInt64(g.ample) {
			if rand.Int63()%atomic.LoadInt64(g.stride) != 0 { //nolint:gosec // a sample, and no secret
				p = &passer{underWay: g.underWay}
				defer leave(p)
				g.next.ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotFirstResponseByte: func() { leave(p) }})))
				return
			}
			atomic.AddInt64(g.underWay, -1)
			admit(g, w, r, guardKey(g, r), atomic.LoadInt64(g.stride))
			return
		}
		atomic.AddInt64(g.underWay, -1)
	}
	admit(g, w, r, guardKey(g, r), 1)
}

// leave ends the time under way of a request that has passed by.
func leave(p *passer) {
	if atomic.SwapInt32(&p.over, 1) == 0 {
		atomic.AddInt64(p.underWay, -1)
	}
}

// passOn passes a request on that the limits allow, from the general path. own says that it came under a rule, whose key it has; else
// it is told apart by the client's address.
func passOn(h *handler, w http.ResponseWriter, r *http.Request, own bool, key string) {
	g := h.guarded
	if g == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	if !own {
		key = clientAddress(&g.engine.addressing, r)
	}
	many := int64(1)
	if r.ContentLength == 0 && atomic.LoadInt64(g.underWay) < atomic.LoadInt64(g.ample) {
		many = atomic.LoadInt64(g.stride)
		if rand.Int63()%many != 0 { //nolint:gosec // a sample, and no secret
			passBy(g, w, r)
			return
		}
	}
	admit(g, w, r, key, many)
}

// passBy passes a request on, past the guard.
func passBy(g *guarded, w http.ResponseWriter, r *http.Request) {
	atomic.AddInt64(g.underWay, 1)
	p := &passer{underWay: g.underWay}
	defer leave(p)
	g.next.ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotFirstResponseByte: func() { leave(p) }})))
}

// guardKey returns what tells the client of a request apart, for ServeHTTP.
func guardKey(g *guarded, r *http.Request) string {
	address := clientAddress(&g.engine.addressing, r)
	if g.rule == nil || g.rule.Matcher != nil && !g.rule.Matcher.Covers(r, address) {
		return address
	}
	return keyOf(g.engine, g.rule, r)
}

// passage is a request that the guard has admitted.
type passage struct {
	under int64 // as guard.Begin and Resume have it; all numbers are changed with functions of sync/atomic
	begun int64 // when it came to be under way, in microseconds of the registry's clock
	took  int64 // from then to the first byte of the answer; negative: that has not come
	state int32
	was   int32 // the state before the first byte

	g        *guarded
	many     int64 // for how many it stands
	timed    bool  // its time counts
	returned bool  // it has ended without a panic
}

// The states of a passage.
const (
	_               int32 = iota
	passageUnderWay       // the service works on it
	passageUploads        // its body has not come yet, and the service waits for it
	passageAnswered       // the first byte has come
	passageOver
)

// admit passes a request on if the guard admits it, and turns it away otherwise. many is for how many it stands.
func admit(g *guarded, w http.ResponseWriter, r *http.Request, key string, many int64) {
	e := g.engine
	now := guardNow(e.registry)
	s := e.guardSettings
	priority := false
	if s.values != nil {
		priority = s.values[s.priority.Value(r, clientAddress(&e.addressing, r))]
	}
	under := guard.BeginFor(g.guard, maphash.String(guardSeed, key), priority, now, many)
	if under < 0 {
		front.Overloaded(w, r, front.GuardWait(under, e.jitter))
		return
	}
	stride := atomic.LoadInt64(g.stride)
	p := &passage{under: under, begun: now, took: -1, state: passageUnderWay, g: g, many: many}
	p.timed = many == stride || rand.Int63()%stride == 0 //nolint:gosec // a sample, and no secret
	trace := &httptrace.ClientTrace{
		GotFirstResponseByte: func() { answered(p) },
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			informed(p, code)
			return nil
		},
	}
	if r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody {
		// While a client sends its body it keeps the service from nothing but that. It is under way when the body has come.
		guard.Pause(g.guard)
		p.state = passageUploads
		trace.WroteRequest = func(info httptrace.WroteRequestInfo) { uploaded(p) }
	}
	defer finish(p, w, r)
	g.next.ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	p.returned = true
}

// guardNow returns the time by which guards go.
func guardNow(g *registry) int64 { return int64(g.clock() / time.Microsecond) }

// uploaded has a passage be under way, since its body has come.
func uploaded(p *passage) {
	if atomic.LoadInt32(&p.state) != passageUploads {
		return
	}
	atomic.StoreInt64(&p.begun, guardNow(p.g.engine.registry))
	atomic.StoreInt64(&p.under, guard.Resume(p.g.guard))
	if !atomic.CompareAndSwapInt32(&p.state, passageUploads, passageUnderWay) {
		guard.Pause(p.g.guard) // it has been answered meanwhile
	}
}

// answered ends the time under way of a passage, since the first byte of an answer has come.
func answered(p *passage) {
	was := atomic.LoadInt32(&p.state)
	if was != passageUnderWay && was != passageUploads || !atomic.CompareAndSwapInt32(&p.state, was, passageAnswered) {
		return
	}
	atomic.StoreInt32(&p.was, was)
	if was == passageUploads {
		return
	}
	guard.Pause(p.g.guard)
	if p.timed {
		atomic.StoreInt64(&p.took, guardNow(p.g.engine.registry)-atomic.LoadInt64(&p.begun))
	}
}

// informed has a passage be what it was before the first byte, since that was of an informational answer. Nothing will say when the
// next one begins. So it is under way until the answer ends, and so that no request holds its place unseen, none passes by any more.
func informed(p *passage, status int) {
	was := atomic.LoadInt32(&p.was)
	if was == 0 {
		return
	}
	if status != http.StatusContinue {
		guard.Exact(p.g.guard)
	}
	if was == passageUnderWay {
		atomic.StoreInt64(&p.took, -1)
		guard.Resume(p.g.guard)
	}
	if !atomic.CompareAndSwapInt32(&p.state, passageAnswered, was) && was == passageUnderWay {
		guard.Pause(p.g.guard)
	}
}

// stale is how long after the first byte of an answer, in microseconds, its time says nothing any more.
const stale = 60_000_000

// finish ends a passage, whatever has become of it.
func finish(p *passage, w http.ResponseWriter, r *http.Request) {
	g := p.g
	was := atomic.SwapInt32(&p.state, passageOver)
	if was == passageUnderWay {
		guard.Pause(g.guard)
	}
	took := int64(-1)
	if p.timed && p.returned {
		took = atomic.LoadInt64(&p.took)
		since := guardNow(g.engine.registry) - atomic.LoadInt64(&p.begun)
		if was == passageUnderWay && r.Context().Err() == nil { // another middleware has answered it
			took = since
		}
		if took >= 0 && (since-took > stale || writtenStatus(w) >= http.StatusInternalServerError) {
			took = -1
		}
	}
	guard.Count(g.guard, p.many, atomic.LoadInt64(&p.under), took)
}
