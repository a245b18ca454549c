package front

import "github.com/proxyweir/weir/core"

// Outcome is what has become of a request under one rule.
type Outcome int

// The outcomes. Each rule has one of a request. Where the store has failed what memory rejects is rejected as ever, and what it allows is
// a fallback.
const (
	Allowed        Outcome = iota
	AllowedSoft            // over the limit, by tolerance
	Delayed                // allowed, after a wait
	Rejected               // over the limit, shut out, or for want of a place
	ShadowRejected         // it would have been, if the rule did not only watch
	ErrorOpen              // allowed uncounted, since the store has failed
	ErrorClosed            // turned away for that
	Fallback               // allowed by what memory counts for the store
	NotCounted             // the rule would have allowed what another rejects or turns away, and does not only watch
)

// OutcomeNames are what metrics call the outcomes that are counted: those before NotCounted.
var OutcomeNames = []string{"allowed", "allowed_soft", "delayed", "rejected", "shadow_rejected", "error_open", "error_closed", "fallback"}

// Comparison is how a rule's limit and its candidate have decided on a request.
type Comparison int

// The comparisons.
const (
	BothRejected Comparison = iota
	Stricter                // the candidate rejected what the limit allowed
	Laxer                   // the candidate allowed what the limit rejected
	BothAllowed
	Comparisons // how many there are
)

// NotCompared is the Comparison where there is no candidate, or the store has failed: nodes count by their shares then, if at all.
const NotCompared Comparison = -1

// ComparisonWords are what metrics say of the limit, and of the candidate, of each Comparison.
var ComparisonWords = [][2]string{{"rejected", "rejected"}, {"allowed", "rejected"}, {"rejected", "allowed"}, {"allowed", "allowed"}}

// Part is what one rule has made of a request.
type Part struct {
	Outcome  Outcome
	Check    int // the place of what decided: the check of the rule's limit, or of its concurrency
	Compared Comparison
}

// NextPart says what the rule has made of a request whose first check is at a place, and returns that of the next rule's. The checks have
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

// outcomeOf returns what has become of a request by the check that decides for a rule.
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
