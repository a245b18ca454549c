package core

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
	var err error
	if l.own, err = l.rule(c); err != nil {
		return nil, err
	}
	if l.tiers, err = l.byValue(c, more.Tiers); err != nil {
		return nil, err
	}
	if l.overrides, err = l.byValue(c, more.Overrides); err != nil {
		return nil, err
	}
	return l, nil
}

// byValue returns the rules of many limits.
func (l *Limits) byValue(c RuleConfig, limits map[string]*Limit) (map[string]*Rule, error) {
	rules := make(map[string]*Rule, len(limits))
	known := make(map[string]*Rule) // by what the limits say
	for value, limit := range limits {
		c.Limit = limit
		text := ""
		if limit != nil {
			text = limit.terms()
		}
		r := known[text]
		if r == nil {
			made, err := l.rule(c)
			if err != nil {
				return nil, err
			}
			r = made
			known[text] = r
		}
		rules[value] = r
	}
	return rules, nil
}

// rule returns the rule of one limit, nil where that is none: the one that there is already, or a new one.
func (l *Limits) rule(c RuleConfig) (*Rule, error) {
	if c.Limit == nil {
		return nil, checkNames(c)
	}
	r, err := NewRule(c)
	if err != nil {
		return nil, err
	}
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

// Single reports whether one rule holds for all requests.
func (l *Limits) Single() bool {
	return l.own != nil && len(l.tiers) == 0 && len(l.overrides) == 0
}

// Own returns the rule of all requests for which there is no other; nil: they have no limit.
func (l *Limits) Own() *Rule { return l.own }

// Rules returns all rules, each once: those that a store is to open.
func (l *Limits) Rules() []*Rule { return l.rules }
