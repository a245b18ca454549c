package main

// field is a header field that tells clients a quota: what it is called, and its value on each way that it is set on. Expressions are Go.
type field struct {
	Name  string // as http.Header has it
	Const string // its constant in core

	// Family is the member of answer.Fields that has the field set.
	Family string

	// Minded says that what an earlier handler has set under this name is looked at.
	Minded bool

	// Timed says that a member of the list has a t, which may not be later than Retry-After.
	Timed bool

	// Ready is the values, of the core.QuotaFields t, where remaining, reset and more are numbers that stand ready.
	Ready string

	// Long is the values where they are not; left is remaining as a text, end the end of RateLimit.
	Long string

	// Reported is the value by what has been decided on all checks: c is the one that the verdict tells of, states and policies are
	// the lists' members.
	Reported string
}

// more is what stands before the seconds until there is more, in a member of RateLimit.
const more = ";t="

// fields are set in this order.
var fields = []field{
	{
		Name: "X-Ratelimit-Limit", Const: "HeaderLimit", Family: "XRateLimit",
		Ready:    "t.Limit",
		Long:     "t.Limit",
		Reported: "c.Rule.LimitText",
	},
	{
		Name: "X-Ratelimit-Remaining", Const: "HeaderRemaining", Family: "XRateLimit", Minded: true,
		Ready:    "t.Values[remaining]",
		Long:     "[]string{left}",
		Reported: "decimal(c.Decision.Remaining)",
	},
	{
		Name: "X-Ratelimit-Reset", Const: "HeaderReset", Family: "XRateLimit",
		Ready:    "t.Values[reset]",
		Long:     "[]string{strconv.FormatInt(reset, 10)}",
		Reported: "decimal((c.Decision.ResetAfter + 999_999) / 1_000_000)",
	},
	{
		Name: "Ratelimit", Const: "HeaderRateLimit", Family: "IETF", Minded: true, Timed: true,
		Ready:    "[]string{t.State + t.Numbers[remaining] + t.Ends[more]}",
		Long:     "[]string{t.State + left + end}",
		Reported: "string(states)",
	},
	{
		Name: "Ratelimit-Policy", Const: "HeaderPolicy", Family: "IETF", Minded: true,
		Ready:    "t.Policy",
		Long:     "t.Policy",
		Reported: "policies",
	},
}
