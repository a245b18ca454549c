package traefik

import (
	"hash/maphash"
	"math/rand"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/pressure"
	"github.com/proxyweir/weir/core/ruleset"
)

// guarded is a middleware's guard in one router: the handler of what it stands before. A response writer that is wrapped loses Flush
// and Unwrap on the way through the interpreter. So it is Traefik's HTTP client that says when a request has been sent to the service, and when
// the answer begins. If another middleware answers, the client is not asked, and the request is under way until that has ended.
type guarded struct {
	refusals, second int64 // requests that limits have rejected in this second, and which that is, of the host's clock; first, as in metrics.Meter

	next   http.Handler
	engine *engine
	set    *ruleSet // if it has a fast path: its first rule that covers a request tells clients apart; nil: their addresses do
	direct bool     // a client's address is that of the connection, whole
	guard  *guard.Guard

	word, passes *int64 // of the guard.Gauge
}

// leavesPlace is what a request adds to the word in the end.
const leavesPlace = -guard.Place

// newGuarded returns the guard of a router's handler; nil: the middleware has none.
func newGuarded(e *engine, next http.Handler) *guarded {
	var none *guarded
	if e.guard == nil {
		return none
	}
	return guardOfSet(e, next, e.fixed)
}

// guardOfSet returns the guard of a router's handler, for requests on which such a set decides; nil: it may change.
func guardOfSet(e *engine, next http.Handler, s *ruleSet) *guarded {
	gauge := guard.GaugeOf(e.guard)
	g := &guarded{next: next, engine: e, guard: e.guard, word: gauge.Word, passes: gauge.Passes, direct: e.addressing.direct()}
	if s != nil && len(s.rules) > 0 {
		g.set = s
		for _, r := range s.rules {
			if !plain(e, r) {
				g.set = nil
			}
		}
	}
	return g
}

// guardSeed is what the keys of guards are hashed with.
var guardSeed = maphash.MakeSeed()

// ServeHTTP passes a request on that the limits allow. The fast paths call it, but for those of core, which have its first lines themselves. A
// function of the standard library that is deferred costs the interpreter no more than one that is called.
func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 {
		goto unticketed
	}
	if r.Header["Upgrade"] != nil {
		goto unticketed
	}
	if atomic.AddInt64(g.word, guard.Take)&guard.NoTicket != 0 {
		atomic.AddInt64(g.word, -guard.Take)
		goto unticketed
	}
	defer atomic.AddInt64(g.word, leavesPlace)
	g.next.ServeHTTP(w, r)
	return
unticketed:
	serveUnticketed(g, w, r)
}

// unticketed handles the requests that have not got a ticket from memory's fast paths.
type unticketed struct{ guarded *guarded }

// ServeHTTP implements http.Handler.
func (u *unticketed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g := u.guarded
	if r.ContentLength >= 0 && r.Header["Upgrade"] == nil { // it has asked for one
		atomic.AddInt64(g.word, -guard.Take)
	}
	serveUnticketed(g, w, r)
}

// serveUnticketed passes a request on that has no ticket.
func serveUnticketed(g *guarded, w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 && atomic.AddInt64(g.passes, -1) >= 0 {
		serveWithPass(g, w, r)
		return
	}
	of, key := guardKey(g, r)
	admit(g, w, r, of, key)
}

// trackedOf returns what the guard knows of the first rule of a request; nil: there is no guard.
func trackedOf(h *handler, s *ruleSet, q *front.Evaluation) *guard.Rule {
	var none *guard.Rule
	if h.guarded == nil {
		return none
	}
	return s.tracked[q.Checks[0].Rule.Name()]
}

const (
	// So many requests a second that limits reject are all counted in their rule's demand, and beyond that one in sampledRefusals, for all.
	allRefusals, sampledRefusals = 100, 8
)

// countRefusal counts a request that a limit has rejected in the demand of its rule.
func countRefusal(g *guarded, of *guard.Rule, key string) {
	many := int64(1)
	if n := atomic.AddInt64(&g.refusals, 1); n > allRefusals {
		if rand.Int63n(sampledRefusals) != 0 { //nolint:gosec // a sample, in which clients that take turns are alike
			return
		}
		many = sampledRefusals
	}
	now := guardNow(g.engine.host)
	if second := now / 1_000_000; second != atomic.SwapInt64(&g.second, second) {
		atomic.StoreInt64(&g.refusals, 0)
	}
	hash := maphash.String(guardSeed, key)
	guard.AskFor(g.guard, of, hash, now, many)
	guard.Reject(g.guard, of, hash, now)
}

