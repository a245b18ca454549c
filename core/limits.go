package core

import "sort"

// MoreLimits says which limits a rule has besides its own. A nil Limit stands for none: the requests that it is for are not
// counted at all.
type MoreLimits struct {
	Tiers     map[string]*Limit // by a value of the request, its tier; of other values the rule's own limit holds
	Overrides map[string]*Limit // by the key; one goes before the tier
}

// Limits are the limits of one rule, of which a request's key and tier choose one. Each is a Rule, and all are of one name: those
// with the same algorithm and period count in the same place, so that a client which changes its tier takes along what it has
// used. Immutable, safe for concurrent use.
type Limits struct {
	own              *Rule // nil: no limit
	tiers, overrides map[string]*Rule
	rules            []*Rule
}

// NewLimits checks c and returns its limits. A nil Limit of c is none, as those of more are.
func NewLimits(c RuleConfig, more MoreLimits) (*Limits, error) {
	l := &Limits{}
	c.room = newRoom()                                              // one for all of them
	if c.Limit != nil && len(more.Tiers)+len(more.Overrides) == 0 { // as most have it, in fewer steps
		own, err := NewRule(c)
		if err != nil {
			return nil, err
		}
		l.own = own
		l.rules = []*Rule{own}
		return l, nil
	}
	known := make(map[string]*Rule)
	var err error
	if l.own, err = l.rule(c, known); err != nil {
		return nil, err
	}
	if l.tiers, err = l.byValue(c, more.Tiers, known); err != nil {
		return nil, err
	}
	if l.overrides, err = l.byValue(c, more.Overrides, known); err != nil {
		return nil, err
	}
	return l, nil
}

// byValue returns the rules of many limits.
func (l *Limits) byValue(c RuleConfig, limits map[string]*Limit, known map[string]*Rule) (map[string]*Rule, error) {
	values := make([]string, 0, len(limits))
	for value := range limits {
		values = append(values, value)
	}
	sort.Strings(values) // so that the rules are in the same order each time
	rules := make(map[string]*Rule, len(limits))
	for _, value := range values {
		c.Limit = limits[value]
		r, err := l.rule(c, known)
		if err != nil {
			return nil, err
		}
		rules[value] = r
	}
	return rules, nil
}

// rule returns the rule of one limit, nil where that is none: the one that there is already, or a new one. known has them by what
// the limits say.
func (l *Limits) rule(c RuleConfig, known map[string]*Rule) (*Rule, error) {
	if c.Limit == nil {
		return nil, checkNames(c)
	}
	terms := c.Limit.terms()
	r := known[terms]
	if r != nil {
		return r, nil
	}
	r, err := NewRule(c)
	if err != nil {
		return nil, err
	}
	known[terms] = r
	l.rules = append(l.rules, r)
	return r, nil
}

// Of returns the rule that holds for a request of that tier and key; nil: none does.
func (l *Limits) Of(tier, key string) *Rule {
	if len(l.overrides) > 0 {
		if r, ok := l.overrides[key]; ok {
			return r
		}
	}
	if len(l.tiers) > 0 {
		if r, ok := l.tiers[tier]; ok {
			return r
		}
	}
	return l.own
}

// Overrides reports whether a key has a limit of its own, or none of its own.
func (l *Limits) Overrides(key string) bool {
	_, ok := l.overrides[key]
	return ok
}

// Single reports whether one rule holds for all requests.
func (l *Limits) Single() bool {
	return l.own != nil && len(l.tiers) == 0 && len(l.overrides) == 0
}

// Rejecting returns the rule that rejects a request for want of a key: the one that holds for it, which is given, or where none does
// any of the others; nil if there is none at all.
func (l *Limits) Rejecting(r *Rule) *Rule {
	if r == nil && len(l.rules) > 0 {
		return l.rules[0]
	}
	return r
}

// Own returns the rule of all requests for which there is no other; nil: they have no limit.
func (l *Limits) Own() *Rule { return l.own }

// Rules returns all rules, each once: those that a store is to open.
func (l *Limits) Rules() []*Rule { return l.rules }

// Delays reports whether any of the limits has requests wait.
func (l *Limits) Delays() bool {
	for _, r := range l.rules {
		if r.limit.delays {
			return true
		}
	}
	return false
}

// Watches reports whether any of the limits only watches, or has a candidate, which does.
func (l *Limits) HasShadow() bool {
	for _, r := range l.rules {
		if r.shadow || len(r.beside) > 0 && r.beside[0].shadow {
			return true
		}
	}
	return false
}

// Accompany is Rule.Accompany for all of the limits.
func (l *Limits) Accompany() {
	for _, r := range l.rules {
		r.Accompany()
	}
}

// GoOnWaiting has the limits go on with how many requests wait for others of the same name, in whose place they come. It is called
// before they are asked for the first time.
func (l *Limits) GoOnWaiting(before *Limits) {
	for _, old := range before.rules {
		if old.room == nil {
			continue
		}
		for _, r := range l.rules {
			if r.room != nil {
				r.room = old.room
				if r.local != nil {
					r.local.room = old.room
				}
			}
		}
		return
	}
}

// Accompanied reports whether all of the limits see what requests that wait have reserved, as after Accompany.
func (l *Limits) Accompanied() bool {
	for _, r := range l.rules {
		if !r.SeesWaiting() {
			return false
		}
	}
	return true
}

// Same reports whether two rules' limits choose alike, and decide alike.
func (l *Limits) Same(o *Limits) bool {
	return sameRule(l.own, o.own) && sameRules(l.tiers, o.tiers) && sameRules(l.overrides, o.overrides)
}

func sameRules(a, b map[string]*Rule) bool {
	if len(a) != len(b) {
		return false
	}
	for value, r := range a {
		other, ok := b[value]
		if !ok || !sameRule(r, other) {
			return false
		}
	}
	return true
}

// sameRule reports whether two rules of one name, or two that there are not, do the same.
func sameRule(a, b *Rule) bool {
	if a == nil || b == nil {
		return a == b
	}
	return Difference(a, b) == ""
}

// Difference says what two rules of one name, which are to count together, do not do alike; "": nothing.
func Difference(a, b *Rule) string {
	switch {
	case a.identity != b.identity && a.limit.Identity() == b.limit.Identity():
		return "another key"
	case !a.limit.Same(b.limit) || a.blocks != b.blocks:
		return "another limit: " + a.limit.String() + " and " + b.limit.String()
	case a.shadow != b.shadow:
		return "another enforcement"
	case a.countRejected != b.countRejected:
		return "another count_rejected"
	case a.overflowText() != b.overflowText():
		return "another enforcement, bound of waiting requests, count or penalty"
	case !sameBeside(a.beside, b.beside):
		return "another candidate or concurrency"
	}
	return ""
}

func (r *Rule) overflowText() string {
	if r.overflow == nil {
		return ""
	}
	return r.overflow.text
}

func sameBeside(a, b []*Rule) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if Difference(a[i], b[i]) != "" {
			return false
		}
	}
	return true
}
