// Package ratelimit is Weir for Caddy: the HTTP handler http.handlers.rate_limit, the app rate_limit that the handlers share, and
// their Caddyfile. It is a thin adapter: package core decides on the requests.
package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/deferred"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/words"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler limits the rate of requests. Each of its zones is a rule: which requests it covers, what tells their clients apart, and
// how many requests of each client it allows. A request over the limit of any zone gets status 429, and costs nothing in the other
// zones.
//
// A rejected request's response says when to try again (`Retry-After`), and every response has the client's quota (`X-RateLimit-*`,
// `RateLimit` and `RateLimit-Policy`). If the site has error routes that handle a 429, they answer it. The placeholder
// `{http.rate_limit.exceeded.name}` then has the name of the exceeded zone, and `{http.rate_limit.exceeded.retry_after}` the
// seconds to wait. The handler emits the event `rate_limit_exceeded` with the zone, the wait and the client's address.
//
// Counters are in memory and survive reloads of the configuration. When the number of a limit changes, it applies at once to the
// existing counters. A zone whose algorithm or period changes keeps to its former limit, too, for the longer of the two periods, so that
// nobody gets more by the change. A zone whose key changes starts afresh. Several handlers in a row decide one after the
// other: what the first has charged stays charged, even if the second rejects.
type Handler struct {
	// The zones, by name. A name has 1 to 64 of the characters A-Z a-z 0-9 _ . - and is unique in its namespace: handlers that use
	// the same name share its counters, and must define the zone alike.
	RateLimits map[string]*syntax.Zone `json:"rate_limits,omitempty"`

	// Rule files in YAML or JSON: paths, or globs such as `/etc/caddy/rules/*.yaml`. The handler decides on their rules together
	// with its zones. They are read again when they change. A handler without rule files of its own uses those of the app
	// `rate_limit` if it has no zones, or has descriptors.
	RulesFiles []string `json:"rules_files,omitempty"`

	// How often rule files are checked for changes if the system does not report them: from 1s to 1h; the default is 10s. The
	// shortest interval of all handlers applies.
	RulesInterval caddy.Duration `json:"rules_interval,omitempty"`

	// The domain of the rule files in which descriptors are looked up. The default is the only domain there is.
	Domain string `json:"domain,omitempty"`

	// The descriptors of a request, in the sense of Envoy's ratelimit service: each is a list of keys and values. A descriptor with
	// an empty value is left out.
	Descriptors [][]DescriptorEntry `json:"descriptors,omitempty"`

	// Keeps the zones of this handler apart from zones of the same names elsewhere. The default is the empty namespace, which all
	// handlers share.
	Namespace string `json:"namespace,omitempty"`

	// The store of the counters. The default is the store of the app `rate_limit`, which is memory unless it says otherwise.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=http.rate_limit.stores inline_key=store"`

	// The header fields with the client's quota: `x_ratelimit` (X-RateLimit-Limit, -Remaining, -Reset), `ietf` (RateLimit and
	// RateLimit-Policy), or `none`. The default is the first two. A rejection always has Retry-After.
	Headers []string `json:"headers,omitempty"`

	// What answers a rejected request. `direct`: this handler, with a short body. `error_routes`: the site's error routes, since
	// the handler returns an error. `auto`, the default: the error routes if any of them handles a 429 of this request, else this
	// handler. Error routes of a subroute around the handler, which only JSON can have, get no rejection: if they did not answer,
	// Caddy would go on behind the subroute.
	Response string `json:"response,omitempty"`

	// The text of a direct answer's body. It may have placeholders. The default says what happened and when to try again.
	Message string `json:"message,omitempty"`

	// A random fraction, from zero to this much, by which the Retry-After of a rejection is longer, so that rejected clients do not
	// all return at once: 0.2 adds up to 20 %. From 0, the default, to 10.
	Jitter float64 `json:"jitter,omitempty"`

	// How often expired counters are removed from memory. The shortest interval of all handlers applies. From 1s to 1d; the default
	// is 1m.
	SweepInterval caddy.Duration `json:"sweep_interval,omitempty"`

	// Whether the log has the key of a rejected request. Keys are often people's addresses, so the default is false.
	LogKey bool `json:"log_key,omitempty"`

	// The level at which rejected requests are logged: `debug`, `info`, `warn`, `error`, or `off`. The default is `info`.
	LogLevel string `json:"log_level,omitempty"`

	// The interval by which the log is sampled: in each interval a rule's first rejection of each key is logged, up to 50 of them,
	// and at its end the number of the others. From 1s to 1h; the default is 1m.
	LogInterval caddy.Duration `json:"log_interval,omitempty"`

	// What caddy-ratelimit has for several Caddys: the same as the store `storage` with these settings.
	Distributed *stores.Distributed `json:"distributed,omitempty"`

	// The storage module of `distributed`. The default is Caddy's own storage.
	StorageRaw json.RawMessage `json:"storage,omitempty" caddy:"namespace=caddy.storage inline_key=module"`

	// Where the handler is written, such as `Caddyfile:12`, for messages. In a Caddyfile it is set by itself.
	At string `json:"at,omitempty"`

	// Keeps the service up that the handler stands before, when it slows down or more is asked of it than it can do.
	Guard *protect.Guard `json:"guard,omitempty"`

	written     map[string]*syntax.WrittenZone // the zones, while a Caddyfile is adapted
	app         *App
	limiter     *stores.Limiter
	zones       []*openZone
	rules       []*front.Rule // those of the zones
	asked       *front.Set    // the zones, if there are no rule files
	expected    *expectations
	doubled     atomic.Bool             // it was told that the service sends quota fields, too
	files       atomic.Pointer[inForce] // nil: the handler uses no rule files
	descriptors []descriptor
	described   []front.Descriptor // those of descriptors
	fields      answer.Fields
	shadows     bool // any zone is a shadow, or has a candidate
	waits       bool // any zone makes requests wait
	events      *caddyevents.App
	ctx         caddy.Context
	logger      *zap.Logger
	errors      protect.ErrorRoutes // who answers what is refused
	untrusting  bool                // its server has no trusted_proxies
	exempted    map[string]bool     // the zones and rules that were already warned of for that
	guarded     *protect.Guarded    // nil: there is no guard
	deferring   *deferred.Deferral  // nil: no zone defers
	http        *caddyhttp.App      // around it; nil: there is none
	stopping    chan struct{}       // closed when this handler's servers stop
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.rate_limit",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision sets up the handler and its zones. It changes nothing of the running configuration.
func (h *Handler) Provision(ctx caddy.Context) error {
	err := h.provision(ctx)
	if err != nil && h.At != "" && !errors.As(err, new(*syntax.ReportedError)) {
		return fmt.Errorf("%w, at %s", err, h.At)
	}
	return err
}

func (h *Handler) provision(ctx caddy.Context) error {
	h.ctx = ctx
	h.logger = ctx.Logger()
	app, err := ctx.App("rate_limit")
	if err != nil {
		return err
	}
	h.app = app.(*App)
	if err := h.app.keepRaw(ctx); err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return err
	}
	h.limiter, err = h.provisionLimiter(ctx)
	if err != nil {
		return err
	}
	events, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("getting events app: %v", err)
	}
	h.events = events.(*caddyevents.App)
	h.fields, _ = answer.ParseFields(h.Headers)
	h.errors.Response = h.Response
	if err := h.provisionGuard(); err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(h.RateLimits)) {
		zone, err := h.RateLimits[name].Compile(name, h.Namespace)
		if err != nil {
			return syntax.InJSON.Write(err)
		}
		h.zones = append(h.zones, &openZone{CompiledZone: zone})
		h.waits = h.waits || zone.Rule.Limits.Delays()
		h.shadows = h.shadows || zone.Rule.Limits.HasShadow()
	}
	files, err := h.patterns()
	if err != nil {
		return err
	}
	accompanied := h.waits || h.app.files.delays(files)
	for _, zone := range h.zones {
		if accompanied {
			zone.Rule.Limits.Accompany()
		}
		if err := zone.provision(ctx, h); err != nil {
			return err
		}
		rule := front.NewRule(zone.Rule)
		h.rules = append(h.rules, rule)
	}
	h.asked = front.NewSet(h.rules, nil, nil, nil, nil)
	h.expected = expectationsOf(h)
	if err := h.provisionFiles(ctx, files); err != nil {
		return err
	}
	h.app.handlers = append(h.app.handlers, h)
	h.app.sweep = shortest(h.app.sweep, time.Duration(h.SweepInterval))
	h.provisionSurroundings(ctx)
	h.warnOfExempted(ctx)
	return h.provisionDeferring()
}