// serveAllowed passes a request on that the limits allow, from the general path. of is what the guard knows of its rule, whose key it has; nil: it came
// under none, and is told apart by the client's address. Its first lines are ServeHTTP's, whose call would cost the interpreter as much as they do.
func serveAllowed(h *handler, w http.ResponseWriter, r *http.Request, of *guard.Rule, key string) {
	g := h.guarded
	if g == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	if r.ContentLength >= 0 && r.Header["Upgrade"] == nil {
		if atomic.AddInt64(g.word, guard.Take)&guard.NoTicket == 0 {
			defer atomic.AddInt64(g.word, leavesPlace)
			g.next.ServeHTTP(w, r)
			return
		}
		atomic.AddInt64(g.word, -guard.Take)
	}
	if r.ContentLength == 0 && atomic.AddInt64(g.passes, -1) >= 0 {
		serveWithPass(g, w, r)
		return
	}
	if of == nil {
		of = g.engine.alone
		key = front.GuardKey(clientAddress(&g.engine.addressing, r))
	}
	admit(g, w, r, of, key)
}

// passHolder is a request that passes by the guard, and says when its answer begins.
type passHolder struct {
	word *int64
	over int32 // 1: it is under way no more; changed with functions of sync/atomic
}

// serveWithPass passes a request on that has got one of the passes.
func serveWithPass(g *guarded, w http.ResponseWriter, r *http.Request) {
	atomic.AddInt64(g.word, guard.Place)
	p := &passHolder{word: g.word}
	defer leave(p)
	g.next.ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotFirstResponseByte: func() { leave(p) }})))
}

// leave ends the time under way of a request that passes by.
func leave(p *passHolder) {
	if atomic.SwapInt32(&p.over, 1) == 0 {
		atomic.AddInt64(p.word, leavesPlace)
	}
}

// guardKey returns what tells the client of a request apart, for ServeHTTP, and what the guard knows of the rule whose key that is.
func guardKey(g *guarded, r *http.Request) (*guard.Rule, string) {
	var address string
	i := strings.IndexByte(r.RemoteAddr, ':')
	direct := g.direct && i > 0 && r.RemoteAddr[0] != '['
	if direct {
		address = r.RemoteAddr[:i]
	} else {
		address = clientAddress(&g.engine.addressing, r)
	}
	if g.set == nil {
		return g.engine.alone, front.GuardKey(address)
	}
	for _, rule := range g.set.rules {
		if rule.Matcher != nil && !rule.Matcher.Covers(r, address) {
			continue
		}
		if direct && ruleset.Whole(rule.Ruled) {
			return g.set.tracked[rule.Ruled.Name], address
		}
		return g.set.tracked[rule.Ruled.Name], keyOf(g.engine, g.set, rule, r)
	}
	return g.engine.alone, front.GuardKey(address)
}

// inflight is a request that the guard has admitted.
type inflight struct {
	under int64 // as guard.Begin and Resume have it; all numbers are changed with functions of sync/atomic
	begun int64 // when it came to be under way, in microseconds of the registry's clock
	took  int64 // from then to the first byte of the answer; negative: that has not come
	state int32
	was   int32 // the state before the first byte; 0: that has not come

	g        *guarded
	of       *guard.Rule
	many     int64 // for how many it stands
	returned bool  // it has ended without a panic
}

// The states of a request in flight. Where it waits on its client, what guard.Linger has returned is added: 0 or 1.
const (
	inflightUnderWay int32 = 2 // the service works on it
	inflightUploads  int32 = 4 // its body has not come yet, and the service waits for it
	inflightAnswered int32 = 6 // the first byte has come
	inflightOver     int32 = 8
)

