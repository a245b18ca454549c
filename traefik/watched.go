package traefik

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/answer"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/ruleset"
)

// What a middleware has for requests that counts, or answers for paths of its own, is written a second time, so that others pay nothing
// for it. Interpreted, a handler in front of another costs several times what the lines do that are more here.

// watched is express for a middleware that counts, or answers for paths of its own.
func watched(h *handler) http.Handler {
	e := h.engine
	at := &core.Watch{Allowed: new(int64), Durations: e.durations(), Aside: &aside{engine: e}, Path: e.watching.metrics, Other: e.watching.status}
	all := &watchedHandler{rest: h, path: at.Path, other: at.Other, aside: at.Aside}
	r := onlyPlain(e)
	if r == nil {
		return all
	}
	if e.counts {
		at.Allowed = e.fixed.meters[r.ruled.Name].allowed
	} else {
		at.Durations = core.NewDurations() // which nobody reads
	}
	told := answer.NewTold(r.only, e.fields)
	direct := ruleset.Whole(r.ruled) && e.addressing.direct()
	var quick http.Handler
	if e.shared != nil {
		quick = redis.ServeWatched(e.shared.store, r.only, redis.ServeConfig{Told: told, Keys: &keyer{engine: e, rule: r}, Direct: direct, Next: h.next, Rest: h}, at)
	} else if way := core.NewExpress(e.memory, r.only); way != nil {
		watchedByKey := &watchedKeyed{
			way: way, told: told, engine: e, rule: r, next: h.next, rest: h,
			path: at.Path, other: at.Other, aside: at.Aside, allowed: at.Allowed, durations: at.Durations, turn: new(int64),
		}
		quick = watchedByKey
		if direct && told.All {
			quick = core.ServeWatched(way, told, at, h.next, &watchedUndirected{byKey: watchedByKey, rest: h})
		}
	}
	if quick == nil {
		return all
	}
	if r.ruled.Matcher != nil {
		return &watchedGate{
			gate: &gate{engine: e, matcher: r.ruled.Matcher, excepts: r.ruled.Excepts, covered: quick, next: h.next},
			path: at.Path, other: at.Other, aside: at.Aside,
		}
	}
	return quick
}

// watchedHandler is the way of all.
type watchedHandler struct {
	rest        *handler
	path, other string
	aside       http.Handler
}

// ServeHTTP implements http.Handler.
func (a *watchedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == a.path || r.URL.Path == a.other {
		a.aside.ServeHTTP(w, r)
		return
	}
	serve(a.rest, w, r)
}

// watchedGate is a gate.
type watchedGate struct {
	gate        *gate
	path, other string
	aside       http.Handler
}

// ServeHTTP implements http.Handler.
func (g *watchedGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == g.path || r.URL.Path == g.other {
		g.aside.ServeHTTP(w, r)
		return
	}
	g.gate.ServeHTTP(w, r)
}

// watchedUndirected is an undirected.
type watchedUndirected struct {
	byKey *watchedKeyed
	rest  *handler
}

// ServeHTTP implements http.Handler.
func (u *watchedUndirected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var (
		i int
		q *inquiry
		e *engine
	)
	i = strings.IndexByte(r.RemoteAddr, ':')
	if i <= 0 || r.RemoteAddr[0] == '[' {
		u.byKey.ServeHTTP(w, r)
		return
	}
	e = u.rest.engine
	if e.unsaid && len(r.Header[forwardedFor]) > 0 {
		noteAddress(e, r, r.RemoteAddr)
	}
	q = inquiries.Get().(*inquiry)
	q.checks = append(q.checks, core.Check{Rule: u.byKey.rule.only, Key: r.RemoteAddr[:i], Cost: 1})
	if atomic.AddInt64(e.turn, 1)%core.TimedShare == 1 {
		goOn(u.rest, w, r, q, decideTimed(e, q))
		return
	}
	goOn(u.rest, w, r, q, e.limiter.Decide(q.checks, false, &q.verdict))
}

// watchedKeyed is a keyed.
type watchedKeyed struct {
	way    *core.Express
	told   *core.Told
	engine *engine
	rule   *rule
	next   http.Handler
	rest   *handler

	path, other string // of the core.Watch
	aside       http.Handler
	allowed     *int64
	durations   *core.Durations
	turn        *int64 // decisions that were begun
}

// ServeHTTP implements http.Handler.
func (k *watchedKeyed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var (
		path, key        string
		remaining, reset int64
		more             int64
	)
	path = r.URL.Path
	if path == k.path || path == k.other {
		k.aside.ServeHTTP(w, r)
		return
	}
	if atomic.AddInt64(k.turn, 1)%core.TimedShare == 1 {
		serveByKeyTimed(k, w, r)
		return
	}
	key = keyOf(k.engine, k.rule, r)
	if key == "" {
		serve(k.rest, w, r)
		return
	}
	remaining, reset, more = core.Take(k.way, key)
	if remaining < 0 {
		serve(k.rest, w, r)
		return
	}
	atomic.AddInt64(k.allowed, 1)
	core.Tell(k.told, w.Header(), remaining, (reset+999_999)/1_000_000, (more+999_999)/1_000_000)
	k.next.ServeHTTP(w, r)
}

// serveByKeyTimed is watchedKeyed.ServeHTTP for the decisions that are timed.
func serveByKeyTimed(k *watchedKeyed, w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	key := keyOf(k.engine, k.rule, r)
	remaining, reset, more := int64(-1), int64(0), int64(0)
	if key != "" {
		remaining, reset, more = core.Take(k.way, key)
	}
	if remaining < 0 {
		serve(k.rest, w, r)
		return
	}
	core.Observe(k.durations, time.Since(begun))
	atomic.AddInt64(k.allowed, 1)
	core.Tell(k.told, w.Header(), remaining, (reset+999_999)/1_000_000, (more+999_999)/1_000_000)
	k.next.ServeHTTP(w, r)
}
