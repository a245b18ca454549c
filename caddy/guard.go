package ratelimit

import (
	"bufio"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/answer"
	"github.com/proxyweir/weir/front"
	"github.com/proxyweir/weir/guard"
	"go.uber.org/zap"
)

// Guard limits how many requests are under way to what the handler stands before, by how long that takes to begin its answers. A
// request over that limit gets a 503. Requests are turned away first whose keys ask for more than their fair share.
type Guard struct {
	// Sets this guard apart from those of other handlers; the default is the empty name. What a guard has learnt survives reloads
	// under its name. Handlers with guards of one name share it: they stand before the same service, and must define it alike.
	Name string `json:"name,omitempty"`

	// How many requests may be under way at most, however quick the service is. From 1 to 100000; the default is 128.
	Max int `json:"max,omitempty"`

	// How many requests may be under way at least, however slow the service is. From 1 to max; the default is 8, or max where that is
	// less.
	Min int `json:"min,omitempty"`

	// Which requests are turned away last.
	Priority *GuardPriority `json:"priority,omitempty"`

	// Whether the guard limits keys that ask for more than ever, while it has to turn requests away: "on", the default, or "off".
	Tighten string `json:"tighten,omitempty"`

	// How much traffic the guard learns from before it does that. From 10s to 720h; the default is 24h.
	WarmUp caddy.Duration `json:"warm_up,omitempty"`
}

// GuardPriority says which requests have priority: those whose text has one of the values.
type GuardPriority struct {
	// A text with placeholders.
	Source string `json:"source"`

	// The values of it that have priority.
	Values []string `json:"values"`
}

// settings returns the lines that a guard's block may have.
func (g *Guard) settings() []setting {
	return []setting{
		numberTo("max", &g.Max, 1, front.MostUnderWay),
		numberTo("min", &g.Min, 1, front.MostUnderWay),
		{word: "priority", to: g.priority},
		wordTo("tighten", &g.Tighten, "on", "off"),
		durationTo("warm_up", &g.WarmUp, "10s", "720h"),
	}
}

func (g *Guard) priority(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 {
		return d.Err("guard: priority: takes a placeholder and the values of it that have priority, such as {header.X-Plan} gold")
	}
	g.Priority = &GuardPriority{Source: args[0], Values: args[1:]}
	return noBlock(d, "guard: ", "priority")
}

// guardBlock reads guard [<name>] [{ ... }].
func (h *Handler) guardBlock(d *caddyfile.Dispenser) error {
	h.Guard = new(Guard)
	line := d.Token()
	if args := d.RemainingArgs(); len(args) > 1 {
		return d.Errf("guard: takes one name, not %q", args)
	} else if len(args) == 1 {
		h.Guard.Name = args[0]
	}
	if _, err := readBlock(d, "guard", h.Guard.settings(), nil); err != nil {
		return err
	}
	if err := h.Guard.check(); err != nil {
		return errorAt(line, err)
	}
	return nil
}

// check says what is wrong with the settings.
func (g *Guard) check() error {
	if err := front.CheckGuard(g.Name, g.Max, g.Min); err != nil {
		return err
	}
	if _, err := front.GuardWarmUp(g.Tighten, "warm_up", time.Duration(g.WarmUp)); err != nil {
		return err
	}
	if p := g.Priority; p != nil {
		t, err := newTemplate(p.Source)
		if err != nil {
			return fmt.Errorf("guard: priority %q: %w", p.Source, err)
		}
		return front.CheckPriority(p.Source, p.Values, len(t.sources) == 0, "a placeholder, such as {http.request.header.X-Plan}")
	}
	return nil
}

// alike reports whether two guards of one name are the same.
func (g *Guard) alike(other *Guard) bool {
	if g.Max != other.Max || g.Min != other.Min || g.Tighten != other.Tighten || g.WarmUp != other.WarmUp || (g.Priority == nil) != (other.Priority == nil) {
		return false
	}
	return g.Priority == nil || g.Priority.Source == other.Priority.Source && slices.Equal(g.Priority.Values, other.Priority.Values)
}

// config returns what the guard is configured by.
func (g *Guard) config() guard.Config {
	warmUp, _ := front.GuardWarmUp(g.Tighten, "warm_up", time.Duration(g.WarmUp))
	return guard.Config{Max: g.Max, Min: g.Min, WarmUp: warmUp}
}

// guards holds what guards have learnt, by namespace and name. It outlives reloads.
var guards = caddy.NewUsagePool()

// guarded is the guard of a handler, ready.
type guarded struct {
	*guardState
	id       string
	priority *template // nil: no request has priority
	values   map[string]bool
	h        *Handler
}

// guardState is what survives reloads.
type guardState struct {
	*guard.Guard
	label string
	alone *guard.Rule // of requests under no rule

	mu    sync.Mutex
	rules map[string]*trackedRule // by label
}

// trackedRule is a rule whose demand a guard learns, for as many reporters as it has.
type trackedRule struct {
	*guard.Rule
	users int
}

