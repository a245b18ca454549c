package traefik

import (
	"fmt"
	"sync/atomic"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/excepted"
)

// obeyExceptions has the rules of an engine's set, which are open, obey what people have decided for single keys in the engine's Redis. before is the set
// in whose place it comes; nil: none.
func obeyExceptions(e *engine, s, before *ruleSet) {
	if e.shared == nil {
		return
	}
	namespace := e.namespace
	store := e.shared.store
	name := e.name
	g := &excepted.Group{Limiter: e.limiter}
	for _, r := range s.rules {
		g.Rules = append(g.Rules, r.Ruled)
	}
	if s.domain != nil {
		g.Domains = append(g.Domains, s.domain)
	}
	g.Label = func(rule string) string {
		if namespace == "" {
			return rule
		}
		return namespace + "/" + rule
	}
	g.Forget = func(r *core.Rule, key string) { store.Forget(r, key) }
	g.Failed = func(label, limit string, err error) {
		warn(name, fmt.Sprintf("the limit %q that somebody has given a key of rule %q does not fit the rule here, and is not in force: %s", limit, label, err.Error()))
	}
	flag := s.excepted
	g.Limits = func(some bool) {
		if some {
			atomic.StoreInt32(flag, 1)
		} else {
			atomic.StoreInt32(flag, 0)
		}
	}
	s.obeying = g
	if before != nil && before.obeying != nil {
		old := before.obeying.(*excepted.Group)
		e.shared.exceptions.Detach(old)
		g.Succeed(old)
	}
	e.shared.exceptions.Attach(g)
}

// disregardExceptions ends what obeyExceptions began.
func disregardExceptions(e *engine, s *ruleSet) {
	if s.obeying != nil {
		e.shared.exceptions.Detach(s.obeying.(*excepted.Group))
	}
}
