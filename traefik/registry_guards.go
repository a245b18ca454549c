package traefik

import (
	"hash/maphash"
	"sort"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/pressure"
)

// guardCells is the guard.Config.Cells of guards: fewer than by default, since to clear and to read them takes an interpreter long.
const guardCells = 1024

// takeGuard gives an engine its guard: that of its name, or a new one.
func (g *registry) takeGuard(e *engine) {
	s := e.guardSettings
	if s == nil {
		return
	}
	of := g.guards[s.Name]
	if of == nil {
		bounds := s.Bounds
		bounds.Seed = maphash.String(guardSeed, s.Name)
		bounds.Cells = guardCells
		of = &sharedGuard{guard: guard.New(bounds), rules: make(map[string]*guard.Rule)}
		of.alone = guard.Track(of.guard, "")
		g.guards[s.Name] = of
	}
	middleware := e.name
	e.guardSettings.Bounds.Notify = func(c guard.Change) { logGuard(middleware, c) }
	e.guard, e.alone = of.guard, of.alone
	g.track(e, e.inForce())
}

// watch has a guard told of the pressure that a source has. A source that is asked already goes on to be.
func (g *registry) watch(of *sharedGuard, source pressure.Source, middleware string) {
	h := g.host
	of.pressure = pressure.Renew(of.pressure, pressure.Config{
		Source: source, Wait: h.waitFor, Now: func() int64 { return guardNow(h) }, Press: func(until int64) { guard.Press(of.guard, until) },
		Warn: func(message string) { warn(middleware, message) }, Inform: func(message string) { inform(middleware, message) },
	})
}

// logGuard logs that a guard begins to limit requests, or stops.
func logGuard(middleware string, c guard.Change) {
	if c.Begins {
		warn(middleware, front.GuardChange(c))
	} else {
		inform(middleware, front.GuardChange(c))
	}
}

// track has an engine's guard learn the demand of a set's rules.
func (g *registry) track(e *engine, s *ruleSet) {
	if e.guard == nil {
		return
	}
	of := g.guards[e.guardSettings.Name]
	s.tracked = make(map[string]*guard.Rule)
	for _, r := range s.limits() {
		label := labelOf(r)
		if of.rules[label] == nil {
			of.rules[label] = guard.Track(of.guard, label)
		}
		s.tracked[r.Name()] = of.rules[label]
	}
}

// forgetGuards removes the guards that no engine has any more, and from the others the rules that none has.
func (g *registry) forgetGuards() {
	for name, of := range g.guards {
		users := g.indexes.guards[name]
		if len(users) == 0 {
			g.watch(of, pressure.Source{}, "")
			delete(g.guards, name)
			continue
		}
		used := make(map[*guard.Rule]bool)
		for _, e := range users {
			for _, r := range e.inForce().tracked {
				used[r] = true
			}
		}
		for label, r := range of.rules {
			if !used[r] {
				guard.Untrack(of.guard, r)
				delete(of.rules, label)
			}
		}
	}
}

// guardsOf returns the guards whose metrics are shown, in the order of their names.
func (g *registry) guardsOf(engines []*engine) []*guardSeries {
	var list []*guardSeries
	found := make(map[string]bool)
	for _, e := range engines {
		of := g.guardOf(e)
		if !e.counts || of == nil || found[e.guardSettings.Name] {
			continue
		}
		found[e.guardSettings.Name] = true
		one := &guardSeries{name: e.guardSettings.Name, guard: of.guard, labels: []string{""}, rules: []*guard.Rule{of.alone}, pressure: of.pressure}
		labels := make([]string, 0, len(of.rules))
		for label := range of.rules {
			labels = append(labels, label)
		}
		sort.Strings(labels)
		for _, label := range labels {
			one.labels = append(one.labels, label)
			one.rules = append(one.rules, of.rules[label])
		}
		list = append(list, one)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
	return list
}

// guardOf returns the guard of an engine; nil: it has none.
func (g *registry) guardOf(e *engine) *sharedGuard {
	var none *sharedGuard
	if e.guard == nil {
		return none
	}
	return g.guards[e.guardSettings.Name]
}