// provisionFiles reads the handler's rule files, which patterns name.
func (h *Handler) provisionFiles(ctx caddy.Context, patterns []string) (err error) {
	if h.descriptors, err = h.newDescriptors(); err != nil {
		return err
	}
	if len(patterns) == 0 {
		if len(h.Descriptors) > 0 {
			return errors.New("descriptors: need rules_files, since the limits of descriptors are in a file")
		}
		if h.RulesInterval != 0 {
			return fmt.Errorf("rules_interval %s: has no effect without rule files, which rules_files has, in a Caddyfile rules_file", time.Duration(h.RulesInterval))
		}
		if len(h.RateLimits) == 0 && h.Guard == nil {
			return errors.New(`rate_limit has no zone: write one into rate_limits, such as "api": {` + syntax.LimitInJSON + `}, or the names of files with rules into rules_files`)
		}
		return nil
	}
	h.app.RulesInterval = shortest(h.app.RulesInterval, h.RulesInterval)
	h.app.usesFiles = h.app.usesFiles || len(h.RulesFiles) == 0
	return h.app.files.join(h, patterns)
}

// patterns returns the patterns of the handler's rule files: its own, else the app's if the handler has no zones, or has descriptors.
func (h *Handler) patterns() ([]string, error) {
	files := h.RulesFiles
	if len(files) == 0 && (len(h.RateLimits) == 0 || len(h.Descriptors) > 0) {
		files = h.app.RulesFiles
	}
	patterns := make([]string, 0, len(files))
	repl := caddy.NewReplacer()
	for _, file := range files {
		pattern, err := repl.ReplaceOrErr(file, true, true)
		if err != nil {
			return nil, fmt.Errorf("rules_file %q: %w", file, err)
		}
		patterns = append(patterns, pattern)
	}
	return patterns, nil
}

