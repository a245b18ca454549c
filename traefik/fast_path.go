package traefik

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/transition"
	"github.com/proxyweir/weir/redis"
)

// fastPath returns the handler of a router: if the middleware has one rule, as most have, one that is fast under the interpreter,
// and leaves all other requests to h. Interpreted, a handler in front of another costs several times as much as some more lines in it. So the
// fast paths themselves count, and answer paths of their own, if the middleware does.
//
// If requests must pass a previous limit, too, since a change of the configuration has changed the algorithm, then they take the general path
// until that is over. If advice may change the limit, there is a fast path for each limit that is in force.
func fastPath(h *handler) http.Handler {
	r := onlyPlain(h.engine)
	if r == nil || atomic.LoadInt32(&r.Ruled.Active.Generation) == 0 && (h.engine.adaptation == nil || r.Ruled.Adapt == nil) {
		return chosenPath(h)
	}
	general := generalPath(h, meteringOf(h.engine, r))
	t := &transitional{active: r.Ruled.Active, handler: h, general: general, chosen: chosenPath(h)}
	t.adapted.Store(&adaptedPath{})
	return t
}

// transitional is the handler of a router whose rule has several limits: one after the other, or in a transition two at a time.
type transitional struct {
	active          *transition.Active
	handler         *handler
	general, chosen http.Handler
	adapted         atomic.Value // *adaptedPath: the last one
}

// adaptedPath is a fast path, and the generation that it is for.
type adaptedPath struct {
	generation int32
	path       http.Handler
}

// ServeHTTP implements http.Handler.
func (t *transitional) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var (
		generation int32
		kept       *adaptedPath
	)
	generation = atomic.LoadInt32(&t.active.Generation)
	if generation == 0 {
		t.chosen.ServeHTTP(w, r)
		return
	}
	kept = t.adapted.Load().(*adaptedPath)
	if kept.generation == generation {
		kept.path.ServeHTTP(w, r)
		return
	}
	serveAdapted(t, generation, w, r)
}

// serveAdapted serves the first request under other limits than before, and requests that must pass several.
func serveAdapted(t *transitional, generation int32, w http.ResponseWriter, r *http.Request) {
	in := t.active.Alone()
	if in == nil {
		t.general.ServeHTTP(w, r)
		return
	}
	path := pathFor(t.handler, in)
	t.adapted.Store(&adaptedPath{generation: generation, path: path})
	path.ServeHTTP(w, r)
}

// generalPath returns the handler of a router without a fast path.
func generalPath(h *handler, metering *memory.Metering) http.Handler {
	if metering != nil {
		return newAll(h, metering)
	}
	if h.guarded != nil && h.engine.limitsNothing() {
		return h.guarded
	}
	return h
}

// chosenPath returns the fast path of a router, or if it has none, the general one.
func chosenPath(h *handler) http.Handler {
	if several := severalPath(h); several != nil {
		return several
	}
	return pathOfRule(h, onlyPlain(h.engine))
}

