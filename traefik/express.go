package traefik

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/answer"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/front"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/ruleset"
)

// express returns the handler of a router: where the middleware has one rule, as most have, one that is quick for the interpreter,
// and leaves to h what it does not do. Interpreted, a handler in front of another costs several times what the lines do that are more:
// so tools/flatten writes those of a middleware that counts, or answers for paths of its own, a second time, and others pay nothing for it.
func express(h *handler) http.Handler {
	var quick http.Handler
	e := h.engine
	r := onlyPlain(e)
	watch := watchOf(e, r)
	if r != nil {
		quick = quickWay(h, r, watch)
	}
	if quick == nil {
		if watch == nil {
			return h
		}
		return newAllWatched(h, watch)
	}
	if r.Ruled.Matcher == nil {
		return quick
	}
	if watch == nil {
		return newGate(h, r, quick)
	}
	return newGateWatched(h, r, quick, watch)
}

// watchOf returns what is done beside deciding, of which r is the only rule (nil: there are several); nil: nothing.
func watchOf(e *engine, r *front.Rule) *core.Watch {
	var none *core.Watch
	if !e.counts && !e.watching.asides() {
		return none
	}
	watch := &core.Watch{Allowed: new(int64), Durations: e.durations(), Aside: &aside{engine: e}, Path: e.watching.metrics, Other: e.watching.status}
	if !e.counts {
		watch.Durations = core.NewDurations() // which nobody reads
	} else if r != nil {
		watch.Allowed = e.fixed.meters[r.Ruled.Name].allowed
	}
	return watch
}

// quickWay returns the express way of a rule; nil: it has none.
func quickWay(h *handler, r *front.Rule, watch *core.Watch) http.Handler {
	var none http.Handler
	e := h.engine
	told := answer.NewTold(r.Only, e.fields)
	direct := ruleset.Whole(r.Ruled) && e.addressing.direct()
	if e.shared != nil {
		return redis.Serve(e.shared.store, r.Only, redis.ServeConfig{
			Told: told, Keys: &keyer{engine: e, rule: r}, Direct: direct, Next: h.next, Rest: h, Watch: watch,
		})
	}
	way := core.NewExpress(e.memory, r.Only)
	if way == nil {
		return none
	}
	if watch == nil {
		byKey := newKeyed(h, r, way, told)
		if direct {
			return core.Serve(way, told, h.next, &undirected{byKey: byKey, rest: h})
		}
		return byKey
	}
	byKey := newKeyedWatched(h, r, way, told, watch)
	if direct {
		return core.ServeWatched(way, told, watch, h.next, &undirectedWatched{byKey: byKey, rest: h})
	}
	return byKey
}

// onlyPlain returns the rule of a middleware that has only one, which does nothing but reject; nil: it is not so.
func onlyPlain(e *engine) *front.Rule {
	if e.fixed == nil || len(e.fixed.rules) != 1 {
		return nil
	}
	r := e.fixed.rules[0]
	if r.Ruled.Shadow || r.Beside || !ruleset.Plain(r.Ruled) || r.Only.HasConduct() {
		return nil
	}
	return r
}

// serveKeyedTimed is keyedWatched.ServeHTTP for the decisions that are timed.
func serveKeyedTimed(k *keyedWatched, w http.ResponseWriter, r *http.Request) {
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

// keyer makes the keys of one rule for redis.Serve.
type keyer struct {
	engine *engine
	rule   *front.Rule
}

// Key implements redis.Keyer.
func (k *keyer) Key(r *http.Request) string { return keyOf(k.engine, k.rule, r) }

// keyOf returns a request's key, or "" where a part of it is missing.
func keyOf(e *engine, rule *front.Rule, r *http.Request) string {
	address := ""
	if e.fixed.needsAddress {
		address = clientAddress(&e.addressing, r)
	}
	if len(rule.Ruled.Parts) == 1 {
		return ruleset.ValueOf(rule.Ruled, &rule.Ruled.Parts[0], r, address)
	}
	key, missing := ruleset.KeyOf(rule.Ruled, r, address, nil)
	if missing {
		return ""
	}
	return key
}