// provisionLimiter returns the limiter over the handler's own store, or else the app's.
func (h *Handler) provisionLimiter(ctx caddy.Context) (*stores.Limiter, error) {
	if err := h.distribute(); err != nil {
		return nil, err
	}
	if h.StorageRaw != nil && h.Distributed == nil {
		h.logger.Warn("storage has no effect without distributed, as in caddy-ratelimit: counters live in this process's memory")
	}
	if h.StoreRaw == nil {
		return h.app.limiter, nil
	}
	mod, err := ctx.LoadModule(h, "StoreRaw")
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if m, ok := mod.(*stores.MemoryStore); ok && m.MaxKeys != 0 {
		return nil, errors.New("store memory: max_keys belongs in the store of the app rate_limit, since there is one memory for all handlers")
	}
	return stores.LimiterOver(mod, h.app.memory.store)
}

// provisionSurroundings finds out which error routes are around the handler, and which servers notify it when they stop.
func (h *Handler) provisionSurroundings(ctx caddy.Context) {
	h.stopping = make(chan struct{})
	stop := sync.OnceFunc(func() { close(h.stopping) })
	for _, mod := range ctx.Modules() {
		switch mod := mod.(type) {
		case *caddyhttp.Subroute:
			h.errors.Enclosed = h.errors.Enclosed || mod.Errors != nil
		case *caddyhttp.App:
			h.http = mod
			for _, server := range mod.Servers {
				server.RegisterOnShutdown(stop)
			}
		}
	}
}

// check says what is wrong with the handler's own fields.
func (h *Handler) check() error {
	if _, err := h.checkEffect(); err != nil {
		return syntax.InJSON.Write(err)
	}
	if err := syntax.CheckFields(h.settings()); err != nil {
		return err
	}
	_, err := answer.ParseFields(h.Headers)
	return err
}

// checkEffect says which of the handler's settings, a word of the Caddyfile, has no effect beside the others. The error is a words.Mistake.
func (h *Handler) checkEffect() (word string, err error) {
	for _, c := range []struct {
		said             bool
		word, value, why string
	}{
		{h.Domain != "" && len(h.Descriptors) == 0, "domain", strconv.Quote(h.Domain), "has no effect without a descriptor; write how a request becomes one: `descriptor <key> {header.X-Key}`"},
		{h.Message != "" && h.Response == "error_routes", "message", "", "has no effect with response error_routes, since the error routes answer; write the text there, or take one out"},
		{h.LogKey && h.LogLevel == "off", "log_key", "", "has no effect with log_level off; take one out"},
		{h.LogInterval != 0 && h.LogLevel == "off", "log_interval", "", "has no effect with log_level off; take one out"},
	} {
		if c.said {
			return c.word, words.Wrong(c.word, c.value, c.why)
		}
	}
	return "", nil
}