// admit passes a request on if the guard admits it, and turns it away otherwise.
func admit(g *guarded, w http.ResponseWriter, r *http.Request, of *guard.Rule, key string) {
	e := g.engine
	now := guardNow(e.host)
	s := e.guardSettings
	priority := false
	if s.Values != nil {
		priority = s.Values[s.Priority.Value(r, clientAddress(&e.addressing, r))]
	}
	many := guard.Refill(g.guard)
	hash := maphash.String(guardSeed, key)
	under := int64(guard.Tightened)
	if guard.AskFor(g.guard, of, hash, now, many) || !guard.Tighten(g.guard, hash, now) {
		under = guard.BeginFor(g.guard, hash, priority, now, many)
	}
	if under < 0 {
		guard.Reject(g.guard, of, hash, now)
		front.Overloaded(w, r, front.GuardWait(under, waitJitter(e)))
		return
	}
	p := &inflight{under: under, begun: now, took: -1, state: inflightUnderWay, g: g, of: of, many: many}
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
		p.state = inflightUploads + guard.Linger(g.guard)
		trace.WroteRequest = func(info httptrace.WroteRequestInfo) { uploaded(p) }
	}
	defer finish(p, w, r)
	g.next.ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	p.returned = true
}

// uploaded has a request in flight be under way, since its body has come.
func uploaded(p *inflight) {
	was := atomic.LoadInt32(&p.state)
	if was&^1 != inflightUploads {
		return
	}
	atomic.StoreInt64(&p.begun, guardNow(p.g.engine.host))
	atomic.StoreInt64(&p.under, guard.Resume(p.g.guard))
	if !atomic.CompareAndSwapInt32(&p.state, was, inflightUnderWay) {
		guard.Pause(p.g.guard) // it has been answered meanwhile
		return
	}
	guard.Proceed(p.g.guard, was&1)
}

// answered ends the time under way of a request in flight, since the first byte of an answer has come.
func answered(p *inflight) {
	was := atomic.LoadInt32(&p.state)
	if was&^1 == inflightUploads {
		if atomic.CompareAndSwapInt32(&p.state, was, inflightAnswered+was&1) {
			atomic.StoreInt32(&p.was, was)
		}
		return
	}
	if was != inflightUnderWay {
		return
	}
	turn := guard.Linger(p.g.guard)
	if !atomic.CompareAndSwapInt32(&p.state, was, inflightAnswered+turn) {
		guard.Proceed(p.g.guard, turn)
		return
	}
	guard.Pause(p.g.guard)
	atomic.StoreInt32(&p.was, was)
	atomic.StoreInt64(&p.took, guardNow(p.g.engine.host)-atomic.LoadInt64(&p.begun))
}

// informed has a request in flight be what it was before the first byte, since that was of an informational answer. Nothing will say when the
// next one begins. So it is under way until the answer ends, and so that no request holds its place unseen, none passes by any more.
func informed(p *inflight, status int) {
	was := atomic.LoadInt32(&p.was)
	is := atomic.LoadInt32(&p.state)
	if was == 0 || is&^1 != inflightAnswered {
		return
	}
	if status != http.StatusContinue {
		guard.Exact(p.g.guard)
	}
	if was != inflightUnderWay {
		atomic.CompareAndSwapInt32(&p.state, is, was)
		return
	}
	guard.Resume(p.g.guard)
	if !atomic.CompareAndSwapInt32(&p.state, is, was) {
		guard.Pause(p.g.guard)
		return
	}
	guard.Proceed(p.g.guard, is&1)
	atomic.StoreInt64(&p.took, -1)
}

// finish ends a request in flight, whatever has become of it.
func finish(p *inflight, w http.ResponseWriter, r *http.Request) {
	g := p.g
	was := atomic.SwapInt32(&p.state, inflightOver)
	if was == inflightUnderWay {
		guard.Pause(g.guard)
	} else {
		guard.Proceed(g.guard, was&1)
	}
	took := int64(-1)
	if p.returned {
		took = atomic.LoadInt64(&p.took)
		if was == inflightUnderWay { // the client has left, or another middleware has answered it
			took = guardNow(g.engine.host) - atomic.LoadInt64(&p.begun)
			if r.Context().Err() != nil {
				guard.CountLeft(g.guard, p.many, atomic.LoadInt64(&p.under), took)
				return
			}
		}
		if took >= 0 && writtenStatus(w) >= http.StatusInternalServerError {
			took = -1
		}
	}
	if took >= 0 {
		guard.Took(p.of, took)
	}
	guard.Count(g.guard, p.many, atomic.LoadInt64(&p.under), took)
}

