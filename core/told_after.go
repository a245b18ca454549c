package core

import "net/http"

// NewTold returns what clients are told of a rule, in those fields, for core.Tell: it sets them as WriteHeaders does.
func NewTold(r *Rule, f Fields) *Told {
	return MakeTold(r, f.XRateLimit, f.IETF, func(h http.Header, remaining, reset, more int64) {
		checks := []Check{{Rule: r}}
		checks[0].Decision = Decision{Allowed: true, Limit: r.Limit().Quota(), Remaining: remaining, ResetAfter: reset * 1_000_000, MoreAfter: more * 1_000_000}
		v := Verdict{}
		WriteHeaders(h, f, checks, &v)
	})
}
