package traefik

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/transition"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/traefik/config"
)

// engine is a middleware's compiled configuration, the same for all routers that have the middleware. Once the registry has opened it, only
// the rules of its files and the warnings that it logs once change.
type engine struct {
	name       string // the middleware's
	namespace  string // of its rules
	limiter    *core.Limiter
	fields     answer.Fields
	cors       *front.CORS // nil: it sets no fields of CORS
	message    string
	jitter     float64
	rejections *rejections // nil: they are not logged
	addressing addressing
	unsaid     bool // ipStrategy is not set
	named      bool // the namespace is configured

	own      []*front.Rule // of the configuration
	ownNames map[string]bool

	fixed       *ruleSet     // all rules; nil if there are files
	changing    atomic.Value // *ruleSet; only if there are files
	files       *ruleFiles   // nil: none
	domain      string       // the one in which descriptors are looked up; "": the only one
	descriptors []front.Descriptor

	guardSettings *config.GuardSettings // nil: there is no guard
	guard         *guard.Guard          // nil, too
	alone         *guard.Rule           // what it knows of requests under no rule

	advisor    *config.AdvisorSettings // nil: there is none
	adaptation *adaptation             // nil, too
	instances  []*adaptive.Instance    // of the adaptable rules among its own

	adaptationBefore *adaptation // whose limits in force go on when advice begins; nil: none

	counts     bool   // the rules have metrics
	begun      *int64 // how many decisions have begun on the general path
	monitoring config.Monitoring

	advice []string // the settings of the configuration that have no effect

	expected []*expected
	open     atomic.Int64 // how many of these no request has had yet

	forwarded   atomic.Bool  // that requests come with X-Forwarded-For was noted
	addressless atomic.Bool  // and that the strategy finds no address
	encoded     atomic.Bool  // and that a response that tells a cost is compressed
	reported    atomic.Int64 // the second of the registry's clock in which a failure was last written to the log, and one
	refusals    refusals

	host        *host
	fingerprint string
	number      int  // of all engines there have been
	uses        int  // by generations
	living      int  // of those, the ones that have not ended
	returned    bool // it is used again after none was living, and its files have not been checked yet
	store       config.StoreSettings
	memory      *memory.Store
	shared      *sharedRedis // nil: memory
}

// ruleFiles are the files of an engine's rules. (It does not refer to the engine, which refers to it: see traefik/INTERPRETER.md.)
type ruleFiles struct {
	patterns []string
	interval time.Duration
	of       string // the engine's fingerprint
	later    func() // checks them: made once, see registry

	// Only the goroutine that checks them uses these.
	watch *ruleset.Watch
	due   time.Duration // of the registry's clock: when to check them

	contents *ruleset.Contents // in force; with the registry's lock
}

// adaptation carries out advice on the rules of one engine, for as long as handlers with a living context use the engine: what is in force changes
// each second at most, and a poller asks the advisor. (It does not refer to the engine, which refers to it: see traefik/INTERPRETER.md.)
type adaptation struct {
	of    string // the engine's fingerprint
	proxy *adaptive.Proxy
	later func() // the next second: made once, see registry

	// With the registry's lock advices.
	running bool
	ticking bool           // a timer is set
	state   *advice.State  // nil: it has not begun yet
	poller  *advice.Poller // nil: it does not run
	polls   int64          // of the pollers before

	turn  sync.Mutex // held during a second's work
	ended bool       // another engine of the middleware has taken over; with turn
}

// newEngine makes an engine of a middleware's settings, without its store. The error does not name the middleware.
func newEngine(given *config.Settings, name string) (*engine, error) {
	e := &engine{
		name: name, begun: new(int64), namespace: given.Namespace, named: given.Named, fields: given.Fields, cors: given.CORS, message: given.Message, jitter: given.Jitter,
		guardSettings: given.Guard, counts: given.Counts, monitoring: given.Monitoring, domain: given.Domain, descriptors: given.Descriptors,
		unsaid: given.StrategyIs == "", ownNames: make(map[string]bool), advice: given.Advice,
	}
	if err := e.setAddressing(&given.Strategy, given.StrategyIs); err != nil {
		return nil, err
	}
	if len(given.Files) > 0 {
		e.files = &ruleFiles{patterns: given.Files, interval: given.Interval}
	}
	if given.Log.Level != "" {
		e.rejections = newRejections(e, given.Log)
	}
	for _, r := range given.Rules {
		e.own = append(e.own, front.NewRule(r))
		e.ownNames[r.Name] = true
		if text := config.Exempted(r); e.unsaid && text != "" {
			e.advice = append(e.advice, text)
		}
	}
	e.expect()
	if e.files == nil {
		e.fixed = newRuleSet(e, nil, nil)
	}
	return e, nil
}

