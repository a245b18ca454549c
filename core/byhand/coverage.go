package byhand

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// Coverage is what a rule decides on a request that nobody has sent. Its JSON is that of the admin API.
type Coverage struct {
	Rule       string   `json:"rule"` // its label
	Covers     bool     `json:"covers"`
	Key        []string `json:"key,omitempty"`
	Limit      string   `json:"limit,omitempty"` // in force
	Candidate  bool     `json:"candidate,omitempty"`
	Former     bool     `json:"former,omitempty"` // the limit before a change, which requests must pass, too, for a while
	Shadow     bool     `json:"shadow,omitempty"`
	Allowed    bool     `json:"allowed"`
	Blocked    bool     `json:"blocked,omitempty"` // rejected for a block or a penalty, and not for what was counted
	Soft       bool     `json:"soft,omitempty"`    // allowed by the rule's tolerance
	Remaining  int64    `json:"remaining"`         // before the request
	RetryAfter float64  `json:"retry_after_seconds"`
}

// Coverage returns what a check of the rule says of such a request, of which a verdict was made by a limiter.
func (s *Subject) Coverage(l *core.Limiter, c *core.Check, v *core.Verdict) Coverage {
	d := &c.Decision
	one := Coverage{Rule: s.Label, Covers: true, Key: s.Keys.Show(c.Key), Limit: c.Rule.Limit.String(), Candidate: c.Rule.IsCandidate(), Former: c.Rule.IsPrevious(),
		Shadow: c.Rule.Shadow && !c.Rule.IsCandidate(), Allowed: d.Allowed, Soft: d.Soft, Remaining: d.Remaining, RetryAfter: float64(d.RetryAfter) / 1e6}
	if !d.Allowed && !c.Rule.Limit.InFlight {
		left, err := l.BlockedFor(c.Rule, c.Key)
		one.Blocked = err == nil && left > 0
	}
	if d.RetryAfter == rate.Never {
		one.RetryAfter = -1
	}
	if d.Allowed && v.Outcome != core.Reject && d.Delay == 0 && !c.Uncounted { // Remaining is as if the request had been charged
		one.Remaining += c.Cost
	}
	return one
}