// writtenStatus returns the status that a handler has written to w; 0: it cannot be told. Neither net/http nor Traefik lets a plugin ask, and
// a writer that asks cannot be put in between (see guarded). So this reads it from where they keep it, and what it does not know there is 0.
func writtenStatus(w http.ResponseWriter) int64 {
	const deepest = 32
	v := reflect.ValueOf(w)
	for i := 0; i < deepest; i++ {
		kind := v.Kind()
		if kind == reflect.Ptr || kind == reflect.Interface {
			v = v.Elem()
			continue
		}
		if kind != reflect.Struct {
			return 0
		}
		status := memberOf(v, statusFields)
		if status.Kind() == reflect.Int {
			return status.Int()
		}
		v = memberOf(v, writerFields)
	}
	return 0
}

// The names of the fields in which writers keep the status, and other writers: those of net/http, with HTTP/2, of Traefik, and of net/http/httptest.
var (
	statusFields = []string{"status", "statusCode", "Code"}
	writerFields = []string{"rw", "ResponseWriter", "rws", "w"}
)

// memberOf returns the first field of a struct that has one of these names. The zero Value has the Kind Invalid: there is none.
func memberOf(v reflect.Value, names []string) reflect.Value {
	for _, name := range names {
		if f := v.FieldByName(name); f.IsValid() {
			return f
		}
	}
	return reflect.Value{}
}

// sharedGuard is a guard of the process.
type sharedGuard struct {
	guard    *guard.Guard
	alone    *guard.Rule            // of requests under no rule
	rules    map[string]*guard.Rule // by label; with the registry's lock
	pressure *pressure.Watch        // with the registry's lock; nil: there is none
}

// guardSeries has what metrics show of one guard.
type guardSeries struct {
	name     string
	guard    *guard.Guard
	labels   []string        // of the rules; the first is empty: of requests under no rule
	rules    []*guard.Rule   // of the same order
	pressure *pressure.Watch // nil: there is none
}

// addGuard adds the metrics of a guard.
func addGuard(p *metrics.Page, g *guardSeries, now int64) {
	at := guard.Look(g.guard)
	metrics.AddGuard(p, g.name, &at)
	metrics.AddPressure(p, g.name, &at, g.pressure, now)
	for i, label := range g.labels {
		of := guard.LookAt(g.rules[i], now)
		metrics.AddDemand(p, g.name, label, &of)
	}
}

// corsHandler is the handler of a router whose middleware has cors, in front of its path.
type corsHandler struct {
	cors    *front.CORS
	path    http.Handler // takes back what is for answers of the plugin, before it asks the service
	general *handler     // the same, for requests that are not counted
	plain   http.Handler // takes nothing back: for requests for which an earlier handler has set the fields
	metrics string       // the path of these; pages may not read them
}

// withCORS returns the handler of a router, with cors if the middleware has it.
func withCORS(e *engine, next http.Handler) http.Handler {
	if e.cors == nil {
		return fastPath(newHandler(e, next))
	}
	of := e.cors
	behind := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of.Leave(w.Header())
		next.ServeHTTP(w, r)
	})
	general := newHandler(e, behind)
	plain := newHandler(e, next)
	var noRule *front.Rule
	c := &corsHandler{cors: of, path: fastPath(general), general: general, metrics: e.monitoring.Metrics}
	c.plain = generalPath(plain, meteringOf(e, e.inForce(), noRule))
	return c
}

// ServeHTTP implements http.Handler.
func (c *corsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.metrics != "" && r.URL.Path == c.metrics || !c.cors.Enter(w.Header(), r) {
		c.plain.ServeHTTP(w, r)
		return
	}
	if r.Method == http.MethodOptions && c.cors.Uncounted(r, clientAddress(&c.general.engine.addressing, r)) {
		var of *guard.Rule
		serveAllowed(c.general, w, r, of, "")
		return
	}
	c.path.ServeHTTP(w, r)
}