func newGuardState(label string, c guard.Config) *guardState {
	c.Seed = maphash.String(guardSeed, label)
	s := &guardState{Guard: guard.New(c), label: label, rules: make(map[string]*trackedRule)}
	s.alone = guard.Track(s.Guard, "")
	return s
}

// track returns what the guard knows of a rule, which the caller must untrack.
func (s *guardState) track(label string) *guard.Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rules[label]
	if r == nil {
		r = &trackedRule{Rule: guard.Track(s.Guard, label)}
		s.rules[label] = r
	}
	r.users++
	return r.Rule
}

func (s *guardState) untrack(label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rules[label]
	if r.users--; r.users == 0 {
		guard.Untrack(s.Guard, r.Rule)
		delete(s.rules, label)
	}
}

// each calls a function with each rule that requests came under, and with that of requests under none, in alphabetical order.
func (s *guardState) each(do func(label string, r *guard.Rule)) {
	s.mu.Lock()
	rules := maps.Clone(s.rules)
	s.mu.Unlock()
	do("", s.alone)
	for _, label := range slices.Sorted(maps.Keys(rules)) {
		do(label, rules[label].Rule)
	}
}

// Destruct implements caddy.Destructor.
func (s *guardState) Destruct() error {
	guardMetrics.remove(s)
	return nil
}

var (
	guardSeed  = maphash.MakeSeed()
	guardBegun = time.Now() // by whose monotonic clock guards go
	guardNow   = func() int64 { return time.Since(guardBegun).Microseconds() }
)

// provisionGuard makes the handler's guard ready.
func (h *Handler) provisionGuard(ctx caddy.Context) error {
	g := h.Guard
	if g == nil {
		return nil
	}
	if err := g.check(); err != nil {
		return err
	}
	for _, other := range h.app.handlers {
		if other.Guard != nil && other.Guard.Name == g.Name && other.Namespace == h.Namespace && !g.alike(other.Guard) {
			return fmt.Errorf("guard %q: two handlers define it differently; handlers with guards of one name share it, so define it alike, or give one of them another name", g.Name)
		}
	}
	for _, other := range h.app.handlers {
		if g.Name == "" && other.Guard != nil && other.Guard.Name == "" && other.Namespace == h.Namespace {
			h.logger.Warn("several handlers share the guard that has no name; where they stand before different services, name each: guard <name>")
			break
		}
	}
	if err := enter(ctx.GetMetricsRegistry(), guardMetrics); err != nil {
		return err
	}
	label := g.Name
	if h.Namespace != "" {
		label = h.Namespace + "/" + g.Name
	}
	value, _, err := guards.LoadOrNew(label, func() (caddy.Destructor, error) {
		s := newGuardState(label, g.config())
		guardMetrics.add(s)
		return s, nil
	})
	if err != nil {
		return err
	}
	s := value.(*guardState)
	h.guarded = &guarded{guardState: s, id: label, h: h}
	if p := g.Priority; p != nil {
		h.guarded.priority, _ = newTemplate(p.Source)
		h.guarded.values = make(map[string]bool, len(p.Values))
		for _, v := range p.Values {
			h.guarded.values[v] = true
		}
	}
	return nil
}

// state returns what survives reloads; nil: there is no guard.
func (g *guarded) state() *guardState {
	if g == nil {
		return nil
	}
	return g.guardState
}

// putInForce has the bounds of the configuration hold, which others share until then: one that is refused changes nothing.
func (g *guarded) putInForce() {
	if g != nil {
		guard.Bound(g.Guard, g.h.Guard.config())
	}
}

// leave undoes provisionGuard.
func (g *guarded) leave() {
	if g != nil {
		_, _ = guards.Delete(g.id)
	}
}

// inquirer is what the guard knows of a request before it is passed on.
type inquirer struct {
	key  uint64      // sets the request's client apart from others
	rule *guard.Rule // the first that the request comes under, or that of requests under none
	over bool        // the client asks for more than ever, and for more than it gets now
	at   int64       // when; 0: it has waited since then
}

// inquire counts a request in the rules that it comes under. failed is whether their store has failed. The client is set apart by the key
// of the first of them, else by its address.
func (g *guarded) inquire(q *front.Inquiry, r *http.Request, failed bool) (i inquirer) {
	if g == nil {
		return i
	}
	now := guardNow()
	i.at = now
	if len(q.Checks) == 0 {
		i.key, i.rule = maphash.String(guardSeed, clientIPOf(r)), g.alone
		i.over = !guard.Ask(g.Guard, i.rule, i.key, now)
		return i
	}
	var part front.Part
	for at := 0; at < len(q.Checks); {
		first := at
		at = front.NextPart(q.Checks, at, &q.Verdict, failed, &part)
		rule, key := reporterOf(&q.Checks[first]).tracked, maphash.String(guardSeed, q.Checks[first].Key)
		if i.rule == nil {
			i.key, i.rule = key, rule
		}
		i.over = !guard.Ask(g.Guard, rule, key, now) || i.over
		if part.Outcome == front.Rejected {
			guard.Reject(g.Guard, rule, key, now)
		}
	}
	return i
}

