package traefik

import (
	"fmt"
	"hash/maphash"
	"sort"

	"github.com/proxyweir/weir/guard"
)

// takeGuard gives an engine its guard: that of its name, or a new one.
func (g *registry) takeGuard(e *engine) {
	s := e.guardSettings
	if s == nil {
		return
	}
	of := g.guards[s.name]
	if of == nil {
		of = guard.New(guard.Config{Max: s.bounds.Max, Min: s.bounds.Min, Seed: maphash.String(guardSeed, s.name)})
		g.guards[s.name] = of
	}
	e.guard = of
}

// forgetGuards removes the guards that no engine has any more.
func (g *registry) forgetGuards() {
	for name := range g.guards {
		used := false
		for _, e := range g.engines {
			used = used || e.guardSettings != nil && e.guardSettings.name == name
		}
		if !used {
			delete(g.guards, name)
		}
	}
}

// reportGuard logs that two middlewares define the guard that they share in different ways.
func (g *registry) reportGuard(e, other *engine) {
	ours, theirs := e.guardSettings, other.guardSettings
	if ours == nil || theirs == nil || ours.name != theirs.name || ours.alike(theirs) {
		return
	}
	g.say(e.name, fmt.Sprintf("guard %q is defined in another way by middleware %s, and what was loaded last is in force; make them alike, or give one of them another name",
		ours.name, other.name))
}

// guardsOf returns the guards whose metrics are shown, by their names, and those names in order.
func (g *registry) guardsOf(engines []*engine) (names []string, guards map[string]*guard.Guard) {
	guards = make(map[string]*guard.Guard)
	for _, e := range engines {
		if e.counts && e.guard != nil {
			name := e.guardSettings.name
			if guards[name] == nil {
				names = append(names, name)
			}
			guards[name] = e.guard
		}
	}
	sort.Strings(names)
	return names, guards
}
