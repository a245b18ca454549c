package answer

import (
	"net/http"
	"strconv"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// WriteHeaders sets the quota fields for the verdict on a request. For a rejection it also sets Retry-After and Cache-Control: no-store.
// All times are whole seconds, rounded up.
//
// The X-RateLimit fields report the rule that Verdict.Reported names: Limit is its quota, Remaining the units left, Reset the seconds until
// the quota is whole. X-RateLimit-Soft: exceeded marks a request that tolerance has allowed.
//
// RateLimit and RateLimit-Policy list every rule that is not a shadow; of more than 32 they list the first, and the reported one. For a rule
// that rejects, t is the seconds until it allows the request; for another rule, the seconds until more units are left than now. t is left
// out in three cases: if nothing is used, or nobody knows; if the request waits, since t would be wrong when the response is sent; and if t
// is later than Retry-After, which the draft does not allow.
//
// If an earlier handler has set the fields, its members of the lists stay in front, and of the X-RateLimit fields the stricter stay.
//
// All but rare cases are in this one function, since each call costs an interpreter time.
func WriteHeaders(h http.Header, f Fields, checks []core.Check, v *core.Verdict) {
	var (
		room            [160]byte
		states          []byte
		policies, retry string
		values          *[8]string
		c, reported     *core.Check
		listed          int
		earlier         bool
	)
	if f.Form != nil {
		writeInForm(h, f, checks, v)
		return
	}
	if v.Soft && f.XRateLimit {
		h[headerSoft] = []string{"exceeded"}
	}
	if v.Reported < 0 || v.Outcome != core.Reject && !f.XRateLimit && !f.IETF {
		return
	}
	reported = &checks[v.Reported]
	if v.InFlight {
		reported = reported.InFlight
	}
	earlier = len(h) > 0 && (h[memory.HeaderRemaining] != nil || h[memory.HeaderRateLimit] != nil || h[memory.HeaderPolicy] != nil)
	// One array holds the values of all fields. Each field's slice of it has a length and a capacity of one, so that an append copies it.
	// So a change of one field does not show in another.
	values = new([8]string)
	if v.Outcome == core.Reject {
		values[0] = "no-store"
		h[memory.HeaderCacheControl] = values[0:1:1]
		if v.RetryAfter != rate.Never {
			retry = decimal(RetrySeconds(v.RetryAfter))
			values[1] = retry
			h[memory.HeaderRetryAfter] = values[1:2:2]
			if f.XRateLimit {
				values[2] = retry
				h[memory.HeaderXRetryAfter] = values[2:3:3]
			}
		}
	}
	if f.IETF {
		states = room[:0]
		for i := range checks {
			if len(checks) > 1 && repeats(checks, i, v.Reported) {
				continue
			}
			for c = &checks[i]; c != nil; c = c.InFlight {
				if !c.Rule.Shown || c.Uncounted {
					continue
				}
				if c != reported {
					listed++
					if listed >= mostListed {
						continue
					}
				}
				if policies == "" {
					policies = c.Rule.PolicyText
				} else {
					policies += ", " + c.Rule.PolicyText
					states = append(states, ", "...)
				}
				states = append(states, c.Rule.StateText...)
				states = strconv.AppendInt(states, c.Decision.Remaining, 10)
				if c.Decision.Allowed {
					if c.Decision.MoreAfter > 0 && v.Outcome == core.Allow { // the most frequent case
						states = append(states, memory.MoreText...)
						states = strconv.AppendInt(states, (c.Decision.MoreAfter+999_999)/1_000_000, 10)
					} else {
						states = appendMore(states, &c.Decision, v)
					}
				} else if c == reported && retry != "" {
					states = append(states, memory.MoreText...)
					states = append(states, retry...)
				} else if c.Decision.RetryAfter != rate.Never {
					states = append(states, memory.MoreText...)
					states = strconv.AppendInt(states, RetrySeconds(c.Decision.RetryAfter), 10)
				}
			}
		}
	}
	c = reported
	if f.XRateLimit && (!earlier || v.Outcome == core.Reject || stricter(h, &c.Decision)) {
		values[3] = c.Rule.LimitText
		values[4] = decimal(c.Decision.Remaining)
		values[5] = decimal((c.Decision.ResetAfter + 999_999) / 1_000_000)
		h[memory.HeaderLimit] = values[3:4:4]
		h[memory.HeaderRemaining] = values[4:5:5]
		h[memory.HeaderReset] = values[5:6:6]
	}
	if f.IETF {
		values[6] = string(states)
		values[7] = policies
		if earlier {
			values[6] = behind(h[memory.HeaderRateLimit], values[6], retry, v.RetryAfter)
			values[7] = behind(h[memory.HeaderPolicy], values[7], "", v.RetryAfter)
		}
		h[memory.HeaderRateLimit] = values[6:7:7]
		h[memory.HeaderPolicy] = values[7:8:8]
	}
}

// decimal is strconv.FormatInt, without an allocation for the numbers that most quotas consist of.
func decimal(n int64) string {
	if n >= 0 && n < int64(len(decimals)) {
		return decimals[n]
	}
	return strconv.FormatInt(n, 10)
}

// decimals are the texts of the numbers that most quotas consist of.
var decimals = makeDecimals()

func makeDecimals() []string {
	list := make([]string, 1024)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
}
