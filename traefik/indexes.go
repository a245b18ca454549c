package traefik

import (
	"fmt"
	"sort"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
)

// indexes find engines of the registry, so that a new one need not go over all of them: there may be thousands.
type indexes struct {
	middlewares map[string][]*engine // by the middleware's name
	guards      map[string][]*engine // by the name of their guard
	rules       map[string][]*engine // by the namespace and name of a rule, where the namespace is configured
	files       map[string][]*engine // by the digest of their rule files
	maxKeys     map[int]int          // how many ask for so many keys in memory
}

func newIndexes() indexes {
	return indexes{
		middlewares: make(map[string][]*engine),
		guards:      make(map[string][]*engine),
		rules:       make(map[string][]*engine),
		files:       make(map[string][]*engine),
		maxKeys:     make(map[int]int),
	}
}

// add enters an engine.
func (x *indexes) add(e *engine) {
	x.middlewares[e.name] = append(x.middlewares[e.name], e)
	if e.guardSettings != nil {
		x.guards[e.guardSettings.Name] = append(x.guards[e.guardSettings.Name], e)
	}
	x.addRules(e, e.inForce())
	x.maxKeys[keysFor(e)]++
}

// remove takes an engine out.
func (x *indexes) remove(e *engine) {
	leaveOut(x.middlewares, e.name, e)
	if e.guardSettings != nil {
		leaveOut(x.guards, e.guardSettings.Name, e)
	}
	x.removeRules(e, e.inForce())
	x.maxKeys[keysFor(e)]--
	if x.maxKeys[keysFor(e)] == 0 {
		delete(x.maxKeys, keysFor(e))
	}
}

// replace notes that another set of an engine's rules comes into force.
func (x *indexes) replace(e *engine, before, next *ruleSet) {
	x.removeRules(e, before)
	x.addRules(e, next)
}

func (x *indexes) addRules(e *engine, s *ruleSet) {
	if s.digest != "" {
		x.files[s.digest] = append(x.files[s.digest], e)
	}
	if e.named {
		for name := range s.byName() {
			x.rules[e.namespace+"/"+name] = append(x.rules[e.namespace+"/"+name], e)
		}
	}
}

func (x *indexes) removeRules(e *engine, s *ruleSet) {
	if s.digest != "" {
		leaveOut(x.files, s.digest, e)
	}
	if e.named {
		for name := range s.byName() {
			leaveOut(x.rules, e.namespace+"/"+name, e)
		}
	}
}

// leaveOut removes an engine from one of many lists.
func leaveOut(lists map[string][]*engine, of string, e *engine) {
	var rest []*engine
	for _, one := range lists[of] {
		if one != e {
			rest = append(rest, one)
		}
	}
	if len(rest) == 0 {
		delete(lists, of)
		return
	}
	lists[of] = rest
}

// keysFor returns how many keys in memory an engine asks for. One that sets none asks for the default, so that a small number of one
// middleware does not evict the keys of others; one that counts in Redis, for none.
func keysFor(e *engine) int {
	if e.store.MaxKeys == 0 && e.store.Redis == nil {
		return memory.DefaultMaxKeys
	}
	return e.store.MaxKeys
}

// mostKeys returns the largest number of keys in memory that an engine asks for.
func (x *indexes) mostKeys() int {
	most := 0
	for asked := range x.maxKeys {
		if asked > most {
			most = asked
		}
	}
	return most
}

// newestOf returns the newest engine of a middleware, nil if there is none.
func (x *indexes) newestOf(middleware string) *engine {
	var last *engine
	for _, e := range x.middlewares[middleware] {
		if last == nil || e.number > last.number {
			last = e
		}
	}
	return last
}

// mostCompared is the most engines that a new one's rule or guard is compared with: those that were made last, which were compared with those before them.
const mostCompared = 16

// others returns those in a list that are of another middleware, and live.
func others(list []*engine, e *engine, lives func(*engine) bool) []*engine {
	var found []*engine
	for i := len(list) - 1; i >= 0 && len(found) < mostCompared; i-- {
		other := list[i]
		if other.name != e.name && lives(other) {
			found = append(found, other)
		}
	}
	return found
}

// compare logs which rules of a new engine share their counters with another middleware's though their limits are not the same, and so of its guard.
func (x *indexes) compare(e *engine, lives func(*engine) bool) {
	if e.guardSettings != nil {
		for _, other := range others(x.guards[e.guardSettings.Name], e, lives) {
			reportGuard(e, other)
		}
	}
	if !e.named {
		return
	}
	ours := e.inForce().byName()
	theirs := make(map[*engine]map[string][]*core.Rule) // of those that share a name
	names := make([]string, 0, len(ours))
	for name := range ours {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, other := range others(x.rules[e.namespace+"/"+name], e, lives) {
			if theirs[other] == nil {
				theirs[other] = other.inForce().byName()
			}
			if len(ours[name]) > 0 && len(theirs[other][name]) > 0 {
				reportDifference(e, other, ours[name], theirs[other][name])
			}
		}
	}
}

// reportGuard logs that two middlewares define the guard that they share in different ways.
func reportGuard(e, other *engine) {
	if e.guardSettings.Alike(other.guardSettings) {
		return
	}
	e.host.log(e.name, fmt.Sprintf("guard %q is defined in another way by middleware %s, and what was loaded last is in force; make them alike, or give one of them another name",
		e.guardSettings.Name, other.name))
}

// reportDifference logs that the rules of one name in two middlewares, which share their counters, have other limits.
func reportDifference(e, other *engine, ours, theirs []*core.Rule) {
	name := ours[0].Name()
	if termsOf(ours, true) == termsOf(theirs, true) {
		if what := otherOverflow(ours, theirs); what != "" {
			e.host.log(e.name, fmt.Sprintf("rule %q of namespace %q has %s in middleware %s; make them alike, or rename one",
				name, e.namespace, what, other.name))
		}
		return
	}
	e.host.log(e.name, fmt.Sprintf("rule %q of namespace %q is defined in another way by middleware %s: %s there, %s here; make them alike, or rename one",
		name, e.namespace, other.name, termsOf(theirs, false), termsOf(ours, false)))
}

// otherOverflow says how the overflow policies of rules with the same name and limits differ; "": they do not. All limits of a rule have
// one overflow policy, so it compares only one of them: there may be thousands.
func otherOverflow(a, b []*core.Rule) string {
	terms := termsOf(a[:1], true)
	for i := range b {
		if termsOf(b[i:i+1], true) == terms {
			return core.Difference(a[0], b[i])
		}
	}
	return ""
}

// termsOf writes the limits of rules of one name, and if exact, all other terms too.
func termsOf(rules []*core.Rule, exact bool) string {
	terms := make([]string, 0, len(rules))
	for _, r := range rules {
		l := r.Limit
		text := l.String()
		if exact {
			text = fmt.Sprint(r.Identity, " ", text, " ", l.MaxDelay, r.Shadow, r.CountRejected, r.Blocks())
		}
		terms = append(terms, text)
	}
	sort.Strings(terms)
	return strings.Join(terms, ", ")
}