// Cleanup releases the zones that this handler has opened.
func (h *Handler) Cleanup() error {
	h.guarded.Leave()
	h.deferring.Leave(caddy.Exiting())
	for _, zone := range h.zones {
		zone.close(h.limiter)
	}
	return nil
}

// ServeHTTP decides on the request. It passes the request on, makes it wait, or rejects it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if h.deferring.Serves(r) {
		return h.deferring.ServeJob(w, r)
	}
	h.expected.note(h, r)
	q := front.Inquiries.Get().(*front.Inquiry)
	shadows, err := h.assemble(q, r)
	if err != nil {
		front.Free(q)
		return h.fail(w, err)
	}
	if len(q.Checks) == 0 {
		of := h.guarded.Ask(q, r, false)
		front.Free(q)
		return h.guarded.Admit(w, r, next, of)
	}
	asked, held := h.deferring.Ask(q, r)
	if held {
		front.Free(q)
		front.Unavailable(w, r, front.Jittered(int64(time.Second/time.Microsecond), h.Jitter), front.CannotCheck)
		return nil
	}
	if asked != nil && (asked.Waiting > 0 || asked.ID != "") {
		err := h.deferring.Queue(w, r, q, asked)
		front.Free(q)
		return err
	}
	v := &q.Verdict
	at, failure := h.limiter.Charge(q.Checks, &q.Verdict)
	if asked != nil && failure == nil && h.deferring.Over(q) {
		answered, err := h.deferring.Accept(w, r, q, asked, time.Duration(v.RetryAfter)*time.Microsecond)
		if answered {
			front.Free(q)
			return err
		}
	}
	h.writeFields(w, q)
	report.Count(q, at, failure != nil)
	of := h.guarded.Ask(q, r, failure != nil)
	if v.Outcome == core.Unavailable {
		if protect.DispatchOf(r).TurnAway(v.RetryAfter) {
			front.Free(q)
			return protect.ErrTurnedAway
		}
		front.Unavailable(w, r, front.Jittered(v.RetryAfter, h.Jitter), front.CannotCheck)
		front.Free(q)
		return nil
	}
	if shadows {
		report.ReportShadows(r, q.Checks)
	}
	if v.Outcome == core.Reject {
		err := h.reject(w, r, q)
		front.Free(q)
		return err
	}
	if v.Reserved {
		err = h.serveUnderWay(w, r, next, q, of)
	} else {
		front.Free(q)
		err = h.guarded.Admit(w, r, next, of)
	}
	h.noteDoubled(w)
	return err
}

// noteDoubled warns once of a service that sends quota fields, too.
func (h *Handler) noteDoubled(w http.ResponseWriter) {
	if h.fields.XRateLimit && len(w.Header()["X-Ratelimit-Limit"]) > 1 && h.doubled.CompareAndSwap(false, true) {
		h.logger.Warn("the service behind this handler sends X-RateLimit fields, too, and answers have both: write header_down -X-RateLimit-* into reverse_proxy to leave them to the rate limit, or headers none into rate_limit to leave them to the service", zap.String("at", h.At))
	}
}

// writeFields sets the header fields that say what was decided.
func (h *Handler) writeFields(w http.ResponseWriter, q *front.Inquiry) {
	v := &q.Verdict
	if v.Outcome == core.Unavailable {
		return
	}
	if v.Outcome == core.Reject {
		v.RetryAfter = front.Jittered(v.RetryAfter, h.Jitter)
	}
	answer.WriteHeaders(w.Header(), h.fields, q.Checks, v)
}

