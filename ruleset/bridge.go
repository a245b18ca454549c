package ruleset

import (
	"time"

	"github.com/proxyweir/weir/core"
)

// More reads the tiers and overrides of a rule, for who reads the rest of it otherwise. own is the rule's own limit, which it may
// leave to the tiers: hasOwn says whether it has said anything; common is what all its limits have in common; keyOf returns the key
// that requests with these values have, of which there are so many as the key has parts, and tierOf the tier of those with that value. It
// returns the limit of all others, too.
func More(t *RuleText, own *core.Limit, hasOwn bool, common core.LimitConfig, parts int, keyOf func([]string) string, tierOf func(string) string) (*core.Limit, core.MoreLimits, []*FieldError) {
	c := &compiler{text: t, parts: parts, keyOf: keyOf, tierOf: tierOf}
	var more core.MoreLimits
	if One(t, "tiers") != nil {
		own, more.Tiers = c.tiers(own, hasOwn, common)
	}
	if len(t.Objects["overrides"]) > 0 {
		more.Overrides = c.overrides(common)
	}
	return own, more, c.errors
}

// ParseOnLimit says what is wrong with an on_limit.
func ParseOnLimit(text string) (delays bool, err error) {
	return text == "delay", CheckWord(fieldOf("on_limit"), text)
}

// NewCandidate makes the limit of a candidate.
func NewCandidate(o *Object, algorithm core.Algorithm, maxDelay time.Duration) (*core.Limit, []*FieldError) {
	return newCandidate(o, algorithm, maxDelay)
}
