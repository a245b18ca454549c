package traefik

import (
	"net/http"
	"strings"

	"github.com/proxyweir/weir/answer"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/match"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/ruleset"
)

// express returns the handler of a router: where the middleware has one rule, as most have, one that is quick for the interpreter,
// and leaves to h what it does not do.
func express(h *handler) http.Handler {
	e := h.engine
	if e.counts || e.watching.asides() {
		return watched(h)
	}
	r := onlyPlain(e)
	if r == nil {
		return h
	}
	told := answer.NewTold(r.only, e.fields)
	direct := ruleset.Whole(r.ruled) && e.addressing.direct()
	var quick http.Handler
	if e.shared != nil {
		quick = redis.Serve(e.shared.store, r.only, redis.ServeConfig{Told: told, Keys: &keyer{engine: e, rule: r}, Direct: direct, Next: h.next, Rest: h})
	} else if way := core.NewExpress(e.memory, r.only); way != nil {
		byKey := &keyed{way: way, told: told, engine: e, rule: r, next: h.next, rest: h}
		quick = byKey
		if direct && told.All {
			quick = core.Serve(way, told, h.next, &undirected{byKey: byKey, rest: h})
		}
	}
	if quick == nil {
		return h
	}
	if r.ruled.Matcher != nil {
		return &gate{engine: e, matcher: r.ruled.Matcher, excepts: r.ruled.Excepts, covered: quick, next: h.next}
	}
	return quick
}

// onlyPlain returns the rule of a middleware that has only one, which does nothing but reject; nil: it is not so.
func onlyPlain(e *engine) *rule {
	if e.fixed == nil || len(e.fixed.rules) != 1 {
		return nil
	}
	r := e.fixed.rules[0]
	if r.ruled.Shadow || r.beside || !ruleset.Plain(r.ruled) || r.only.HasConduct() {
		return nil
	}
	return r
}

// gate lets those requests pass by that the only rule does not cover.
type gate struct {
	engine        *engine
	matcher       *match.Matcher
	excepts       bool // the matcher looks at the client's address
	covered, next http.Handler
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address := ""
	if g.excepts {
		address = clientAddress(&g.engine.addressing, r)
		if address == "" || g.engine.unsaid {
			noteAddress(g.engine, r, address)
		}
	}
	if g.matcher.Covers(r, address) {
		g.covered.ServeHTTP(w, r)
		return
	}
	g.next.ServeHTTP(w, r)
}

// undirected has what core.Serve does not do: requests of clients with IPv6 addresses, and what is rare, such as those that
// are rejected.
type undirected struct {
	byKey *keyed
	rest  *handler
}

// ServeHTTP implements http.Handler.
func (u *undirected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var (
		i int
		q *inquiry
		e *engine
	)
	i = strings.IndexByte(r.RemoteAddr, ':')
	if i <= 0 || r.RemoteAddr[0] == '[' {
		serveByKey(u.byKey, w, r)
		return
	}
	e = u.rest.engine
	if e.unsaid && len(r.Header[forwardedFor]) > 0 {
		noteAddress(e, r, r.RemoteAddr)
	}
	q = inquiries.Get().(*inquiry)
	q.checks = append(q.checks, core.Check{Rule: u.byKey.rule.only, Key: r.RemoteAddr[:i], Cost: 1})
	goOn(u.rest, w, r, q, e.limiter.Decide(q.checks, false, &q.verdict))
}

// keyed goes the express way of a rule in memory, by any key.
type keyed struct {
	way    *core.Express
	told   *core.Told
	engine *engine
	rule   *rule
	next   http.Handler
	rest   *handler
}

// ServeHTTP implements http.Handler.
func (k *keyed) ServeHTTP(w http.ResponseWriter, r *http.Request) { serveByKey(k, w, r) }

func serveByKey(k *keyed, w http.ResponseWriter, r *http.Request) {
	var (
		key              string
		remaining, reset int64
		more             int64
	)
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
	core.Tell(k.told, w.Header(), remaining, (reset+999_999)/1_000_000, (more+999_999)/1_000_000)
	k.next.ServeHTTP(w, r)
}

// keyer makes the keys of one rule for redis.Serve.
type keyer struct {
	engine *engine
	rule   *rule
}

// Key implements redis.Keyer.
func (k *keyer) Key(r *http.Request) string { return keyOf(k.engine, k.rule, r) }

// keyOf returns a request's key, or "" where a part of it is missing.
func keyOf(e *engine, rule *rule, r *http.Request) string {
	address := ""
	if e.fixed.needsAddress {
		address = clientAddress(&e.addressing, r)
	}
	if len(rule.ruled.Parts) == 1 {
		return ruleset.ValueOf(rule.ruled, &rule.ruled.Parts[0], r, address)
	}
	key, missing := ruleset.KeyOf(rule.ruled, r, address, nil)
	if missing {
		return ""
	}
	return key
}