// severalPath returns the fast path of several rules; nil: the middleware has none.
func severalPath(h *handler) http.Handler {
	var none http.Handler
	e := h.engine
	if !allPlain(e) || len(e.fixed.rules) < 2 || len(e.fixed.rules) > mostServed {
		return none
	}
	first := e.fixed.rules[0].Ruled
	same := true
	var rules []*memory.ServedRule
	var only []*core.Rule
	for _, r := range e.fixed.rules {
		var way *memory.FastPath
		if e.shared == nil {
			way = memory.NewFastPath(e.memory, r.Only)
		}
		if way == nil && e.shared == nil || atomic.LoadInt32(&r.Ruled.Active.Generation) != 0 || e.adaptation != nil && r.Ruled.Adapt != nil {
			return none
		}
		same = same && ruleset.SameKey(first, r.Ruled)
		served := &memory.ServedRule{FastPath: way, QuotaFields: answer.NewQuotaFields(r.Only, e.fields), Refusal: refusalOf(h, r), Allowed: r.Only.Allowed, Key: keyFunc(h, r), Covers: coversFunc(e, r)}
		if served.Allowed == nil { // there are no metrics
			served.Allowed = new(int64)
		}
		rules = append(rules, served)
		only = append(only, r.Only)
	}
	serve := func(c *memory.ServeConfig) http.Handler {
		if e.shared != nil {
			return redis.ServeSeveral(e.shared.store, only, rules, c, h)
		}
		return memory.ServeSeveral(rules, c)
	}
	var noRule *front.Rule
	c := &memory.ServeConfig{Key: rules[0].Key, Metering: meteringOf(e, noRule), Next: h.next, Rest: h}
	watch(e, c)
	if !same {
		return serve(c)
	}
	for _, served := range rules {
		served.Key = nil
	}
	return byAddress(h, first, c, serve)
}

// mostServed is the most rules that have a fast path: as many as answer.WriteHeaders lists.
const mostServed = 32

// watch has requests with X-Forwarded-For noted, if that is to be warned of.
func watch(e *engine, c *memory.ServeConfig) {
	if e.fixed.watchForwarded {
		c.Watched = forwardedFor
		c.Noticed = &e.forwarded
	}
}

// byAddress returns memory's path for rules with the key of one of them: if that is the connection's address, a path for that in front of the
// one for any key. serve is what makes a path.
func byAddress(h *handler, of *ruleset.Rule, c *memory.ServeConfig, serve func(c *memory.ServeConfig) http.Handler) http.Handler {
	byKey := serve(c)
	if !ruleset.Whole(of) || !h.engine.addressing.direct() {
		return byKey
	}
	direct := *c
	direct.Key = nil
	direct.Rest = &undirected{byKey: byKey, rest: h}
	return serve(&direct)
}

// coversFunc returns a function that reports whether a rule covers a request; nil: it covers all.
func coversFunc(e *engine, r *front.Rule) func(r *http.Request) bool {
	var all func(r *http.Request) bool
	if r.Matcher == nil {
		return all
	}
	var client func(r *http.Request) string
	if r.Ruled.Excepts {
		client = clientGetter(&e.addressing, nil)
		if e.unsaid || !e.addressing.direct() {
			found := client
			client = func(r *http.Request) string {
				address := found(r)
				if address == "" || e.unsaid {
					noteAddress(e, r, address)
				}
				return address
			}
		}
	}
	return r.Matcher.CoversFunc(client)
}

// keyFunc returns the function that makes the keys of a rule.
func keyFunc(h *handler, r *front.Rule) func(r *http.Request) string {
	e := h.engine
	return ruleset.KeyFunc(r.Ruled, func(dressed func(value string) string) func(r *http.Request) string {
		return clientGetter(&e.addressing, dressed)
	})
}

// pathFor is chosenPath with other limits than the configured ones.
func pathFor(h *handler, limits *core.Limits) http.Handler {
	r := *onlyPlain(h.engine)
	r.Only = limits.Own()
	return pathOfRule(h, &r)
}

func pathOfRule(h *handler, r *front.Rule) http.Handler {
	var quick http.Handler
	e := h.engine
	metering := meteringOf(e, r)
	if r != nil {
		quick = quickHandler(h, r, metering)
	}
	if quick == nil {
		return generalPath(h, metering)
	}
	if r.Ruled.Matcher == nil {
		return quick
	}
	return newGate(h, r, quick, metering)
}

// meteringOf returns what a handler counts, and which paths it answers itself; nil: nothing. r is the engine's only rule; nil: there are several.
func meteringOf(e *engine, r *front.Rule) *memory.Metering {
	var none *memory.Metering
	if !e.counts && !e.monitoring.Asides() {
		return none
	}
	metering := &memory.Metering{Allowed: new(int64), Durations: e.durations(), OwnPaths: &ownPaths{engine: e}, Path: e.monitoring.Metrics, Other: e.monitoring.Status}
	if !e.counts {
		metering.Durations = rate.NewDurations() // which nobody reads
	} else if r != nil {
		metering.Allowed = e.fixed.meters[r.Ruled.Name].Allowed
	}
	return metering
}

