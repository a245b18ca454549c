package transition

import (
	"sync"
	"sync/atomic"

	"github.com/proxyweir/weir/core"
)

// Active has the limits of a rule that are active: those of its configuration, unless others have taken their place. It is safe for concurrent use.
type Active struct {
	configured interface{} // *core.Limits, open in a limiter; an interface, since the type's text would make each that has an Active larger in Yaegi

	// Generation is 0 while requests need pass nothing but the configured limits. Else it is another number after each change, so that an
	// adapter can keep something for what is active. It is for adapters that have looked at
	// the rules before, and only to be read with functions of sync/atomic, since they cost an interpreter less than a method.
	Generation int32

	state    atomic.Value // *state, if Generation is not 0
	changing sync.Mutex   // held while the state changes
	changes  int32        // so far; with changing
	ended    bool         // with changing
	kept     interface{}  // by Alter; with changing
}

// state is what is active at a time. It is immutable.
type state struct {
	limits   *core.Limits
	overlaps []*overlap    // to limits, the latest first
	limiter  *core.Limiter // has opened limits and the transitions
}

// NewActive returns an Active for the limits of a configuration.
func NewActive(configured *core.Limits) *Active { return &Active{configured: configured} }

// Configured returns the limits of the configuration.
func (a *Active) Configured() *core.Limits { return a.configured.(*core.Limits) }

// Limits returns the active limits.
func (a *Active) Limits() *core.Limits {
	if atomic.LoadInt32(&a.Generation) == 0 {
		return a.configured.(*core.Limits)
	}
	return a.state.Load().(*state).limits
}

// Of returns the active rule for a request of that tier and key; nil: it has no limit.
func (a *Active) Of(tier, key string) *core.Rule { return a.Limits().Of(tier, key) }

// Alone returns the active limits, or nil while requests may have to pass previous ones, too. It is for adapters that keep something for the
// active limits, so that they need not look for them at each request. While it returns nil, they must call Previous, which finds
// out when a transition is over.
func (a *Active) Alone() *core.Limits {
	in := a.current()
	if len(in.overlaps) > 0 {
		var none *core.Limits
		return none
	}
	return in.limits
}

// Changing reports whether requests must pass previous limits, too.
func (a *Active) Changing() bool {
	in := a.current()
	for _, t := range in.overlaps {
		if t.lives(in.limiter.Now()) {
			return true
		}
	}
	return false
}

// Previous returns the rules of previous limits that a request of that tier and key must pass besides r, which Of has returned: for the field Previous
// of its check.
func (a *Active) Previous(tier, key string, r *core.Rule) []*core.Rule {
	var rules []*core.Rule
	in := a.current()
	if len(in.overlaps) == 0 || r == nil || in.limits.Excepts(key) { // an exception holds at once
		return rules
	}
	now := in.limiter.Now()
	over := false
	for _, t := range in.overlaps {
		if !t.lives(now) {
			over = true
			continue
		}
		previous := t.previous.Look(tier, key)
		known := previous == nil || !bounds(previous, r)
		for i := 0; i < len(rules) && !known; i++ {
			known = rules[i].Identity == previous.Identity // a later transition has it, too
		}
		if !known {
			rules = append(rules, previous)
		}
	}
	if over {
		a.endSome(now)
	}
	return rules
}

// PreviousRules returns all rules of previous limits that requests must pass, too; none without a transition. They are open in the
// limiter. Whoever unblocks or resets a key must do so under these rules, and first: what blocks the key under them may be brought
// to the active rules at any moment.
func (a *Active) PreviousRules() []*core.Rule {
	var rules []*core.Rule
	for _, t := range a.current().overlaps {
		rules = append(rules, t.previous.All()...)
	}
	return rules
}

// current returns the state.
func (a *Active) current() *state {
	if atomic.LoadInt32(&a.Generation) == 0 {
		return &state{limits: a.Configured()}
	}
	return a.state.Load().(*state)
}

// set sets the state. The caller holds the lock.
func (a *Active) set(in *state) {
	a.state.Store(in)
	generation := int32(0)
	if in.limits != a.Configured() || len(in.overlaps) > 0 {
		a.changes++
		generation = a.changes
	}
	atomic.StoreInt32(&a.Generation, generation)
}
