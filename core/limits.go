package core

import (
	"sort"

	"github.com/proxyweir/weir/core/rate"
)

// MoreLimits lists the limits that a rule has besides its own. A nil Limit means no limit: such requests are not counted at all.
type MoreLimits struct {
	Tiers     map[string]*rate.Limit // by the value of a request's tier; for other values the rule's own limit applies
	Overrides map[string]*rate.Limit // by key; an override takes precedence over the tier
	Requested *Requested             // limits that requests bring: the tier is such a limit, as text; nil: they bring none. Mutually exclusive with Tiers

	Exceptions map[string]*rate.Limit // by key, too: overrides that somebody has made at run time, and that take precedence over the configured ones
}

// Limits are the limits of one rule; a request's key and tier choose one of them. Each limit is a Rule of its own, and all have
// the same name. Those with the same algorithm and period share counters, so a client that changes its tier keeps what it has
// used. Limits are immutable, and safe for concurrent use: see package transition for how others take their place.
type Limits struct {
	own              *Rule          // nil: no limit
	tiers, overrides map[string]int // numbers, from 1, of rules, which make the type smaller in Yaegi than rules themselves; 0: no limit
	rules            []*Rule
	excepted         map[string]*rate.Limit // MoreLimits.Exceptions
	requested        interface{}            // *Requested, which would make the type larger in Yaegi; nil: requests bring no limits
}

// NewLimits checks c and returns its limits. A nil c.Limit means no limit, as in MoreLimits; but where requests bring limits, there must be one.
func NewLimits(c RuleConfig, more MoreLimits) (*Limits, error) {
	l := &Limits{}
	c.room = newRoom()                                                                                            // shared by all of them
	if c.Limit != nil && len(more.Tiers)+len(more.Overrides)+len(more.Exceptions) == 0 && more.Requested == nil { // the most frequent case, in fewer steps
		own, err := NewRule(c)
		if err != nil {
			return nil, err
		}
		l.own = own
		l.rules = withUnenforced([]*Rule{own})
		return l, nil
	}
	known := make(map[string]int)
	own, err := l.rule(c, known)
	if err != nil {
		return nil, err
	}
	l.own = l.numbered(own)
	if l.tiers, err = l.byValue(c, more.Tiers, known); err != nil {
		return nil, err
	}
	if l.overrides, err = l.byValue(c, more.Overrides, known); err != nil {
		return nil, err
	}
	if more.Requested != nil {
		more.Requested.config = c
		l.setRequested(more.Requested)
	}
	if len(more.Exceptions) > 0 {
		c.excepted = true
		excepted, err := l.byValue(c, more.Exceptions, known)
		if err != nil {
			return nil, err
		}
		for key, number := range excepted {
			l.overrides[key] = number
		}
		l.excepted = more.Exceptions
	}
	l.rules = withUnenforced(l.rules)
	return l, nil
}

// withUnenforced returns rules with the shadows of those that enforce a share of their keys.
func withUnenforced(rules []*Rule) []*Rule {
	for _, r := range rules {
		if r.unenforced != nil {
			rules = append(rules, r.unenforced)
		}
	}
	return rules
}

// Partly reports whether the rule enforces only a share of its keys.
func (l *Limits) Partly() bool { return len(l.rules) > 0 && l.rules[0].unenforced != nil }

// setRequested sets what requests bring.
func (l *Limits) setRequested(q *Requested) {
	l.requested = q
	l.own.requested = q
}

// Requested returns what requests bring; nil: they bring no limits.
func (l *Limits) Requested() *Requested {
	if l.requested == nil {
		var none *Requested
		return none
	}
	return l.requested.(*Requested)
}

// byValue returns the rules for the limits of a map, by their numbers.
func (l *Limits) byValue(c RuleConfig, limits map[string]*rate.Limit, known map[string]int) (map[string]int, error) {
	values := make([]string, 0, len(limits))
	for value := range limits {
		values = append(values, value)
	}
	sort.Strings(values) // so that the rules have the same order each time
	numbers := make(map[string]int, len(limits))
	for _, value := range values {
		c.Limit = limits[value]
		number, err := l.rule(c, known)
		if err != nil {
			return nil, err
		}
		numbers[value] = number
	}
	return numbers, nil
}

