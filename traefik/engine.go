package traefik

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/redis"
)

// engine is all that a request needs, made of a middleware's name and configuration: the same for all routers that have the
// middleware. It is immutable once the registry has opened it, but for what it says only once.
type engine struct {
	name       string // the middleware's
	rules      []*rule
	limiter    *core.Limiter
	fields     core.Fields
	message    string
	jitter     float64
	addressing addressing

	needsAddress   bool // any rule needs the client's address
	watchForwarded bool // and takes the connection's because nobody has said otherwise
	shadows        bool // any rule is a shadow
	oneKey         bool // all rules have the same key
	named          bool // the namespace is configured

	advice []string // what the configuration says to no effect

	forwarded   atomic.Bool  // that requests come with X-Forwarded-For was noted
	addressless atomic.Bool  // and that the strategy finds no address
	reported    atomic.Int64 // the second of the registry's clock in which a failure was last written to the log, and one

	registry    *registry
	fingerprint string
	number      int // of all engines there have been
	uses        int // by generations
	store       storeSettings
	memory      *core.Memory
	shared      *sharedRedis // nil: memory
}

// storeSettings say where the counters of a middleware live.
type storeSettings struct {
	maxKeys int            // of the memory; 0: not said
	redis   *redisSettings // nil: memory
}

// newEngine checks a configuration and makes it ready, but for the store. The error does not name the middleware.
func newEngine(c *Config, name string) (*engine, error) {
	e := &engine{name: name, message: c.Message, named: c.Namespace != ""}
	namespace, err := namespaceOf(c, name)
	if err != nil {
		return nil, err
	}
	e.fields, err = core.ParseFields(trimmed(c.Headers))
	if err != nil {
		return nil, err
	}
	if e.jitter, err = parseJitter(c.Jitter); err != nil {
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
	if e.rules, err = newRules(c, &criterion, namespace, name); err != nil {
		return nil, err
	}
	if len(e.rules) == 0 && strings.TrimSpace(c.Average) == "" {
		e.advice = append(e.advice, "average is not set, so nothing is limited")
	}
	e.oneKey = true
	for _, r := range e.rules {
		e.oneKey = e.oneKey && r.keySpec() == e.rules[0].keySpec()
		e.needsAddress = e.needsAddress || needsAddress(r)
		e.shadows = e.shadows || r.rule.Shadow()
	}
	e.watchForwarded = e.needsAddress && !chosen
	return e, nil
}

// setAddressing reads the ipStrategy, from the one or the other of the places where it can be, and reports whether it is
// there.
func (e *engine) setAddressing(own, criterions interface{}) (chosen bool, err error) {
	field := "ipStrategy"
	if criterions != nil {
		if own != nil {
			return false, fmt.Errorf("ipStrategy: stands beside sourceCriterion.ipStrategy; keep one")
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
	if e.addressing.depth > 0 && len(e.addressing.excluded) > 0 {
		e.advice = append(e.advice, field+": excludedIPs has no effect beside depth")
	}
	return chosen, err
}

// newRules makes the rules ready, in whichever words they are written.
func newRules(c *Config, criterion *SourceCriterion, namespace, middleware string) ([]*rule, error) {
	if len(c.Rules) == 0 {
		name := c.Name
		if name == "" {
			name = validName(withoutProvider(middleware))
		}
		r, limit, err := onlyRule(c, criterion)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", name, err)
		}
		standard := core.Prefixes{IPv4: 32, IPv6: 64}
		if isDialect(c) {
			standard = core.Prefixes{IPv4: 32, IPv6: 128}
		}
		compiled, err := compileRule(r, namespace, name, limit, standard)
		if err != nil || limit == nil {
			return nil, err
		}
		return []*rule{compiled}, nil
	}
	if isDialect(c) {
		return nil, fmt.Errorf("%s: stands beside rules; it is of Traefik's rateLimit and makes a rule of its own, keep one", firstOfDialect(c))
	}
	if field := firstSet(c.Rule); field != "" {
		return nil, fmt.Errorf("%s: stands beside rules; a rule's fields are at the top only where it is the only one: write it into the rules", field)
	}
	rules := make([]*rule, 0, len(c.Rules))
	names := make(map[string]bool)
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Name == "" {
			return nil, fmt.Errorf("rules[%d]: name: is missing; write 1 to 64 of A-Z a-z 0-9 _ . -", i)
		}
		if names[r.Name] {
			return nil, fmt.Errorf("rule %q: is there twice; a name is unique in its middleware", r.Name)
		}
		names[r.Name] = true
		limit, err := newLimit(r)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Name, err)
		}
		compiled, err := compileRule(r, namespace, r.Name, limit, core.Prefixes{IPv4: 32, IPv6: 64})
		if err != nil {
			return nil, err
		}
		rules = append(rules, compiled)
	}
	return rules, nil
}

