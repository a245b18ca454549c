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
	Check    *core.Check // that decided: of the rule's limit, or of its concurrency
	Compared Comparison
}

// PartOf fills in the result of the rule of a check that was decided, with that verdict; failed is whether the store had failed.
func PartOf(c *core.Check, v *core.Verdict, failed bool, p *Part) {
	p.Check = c
	p.Compared = NotCompared
	if c.Candidate != nil && !failed {
		p.Compared = compare(c.Decision.Allowed, c.Candidate.Decision.Allowed)
	}
	if c.InFlight != nil && c.Decision.Allowed && !c.InFlight.Decision.Allowed {
		p.Check = c.InFlight
	}
	p.Outcome = outcomeOf(p.Check, v, failed)
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
	shadow := c.Rule.Shadow
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
