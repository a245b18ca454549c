package front

import "github.com/proxyweir/weir/core"

// Outcome is the result of a request under one rule.
type Outcome int

// The outcomes. Each rule has one for each request. While the store has failed, a request that memory rejects is Rejected, and one that it
// allows is a Fallback.
const (
	Allowed        Outcome = iota
	AllowedSoft            // over the limit, by tolerance
	Delayed                // allowed, after a wait
	Rejected               // over the limit, blocked, or without a place in the queue
	ShadowRejected         // the rule is a shadow, and would have rejected it
	ShadowDelayed          // the rule is a shadow, and would have made it wait
	ErrorOpen              // allowed uncounted, since the store has failed
	ErrorClosed            // turned away, since the store has failed
	Fallback               // allowed by the counts in memory, since the store has failed
	NotCounted             // the rule is no shadow and would have allowed it, but another rejects it or turns it away
)

// OutcomeNames are the names in metrics of the outcomes that are counted: those before NotCounted.
var OutcomeNames = []string{"allowed", "allowed_soft", "delayed", "rejected", "shadow_rejected", "shadow_delayed", "error_open", "error_closed", "fallback"}

// Comparison says how a rule's limit and its candidate have decided on a request.
type Comparison int

// The comparisons.
const (
	BothRejected Comparison = iota
	Stricter                // the candidate rejected what the limit allowed
	Laxer                   // the candidate allowed what the limit rejected
	BothAllowed
	Comparisons // how many there are
)

// NotCompared is the Comparison without a candidate, or while the store has failed: nodes then count by their shares, if at all.
const NotCompared Comparison = -1

// ComparisonWords are the labels in metrics of the limit and of the candidate for each Comparison.
var ComparisonWords = [][2]string{{"rejected", "rejected"}, {"allowed", "rejected"}, {"rejected", "allowed"}, {"allowed", "allowed"}}

// Part is the result of one rule for a request.
type Part struct {
	Outcome  Outcome
	Check    int // the index of the check that decided: that of the rule's limit, or of its concurrency
	Compared Comparison
}

// NextPart fills in the result of the rule whose first check is at place i, and returns the place of the next rule's first check. The checks have
// been decided, with that verdict; failed is whether the store had failed.
func NextPart(checks []core.Check, at int, v *core.Verdict, failed bool, p *Part) int {
	var (
		limit, other *core.Check
		next         int
	)
	limit = &checks[at]
	p.Check = at
	p.Compared = NotCompared
	for next = at + 1; next < len(checks); next++ {
		other = &checks[next]
		if other.Rule.IsCandidate() {
			if !failed {
				p.Compared = compare(limit.Decision.Allowed, other.Decision.Allowed)
			}
			continue
		}
		if other.Rule.IsFormer() { // the limit's check has its decision, too
			continue
		}
		if !other.Rule.IsConcurrency() {
			break
		}
		if limit.Decision.Allowed && !other.Decision.Allowed {
			p.Check = next
		}
	}
	p.Outcome = outcomeOf(&checks[p.Check], v, failed)
	return next
}

func compare(limit, candidate bool) Comparison {
	c := BothRejected
	if limit {
		c = Stricter
	}
	if candidate {
		c += Laxer - BothRejected
	}
	return c
}

// outcomeOf returns the outcome of a request by the check that decides for a rule.
func outcomeOf(c *core.Check, v *core.Verdict, failed bool) Outcome {
	if v.Outcome == core.Unavailable {
		if c.Rule.RejectsWithoutStore() {
			return ErrorClosed
		}
		return NotCounted
	}
	d := &c.Decision
	shadow := c.Rule.Shadow()
	if !d.Allowed {
		if shadow {
			return ShadowRejected
		}
		return Rejected
	}
	if v.Outcome == core.Reject && !shadow {
		return NotCounted
	}
	if c.Uncounted {
		return ErrorOpen
	}
	if failed {
		return Fallback
	}
	if shadow && d.Delay > 0 {
		return ShadowDelayed
	}
	if shadow {
		return Allowed
	}
	if d.Soft {
		return AllowedSoft
	}
	if d.Delay > 0 {
		return Delayed
	}
	return Allowed
}
