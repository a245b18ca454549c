package traefik

import (
	"net/http"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/redis"
)

// express returns the handler of a router: where the middleware has one rule, as most have, one that is quick for the interpreter,
// and leaves to h what it does not do.
func express(h *handler) http.Handler {
	e := h.engine
	if len(e.rules) != 1 {
		return h
	}
	r := e.rules[0]
	if r.rule.Shadow() || r.cost != 1 || r.costFrom != nil {
		return h
	}
	config := core.ServeConfig{
		Told:   core.NewTold(r.rule, e.fields),
		Keys:   &keyer{engine: e, rule: r},
		Direct: len(r.parts) == 1 && r.parts[0].source.String() == "client_ip" && e.addressing.direct() && r.prefixes.IPv4 == 32,
		Next:   h.next,
		Rest:   h,
	}
	var quick http.Handler
	if e.shared != nil {
		quick = redis.Serve(e.shared.store, r.rule, config, h)
	} else if way := core.NewExpress(e.memory, r.rule); way != nil {
		quick = core.Serve(way, config)
	}
	if quick == nil {
		return h
	}
	if r.matcher != nil {
		return &gate{engine: e, matcher: r.matcher, excepts: r.excepts, covered: quick, next: h.next}
	}
	return quick
}

// gate lets those requests pass by that the only rule does not cover.
type gate struct {
	engine        *engine
	matcher       *core.Matcher
	excepts       bool // the matcher looks at the client's address
	covered, next http.Handler
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address := ""
	if g.excepts {
		address = clientAddress(&g.engine.addressing, r)
		if g.engine.watchForwarded {
			noteForwarded(g.engine, r)
		}
	}
	if g.matcher.Covers(r, address) {
		g.covered.ServeHTTP(w, r)
		return
	}
	g.next.ServeHTTP(w, r)
}

// keyer makes the keys of one rule: see core.Keyer.
type keyer struct {
	engine *engine
	rule   *rule
}

// Key returns a request's key, or "" where a part of it is missing.
func (k *keyer) Key(r *http.Request) string {
	address := ""
	if k.engine.needsAddress {
		address = clientAddress(&k.engine.addressing, r)
	}
	if len(k.rule.parts) == 1 {
		return partOf(k.rule, &k.rule.parts[0], r, address)
	}
	var q inquiry
	key, missing := makeKey(k.rule, &q, r, address)
	if missing {
		return ""
	}
	return key
}
