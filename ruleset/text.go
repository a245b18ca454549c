package ruleset

import (
	"github.com/proxyweir/weir/match"
)

// RuleText is a rule as it is written: numbers, durations and the like are texts still, and "" is what is not said. Its fields are
// those of DESIGN.md's rule; Compile says what is wrong with them.
type RuleText struct {
	Name             string
	Match            *match.Match // nil: all requests
	Key              []string     // sources, as match.ParseSource takes them; none: client_ip
	Limit            string       // "100/1m", or Unlimited
	Tiers            *Tiers       // nil: the limit is the same for all
	Overrides        []Override
	TimeZone         string
	Algorithm        string
	Burst            string
	Refill           string
	Cost             string
	IPv4Prefix       string
	IPv6Prefix       string
	Enforcement      string // hard, shadow, "soft 20% 30s"
	OnLimit          string
	MaxDelay         string
	MaxWaiting       string
	MaxWaitingPerKey string
	Count            []string // status codes and classes of them; nil: all
	Penalty          []string // durations; nil: none
	Concurrency      string
	Candidate        *Candidate // nil: none
	OnError          string
	OnMissingKey     string
	CountRejected    string
}

// Unlimited is written for a limit where there is none: requests that it holds for are not counted.
const Unlimited = "unlimited"

// Tiers choose the limit by a value of the request.
type Tiers struct {
	Source string // as match.ParseSource takes it
	Limits []Tier
}

// Tier is the limit of one value. The value "*" stands for all that have no tier of their own.
type Tier struct {
	Value, Limit string
}

// AnyTier is the value of the tier for all values that have no other.
const AnyTier = "*"

// Override is the limit of one key.
type Override struct {
	Key   []string // its parts, as the rule's Key has them
	Limit string
}

// Candidate is a limit that is compared with the rule's. Where it says no algorithm, it has the rule's.
type Candidate struct {
	Limit, Algorithm, Burst, Refill, TimeZone string
}

// FieldError says what is wrong with one field of a RuleText.
type FieldError struct {
	Path []string // where it is: the field, and in it the member's name or the item's place
	Text string   // which begins with the field
}

// Error returns the text.
func (e *FieldError) Error() string { return e.Text }
