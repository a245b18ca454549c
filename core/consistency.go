package core

import (
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// Consistency says how closely the nodes of a fleet follow a rule's limit together. It is no part of the rule's identity: nodes may differ in it.
type Consistency int

// The values of Consistency.
const (
	Strict   Consistency = iota // the store decides on every request
	Leased                      // nodes lease units, and spend them without asking: see Lease
	Eventual                    // nodes decide by their memories, and tell each other at intervals: see package eventual
)

// ConsistencyNames lists the names of the values, in the order of the constants.
var ConsistencyNames = []string{"strict", "lease", "eventual"}

// ParseConsistency returns the value for a text of the configuration: strict, lease, or eventual with the interval at which nodes tell each other, which is DefaultSync
// if it is left out. "" means the default, Strict. every is 0 unless the value is Eventual.
func ParseConsistency(text string) (value Consistency, every time.Duration, err error) {
	parts := strings.Fields(text)
	if len(parts) == 0 {
		return Strict, 0, nil
	}
	for i, name := range ConsistencyNames {
		if name == parts[0] {
			value = Consistency(i)
		}
	}
	switch {
	case ConsistencyNames[value] != parts[0]:
		return Strict, 0, words.OneOf("consistency", strconv.Quote(text), parts[0], ConsistencyNames)
	case value != Eventual:
		if len(parts) > 1 {
			return Strict, 0, words.Wrong("consistency", strconv.Quote(text), "%s takes nothing else; only eventual takes an interval, such as eventual 1s", parts[0])
		}
		return value, 0, nil
	case len(parts) == 1:
		return value, rate.DefaultSync, nil
	}
	every, err = rate.ParseDuration(parts[1])
	if err != nil || len(parts) > 2 || every < rate.ShortestSync || every > rate.LongestSync || every%time.Microsecond != 0 {
		return Strict, 0, words.Wrong("consistency", strconv.Quote(text), "eventual takes one interval from %s to %s, such as eventual 1s", rate.FormatPeriod(rate.ShortestSync), rate.FormatPeriod(rate.LongestSync))
	}
	return value, every, nil
}

// ParseRegions reads how regions keep to a limit together, from a text of the configuration: lease, or eventual with an interval, which is DefaultSync if it is left
// out. "" means that the rule does not hold across regions.
func ParseRegions(text string) (lease bool, every time.Duration, err error) {
	if strings.TrimSpace(text) == "" {
		return false, 0, nil
	}
	value, every, err := ParseConsistency(text)
	if err != nil || value == Strict || value == Eventual && every < rate.ShortestRegions {
		return false, 0, words.Wrong("regions", strconv.Quote(text), "takes lease, or eventual and an interval from %s to %s, such as eventual 1s", rate.FormatPeriod(rate.ShortestRegions), rate.FormatPeriod(rate.LongestSync))
	}
	return value == Leased, every, nil
}

// setRegions sets how regions keep to the rule's limit. The rule's consistency is set.
func (r *Rule) setRegions(c *RuleConfig) error {
	if c.RegionsEvery == 0 && !c.RegionsLease || c.Blocks {
		return nil
	}
	if c.RegionsLease {
		eventual := *c
		eventual.Consistency = Eventual // what it excludes is excluded here, too
		if c.Consistency != Strict {
			return words.Wrong("regions", "lease", " and consistency are mutually exclusive: nodes hold leases of another region, and this region's Redis decides on the others; remove consistency")
		}
		if why := needsStore(&eventual); why != "" {
			return words.Wrong("regions", "lease", " and "+why)
		}
		if err := c.Limit.Divides(); err != nil {
			return words.Of(err).Within("regions", "lease")
		}
		r.regionsLease = true
		return nil
	}
	if r.sync == nil {
		return words.Wrong("regions", "eventual", "needs consistency eventual: what other regions have admitted is told to the nodes, which decide by it; add it")
	}
	terms, err := rate.SyncTermsOf(c.Limit, c.RegionsEvery)
	if err != nil {
		return words.Of(err).Within("regions", "eventual")
	}
	r.regions = &terms
	return nil
}

// LeasesFromHome reports whether the rule has regions lease.
func (r *Rule) LeasesFromHome() bool { return r.regionsLease }

// LentAs returns the identity under which nodes lease units of the rule's limit; "": they do not.
func (r *Rule) LentAs() string {
	if r.lease != nil {
		return r.Identity
	}
	return r.lentAs
}

// Divided returns the rules of the parts of a limit with regions lease: see rate.Limit.Divided. rest is leased.
func (r *Rule) Divided(share float64, regions int) (own, rest *Rule, err error) {
	part, others, err := r.Limit.Divided(share, regions)
	if err != nil {
		return nil, nil, words.Of(err).Within("regions", "lease")
	}
	own, err = NewRule(RuleConfig{Namespace: r.Namespace, Name: r.name, KeySpec: r.keySpec + "|share", Limit: part, Shadow: r.Shadow})
	if err == nil {
		rest, err = NewRule(RuleConfig{Namespace: r.Namespace, Name: r.name, KeySpec: r.keySpec + "|rest", Limit: others, Consistency: Leased})
	}
	if err != nil {
		return nil, nil, err
	}
	terms, err := rate.RegionLeaseTermsOf(others)
	rest.lease = &terms
	r.lentAs = rest.Identity
	return own, rest, err
}

// setConsistency sets the terms on which nodes lease units of the rule's limit, or tell each other what they admit. The error names a setting that needs the store at
// every request.
func (r *Rule) setConsistency(c *RuleConfig) error {
	if c.Consistency == Strict {
		eventual := *c
		eventual.Consistency = Eventual
		r.central = needsStore(&eventual)
		if r.central == "" && c.Strictly {
			r.central = "consistency strict are mutually exclusive: it asks a store about every request; remove one"
		}
		return nil
	}
	name := ConsistencyNames[c.Consistency]
	if why := needsStore(c); why != "" {
		return words.Wrong("consistency", name, " and "+why)
	}
	if c.Blocks {
		return nil
	}
	if c.Consistency == Leased {
		terms, err := rate.LeaseTermsOf(c.Limit)
		if err != nil {
			return words.Of(err).Within("consistency", "lease")
		}
		r.lease = &terms
		return nil
	}
	terms, err := rate.SyncTermsOf(c.Limit, c.SyncEvery)
	if err != nil {
		return words.Of(err).Within("consistency", "eventual")
	}
	r.sync = &terms
	return nil
}

// needsStore returns which setting needs the store at every request, and what to do instead; "": none.
func needsStore(c *RuleConfig) string {
	switch {
	case c.Limit.InFlight || c.Concurrency != 0:
		return "concurrency are mutually exclusive: every request begins and ends in the store; remove one"
	case c.RegionsLease && c.OverflowPolicy.atEnd() != "":
		return c.OverflowPolicy.atEnd() + " are mutually exclusive: every request has a reservation in the store; remove one"
	case c.CountRejected:
		return "`count_rejected` are mutually exclusive: every rejection is charged in the store; remove one"
	case c.Candidate != nil:
		return "candidate are mutually exclusive: the store decides on every request by it; remove one"
	case c.RespectUpstream != 0:
		return "`respect_upstream` are mutually exclusive: a pause holds for all nodes at once, by the store; remove one"
	case c.Limit.Delays:
		return "`on_limit` delay are mutually exclusive: requests have reservations after those of all nodes; remove one"
	case c.Limit.Queues:
		return c.Limit.Algorithm.String() + " are mutually exclusive: requests have reservations after those of all nodes; choose another algorithm"
	case c.Consistency == Leased && c.Limit.Owes && c.Limit.IsLog:
		return "`cost_response` are mutually exclusive with sliding_window_log: what a key owes takes the places of units that expire, and the store does not know when those do that nodes hold; choose another algorithm"
	case c.Consistency != Eventual:
		return ""
	case c.OverflowPolicy.SoftPercent != 0:
		return "enforcement soft are mutually exclusive: the store knows when tolerance begins and ends; remove one"
	case len(c.OverflowPolicy.Penalties) > 0:
		return "penalty are mutually exclusive: the store knows which request is an offence; remove one"
	}
	return ""
}

// NeedsOneStore returns which setting of the rule needs a store that decides on every request of all nodes, and what to do instead, such as "count are
// mutually exclusive: …; remove one", in the form of words.Mistake.Says; "": none does.
func (r *Rule) NeedsOneStore() string { return r.central }

// LeaseTerms returns the terms on which nodes lease units of the rule's limit; nil: they do not.
func (r *Rule) LeaseTerms() *rate.LeaseTerms { return r.lease }

// SyncTerms returns the terms on which nodes tell each other what they admit; nil: they do not.
func (r *Rule) SyncTerms() *rate.SyncTerms { return r.sync }

// RegionTerms returns the terms on which regions tell each other what they admit; nil: they do not.
func (r *Rule) RegionTerms() *rate.SyncTerms { return r.regions }

// consistencyText says how closely nodes follow the rule's limit, and regions.
func (r *Rule) consistencyText() string {
	switch {
	case r.regionsLease:
		return "regions lease"
	case r.regions != nil:
		return ConsistencyNames[Eventual] + " " + rate.FormatMicroseconds(r.sync.Every) + ", regions eventual " + rate.FormatMicroseconds(r.regions.Every)
	case r.lease != nil:
		return ConsistencyNames[Leased]
	case r.sync != nil:
		return ConsistencyNames[Eventual] + " " + rate.FormatMicroseconds(r.sync.Every)
	}
	return ConsistencyNames[Strict]
}

// SyncAdvice returns what is unwise about the interval at which nodes tell each other: see SyncTerms.Advice. "" means nothing.
func (r *Rule) SyncAdvice() string {
	if r.sync == nil {
		return ""
	}
	if r.regions != nil && r.regions.Every > r.sync.Every {
		return r.regions.Advice(r.Limit)
	}
	return r.sync.Advice(r.Limit)
}
