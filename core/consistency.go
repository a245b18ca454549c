package core

import (
	"fmt"

	"github.com/proxyweir/weir/words"
)

// Consistency says how closely the nodes of a fleet follow a rule's limit together. It is no part of the rule's identity: nodes may differ in it.
type Consistency int

// The values of Consistency.
const (
	Strict Consistency = iota // the store decides on every request
	Leased                    // nodes lease units, and spend them without asking: see Lease
)

// ConsistencyNames lists the names that ParseConsistency accepts, in the order of the constants.
var ConsistencyNames = []string{"strict", "lease"}

// ParseConsistency returns the value for a word of the configuration; "" means the default, Strict.
func ParseConsistency(word string) (Consistency, error) {
	if word == "" {
		return Strict, nil
	}
	for i, name := range ConsistencyNames {
		if name == word {
			return Consistency(i), nil
		}
	}
	return Strict, fmt.Errorf("consistency %q: %s", word, words.OneOf(word, ConsistencyNames))
}

// leaseTerms returns the terms on which the limit of a configuration is leased; nil: it is not. The error names a setting that needs the store at every
// request.
func leaseTerms(c *RuleConfig) (*LeaseTerms, error) {
	var none *LeaseTerms
	if c.Consistency != Leased {
		return none, nil
	}
	why := ""
	switch {
	case c.Limit.inFlight || c.Concurrency != 0:
		why = "concurrency are mutually exclusive: every request begins and ends in the store; remove one"
	case c.OverflowPolicy.Count != nil:
		why = "count are mutually exclusive: every request has a reservation in the store; remove one"
	case c.CountRejected:
		why = "count_rejected are mutually exclusive: every rejection is charged in the store; remove one"
	case c.Candidate != nil:
		why = "candidate are mutually exclusive: the store decides on every request by it; remove one"
	case c.Limit.delays:
		why = "on_limit delay are mutually exclusive: requests have reservations after those of all nodes; remove one"
	case c.Limit.queues:
		why = c.Limit.algorithm.String() + " are mutually exclusive: requests have reservations after those of all nodes; choose another algorithm"
	}
	if why != "" {
		return none, fmt.Errorf("consistency lease and %s", why)
	}
	if c.Blocks {
		return none, nil
	}
	terms, err := LeaseTermsOf(c.Limit)
	if err != nil {
		return none, fmt.Errorf("consistency lease: %w", err)
	}
	return &terms, nil
}

// LeaseTerms returns the terms on which nodes lease units of the rule's limit; nil: they do not.
func (r *Rule) LeaseTerms() *LeaseTerms { return r.lease }
