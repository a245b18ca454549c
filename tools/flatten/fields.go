package main

// field is a header field of the quota, with its value on each kind of path. Values are expressions of Go.
type field struct {
	Name  string // as http.Header has it
	Const string // its constant in core

	// Family is the member of answer.Fields that asks for the field.
	Family string

	// Minded says that a value that an earlier handler has set is taken into account.
	Minded bool

	// Timed says that members of the list have a t, which may not be later than Retry-After.
	Timed bool

	// Ready is the value, a slice, if remaining, reset and more are in the lists of numbers. t is the core.QuotaFields.
	Ready string

	// Long is the value, a slice, if they are not. left is remaining as a text, and end is the end of RateLimit.
	Long string

	// Words is the value, a slice, from the words of Redis's reply and what is captured. end is the end of RateLimit.
	Words string

	// Several is the value, a slice, of several rules. tightest is the one that is reported, with what is left and how long to wait; texts
	// are the members of RateLimit, each behind a comma and a space.
	Several string

	// SeveralWords is the same from the words of Redis's reply: those of the tightest rule begin at place.
	SeveralWords string

	// Reported is the value, a text, from the decisions on all checks. c is the check that the verdict reports; states and
	// policies are the members of the lists.
	Reported string
}

// more is what comes before the seconds until more is left, in a member of RateLimit.
const more = ";t="

// fields lists the fields in the order in which they are set.
var fields = []field{
	{
		Name: "X-Ratelimit-Limit", Const: "HeaderLimit", Family: "XRateLimit",
		Ready:        "t.Limit",
		Long:         "t.Limit",
		Words:        "limitField",
		Several:      "tightest.limitField",
		SeveralWords: "tightest.limitField",
		Reported:     "c.Rule.LimitText",
	},
	{
		Name: "X-Ratelimit-Remaining", Const: "HeaderRemaining", Family: "XRateLimit", Minded: true,
		Ready:        "t.Values[remaining]",
		Long:         "[]string{left}",
		Words:        "words[0:1:1]",
		Several:      "numberValues[left]",
		SeveralWords: "words[place : place+1 : place+1]",
		Reported:     "decimal(c.Decision.Remaining)",
	},
	{
		Name: "X-Ratelimit-Reset", Const: "HeaderReset", Family: "XRateLimit",
		Ready:        "t.Values[reset]",
		Long:         "[]string{strconv.FormatInt(reset, 10)}",
		Words:        "words[4:5:5]",
		Several:      "numberValues[wait]",
		SeveralWords: "words[place+4 : place+5 : place+5]",
		Reported:     "decimal((c.Decision.ResetAfter + 999_999) / 1_000_000)",
	},
	{
		Name: "Ratelimit", Const: "HeaderRateLimit", Family: "IETF", Minded: true, Timed: true,
		Ready:        "[]string{t.State + t.Numbers[remaining] + t.Ends[more]}",
		Long:         "[]string{t.State + left + end}",
		Words:        "[]string{stateText + words[0] + end}",
		Several:      "[]string{texts[2:]}",
		SeveralWords: "[]string{texts[2:]}",
		Reported:     "string(states)",
	},
	{
		Name: "Ratelimit-Policy", Const: "HeaderPolicy", Family: "IETF", Minded: true,
		Ready:        "t.Policy",
		Long:         "t.Policy",
		Words:        "policyField",
		Several:      "policies",
		SeveralWords: "group.policies",
		Reported:     "policies",
	},
}
