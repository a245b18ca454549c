package excepted

import (
	"sync"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/transition"
)

// Group has the rules of one handler that are open in one limiter. Its fields are set before Attach.
type Group struct {
	Limiter *core.Limiter
	Rules   []*ruleset.Rule
	Domains []*ruleset.Domain // whose limits can be blocked, but not replaced

	Label  func(name string) string             // the rule's name, with its namespace
	Forget func(r *core.Rule, key string)       // has the node forget what it remembers of a key, or holds for it; nil: it remembers nothing
	Failed func(label, limit string, err error) // gets why a limit is not in force here: the rule is another than where it was made
	Limits func(some bool)                      // gets whether there is any limit in force, when that may have changed; nil: nobody asks

	mu     sync.Mutex
	ended  bool
	places map[string]*place // of rules with exceptions, or that had some, by label; nil: it has none of that name
}

// place is a rule in a group, and what of the table is in force in it.
type place struct {
	rule    *ruleset.Rule // nil: a descriptor's
	one     *core.Rule    // of a descriptor
	active  *transition.Active
	limits  map[string]string // by key
	blocked map[string]int64  // by key: until when
	under   map[string]bool   // the identities of the rules under which they are blocked
	forgot  map[string]int64  // by key: when that was decided
}

// wanted is what is to be in force in a rule.
type wanted struct {
	limits          map[string]string
	blocks, forgets map[string]int64
}

// enforce puts in force what is in a list, and nothing else. Without asking, it leaves out what asks the store.
func (g *Group) enforce(list []exception.Exception, now int64, asking bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || len(list) == 0 && len(g.places) == 0 {
		return nil
	}
	all := make(map[string]*wanted)
	for label := range g.places {
		all[label] = newWanted()
	}
	for i := range list {
		e := &list[i]
		w := all[e.Rule]
		if w == nil {
			w = newWanted()
			all[e.Rule] = w
		}
		switch e.Kind {
		case exception.Limit:
			w.limits[string(e.Key)] = e.Limit
		case exception.Block:
			w.blocks[string(e.Key)] = e.Until
		case exception.Forget:
			w.forgets[string(e.Key)] = e.Made
		}
	}
	var failure error
	some := false
	for label, w := range all {
		p := g.find(label)
		if p == nil {
			continue
		}
		err := g.limit(label, p, w)
		if err == nil && asking {
			err = g.block(p, w, now)
			g.forget(p, w)
		}
		if failure == nil {
			failure = err
		}
		some = some || len(p.limits) > 0
	}
	if g.Limits != nil {
		g.Limits(some)
	}
	if g.Forget != nil && asking {
		g.leaveKeys()
	}
	return failure
}

// leaveKeys has the node forget what it remembers under the configured limits of keys that have others: whoever decides by what is remembered does not ask
// which limit a key has. A request that came before may remember it again, so this is done each time.
func (g *Group) leaveKeys() {
	for _, p := range g.places {
		if p == nil || p.rule == nil {
			continue
		}
		for key := range p.limits {
			for _, r := range p.rule.Limits.Rules() {
				g.Forget(r, key)
			}
		}
	}
}

// Succeed has a group that is not attached yet take over what another, which is detached, has put in force in rules that both have.
func (g *Group) Succeed(before *Group) {
	before.mu.Lock()
	defer before.mu.Unlock()
	for label, p := range before.places {
		if p == nil || p.rule == nil {
			continue
		}
		for _, r := range g.Rules {
			if r == p.rule {
				if g.places == nil {
					g.places = make(map[string]*place)
				}
				g.places[label] = p
			}
		}
	}
}

func newWanted() *wanted {
	return &wanted{limits: make(map[string]string), blocks: make(map[string]int64), forgets: make(map[string]int64)}
}

// find returns the place of a rule; nil: it is not in the group.
func (g *Group) find(label string) *place {
	p, known := g.places[label]
	if known {
		return p
	}
	if g.places == nil {
		g.places = make(map[string]*place)
	}
	for _, r := range g.Rules {
		if g.Label(r.Name) == label {
			p = &place{rule: r, active: r.Active}
			g.places[label] = p
			return p
		}
	}
	for _, d := range g.Domains {
		for i, r := range d.Rules() {
			if g.Label(r.Name()) == label {
				p = &place{one: r, active: d.Active()[i]}
				g.places[label] = p
				return p
			}
		}
	}
	g.places[label] = p
	return p
}

// limit puts the limits of a rule's exceptions in force.
func (g *Group) limit(label string, p *place, w *wanted) error {
	if p.rule == nil || sameTexts(p.limits, w.limits) {
		return nil
	}
	for key, text := range w.limits {
		if p.limits[key] == text {
			continue
		}
		if _, err := ruleset.NewException(p.rule, g.Limiter, key, text); err != nil && g.Failed != nil {
			g.Failed(label, text, err)
		}
	}
	if err := ruleset.PutExceptions(p.rule, g.Limiter, w.limits); err != nil {
		return err
	}
	p.limits = w.limits
	p.blocked = nil // a limit may count by itself, and then has blocks of its own
	return nil
}

// block blocks the keys that are to be, and unblocks those that this group has blocked and that are not to be any more.
func (g *Group) block(p *place, w *wanted, now int64) error {
	for key, until := range p.blocked {
		if _, still := w.blocks[key]; still {
			continue
		}
		if until > now {
			if err := g.each(p, func(r *core.Rule) error { return g.Limiter.Unblock(r, key) }); err != nil {
				return err
			}
		}
		delete(p.blocked, key)
	}
	under := make(map[string]bool)
	if len(w.blocks) > 0 {
		_ = g.each(p, func(r *core.Rule) error {
			under[r.Identity] = true
			if !p.under[r.Identity] {
				p.blocked = nil // a request has brought a limit of another period, which has blocks of its own
			}
			return nil
		})
	}
	p.under = under
	for key, until := range w.blocks {
		if p.blocked[key] == until {
			continue
		}
		if err := g.each(p, func(r *core.Rule) error { return g.Limiter.Block(r, key, until-now) }); err != nil {
			return err
		}
		if p.blocked == nil {
			p.blocked = make(map[string]int64)
		}
		p.blocked[key] = until
	}
	return nil
}

// forget has the node forget what it remembers of keys that somebody has reset, or given units back to, elsewhere.
func (g *Group) forget(p *place, w *wanted) {
	for key, made := range w.forgets {
		if g.Forget != nil && p.forgot[key] != made {
			_ = g.each(p, func(r *core.Rule) error {
				g.Forget(r, key)
				return nil
			})
		}
	}
	p.forgot = w.forgets
}

// each calls f with each rule under which keys are counted: previous ones first, as transition.Active.PreviousRules says, and of each identity one.
func (g *Group) each(p *place, f func(r *core.Rule) error) error {
	rules := p.active.PreviousRules()
	if p.rule == nil {
		rules = append(rules, p.one)
	} else {
		rules = append(rules, p.active.Limits().All()...)
	}
	seen := make(map[string]bool)
	for _, r := range rules {
		if seen[r.Identity] {
			continue
		}
		seen[r.Identity] = true
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// end has the group do nothing any more.
func (g *Group) end() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
}

func sameTexts(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for key, text := range a {
		if other, ok := b[key]; !ok || other != text {
			return false
		}
	}
	return true
}
