package traefik

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/redis"
)

// engine is a middleware's compiled configuration, the same for all routers that have the middleware. Once the registry has opened it, only
// the rules of its files and the warnings that it logs once change.
type engine struct {
	name       string // the middleware's
	namespace  string // of its rules
	limiter    *core.Limiter
	fields     answer.Fields
	message    string
	jitter     float64
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

	guardSettings *guardSettings // nil: there is no guard
	guard         *guard.Guard   // nil, too
	alone         *guard.Rule    // what it knows of requests under no rule

	advisor  *advisorSettings // nil: there is none
	advising *advising        // nil, too
	places   []*front.Place   // of the adaptable rules among its own

	advisedBefore *advising // whose limits in force go on when advice begins; nil: none

	counts     bool   // the rules have metrics
	begun      *int64 // how many decisions have begun on the general path
	monitoring monitoring

	advice []string // the settings of the configuration that have no effect

	expected []*expected
	open     atomic.Int64 // how many of these no request has had yet

	forwarded   atomic.Bool  // that requests come with X-Forwarded-For was noted
	addressless atomic.Bool  // and that the strategy finds no address
	reported    atomic.Int64 // the second of the registry's clock in which a failure was last written to the log, and one
	refusals    refusals

	registry    *registry
	fingerprint string
	number      int  // of all engines there have been
	uses        int  // by generations
	living      int  // of those, the ones that have not ended
	returned    bool // it is used again after none was living, and its files have not been checked yet
	store       storeSettings
	memory      *memory.Store
	shared      *sharedRedis // nil: memory
}

// storeSettings say where the counters of a middleware live.
type storeSettings struct {
	maxKeys int            // of the memory; 0: not set
	redis   *redisSettings // nil: memory
}

// newEngine checks and compiles a configuration, without its store. The error does not name the middleware.
func newEngine(c *Config, name string) (*engine, error) {
	e := &engine{name: name, begun: new(int64), message: c.Message, named: c.Namespace != ""}
	namespace, err := namespaceOf(c, name)
	if err != nil {
		return nil, err
	}
	e.namespace = namespace
	if e.guardSettings, err = newGuardSettings(c.Guard, namespace); err != nil {
		return nil, err
	}
	e.fields, err = answer.ParseFields(trimmed(c.Headers))
	if err != nil {
		return nil, err
	}
	if e.jitter, err = parseJitter(c.Jitter); err != nil {
		return nil, err
	}
	if err = e.setMonitoring(c); err != nil {
		return nil, err
	}
	var criterion SourceCriterion
	if _, err = decodeObject("sourceCriterion", c.SourceCriterion, &criterion); err != nil {
		return nil, err
	}
	chosen, err := e.setAddressing(c.IPStrategy, criterion.IPStrategy)
	if err != nil {
		return nil, err
	}
	e.unsaid = !chosen
	e.domain = c.Domain
	if e.files, e.descriptors, err = newRuleFiles(c); err != nil {
		return nil, err
	}
	if err = e.setOwn(c, &criterion, name); err != nil {
		return nil, err
	}
	e.expect()
	if e.files == nil {
		e.fixed = newRuleSet(e, nil, nil)
	}
	return e, nil
}

// inForce returns the rules that are in force.
func (e *engine) inForce() *ruleSet {
	if e.fixed != nil {
		return e.fixed
	}
	return e.changing.Load().(*ruleSet)
}

// setOwn compiles the configuration's own rules.
func (e *engine) setOwn(c *Config, criterion *SourceCriterion, name string) error {
	rules, err := ownRules(c, criterion, e.namespace, name)
	if err != nil {
		return err
	}
	e.ownNames = make(map[string]bool)
	for _, r := range rules {
		e.own = append(e.own, front.NewRule(r))
		e.ownNames[r.Name] = true
		if text := exempted(e, r); text != "" {
			e.advice = append(e.advice, text)
		}
		for _, one := range r.Advice {
			e.advice = append(e.advice, one.Within("rule", strconv.Quote(r.Name)).In(ourName))
		}
	}
	if isDialect(c) && strings.TrimSpace(c.Average) == "" && len(e.own) == 0 && e.files == nil {
		e.advice = append(e.advice, "average is not set, so nothing is limited")
	}
	return nil
}

