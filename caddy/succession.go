package ratelimit

import (
	"errors"

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/adaptive"
)

// ruling are limits of a configuration, with the limiter that has opened them.
type ruling struct {
	limiter  *stores.Limiter
	limits   *core.Limits
	name     string
	instance *adaptive.Instance // nil: advice cannot touch the limits
}

// rulings are the limits of zones, rules in files and descriptors, by namespace and name.
type rulings map[string][]ruling

func (all rulings) add(namespace string, r ruling) {
	id := syntax.ZoneID(namespace, r.name)
	all[id] = append(all[id], r)
}

func (all rulings) addZone(namespace string, l *stores.Limiter, z *openZone) {
	all.add(namespace, ruling{l, z.Rule.Limits, z.Rule.Name, z.instance})
}

func (all rulings) addFiles(s *fileSet) {
	for i, r := range s.Rules {
		all.add(s.namespace, ruling{s.limiter, r.Limits, r.Name, s.instances[i]})
	}
	for _, d := range s.Domains {
		for i, limits := range d.Limits() {
			all.add(s.namespace, ruling{s.limiter, limits, d.Rules()[i].Name(), nil})
		}
	}
}

// succeed makes limits the successors of those before with the same namespace, name and kind of store: if their algorithm or period has
// changed, requests must pass the former limit, too, for a while. What advice has put in force stays so. It is called before the first request under the limits, and
// when they are in force alone, from when the time counts.
func (before rulings) succeed(after rulings, report func(r ruling, old *core.Limits)) {
	for id, list := range after {
		for i, r := range list {
			old := before.of(id, r.limiter)
			if old == nil {
				continue
			}
			_, err := r.limiter.Succeed(r.limits, old.limits, 0)
			if err := errors.Join(err, r.instance.GoOn(old.instance)); err != nil {
				r.limiter.Failed(err)
			}
			if i == 0 && report != nil { // the others are alike
				report(r, old.limits)
			}
		}
	}
}

// of returns the limits of that namespace and name whose store is of that limiter's kind; nil: there are none.
func (before rulings) of(id string, l *stores.Limiter) *ruling {
	for i, r := range before[id] {
		if r.limiter.Store == l.Store {
			return &before[id][i]
		}
	}
	return nil
}
