package traefik

import (
	"net/http"
	"strings"
	"sync"
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

// fastPath returns the handler of a router: one that is fast under the interpreter if it can be, and leaves all other requests to h. Interpreted, a
// handler in front of another costs several times as much as some more lines in it. So the fast paths themselves count, and answer paths of their own,
// if the middleware does. The rules of files may be replaced: then there is another path.
func fastPath(h *handler) http.Handler {
	if h.engine.fixed == nil {
		p := &replaced{handler: h, changing: &h.engine.changing}
		p.last.Store(&madePath{})
		return p
	}
	return pathOfSet(h, h.engine.fixed)
}

// replaced is the handler of a router with rules in files.
type replaced struct {
	handler  *handler
	changing *atomic.Value // *ruleSet: the engine's
	last     atomic.Value  // *madePath
}

// madePath is a path that was made of a set of rules; nil: of none.
type madePath struct {
	set  *ruleSet
	path http.Handler
}

// ServeHTTP implements http.Handler.
func (p *replaced) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var (
		s    *ruleSet
		last *madePath
	)
	s = p.changing.Load().(*ruleSet)
	last = p.last.Load().(*madePath)
	if last.set != s {
		last = p.replace(s)
	}
	last.path.ServeHTTP(w, r)
}

// replace makes the path of another set.
func (p *replaced) replace(s *ruleSet) *madePath {
	h := &handler{next: p.handler.next, engine: p.handler.engine, guarded: p.handler.guarded, of: s.asked}
	if h.guarded != nil { // the guard tells clients apart by the set's rules
		h.guarded = guardOfSet(h.guarded.engine, h.guarded.next, s)
		h.next = h.guarded
	}
	made := &madePath{set: s, path: pathOfSet(h, s)}
	p.last.Store(made)
	return made
}

// pathOfSet returns the path of a set of rules.
//
// If requests must pass a previous limit, too, since a change of the configuration has changed the algorithm, then they take the general path
// until that is over. If advice may change the limit, there is a fast path for each limit that is in force.
func pathOfSet(h *handler, s *ruleSet) http.Handler {
	if h.engine.fields.Form != nil {
		var noRule *front.Rule
		return generalPath(h, meteringOf(h.engine, s, noRule))
	}
	if len(s.rules) > fewRules && s.domain == nil {
		var noRule *front.Rule
		return indexedPath(h, s, meteringOf(h.engine, s, noRule))
	}
	return pathOfFew(h, s)
}

// pathOfFew is pathOfSet for rules that are looked at one by one.
func pathOfFew(h *handler, s *ruleSet) http.Handler {
	if len(s.rules) != 1 || s.domain != nil || !plain(h.engine, s.rules[0]) || hasLinked(s.rules[0]) {
		return pathOfSeveral(h, s)
	}
	r := s.rules[0]
	limits := r.Ruled.Limits
	chosen := pathOfRule(h, s, r, limits)
	if atomic.LoadInt32(&r.Ruled.Active.Generation) == 0 && (h.engine.adaptation == nil || r.Ruled.Adapt == nil) {
		return chosen
	}
	t := &transitional{active: r.Ruled.Active, handler: h, set: s, general: generalPath(h, meteringOf(h.engine, s, r)), chosen: chosen}
	t.adapted.Store(&adaptedPath{})
	return t
}

// plain reports whether the requests under a rule all have one cost, which a fast path charges, and are only rejected or allowed, by one limit each: whatever
// else the rule does with some of them is left to the general path.
func plain(e *engine, r *front.Rule) bool {
	if r.Ruled.Asks || r.Ruled.Limits.Requested() != nil || r.Ruled.Limits.Partly() || r.Ruled.Cost != 1 && (e.shared != nil || hasLinked(r)) {
		return false
	}
	for _, limit := range r.Ruled.Limits.Rules() {
		if limit.CountsByResponse() || limit.JittersReset || limit.Respects != 0 {
			return false
		}
	}
	return true
}

// hasLinked reports whether a rule has limits that are decided together with others, or one of requests in flight only.
func hasLinked(r *front.Rule) bool {
	for _, limit := range r.Ruled.Limits.Rules() {
		if len(limit.Linked()) > 0 || limit.Limit.InFlight {
			return true
		}
	}
	return false
}