// ownCore returns the core rules of the configuration's own rules, for the store to open.
func (e *engine) ownCore() []*core.Rule {
	var rules []*core.Rule
	for _, r := range e.own {
		rules = append(rules, r.Ruled.Limits.Rules()...)
	}
	return rules
}

// setAddressing reads the ipStrategy from either of the two places where it can be, and reports whether it is there.
func (e *engine) setAddressing(own, criterions interface{}) (chosen bool, err error) {
	field := "ipStrategy"
	if criterions != nil {
		if own != nil {
			return false, fmt.Errorf("ipStrategy and sourceCriterion.ipStrategy are mutually exclusive: remove one")
		}
		field = "sourceCriterion: ipStrategy"
		own = criterions
	}
	var strategy IPStrategy
	chosen, err = decodeObject(field, own, &strategy)
	if err != nil || !chosen {
		return chosen, err
	}
	e.addressing, err = newAddressing(field, &strategy)
	if e.addressing.depth > 0 && e.addressing.excluded != nil {
		e.advice = append(e.advice, field+": excludedIPs has no effect beside depth")
	}
	return chosen, err
}

// parseJitter reads the fraction by which waits are lengthened at most.
func parseJitter(text string) (float64, error) {
	if strings.TrimSpace(text) == "" {
		return 0, nil
	}
	jitter, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(jitter >= 0 && jitter <= 10) {
		return 0, fmt.Errorf("jitter %q: must be a fraction from 0 to 10, such as 0.2 for up to 20 %%", text)
	}
	return jitter, nil
}

// namespaceOf returns the namespace of a middleware's rules: the configured one, or one made from its name.
func namespaceOf(c *Config, middleware string) (string, error) {
	if c.Namespace == "" {
		return validName(strings.Replace(middleware, "@", ".", -1)), nil
	}
	if err := words.CheckName(c.Namespace); err != nil {
		return "", fmt.Errorf("namespace %q: must be 1 to 64 of A-Z a-z 0-9 _ . -", c.Namespace)
	}
	return c.Namespace, nil
}

// withoutProvider returns a middleware's name without "@file" or whichever provider it comes from.
func withoutProvider(middleware string) string {
	if at := strings.LastIndex(middleware, "@"); at >= 0 {
		return middleware[:at]
	}
	return middleware
}

// validName returns a valid name of a rule or namespace: the text itself if it is valid, else the valid part of it and eight characters of
// its hash.
func validName(text string) string {
	if words.CheckName(text) == nil {
		return text
	}
	return words.NameFor(text, text)
}

// reportFailure writes to the log that the store has failed, at most once a second. It is silent about a Redis that is known to be down, which
// is in the log already.
func (e *engine) reportFailure(err error) {
	if e.counts {
		metrics.Count(e.registry.metrics.failures, metrics.StoreErrors, redis.ErrorKind(err))
	}
	if errors.Is(err, redis.ErrUnavailable) {
		return
	}
	second := int64(e.registry.clock()/time.Second) + 1
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

// exempted warns of a rule that exempts private addresses without an ipStrategy, since it may limit nobody; "": there is nothing to warn of.
func exempted(e *engine, r *ruleset.Rule) string {
	if !e.unsaid || r.Matcher == nil || !r.Matcher.ExceptsPrivate() {
		return ""
	}
	return fmt.Sprintf("rule %q: match: exceptIPs has private addresses, and ipStrategy is not set: behind a load balancer, or in a container's network, "+
		"all requests come from a private address, and the rule limits nobody; set ipStrategy.depth to the number of proxies in front of Traefik, or ipStrategy: {} if there is none", r.Name)
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
