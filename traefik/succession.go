package traefik

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
)

// handover is how long the handlers of an earlier configuration may still get requests when those of the next are made, in microseconds.
const handover = int64(10 * time.Second / time.Microsecond)

// succeed makes the rules of an engine the successors of those of another engine of the same middleware, nil if there is none.
func (g *registry) succeed(e, before *engine) {
	if before == nil {
		return
	}
	if e.shared != before.shared { // another store, in which nothing is counted yet
		reportAfresh(e.name, e.inForce().afresh(before.inForce()))
		return
	}
	succeed(e, e.inForce(), before.inForce(), handover)
}

// succeed makes the rules of a set the successors of those of the set before with the same names: if their algorithm or
// period has changed, requests must pass the former limit, too, for a while. It logs that, and which rules start counting afresh.
func succeed(e *engine, next, before *ruleSet, late int64) {
	const most = 10
	old := before.limitsByName()
	begun := 0
	for name, limits := range next.limitsByName() {
		last := old[name]
		if last == nil || last == limits || sameCounter(limits, last) {
			continue
		}
		is, err := e.limiter.Succeed(limits, last, late)
		if err != nil {
			e.reportFailure(err)
		}
		if !is {
			continue
		}
		begun++
		if begun <= most {
			lasts := last.InForce().Overlap(limits.InForce()) + late
			inform(e.name, fmt.Sprintf("rule %q keeps to its former limit, too, for %s, since its algorithm or period has changed", name, time.Duration(lasts)*time.Microsecond))
		}
	}
	if begun > most {
		inform(e.name, fmt.Sprintf("and so do %d more rules", begun-most))
	}
	reportAfresh(e.name, next.afresh(before))
}

// sameCounter reports whether each of two limits is a single one, and they count in the same place. It is so for most rules, and quickly
// found out.
func sameCounter(a, b *core.Limits) bool {
	return atomic.LoadInt32(&a.Moved) == 0 && atomic.LoadInt32(&b.Moved) == 0 && a.Single() && b.Single() && a.Own().Identity() == b.Own().Identity()
}

// afresh returns the names of the rules that start counting afresh.
func (s *ruleSet) afresh(before *ruleSet) []string {
	var names []string
	old := before.byName()
	limits := s.limitsByName()
	for name, rules := range s.byName() {
		if len(rules) > 0 && len(old[name]) > 0 && !shareCounter(rules, old[name]) && len(limits[name].FormerRules()) == 0 {
			names = append(names, name)
		}
	}
	return names
}

// reportAfresh logs which rules start counting afresh.
func reportAfresh(middleware string, names []string) {
	const most = 10
	for i, name := range names {
		if i == most {
			inform(middleware, fmt.Sprintf("and %d more rules start counting afresh", len(names)-most))
			break
		}
		inform(middleware, "rule \""+name+"\" starts counting afresh, since its algorithm, period or key has changed; penalties of its keys end with that")
	}
}

// limitsByName returns the limits of a set's rules by name.
func (s *ruleSet) limitsByName() map[string]*core.Limits {
	names := make(map[string]*core.Limits, len(s.rules))
	for _, r := range s.rules {
		names[r.Ruled.Name] = r.Ruled.Limits
	}
	if s.domain != nil {
		for i, limits := range s.domain.Limits() {
			names[s.domain.Rules()[i].Name()] = limits
		}
	}
	return names
}

// allLimits returns the limits of a set's rules from that place on, and of its descriptors.
func (s *ruleSet) allLimits(from int) []*core.Limits {
	var list []*core.Limits
	for _, r := range s.rules[from:] {
		list = append(list, r.Ruled.Limits)
	}
	if s.domain != nil {
		list = append(list, s.domain.Limits()...)
	}
	return list
}

// endSwitches ends the transitions of limits that nobody uses any more.
func endSwitches(limiter *core.Limiter, list []*core.Limits) {
	for _, limits := range list {
		if atomic.LoadInt32(&limits.Moved) != 0 {
			limiter.EndSwitch(limits)
		}
	}
}