// numbered returns the rule of a number; nil: it has no limit.
func (l *Limits) numbered(number int) *Rule {
	if number == 0 {
		var none *Rule
		return none
	}
	return l.rules[number-1]
}

// choices returns the rules of numbers.
func (l *Limits) choices(numbers map[string]int) map[string]*Rule {
	rules := make(map[string]*Rule, len(numbers))
	for value, number := range numbers {
		rules[value] = l.numbered(number)
	}
	return rules
}

// rule returns the number of a limit's rule, or 0 if there is no limit. Equal limits share a rule: known has the numbers of the existing ones by their
// terms.
func (l *Limits) rule(c RuleConfig, known map[string]int) (int, error) {
	if c.Limit == nil {
		return 0, checkNames(c)
	}
	terms := c.Limit.Terms()
	number := known[terms]
	if number != 0 {
		return number, nil
	}
	r, err := NewRule(c)
	if err != nil {
		return 0, err
	}
	l.rules = append(l.rules, r)
	known[terms] = len(l.rules)
	return len(l.rules), nil
}

// Of returns the rule for a request of that tier and key; nil: it has no limit.
func (l *Limits) Of(tier, key string) *Rule {
	if l.requested != nil && !l.Overrides(key) {
		return l.Requested().of(l.own, tier, true).For(key)
	}
	return l.Look(tier, key).For(key)
}

// Look returns the rule for requests of that tier and a key that is enforced. Nothing is counted of what requests bring.
func (l *Limits) Look(tier, key string) *Rule {
	if len(l.overrides) > 0 {
		if number, ok := l.overrides[key]; ok {
			return l.numbered(number)
		}
	}
	if len(l.tiers) > 0 {
		if number, ok := l.tiers[tier]; ok {
			return l.numbered(number)
		}
	}
	if l.requested != nil {
		return l.Requested().of(l.own, tier, false)
	}
	return l.own
}

// Overrides reports whether a key has an override, be it a limit or none.
func (l *Limits) Overrides(key string) bool {
	_, ok := l.overrides[key]
	return ok
}

// Excepts reports whether a key has an exception.
func (l *Limits) Excepts(key string) bool {
	_, ok := l.excepted[key]
	return ok
}

// Kinds returns the tiers and the keys that have limits of their own, with the limits that requests have brought of late.
func (l *Limits) Kinds() (tiers, keys []string) {
	var ofTiers, ofKeys []string
	if l.requested != nil {
		ofTiers, _ = l.Requested().values()
	}
	for tier := range l.tiers {
		ofTiers = append(ofTiers, tier)
	}
	for key := range l.overrides {
		ofKeys = append(ofKeys, key)
	}
	return ofTiers, ofKeys
}

// Single reports whether one rule applies to all requests.
func (l *Limits) Single() bool {
	return l.own != nil && len(l.tiers) == 0 && len(l.overrides) == 0 && l.requested == nil && l.own.unenforced == nil
}

// Rejecting returns the rule that rejects a request that has no key: r, the rule that applies to it; if r is nil, any other; nil
// if there is none at all.
func (l *Limits) Rejecting(r *Rule) *Rule {
	if r == nil && len(l.rules) > 0 {
		return l.rules[0]
	}
	return r
}

// Choices returns the limits of tiers and of keys, each by its value, and that of all others: as places in Rules, from 1; 0 is no limit. The maps must
// not be changed.
func (l *Limits) Choices() (tiers, overrides map[string]int, others int) {
	for i, r := range l.rules {
		if r == l.own {
			others = i + 1
		}
	}
	return l.tiers, l.overrides, others
}

// Own returns the rule for all requests without an override or a tier's limit; nil: they have no limit.
func (l *Limits) Own() *Rule { return l.own }

// Rules returns all rules, each once. A store must open each of them.
func (l *Limits) Rules() []*Rule { return l.rules }

// All returns all rules as Rules does, and those of limits that requests have brought of late, behind them, which are open while
// the others are. The list must not be changed.
func (l *Limits) All() []*Rule {
	if l.requested == nil {
		return l.rules
	}
	_, rules := l.Requested().values()
	return append(append(make([]*Rule, 0, len(l.rules)+len(rules)), l.rules...), rules...)
}