// transitional is the handler of a router whose rule has several limits: one after the other, or in a transition two at a time.
type transitional struct {
	active          *transition.Active
	handler         *handler
	set             *ruleSet
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
	path := pathOfRule(t.handler, t.set, t.set.rules[0], in)
	t.adapted.Store(&adaptedPath{generation: generation, path: path})
	path.ServeHTTP(w, r)
}

// generalPath returns the handler of a router without a fast path.
func generalPath(h *handler, metering *memory.Metering) http.Handler {
	if h.guarded != nil && h.engine.limitsNothing() {
		return withOwnPaths(h.guarded, metering)
	}
	return withOwnPaths(h, metering)
}

// watch has requests with X-Forwarded-For noted, if that is to be warned of, and leaves keys with exceptions to the general path.
func watch(e *engine, s *ruleSet, c *memory.ServeConfig) {
	c.Excepted = s.excepted
	if s.watchForwarded {
		c.Watched = forwardedFor
		c.Noticed = &e.forwarded
	}
}

// byAddress reports whether the key of a rule is the address of the connection.
func byAddress(h *handler, r *ruleset.Rule) bool {
	return ruleset.Whole(r) && h.engine.addressing.direct()
}

// coversFunc returns a function that reports whether a rule covers a request; nil: it covers all.
func coversFunc(e *engine, r *front.Rule) func(r *http.Request) bool {
	var all func(r *http.Request) bool
	if r.Matcher == nil {
		return all
	}
	client, noted := clientOf(e, r)
	return r.Matcher.CoversFunc(client, noted)
}

// clientOf returns the arguments of CoversFunc for a rule.
func clientOf(e *engine, r *front.Rule) (client func(r *http.Request) string, noted func(r *http.Request, address string)) {
	var (
		found func(r *http.Request) string
		note  func(r *http.Request, address string)
	)
	direct := e.addressing.direct()
	if e.unsaid || !direct {
		note = func(r *http.Request, address string) {
			if path := r.URL.Path; path == "" || path != e.monitoring.Metrics && path != e.monitoring.Status {
				noteAddress(e, r, address)
			}
		}
	}
	getter := clientGetter(&e.addressing, nil)
	if !direct {
		found = getter
	} else if e.unsaid && !ruleset.Whole(r.Ruled) { // no path notes forwarded requests with known keys
		found = func(r *http.Request) string {
			if r.Header[forwardedFor] != nil {
				note(r, r.RemoteAddr)
			}
			return getter(r)
		}
	}
	return found, note
}

// keyFunc returns the function that makes the keys of a rule.
func keyFunc(h *handler, r *front.Rule) func(r *http.Request) string {
	e := h.engine
	return ruleset.KeyFunc(r.Ruled, func(dressed func(value string) string) func(r *http.Request) string {
		return clientGetter(&e.addressing, dressed)
	})
}

// pathOfRule returns the path of the only rule of a set, with these limits in force.
func pathOfRule(h *handler, s *ruleSet, r *front.Rule, limits *core.Limits) http.Handler {
	metering := meteringOf(h.engine, s, r)
	var quick http.Handler
	if limits.Single() {
		quick = quickHandler(h, s, r, limits.Own(), metering)
	} else {
		quick = chosenPath(h, s, r, limits, metering)
	}
	if quick == nil {
		return generalPath(h, metering)
	}
	if r.Ruled.Matcher == nil {
		return quick
	}
	client, noted := clientOf(h.engine, r)
	return r.Matcher.Gate(client, noted, quick, withOwnPaths(h.next, metering))
}

// chosenPath returns the path of a rule with tiers or overrides, in front of one for each of its limits; nil: it has none.
func chosenPath(h *handler, s *ruleSet, r *front.Rule, limits *core.Limits, metering *memory.Metering) http.Handler {
	var none http.Handler
	paths := make([]http.Handler, 1+len(limits.Rules()))
	paths[0] = withOwnPaths(h.next, metering) // of requests without a limit
	for i, limit := range limits.Rules() {
		if i >= fewRules {
			paths[i+1] = newLaterPath(h, s, r, limit, metering)
			continue
		}
		path := quickHandler(h, s, r, limit, metering)
		if path == nil {
			return none
		}
		paths[i+1] = path
	}
	return newChoice(h, r, limits, paths, metering)
}

// laterPath is the path of one of a rule's many limits, which is made when the first request needs it.
type laterPath struct {
	newPath func() http.Handler
	mu      sync.Mutex
	path    atomic.Value // *madePath
}