// quickHandler returns the fast path of a rule; nil: it has none.
func quickHandler(h *handler, r *front.Rule, metering *memory.Metering) http.Handler {
	var none http.Handler
	e := h.engine
	c := &memory.ServeConfig{QuotaFields: answer.NewQuotaFields(r.Only, e.fields), Metering: metering, Refusal: refusalOf(h, r), Key: keyFunc(h, r), Next: h.next, Rest: h}
	watch(e, c)
	if e.shared != nil {
		return byAddress(h, r.Ruled, c, func(c *memory.ServeConfig) http.Handler { return redis.Serve(e.shared.store, r.Only, c, h) })
	}
	way := memory.NewFastPath(e.memory, r.Only)
	if way == nil {
		return none
	}
	if h.guarded != nil {
		c.Guarding = guardingOf(h.guarded)
	}
	return byAddress(h, r.Ruled, c, func(c *memory.ServeConfig) http.Handler { return memory.Serve(way, c) })
}

// undirected handles what a fast path leaves where the key is the connection's address: requests of clients with IPv6 addresses, and rare
// cases, such as rejections in JSON.
type undirected struct {
	byKey http.Handler
	rest  *handler
}

// ServeHTTP implements http.Handler.
func (u *undirected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.IndexByte(r.RemoteAddr, ':') <= 0 || r.RemoteAddr[0] == '[' {
		u.byKey.ServeHTTP(w, r)
		return
	}
	serve(u.rest, w, r)
}

// refusalOf returns how memory's fast paths reject requests under a rule; nil: they leave that to the general path, since waits are random.
func refusalOf(h *handler, r *front.Rule) *memory.Refusal {
	var none *memory.Refusal
	e := h.engine
	if e.jitter != 0 {
		return none
	}
	message := r.Only.Message
	if message == "" {
		message = e.message
	}
	refusal := answer.NewRefusal(message)
	if e.counts {
		refusal.Rejected = &e.fixed.meters[r.Ruled.Name].Requests[front.Rejected]
	}
	if of := e.fixed.tracked[r.Ruled.Name]; h.guarded != nil {
		refusal.Tracked = func(key string) { countRefusal(h.guarded, of, key) }
	}
	return refusal
}

// guardingOf returns what memory's fast paths do for a guard.
func guardingOf(g *guarded) *memory.Guarding {
	return &memory.Guarding{Word: g.word, Take: guard.Take, Leave: leavesPlace, NoTicket: guard.NoTicket, Ticketed: g.next, Unticketed: &unticketed{guarded: g}}
}

// newGate returns a handler that passes requests which the only rule does not cover to the next handler, and the others to covered. It is a
// function literal, as the stores' fast paths are: a captured variable costs an interpreter less than a field.
func newGate(h *handler, r *front.Rule, covered http.Handler, m *memory.Metering) http.Handler {
	covers := coversFunc(h.engine, r)
	next := h.next
	metered := m != nil
	if !metered {
		m = &memory.Metering{}
	}
	own := m.Path
	other := m.Other
	aside := m.OwnPaths
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var path string
		if metered {
			path = r.URL.Path
			if path == own || path == other {
				aside.ServeHTTP(w, r)
				return
			}
		}
		if covers(r) {
			covered.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newAll returns the general path with a memory.Metering.
func newAll(h *handler, m *memory.Metering) http.Handler {
	own := m.Path
	other := m.Other
	aside := m.OwnPaths
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if path == own || path == other {
			aside.ServeHTTP(w, r)
			return
		}
		serve(h, w, r)
	})
}
