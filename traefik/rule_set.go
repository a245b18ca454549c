package traefik

import (
	"sync/atomic"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/ruleset"
)

// ruleSet has the compiled rules of a middleware: its own, and those of its files. It is immutable, except for its counts.
type ruleSet struct {
	rules  []*front.Rule // its own first
	own    int           // how many are its own
	files  *ruleset.Set
	digest string          // of the files; "": there are none
	domain *ruleset.Domain // nil: requests have no descriptors

	asked *front.Set // all of these, as front checks requests by them

	needsAddress   bool // any rule needs the client's address
	watchForwarded bool // and takes the connection's, since ipStrategy is not set

	ofFiles    []*core.Rule      // what the store has opened for the files
	tallies    map[string]*tally // by shadow, and by rule with a candidate; nil: there is none
	hasTallies bool              // there are any

	tracked map[string]*guard.Rule // what the guard knows of the rules, by name; nil: there is no guard

	places []*front.Place // of the adaptable rules in the files; nil: no advisor

	// If the rules are metered.
	meters   map[string]*metrics.Meter // by name; nil: they are not metered
	series   []*series                 // the series of each rule
	enforced bool                      // no rule is a shadow, or has a concurrency beside its limit
	waits    bool                      // any rule makes requests wait
}

// tally counts what a shadow would have rejected, and how a limit and its candidate have decided differently, since the last report.
type tally struct {
	shadowed atomic.Int64 // requests that the shadow would have rejected
	delayed  atomic.Int64 // and those that it would have made wait
	requests atomic.Int64 // on which limit and candidate were compared
	stricter atomic.Int64 // the candidate would have rejected what the limit allowed
	laxer    atomic.Int64 // the candidate would have allowed what the limit rejected
}

// newRuleSet returns the set of an engine's own rules and of those in its files, nil if it has none.
func newRuleSet(e *engine, files *ruleset.Set, domain *ruleset.Domain) *ruleSet {
	s := &ruleSet{own: len(e.own), files: files, domain: domain}
	s.rules = append(s.rules, e.own...)
	if files != nil {
		for _, r := range files.Rules {
			s.rules = append(s.rules, front.NewRule(r))
			s.ofFiles = append(s.ofFiles, r.Limits.Rules()...)
		}
	}
	if domain != nil {
		s.ofFiles = append(s.ofFiles, domain.Rules()...)
		for _, r := range domain.Rules() {
			if r.Shadow {
				s.addTally(r.Name())
			}
		}
	}
	for _, r := range s.rules {
		s.waits = s.waits || r.Ruled.Limits.Delays()
		tallied := r.Ruled.Shadow
		for _, limit := range r.Ruled.Limits.Rules() {
			tallied = tallied || hasCandidate(limit)
		}
		if tallied {
			s.addTally(r.Ruled.Name)
		}
	}
	s.asked = front.NewSet(e.own, s.rules[s.own:], files, domain, e.descriptors)
	s.asked.Adapter = s
	s.needsAddress = s.asked.NeedsAddress
	s.watchForwarded = s.needsAddress && e.unsaid
	if s.waits {
		for _, limit := range s.ofFiles {
			limit.Accompany()
		}
		if e.files == nil || e.changing.Load() == nil { // else they are in use: see accompanied
			for _, limit := range e.ownCore() {
				limit.Accompany()
			}
		}
	}
	return s
}

// goOn passes to new rules of files how many requests wait under the rules that they replace.
func (s *ruleSet) goOn(before *ruleSet) {
	if !s.waits || !before.waits { // what follows would change nothing then, and takes its time where files have many rules
		return
	}
	s.files.GoOnWaiting(before.files)
}

// accompanied reports whether the middleware's own rules see the reservations of requests that wait, or no rule makes requests wait.
func (s *ruleSet) accompanied() bool {
	for _, r := range s.rules[:s.own] {
		if s.waits && !r.Ruled.Limits.Accompanied() {
			return false
		}
	}
	return true
}

// hasCandidate reports whether there is a candidate for a limit.
func hasCandidate(limit *core.Rule) bool {
	for _, other := range limit.Beside() {
		if other.IsCandidate() {
			return true
		}
	}
	return false
}

// addTally starts counting what a shadow or candidate would have done.
func (s *ruleSet) addTally(name string) {
	if s.tallies == nil {
		s.tallies = make(map[string]*tally)
	}
	s.tallies[name] = &tally{}
	s.hasTallies = true
}

// keepTallies takes over the counts of the set that was in force before.
func (s *ruleSet) keepTallies(before *ruleSet) {
	for name := range s.tallies {
		if t := before.tallies[name]; t != nil {
			s.tallies[name] = t
		}
	}
}

// countShadows counts a request once for each shadow rule that would have rejected it, and how candidates would have decided.
func countShadows(s *ruleSet, q *front.Inquiry, failed bool) {
	var (
		part       front.Part
		name, last string
	)
	for i := range q.Checks {
		name = q.Checks[i].Rule.Name()
		front.PartOf(&q.Checks[i], &q.Verdict, failed, &part)
		t := s.tallies[name]
		if t == nil {
			continue
		}
		if part.Compared != front.NotCompared {
			t.requests.Add(1)
		}
		if part.Compared == front.Stricter {
			t.stricter.Add(1)
		}
		if part.Compared == front.Laxer {
			t.laxer.Add(1)
		}
		if part.Outcome == front.ShadowRejected && name != last {
			last = name
			t.shadowed.Add(1)
		}
		if part.Outcome == front.ShadowDelayed && name != last {
			last = name
			t.delayed.Add(1)
		}
	}
}

// shareCounter reports whether any rule of one list shares counters with any of the other. Each list may have thousands.
func shareCounter(a, b []*core.Rule) bool {
	places := make(map[string]bool)
	for _, one := range a {
		places[one.Identity] = true
	}
	for _, other := range b {
		if places[other.Identity] {
			return true
		}
	}
	return false
}