func newLaterPath(h *handler, s *ruleSet, r *front.Rule, limit *core.Rule, metering *memory.Metering) *laterPath {
	l := &laterPath{newPath: func() http.Handler {
		path := quickHandler(h, s, r, limit, metering)
		if path == nil {
			path = generalPath(h, metering)
		}
		return path
	}}
	l.path.Store(&madePath{})
	return l
}

// ServeHTTP implements http.Handler.
func (l *laterPath) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := l.path.Load().(*madePath).path
	if path == nil {
		path = l.made()
	}
	path.ServeHTTP(w, r)
}

func (l *laterPath) made() http.Handler {
	l.mu.Lock()
	defer l.mu.Unlock()
	made := l.path.Load().(*madePath)
	if made.path == nil {
		made = &madePath{path: l.newPath()}
		l.path.Store(made)
	}
	return made.path
}

// addressTier returns a function that returns the tier of a request under a rule whose tiers are read from the client's address.
func addressTier(e *engine, r *front.Rule) func(r *http.Request) string {
	client, noted := clientOf(e, r)
	if client == nil {
		return clientGetter(&e.addressing, nil)
	}
	if e.addressing.direct() {
		return client
	}
	return func(r *http.Request) string {
		address := client(r)
		if address == "" {
			noted(r, address)
		}
		return address
	}
}

// newChoice returns a handler that passes a request to the path of its limit, of those in the places of Choices: that of its key, of its tier, or else. It is a function literal, as the stores' fast paths are: a captured variable costs an interpreter less than a field.
func newChoice(h *handler, of *front.Rule, limits *core.Limits, paths []http.Handler, m *memory.Metering) http.Handler {
	byTier, byKey, others := limits.Choices()
	tierOf := tierFunc(h.engine, of)
	open := &h.engine.open
	direct := byAddress(h, of.Ruled)
	keyOf := keyFunc(h, of)
	noKey := ruleset.NoKey(of.Ruled)
	keyed := len(byKey) > 0 || of.Ruled.SkipMissing || of.Ruled.RejectMissing // a limit may be none, and then nobody else looks at the key
	rest := generalPath(h, m)
	keyless := keylessPath(of, withOwnPaths(h.next, m), rest)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var (
			key      string
			i, place int
			ok       bool
		)
		if tierOf != nil && open.Load() > 0 { // whether requests have a tier is still looked at
			rest.ServeHTTP(w, r)
			return
		}
		if keyed {
			if direct {
				key = r.RemoteAddr
				i = strings.IndexAny(key, ":[") // as memory.KeyIn
			}
			if i > 0 {
				key = key[:i]
			} else {
				key = keyOf(r)
			}
			if key == noKey {
				keyless.ServeHTTP(w, r)
				return
			}
			place, ok = byKey[key]
		}
		if !ok && tierOf != nil {
			place, ok = byTier[tierOf(r)]
		}
		if !ok {
			place = others
		}
		paths[place].ServeHTTP(w, r)
	})
}

// meteringOf returns what a handler counts, and which paths it answers itself; nil: nothing. r is the only rule of the set; nil: there are several.
func meteringOf(e *engine, s *ruleSet, r *front.Rule) *memory.Metering {
	var none *memory.Metering
	if !e.counts && !e.monitoring.Asides() {
		return none
	}
	metering := &memory.Metering{Allowed: new(int64), Durations: e.durations(), OwnPaths: &ownPaths{engine: e}, Path: e.monitoring.Metrics, Other: e.monitoring.Status}
	if !e.counts {
		metering.Durations = rate.NewDurations() // which nobody reads
	} else if r != nil {
		metering.Allowed = s.meters[r.Ruled.Name].Allowed
	}
	return metering
}

