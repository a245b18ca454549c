// Package ratelimit is Weir for Caddy: the HTTP handler http.handlers.rate_limit, the app rate_limit that the handlers share, and
// their Caddyfile. It is a thin adapter: package core decides on the requests.
//
// This is the map of its packages, each above those it imports:
//
//	syntax      how limits are written: lines of a Caddyfile, fields of JSON, placeholders, zones
//	stores      where limits are counted: memory, Redis, a storage
//	report      what is said of rules: counts, keys that send the most, logs, their description
//	protect     the guard, and who answers what is refused
//	adapt       carries out advice on limits
//	deferred    does requests later that are over their limit
//	admin       the admin API, and the page that it serves
//	ratelimit   the handler, the app, their rule files and metrics
//
// A file's name says which concern. Types are in handler.go and app.go, what loads a configuration in setup.go and lifecycle.go, what is
// unique in it in registry.go, and what a request passes in serve.go.
package ratelimit

import (
	"encoding/json"
	"fmt"
	"net/http"
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
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/ruleset"
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

	// What the names of the X-RateLimit fields begin with, in place of `X-RateLimit`: `X-Acme` is for X-Acme-Limit and so on.
	HeaderPrefix string `json:"header_prefix,omitempty"`

	// What X-RateLimit-Reset is: `seconds` from now, the default, or `epoch`, a second of the Unix epoch.
	HeaderReset string `json:"header_reset,omitempty"`

	// Lets pages of other origins read what this handler answers in place of the service, and lets their preflights pass uncounted.
	CORS *syntax.CORS `json:"cors,omitempty"`

	// What answers a rejected request. `direct`: this handler, with a short body. `error_routes`: the site's error routes, since
	// the handler returns an error. `auto`, the default: the error routes if any of them handles a 429 of this request, else this
	// handler. Error routes of a subroute around the handler, which only JSON can have, get no rejection: if they did not answer,
	// Caddy would go on behind the subroute.
	Response string `json:"response,omitempty"`

	// The text of a direct answer's body. It may have placeholders. The default says what happened and when to try again.
	Message string `json:"message,omitempty"`

	// A random fraction, from zero to this much, by which the Retry-After of a rejection is longer, so that rejected clients do not
	// all return at once: 0.2 adds up to 20 %. From 0 to 10. It is for zones without a `jitter` of their own, and 0 keeps all their times exact. By default
	// only zones have one whose quotas are renewed for all keys at once.
	Jitter *float64 `json:"jitter,omitempty"`

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

	// Whether each decision is an event of the span that Caddy's `tracing` handler records: with rule, outcome, limit, what remains of it and the time to
	// retry, and with `log_key` the key. The default is false.
	Trace bool `json:"trace,omitempty"`

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
	encoded     atomic.Bool             // it was told that responses are compressed, which say what requests cost
	doubled     atomic.Bool             // it was told that the service sends quota fields, too
	files       atomic.Pointer[inForce] // nil: the handler uses no rule files
	descriptors [][]*syntax.Template    // the values of Descriptors
	described   []front.Descriptor      // those of descriptors
	advised     map[string]bool         // what adviseDescriptors has said
	fields      answer.Fields
	cors        *front.CORS // nil: it sets no fields of CORS
	shadows     bool        // any zone is a shadow, or has a candidate
	waits       bool        // any zone makes requests wait
	events      *caddyevents.App
	ctx         caddy.Context
	logger      *zap.Logger
	errors      protect.ErrorRoutes // who answers what is refused
	untrusting  bool                // its server has no trusted_proxies
	exempted    map[string]bool     // the zones and rules that were already warned of for that
	guarded     *protect.Guarded    // nil: there is no guard
	deferring   *deferred.Deferral  // nil: no zone defers
	serve       deferred.Serve      // limit, or the deferral around it
	decide      deferred.Decide     // charge, or the deferral around it
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

// Cleanup releases the zones that this handler has opened.
func (h *Handler) Cleanup() error {
	h.guarded.Leave()
	h.cors.Release()
	h.deferring.Leave(caddy.Exiting())
	for _, zone := range h.zones {
		zone.close(h.limiter)
	}
	return nil
}

// Interface guards
var (
	_ caddy.Module                = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)

// newReporter returns a reporter of one of the handler's rules, which the guard learns of. The caller must close it.
func (h *Handler) newReporter(name string, key func(*http.Request) string) *report.Reporter {
	r := report.New(report.Config{Logger: h.logger, Level: h.LogLevel, Interval: time.Duration(h.LogInterval), LogKey: h.LogKey}, h.Namespace, name, key)
	h.guarded.Learn(r)
	return r
}

// instanceOf returns the instance of an adaptable rule in the handler.
func (h *Handler) instanceOf(r *ruleset.Rule) *adaptive.Instance {
	return &adaptive.Instance{Rule: r, Limiter: h.limiter.Limiter, Applies: h.app.Advisor.Applies()}
}

// warnOfExempted warns of zones and rules that exempt private addresses on a server without trusted proxies. If that server is
// behind a load balancer, or in a container whose network replaces addresses, every client has a private address, and the limit
// applies to nobody.
func (h *Handler) warnOfExempted(ctx caddy.Context) {
	h.untrusting = syntax.TrustsNoProxy(ctx, h.RateLimits)
	h.exempted = make(map[string]bool)
	h.warnOfExceptions("zone", h.rules)
	if files := h.files.Load(); files != nil {
		h.warnOfExceptions("rule", files.set.rules)
	}
}

// warnOfExceptions warns of some rules as warnOfExempted does: those of files may change while h serves.
func (h *Handler) warnOfExceptions(kind string, rules []*front.Rule) {
	for _, rule := range rules {
		name := rule.Ruled.Name
		if h.untrusting && !h.exempted[name] && rule.Matcher != nil && rule.Matcher.ExceptsPrivate() {
			h.exempted[name] = true
			h.logger.Warn("private addresses are exempt, and this server has no trusted_proxies: behind a load balancer, or in a container's network, "+
				"all requests come from a private address, and this limits nobody; set trusted_proxies in the global servers option, or except single addresses",
				zap.String(kind, name))
		}
	}
}
