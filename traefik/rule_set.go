package traefik

import (
	"sync/atomic"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/transition"
)

// ruleSet has the compiled rules of a middleware: its own, and those of its files. It is immutable, except for its counts.
type ruleSet struct {
	rules  []*front.Rule // its own first
	own    int           // how many are its own
	files  *ruleset.Set
	digest string          // of the files; "": there are none
	domain *ruleset.Domain // nil: requests have no descriptors

	shared interface{} // *sharedParts

	asked *front.Set // all of these, as front checks requests by them

	needsAddress   bool // any rule needs the client's address
	watchForwarded bool // and takes the connection's, since ipStrategy is not set

	ofFiles []*core.Rule              // what the store has opened for the files
	tallies map[string]*metrics.Meter // by shadow, and by rule with a candidate: of the requests since the last report; nil: there is none
	besides bool                      // there are any, or a rule has respect_upstream

	tracked map[string]*guard.Rule // what the guard knows of the rules, by name; nil: there is no guard

	excepted *int32      // not 0 while keys have limits of their own until a time; for functions of sync/atomic
	obeying  interface{} // *excepted.Group; nil: not open, or not in Redis

	instances []*adaptive.Instance // of the adaptable rules in the files; nil: no advisor

	// If the rules are metered.
	meters   map[string]*metrics.Meter // by name; nil: they are not metered
	series   []*series                 // the series of each rule
	enforced bool                      // no rule is a shadow, or has a concurrency beside its limit
	waits    bool                      // any rule makes requests wait
}

// continueWaiting passes to new rules of files how many requests wait under the rules that they replace.
func (s *ruleSet) continueWaiting(before *ruleSet) {
	if !s.waits || !before.waits { // what follows would change nothing then, and takes its time where files have many rules
		return
	}
	s.files.ContinueWaiting(before.files)
}

// tracksReservations reports whether the middleware's own rules see the reservations of requests that wait, or no rule makes requests wait.
func (s *ruleSet) tracksReservations() bool {
	for _, r := range s.rules[:s.own] {
		if s.waits && !r.Ruled.Limits.TracksReservations() {
			return false
		}
	}
	return true
}

// hasCandidate reports whether there is a candidate for a limit.
func hasCandidate(limit *core.Rule) bool {
	for _, other := range limit.Linked() {
		if other.IsCandidate() {
			return true
		}
	}
	return false
}

// addTally starts counting what a shadow or candidate would have done.
func (s *ruleSet) addTally(name string) {
	if s.tallies == nil {
		s.tallies = make(map[string]*metrics.Meter)
	}
	s.tallies[name] = metrics.NewMeter(name)
	s.besides = true
}

// keepTallies takes over the counts of the set that was in force before.
func (s *ruleSet) keepTallies(before *ruleSet) {
	for name := range s.tallies {
		if t := before.tallies[name]; t != nil {
			s.tallies[name] = t
		}
	}
}

// countShadows counts a request once for each shadow rule that would have rejected it, or made it wait, and how candidates would have decided.
func countShadows(s *ruleSet, q *front.Evaluation, failed bool) {
	var (
		part    front.Part
		m, last *metrics.Meter
	)
	for i := range q.Checks {
		m = s.tallies[q.Checks[i].Rule.Name()]
		if m == nil {
			continue
		}
		front.PartOf(&q.Checks[i], &q.Verdict, failed, &part)
		if part.Outcome == front.ShadowRejected || part.Outcome == front.ShadowDelayed {
			if m == last { // descriptors may come under one rule by several keys
				part.Outcome = front.NotCounted
			}
			last = m
		}
		metrics.CountPart(m, &part)
	}
}

// report is what the log says of a rule once a minute. It sums up all engines of its middleware in that minute, since those that
// ended at a reload have counted for a part of it, too.
type report struct {
	middleware string
	rule       string
	shadowed   int64 // requests that it would have rejected as a shadow
	delayed    int64 // and those that it would have made wait
	requests   int64 // those on which its limit and its candidate were compared
	stricter   int64
	laxer      int64
}

// addTo adds the counts of a set to the reports, and resets them.
func (s *ruleSet) addTo(reports map[string]*report, middleware string) {
	for name, t := range s.tallies {
		id := middleware + "\n" + name
		r := reports[id]
		if r == nil {
			r = &report{middleware: middleware, rule: name}
			reports[id] = r
		}
		r.shadowed += atomic.SwapInt64(&t.Requests[front.ShadowRejected], 0)
		r.delayed += atomic.SwapInt64(&t.Requests[front.ShadowDelayed], 0)
		for i := range t.Compared {
			n := atomic.SwapInt64(&t.Compared[i], 0)
			r.requests += n
			switch front.Comparison(i) {
			case front.Stricter:
				r.stricter += n
			case front.Laxer:
				r.laxer += n
			}
		}
	}
}