// onlyRule returns the one rule of a middleware without a list, and its limit: nil where nothing is limited.
func onlyRule(c *Config, criterion *SourceCriterion) (*Rule, *core.Limit, error) {
	if isDialect(c) {
		return dialectRule(c, criterion)
	}
	limit, err := newLimit(&c.Rule)
	return &c.Rule, limit, err
}

// compileRule makes a rule ready. One without a limit is checked by another's.
func compileRule(r *Rule, namespace, name string, limit *core.Limit, standard core.Prefixes) (*rule, error) {
	if err := core.CheckName(name); err != nil {
		return nil, fmt.Errorf("rule %w", err)
	}
	if limit == nil {
		widest, err := core.NewLimit(core.LimitConfig{Requests: core.MaxRequests, Period: core.MaxPeriod})
		if err != nil {
			return nil, err
		}
		limit = widest
	}
	prefixes, err := newPrefixes(r, standard)
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", name, err)
	}
	compiled, err := newRule(r, namespace, name, limit, prefixes)
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", name, err)
	}
	return compiled, nil
}

// needsAddress reports whether a rule needs the client's address.
func needsAddress(r *rule) bool {
	for i := range r.parts {
		if r.parts[i].source.String() == "client_ip" {
			return true
		}
	}
	return r.excepts
}

// parseJitter reads the fraction that waits are lengthened by at most.
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

// namespaceOf returns the namespace of a middleware's rules: the one that is configured, or one of its name.
func namespaceOf(c *Config, middleware string) (string, error) {
	if c.Namespace == "" {
		return validName(strings.Replace(middleware, "@", ".", -1)), nil
	}
	if err := core.CheckName(c.Namespace); err != nil {
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

// validName returns a name that can be a rule's or a namespace's: the text itself if it can, else what can be kept of it, and
// eight characters that stand for the whole.
func validName(text string) string {
	if core.CheckName(text) == nil {
		return text
	}
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	kept := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if strings.IndexByte(allowed, text[i]) >= 0 {
			kept = append(kept, text[i])
		} else {
			kept = append(kept, '_')
		}
	}
	if len(kept) > 55 {
		kept = kept[:55]
	}
	sum := sha256.Sum256([]byte(text))
	return string(kept) + "-" + hex.EncodeToString(sum[:4])
}

// reportFailure writes to the log that the store has failed, once a second at most. A Redis that is known to be down has said
// so once, and is not worth a line a request.
func (e *engine) reportFailure(err error) {
	if errors.Is(err, redis.ErrUnavailable) {
		return
	}
	second := int64(e.registry.clock()/time.Second) + 1
	if e.reported.Swap(second) == second {
		return
	}
	warn(e.name, "the store of rate limits has failed: "+err.Error())
}

// reportShadows writes to the log what shadow rules would have rejected since that was last asked.
func (e *engine) reportShadows() {
	if !e.shadows {
		return
	}
	for _, r := range e.rules {
		if n := r.shadowed.Swap(0); n > 0 {
			warn(e.name, fmt.Sprintf("rule %q, a shadow, would have rejected %d requests in the last minute", r.rule.Name(), n))
		}
	}
}
