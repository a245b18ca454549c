package core

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Fields says which header fields clients are told their quota in.
type Fields struct {
	XRateLimit bool // X-RateLimit-Limit, -Remaining, -Reset, and -Retry-After on a rejection
	IETF       bool // RateLimit and RateLimit-Policy, of draft-ietf-httpapi-ratelimit-headers-10
}

// FieldNames lists the words that ParseFields takes.
var FieldNames = []string{"x_ratelimit", "ietf", "none"}

// ParseFields reads a list of FieldNames. "none" stands alone; an empty list means all fields.
func ParseFields(words []string) (Fields, error) {
	if len(words) == 0 {
		return Fields{XRateLimit: true, IETF: true}, nil
	}
	var f Fields
	for _, w := range words {
		switch w {
		case "x_ratelimit":
			f.XRateLimit = true
		case "ietf":
			f.IETF = true
		case "none":
			if len(words) > 1 {
				return Fields{}, fmt.Errorf("headers %q: none stands alone", strings.Join(words, " "))
			}
		default:
			return Fields{}, fmt.Errorf("headers %q: %s", w, oneOf(w, FieldNames))
		}
	}
	return f, nil
}

// The fields' names as http.Header has them.
const (
	headerLimit      = "X-Ratelimit-Limit"
	headerRemaining  = "X-Ratelimit-Remaining"
	headerReset      = "X-Ratelimit-Reset"
	headerXRetry     = "X-Ratelimit-Retry-After"
	headerRateLimit  = "Ratelimit"
	headerPolicy     = "Ratelimit-Policy"
	headerRetryAfter = "Retry-After"
)

// WriteHeaders sets the fields that tell the client of the verdict on its request, and on a rejection Retry-After and
// Cache-Control: no-store.
//
// X-RateLimit speaks of the rule that Verdict.Told names: Limit its quota, Remaining the units left, Reset the seconds
// until the quota is whole. RateLimit and RateLimit-Policy list every rule that is not a shadow. Where an earlier handler
// has set the fields, its members of the lists are kept in front, and the X-RateLimit fields that are the stricter.
// All times are whole seconds, rounded up.
func WriteHeaders(h http.Header, f Fields, checks []Check, v *Verdict) {
	if v.Told < 0 {
		return
	}
	rejected := v.Outcome == Reject
	retry := ""
	if rejected {
		h["Cache-Control"] = []string{"no-store"}
		if v.RetryAfter != Never {
			retry = decimal(RetrySeconds(v.RetryAfter))
			h[headerRetryAfter] = []string{retry}
		}
	}
	if f.XRateLimit {
		writeXRateLimit(h, &checks[v.Told], retry, rejected)
	}
	if f.IETF {
		writeIETF(h, checks, v, retry)
	}
}

func writeXRateLimit(h http.Header, told *Check, retry string, rejected bool) {
	d := &told.Decision
	if earlier := h[headerRemaining]; !rejected && len(earlier) == 1 && len(h[headerLimit]) == 1 {
		remaining, err1 := strconv.ParseInt(earlier[0], 10, 64)
		limit, err2 := strconv.ParseInt(h[headerLimit][0], 10, 64)
		if err1 != nil || err2 != nil || remaining*d.Limit <= d.Remaining*limit {
			return
		}
	}
	// One array for all the values: each of its one-element slices has no room behind it, so an append copies.
	values := new([4]string)
	values[0] = told.Rule.limitText
	values[1] = decimal(d.Remaining)
	values[2] = decimal(seconds(d.ResetAfter))
	h[headerLimit] = values[0:1:1]
	h[headerRemaining] = values[1:2:2]
	h[headerReset] = values[2:3:3]
	if retry != "" {
		values[3] = retry
		h[headerXRetry] = values[3:4:4]
	}
}

func writeIETF(h http.Header, checks []Check, v *Verdict, retry string) {
	var room [160]byte
	states := room[:0]
	policies := ""
	for i := range checks {
		r := checks[i].Rule
		if r.shadow {
			continue
		}
		d := &checks[i].Decision
		if policies == "" {
			policies = r.policyText
		} else {
			policies += ", " + r.policyText
			states = append(states, ", "...)
		}
		states = append(states, r.stateText...)
		states = strconv.AppendInt(states, d.Remaining, 10)
		if d.Allowed {
			states = append(states, ";t="...)
			states = strconv.AppendInt(states, seconds(d.ResetAfter), 10)
		} else if i == v.Told && retry != "" {
			states = append(states, ";t="...)
			states = append(states, retry...)
		} else if d.RetryAfter != Never {
			states = append(states, ";t="...)
			states = strconv.AppendInt(states, RetrySeconds(d.RetryAfter), 10)
		}
	}
	values := new([2]string)
	values[0] = string(states)
	values[1] = policies
	if earlier := h[headerRateLimit]; len(earlier) > 0 {
		values[0] = strings.Join(earlier, ", ") + ", " + values[0]
	}
	if earlier := h[headerPolicy]; len(earlier) > 0 {
		values[1] = strings.Join(earlier, ", ") + ", " + values[1]
	}
	h[headerRateLimit] = values[0:1:1]
	h[headerPolicy] = values[1:2:2]
}

// seconds rounds microseconds up to whole seconds.
func seconds(micros int64) int64 {
	return (micros + 999_999) / 1_000_000
}

// RetrySeconds returns what Retry-After says of a wait in microseconds: whole seconds, rounded up, at least 1.
func RetrySeconds(micros int64) int64 {
	if micros <= 1_000_000 {
		return 1
	}
	return seconds(micros)
}

// decimal is strconv.FormatInt without an allocation for the numbers that most quotas are made of.
func decimal(n int64) string {
	if n >= 0 && n < int64(len(decimals)) {
		return decimals[n]
	}
	return strconv.FormatInt(n, 10)
}

var decimals = makeDecimals()

func makeDecimals() []string {
	list := make([]string, 1024)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
}