// setAddressing reads an ipStrategy. field is its name in messages; "": there is none.
func (e *engine) setAddressing(strategy *config.IPStrategy, field string) error {
	if field == "" {
		return nil
	}
	var err error
	e.addressing, err = newAddressing(field, strategy)
	return err
}

// inForce returns the rules that are in force.
func (e *engine) inForce() *ruleSet {
	if e.fixed != nil {
		return e.fixed
	}
	return e.changing.Load().(*ruleSet)
}

// ownCore returns the core rules of the configuration's own rules, for the store to open.
func (e *engine) ownCore() []*core.Rule {
	var rules []*core.Rule
	for _, r := range e.own {
		rules = append(rules, r.Ruled.Limits.Rules()...)
	}
	return rules
}

// reportFailure writes to the log that the store has failed, at most once a second. It is silent about a Redis that is known to be down, which
// is in the log already.
func (e *engine) reportFailure(err error) {
	if e.counts {
		metrics.Count(e.host.metrics.failures, metrics.StoreErrors, redis.ErrorKind(err))
	}
	if errors.Is(err, redis.ErrUnavailable) {
		return
	}
	second := int64(e.host.clock()/time.Second) + 1
	if errors.Is(err, redis.ErrRefused) {
		if e.refusals.isNews(err.Error(), second) {
			warn(e.name, "the store of rate limits has refused to decide: "+err.Error())
		}
		return
	}
	if e.reported.Swap(second) == second {
		return
	}
	warn(e.name, "the store of rate limits has failed: "+err.Error())
}

// refusals keeps errors that Redis answers with, such as a missing permission, from being logged at each request: they last until
// somebody sees to it.
type refusals struct {
	mu       sync.Mutex
	reported map[string]int64 // the texts, and the second in which each was last written
}

const (
	mostRefusals = 100 // texts, after which no other is written
	refusalEvery = 60  // seconds, after which one is written again
)

// isNews reports whether to write a text to the log: the first time, and once a minute while it lasts.
func (n *refusals) isNews(text string, second int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	last := n.reported[text]
	if last > 0 && second-last < refusalEvery || last == 0 && len(n.reported) == mostRefusals {
		return false
	}
	if n.reported == nil {
		n.reported = make(map[string]int64)
	}
	n.reported[text] = second
	return true
}

// limitsNothing reports whether the middleware has no rules and no files.
func (e *engine) limitsNothing() bool {
	return e.fixed != nil && len(e.fixed.rules) == 0
}

// newRuleSet returns the set of an engine's own rules and of those in its files, nil if it has none.
func newRuleSet(e *engine, files *ruleset.Set, domain *ruleset.Domain) *ruleSet {
	s := &ruleSet{own: len(e.own), files: files, domain: domain, shared: newSharedParts(), excepted: new(int32)}
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
			tallied = tallied || limit.Shadow || hasCandidate(limit)
		}
		if tallied {
			s.addTally(r.Ruled.Name)
		}
		if q := r.Ruled.Limits.Requested(); q != nil && q.Report == nil { // an engine's own rules come with each new set
			name := r.Ruled.Name
			q.Report = func(value, why string) {
				warn(e.name, fmt.Sprintf("rule %q: a request brings the limit %q, which is not taken as it is: %s", name, value, why))
			}
		}
	}
	s.asked = front.NewSet(e.own, s.rules[s.own:], files, domain, e.descriptors)
	s.besides = s.besides || s.asked.Respects
	s.asked.Adapter = s
	s.needsAddress = s.asked.NeedsAddress
	s.watchForwarded = s.needsAddress && e.unsaid
	if s.waits {
		for _, limit := range s.ofFiles {
			limit.TrackReservations()
		}
		if e.files == nil || e.changing.Load() == nil { // else they are in use: see tracksReservations
			for _, limit := range e.ownCore() {
				limit.TrackReservations()
			}
		}
	}
	return s
}

// keyOf returns a request's key, or "" if a part of it is missing.
func keyOf(e *engine, s *ruleSet, rule *front.Rule, r *http.Request) string {
	address := ""
	if s.needsAddress {
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

// durations returns the histogram for the decisions of a middleware.
func (e *engine) durations() *rate.Durations {
	if e.shared != nil {
		return e.host.metrics.redis
	}
	return e.host.metrics.memory
}

// openRules opens rules, all or none.
func openRules(limiter *core.Limiter, rules []*core.Rule) error {
	if failed, err := limiter.OpenAll(rules); err != nil {
		return fmt.Errorf("rule %q: %w", failed.Name(), err)
	}
	return nil
}

func releaseRules(limiter *core.Limiter, rules []*core.Rule) {
	for _, r := range rules {
		limiter.Release(r)
	}
}

// endTransitions ends the transitions of limits that nobody uses any more.
func endTransitions(all map[string]*transition.Active) {
	for _, active := range all {
		active.End()
	}
}