// Delays reports whether any of the limits delays requests, as that of a shadow does not.
func (l *Limits) Delays() bool {
	for _, r := range l.rules {
		if r.Limit.Delays && !r.Shadow {
			return true
		}
	}
	return false
}

// HasShadow reports whether any of the limits is a shadow, or has a candidate, which is one too.
func (l *Limits) HasShadow() bool {
	for _, r := range l.rules {
		if r.Shadow || len(r.linked) > 0 && r.linked[0].Shadow {
			return true
		}
	}
	return false
}

// TrackReservations calls Rule.TrackReservations for all of the limits.
func (l *Limits) TrackReservations() {
	for _, r := range l.All() {
		r.TrackReservations()
	}
}

// Continue takes over from the limits that these replace what adapters keep of them (Note, Allowed), and their requests that wait.
// It is called before their first request.
func (l *Limits) Continue(before *Limits) {
	if len(before.rules) == 0 {
		return
	}
	for _, r := range l.All() {
		r.continueFrom(before.rules[0])
	}
	if l.requested != nil && before.requested != nil {
		l.Requested().Counts = before.Requested().Counts
		l.Requested().Report = before.Requested().Report
	}
	l.ContinueWaiting(before)
}

// continueFrom takes over what adapters keep of another rule of the name.
func (r *Rule) continueFrom(old *Rule) {
	r.Note(old.noted)
	r.Allowed = old.Allowed
	if old.Overflow != nil && old.Overflow.tracked && !r.TracksReservations() {
		r.TrackReservations()
	}
}

// ContinueWaiting takes over the count of waiting requests from the limits of the same name that these replace. It is called before
// their first request.
func (l *Limits) ContinueWaiting(before *Limits) {
	for _, old := range before.rules {
		if old.waitQuota == nil {
			continue
		}
		for _, r := range l.All() {
			r.waitIn(old.waitQuota)
		}
		return
	}
}

// waitIn makes requests that wait for the rule count in a quota, if they may wait.
func (r *Rule) waitIn(quota *waitQuota) {
	if r.waitQuota == nil {
		return
	}
	r.waitQuota = quota
	if r.Local != nil {
		r.Local.waitQuota = quota
	}
}

// TracksReservations reports whether all of the limits see what waiting requests have reserved, as after TrackReservations.
func (l *Limits) TracksReservations() bool {
	for _, r := range l.rules {
		if !r.TracksReservations() {
			return false
		}
	}
	return true
}

// Same reports whether the limits of two rules choose the same and decide the same.
func (l *Limits) Same(o *Limits) bool {
	return sameRule(l.own, o.own) && sameRules(l.choices(l.tiers), o.choices(o.tiers)) && sameRules(l.choices(l.overrides), o.choices(o.overrides)) &&
		sameRequested(l.Requested(), o.Requested())
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

// sameRule reports whether two rules of one name do the same. Either may be nil.
func sameRule(a, b *Rule) bool {
	if a == nil || b == nil {
		return a == b
	}
	return Difference(a, b) == ""
}

// Difference returns how two rules of one name, which must count together, differ; "" if they do not.
func Difference(a, b *Rule) string {
	switch {
	case a.Identity != b.Identity && a.Limit.Identity() == b.Limit.Identity():
		return "another key"
	case !a.Limit.Same(b.Limit) || a.blocks != b.blocks:
		return "another limit: " + a.Limit.String() + " and " + b.Limit.String()
	case a.Shadow != b.Shadow || a.enforcedPercent != b.enforcedPercent:
		return "another enforcement"
	case a.CountRejected != b.CountRejected:
		return "another count_rejected"
	case a.consistencyText() != b.consistencyText():
		return "another consistency"
	case a.overflowText() != b.overflowText():
		return "another enforcement, bound of waiting requests, count or penalty"
	case a.adapt != b.adapt:
		return "another adapt"
	case !sameBeside(a.linked, b.linked):
		return "another candidate or concurrency"
	}
	return ""
}

func (r *Rule) overflowText() string {
	if r.Overflow == nil {
		return ""
	}
	return r.Overflow.text
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