// byName returns the core rules of a set by name: a name has several if a value of the request chooses the limit.
func (s *ruleSet) byName() map[string][]*core.Rule {
	names := make(map[string][]*core.Rule, len(s.rules))
	for _, r := range s.rules {
		names[r.Ruled.Name] = r.Ruled.Limits.Rules()
	}
	if s.domain != nil {
		for _, r := range s.domain.Rules() {
			names[r.Name()] = []*core.Rule{r}
		}
	}
	return names
}

// active returns the active limits of a set's rules from that place on, and of its descriptors, by name.
func (s *ruleSet) active(from int) map[string]*transition.Active {
	names := make(map[string]*transition.Active, len(s.rules))
	for _, r := range s.rules[from:] {
		names[r.Ruled.Name] = r.Ruled.Active
	}
	if s.domain != nil {
		for i, active := range s.domain.Active() {
			names[s.domain.Rules()[i].Name()] = active
		}
	}
	return names
}

// limits returns the limits of a set's rules, of each rule any one.
func (s *ruleSet) limits() []*core.Rule {
	var list []*core.Rule
	for _, r := range s.rules {
		if limits := r.Ruled.Limits.Rules(); len(limits) > 0 {
			list = append(list, limits[0])
		}
	}
	if s.domain != nil {
		list = append(list, s.domain.Rules()...)
	}
	return list
}

// series has the metrics of one rule: of one middleware, or in a snapshot of all that have the rule.
type series struct {
	of       metrics.Rule       // in a snapshot, but for Own, Keys and Units, which are read when it is written
	active   *transition.Active // in a snapshot, of the newest middleware; nil: of a descriptor
	limits   []*core.Rule       // all of them; in a snapshot those in memory, of which some may count in the same place
	inRedis  []*core.Rule       // in a snapshot, those in Redis
	inMemory bool               // in a snapshot: any of the middlewares counts there
}

// add adds a rule's limits to its series.
func (s *ruleSet) add(name string, m *metrics.Meter, own *core.Rule, limits []*core.Rule) {
	s.meters[name] = m
	one := &series{limits: limits}
	one.of.Meter = m
	one.of.Configured = own
	one.of.Candidate = hasCandidate(limits[0])
	one.of.Blocks = hasPenalties(limits[0])
	one.of.Measures = limits[0].Measures()
	for _, limit := range limits {
		if limit.Allowed != m.Allowed { // an engine's own rules come with each new set, and requests come under them
			limit.Allowed = m.Allowed
		}
		s.enforced = s.enforced && !limit.Shadow && len(limit.Linked()) == 0
	}
	s.series = append(s.series, one)
}

// hasPenalties reports whether a limit has penalties.
func hasPenalties(limit *core.Rule) bool {
	terms, _ := limit.Terms()
	return len(terms.Penalties) > 0
}

// count counts the outcome of a request for each rule. failed: the store has failed, and the outcomes say so.
func count(s *ruleSet, q *front.Evaluation, failed bool) {
	var (
		i int
		v *core.Verdict
	)
	v = &q.Verdict
	if v.Outcome == core.Allow && s.enforced && !failed && !v.Soft { // as most are
		for i = range q.Checks {
			atomic.AddInt64(q.Checks[i].Rule.Allowed, 1)
		}
		return
	}
	countEach(s, q, failed)
}

// countEach is count for each rule by itself.
func countEach(s *ruleSet, q *front.Evaluation, failed bool) {
	var part front.Part
	for i := range q.Checks {
		m := s.meters[q.Checks[i].Rule.Name()]
		front.PartOf(&q.Checks[i], &q.Verdict, failed, &part)
		metrics.CountPart(m, &part)
	}
}

// activeRules returns the active limits.
func (r *series) activeRules() []*core.Rule {
	if r.active == nil || atomic.LoadInt32(&r.active.Generation) == 0 && !r.of.Brings {
		return r.limits
	}
	return r.active.Limits().All()
}

// keys returns how many keys of a rule are in memory.
func (r *series) keys(store *memory.Store) int64 {
	if store == nil || !r.inMemory {
		return 0
	}
	if len(r.limits) == 1 {
		return store.Keys(r.limits[0])
	}
	n := int64(0)
	counted := make(map[string]bool)
	for _, limit := range r.limits {
		place := limit.Identity
		if !counted[place] {
			counted[place] = true
			n += store.Keys(limit)
		}
	}
	return n
}

// look fills in what a rule of a snapshot is at.
func (r *series) look(s *snapshot) {
	r.of.Waiting = atomic.LoadInt64(&r.of.Meter.Waiting)
	r.of.Keys = metrics.Absent
	if r.inMemory {
		r.of.Keys = r.keys(s.memory)
	}
	r.of.Units = metrics.Absent
	if units, leased := s.leases.HeldOf(r.inRedis); leased {
		r.of.Units = units
	}
	r.of.Own = r.of.Configured
	if r.of.Own != nil && r.active != nil && atomic.LoadInt32(&r.active.Generation) != 0 {
		r.of.Own = r.active.Limits().Own()
	}
}

// labelOf returns the label of a rule in the metrics.
func labelOf(r *core.Rule) string { return metrics.LabelOf(r.Namespace, r.Name()) }