// assemble fills in the checks of a request, and reports whether any rule of the handler is a shadow or has a candidate.
func (h *Handler) assemble(q *front.Inquiry, r *http.Request) (shadows bool, err error) {
	asked, shadows := h.asked, h.shadows
	if files := h.files.Load(); files != nil {
		asked, shadows = files.asked, shadows || files.set.shadows
	}
	q.Early = r.TLS != nil && !r.TLS.HandshakeComplete
	if asked.Files != nil {
		if sent, stripped := syntax.Readings(r); sent != r {
			q.Sent, q.Stripped = sent, stripped
		}
	}
	address := ""
	if asked.NeedsAddress {
		address = syntax.ClientIPOf(r)
	}
	return shadows, front.Assemble(asked, q, r, address)
}

// Interface guards
var (
	_ caddy.Module                = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)

// distribute makes a store of the handler's own of what caddy-ratelimit's words mean.
func (h *Handler) distribute() error {
	if h.Distributed == nil {
		return nil
	}
	if h.StoreRaw != nil {
		return errors.New("distributed and store are mutually exclusive: distributed means a store in Caddy's storage; remove one")
	}
	var err error
	h.StoreRaw, err = json.Marshal(struct {
		Store string `json:"store"`
		stores.StorageStore
	}{"storage", stores.StorageStore{ReadInterval: h.Distributed.ReadInterval, WriteInterval: h.Distributed.WriteInterval, PurgeAge: h.Distributed.PurgeAge, StorageRaw: h.StorageRaw}})
	return err
}

// provisionGuard makes the handler's guard ready.
func (h *Handler) provisionGuard() error {
	g := h.Guard
	if g == nil {
		return nil
	}
	if err := g.Check(); err != nil {
		return err
	}
	for _, other := range h.app.handlers {
		if other.Guard != nil && other.Guard.Name == g.Name && other.Namespace == h.Namespace && !g.Alike(other.Guard) {
			return fmt.Errorf("guard %q: two handlers define it differently; handlers with guards of one name share it, so define it alike, or give one of them another name", g.Name)
		}
	}
	for _, other := range h.app.handlers {
		if g.Name == "" && other.Guard != nil && other.Guard.Name == "" && other.Namespace == h.Namespace {
			h.logger.Warn("several handlers share the guard that has no name; where they stand before different services, name each: guard <name>")
			break
		}
	}
	var err error
	h.guarded, err = protect.New(g, h.Namespace, h.Jitter, &h.errors, h.logger)
	return err
}

// newReporter returns a reporter of one of the handler's rules, which the guard learns of. The caller must close it.
func (h *Handler) newReporter(name string, key func(*http.Request) string) *report.Reporter {
	r := report.New(report.Config{Logger: h.logger, Level: h.LogLevel, Interval: time.Duration(h.LogInterval), LogKey: h.LogKey}, h.Namespace, name, key)
	h.guarded.Learn(r)
	return r
}

// provisionDeferring makes the handler ready to defer, if one of its zones does. All zones have been provisioned.
func (h *Handler) provisionDeferring() error {
	defers, name, err := syntax.DeferringZone(h.RateLimits)
	if defers == nil || err != nil {
		return err
	}
	zone := h.zones[slices.IndexFunc(h.zones, func(z *openZone) bool { return z.Zone == defers })]
	switch {
	case h.limiter.Settings == nil:
		err = errors.New("on_limit defer: needs a store in Redis, which keeps the requests; write store redis and its address")
	case len(h.RulesFiles) > 0 || len(h.Descriptors) > 0:
		err = errors.New("on_limit defer: the handler cannot have rules_file and descriptor, too; write those into another rate_limit")
	default:
		h.deferring, err = deferred.New(deferred.Host{Self: h, Namespace: h.Namespace, Zone: zone.CompiledZone, Zones: h.rules, Stats: zone.reporter.Stats,
			Limiter: h.limiter, Guarded: h.guarded, Errors: &h.errors, Jitter: h.Jitter, HTTP: h.http, Stopping: h.stopping, Context: h.ctx, Logger: h.logger, Reject: h.rejectDecided})
	}
	if err != nil {
		return fmt.Errorf("zone %q: %w", name, err)
	}
	return nil
}

// rejectDecided rejects a request by the verdict on its checks, and counts it.
func (h *Handler) rejectDecided(w http.ResponseWriter, r *http.Request, q *front.Inquiry) error {
	h.writeFields(w, q)
	report.Count(q, time.Now().Unix(), false)
	h.guarded.Ask(q, r, false)
	return h.reject(w, r, q)
}