// passage is a request that the guard has let through. It is the response writer of what comes behind, and sees its first byte.
type passage struct {
	*caddyhttp.ResponseWriterWrapper
	g     *guarded
	rule  *guard.Rule
	begun int64
	under int64
	state int32 // passageUnderWay, and so on; atomic
	body  guardedBody
}

// The states of a passage.
const (
	passageUnderWay int32 = iota
	passageUploads        // the body has not come yet, and the service waits for it
	passageOver
)

var passages = sync.Pool{New: func() any { return &passage{ResponseWriterWrapper: new(caddyhttp.ResponseWriterWrapper)} }}

// pass passes a request on to what the guard protects, if that has room for it.
func (g *guarded) pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, i inquirer) error {
	now := i.at
	if now == 0 {
		now = guardNow()
	}
	under := int64(guard.Tightened)
	if i.over {
		guard.Tighten(g.Guard, i.rule, i.key, now)
	} else {
		under = guard.Begin(g.Guard, i.key, g.priority != nil && g.values[g.priority.Value(r)], now)
	}
	if under < 0 {
		guard.Reject(g.Guard, i.rule, i.key, now)
		return g.turnAway(w, r, under)
	}
	p := passages.Get().(*passage)
	p.ResponseWriter, p.g, p.rule, p.begun, p.under, p.state = w, g, i.rule, now, under, passageUnderWay
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		// While a client sends its body it keeps the service from nothing but that. It is under way when the body has come.
		guard.Pause(g.Guard)
		p.state = passageUploads
		p.body = guardedBody{ReadCloser: r.Body, p: p}
		body := p.body.ReadCloser
		r.Body = &p.body
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
		passages.Put(p)
	}
	return err
}

// What a passage ends with.
const (
	endAnswered = iota
	endFailed   // its time says nothing of how the service keeps up
	endLeft     // its client has left before the answer began
)

// end ends the passage, if it has not ended before.
func (p *passage) end(with int) {
	switch atomic.SwapInt32(&p.state, passageOver) {
	case passageUnderWay:
		under, took := atomic.LoadInt64(&p.under), guardNow()-atomic.LoadInt64(&p.begun)
		switch with {
		case endLeft:
			guard.Leave(p.g.Guard, under, took)
		case endFailed:
			guard.End(p.g.Guard, under, -1)
		default:
			guard.Took(p.rule, took)
			guard.End(p.g.Guard, under, took)
		}
	case passageUploads:
		guard.Abandon(p.g.Guard)
	}
}

// resume has the request be under way, since its body has come.
func (p *passage) resume() {
	if atomic.LoadInt32(&p.state) != passageUploads {
		return
	}
	atomic.StoreInt64(&p.begun, guardNow())
	under := guard.Resume(p.g.Guard)
	atomic.StoreInt64(&p.under, under)
	if !atomic.CompareAndSwapInt32(&p.state, passageUploads, passageUnderWay) {
		guard.Pause(p.g.Guard) // it has been answered meanwhile
	}
}

// statusLeft is what Caddy's reverse_proxy answers to a client that has left, for the access log.
const statusLeft = 499

// WriteHeader implements http.ResponseWriter.
func (p *passage) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		switch {
		case status == statusLeft:
			p.end(endLeft)
		case status >= 500:
			p.end(endFailed)
		default:
			p.end(endAnswered)
		}
	}
	p.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (p *passage) Write(b []byte) (int, error) {
	p.end(endAnswered)
	return p.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (p *passage) ReadFrom(r io.Reader) (int64, error) {
	p.end(endAnswered)
	return p.ResponseWriterWrapper.ReadFrom(r)
}

// Hijack implements http.Hijacker.
func (p *passage) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(p.ResponseWriter).Hijack()
	if err == nil {
		p.end(endAnswered)
	}
	return conn, buffered, err
}

// FlushError is what http.ResponseController calls. It begins the answer, if nothing has been written.
func (p *passage) FlushError() error {
	p.end(endAnswered)
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// guardedBody is the body of a request, whose end it sees.
type guardedBody struct {
	io.ReadCloser
	p *passage
}

// Read implements io.Reader.
func (b *guardedBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if err != nil {
		b.p.resume()
	}
	return n, err
}

// overloaded is the error for error routes.
var overloaded = caddyhttp.HandlerError{StatusCode: http.StatusServiceUnavailable, Err: errors.New("the service is at its limit")}

// turnAway answers a request that the guard does not let through, or returns the error for the site's error routes.
func (g *guarded) turnAway(w http.ResponseWriter, r *http.Request, why int64) error {
	h := g.h
	after := front.GuardWait(why, h.Jitter)
	header := w.Header()
	header["Retry-After"] = []string{fmt.Sprint(answer.RetrySeconds(after))}
	repl := replacerOf(r)
	repl.Set("http.rate_limit.guard.name", g.id)
	repl.Set("http.rate_limit.guard.retry_after", answer.RetrySeconds(after))
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server != nil && server.Logs != nil {
		if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
			extra.Set(zap.String("rate_limit_guard", front.GuardReason(why)))
		}
	}
	if h.leaveToErrorRoutes(r, server, overloaded) {
		return overloaded
	}
	front.Overloaded(w, r, after)
	return nil
}