// quickHandler returns the fast path of a limit of a rule; nil: it has none.
func quickHandler(h *handler, s *ruleSet, r *front.Rule, limit *core.Rule, metering *memory.Metering) http.Handler {
	var none http.Handler
	e := h.engine
	c := &memory.ServeConfig{QuotaFields: answer.NewQuotaFields(limit, e.fields), Metering: metering, Refusal: refusalOf(h, s, r, limit, ""), Key: keyFunc(h, r), NoKey: ruleset.NoKey(r.Ruled), Direct: byAddress(h, r.Ruled), Keyless: keylessPath(r, h.next, h), Next: h.next, Rest: h}
	watch(e, s, c)
	if e.shared != nil {
		return redis.Serve(e.shared.store, limit, c, h)
	}
	way := fastPathOf(e, r, limit)
	if way == nil {
		return none
	}
	if r.Ruled.RejectMissing && !ruleset.NeedsAddress(r.Ruled) && limit.Overflow == nil && !limit.CountRejected && !limit.Shadow && limit.Answer == nil && !answer.IsPage(limit.Message+e.message) {
		refused := *c
		refused.Refusal = refusalOf(h, s, r, limit, front.LacksKey)
		c.Keyless = memory.RefuseKeyless(way, &refused, func(request *http.Request) string {
			key, _ := ruleset.KeyOf(r.Ruled, request, "", nil)
			return key
		})
	}
	if h.guarded != nil {
		c.Guarding = guardingOf(h.guarded)
	}
	return memory.Serve(way, c)
}

// fastPathOf returns the memory's fast path for a limit of a rule; nil: there is none.
func fastPathOf(e *engine, r *front.Rule, limit *core.Rule) *memory.FastPath {
	way := memory.NewFastPath(e.memory, limit)
	if way != nil && r.Ruled.Cost != 1 {
		way = memory.Costing(way, r.Ruled.Cost)
	}
	return way
}

// keylessPath returns which of two handlers serves requests without a key under a rule: next if they are not counted, or rest, which is the general path.
func keylessPath(r *front.Rule, next, rest http.Handler) http.Handler {
	if r.Ruled.SkipMissing && !ruleset.NeedsAddress(r.Ruled) {
		return next
	}
	return rest
}

// refusalOf returns how fast paths reject requests under a rule; nil: they leave that to the rest. text is that of the body if none is configured; "": the default text.
func refusalOf(h *handler, s *ruleSet, r *front.Rule, limit *core.Rule, text string) *memory.Refusal {
	e := h.engine
	if limit.Answer != nil && !limit.Shadow { // which only the general path gives
		var none *memory.Refusal
		return none
	}
	message := limit.Message
	if message == "" {
		message = e.message
	}
	if message == "" {
		message = text
	}
	refusal := answer.NewRefusal(message, r.Ruled.Name)
	if e.jitter > 0 && !limit.JitterIsOwn || e.jitter < 0 && limit.Jitter > 0 {
		keyOf := keyFunc(h, r)
		jitter := e.jitter
		refusal.Jittered = func(wait int64, request *http.Request) int64 {
			key := ""
			if jitter < 0 {
				key = keyOf(request)
			}
			return front.WaitOf(wait, limit, key, request, jitter)
		}
	}
	if limit.Shadow {
		refusal.Shadowed = &s.tallies[r.Ruled.Name].Requests[front.ShadowRejected]
		if e.counts {
			refusal.Rejected = &s.meters[r.Ruled.Name].Requests[front.ShadowRejected]
		}
		return refusal
	}
	if e.counts {
		refusal.Rejected = &s.meters[r.Ruled.Name].Requests[front.Rejected]
	}
	refusal.Told = tellingOf(h, s.tracked[r.Ruled.Name], r.Ruled.Name)
	return refusal
}

// tellingOf returns what is told of a rule's rejections: the guard, and the log; nil: nobody. of is what the guard knows of the rule.
func tellingOf(h *handler, of *guard.Rule, rule string) memory.Told {
	l := h.engine.rejections
	g := h.guarded
	if g == nil && l == nil {
		var nobody memory.Told
		return nobody
	}
	return func(key string, seconds int64, r *http.Request) {
		if g != nil {
			countRefusal(g, of, key)
		}
		if l != nil {
			tell(l, rule, key, seconds, r)
		}
	}
}

// guardingOf returns what memory's fast paths do for a guard.
func guardingOf(g *guarded) *memory.Guarding {
	return &memory.Guarding{Word: g.word, Take: guard.Take, Leave: leavesPlace, NoTicket: guard.NoTicket, Ticketed: g.next, Unticketed: &unticketed{guarded: g}}
}

// withOwnPaths returns a handler that answers own paths, and passes other requests on. m may be nil.
func withOwnPaths(next http.Handler, m *memory.Metering) http.Handler {
	if m == nil {
		return next
	}
	own := m.Path
	other := m.Other
	aside := m.OwnPaths
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if path == own || path == other {
			aside.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
