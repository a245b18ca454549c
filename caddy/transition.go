package ratelimit

import (
	"errors"

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/transition"
)

// activeLimits are those of a rule of a configuration, with the limiter that has opened them.
type activeLimits struct {
	limiter  *stores.Limiter
	active   *transition.Active
	name     string
	instance *adaptive.Instance // nil: advice cannot touch the limits
}

// limitsByName are the limits of zones, rules in files and descriptors, by namespace and name.
type limitsByName map[string][]activeLimits

func (all limitsByName) add(namespace string, r activeLimits) {
	id := syntax.ZoneID(namespace, r.name)
	all[id] = append(all[id], r)
}

func (all limitsByName) addZone(namespace string, l *stores.Limiter, z *openZone) {
	all.add(namespace, activeLimits{l, z.Rule.Active, z.Rule.Name, z.instance})
}

func (all limitsByName) addFiles(s *fileSet) {
	for i, r := range s.Rules {
		all.add(s.namespace, activeLimits{s.limiter, r.Active, r.Name, s.instances[i]})
	}
	for _, d := range s.Domains {
		for i, active := range d.Active() {
			all.add(s.namespace, activeLimits{s.limiter, active, d.Rules()[i].Name(), nil})
		}
	}
}

// continueFrom makes limits go on where those before with the same namespace, name and kind of store are: if their algorithm or period has
// changed, requests must pass the previous limit, too, for a while. What advice has put in force stays so. It is called before the first request under the limits, and
// when they are in force alone, from when the time counts. report is also called of a first limit that counts in another kind of store than before.
func (all limitsByName) continueFrom(before limitsByName, report func(r, before activeLimits, c transition.Change)) {
	for id, list := range all {
		for i, r := range list {
			old := before.of(id, r.limiter)
			if old == nil {
				if i == 0 && report != nil && len(before[id]) > 0 {
					report(r, before[id][0], transition.Change{})
				}
				continue
			}
			c, err := r.active.Continue(r.limiter.Limiter, old.active, 0)
			if err := errors.Join(err, r.instance.Resume(old.instance)); err != nil {
				r.limiter.Failed(err)
			}
			if i == 0 && report != nil { // the others are alike
				report(r, *old, c)
			}
		}
	}
}

// of returns the limits of that namespace and name whose store is of that limiter's kind; nil: there are none.
func (all limitsByName) of(id string, l *stores.Limiter) *activeLimits {
	for i, r := range all[id] {
		if r.limiter.Store == l.Store {
			return &all[id][i]
		}
	}
	return nil
}
