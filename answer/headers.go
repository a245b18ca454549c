package answer

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/words"
)

// Fields says which header fields clients are told their quota in.
type Fields struct {
	XRateLimit bool // X-RateLimit-Limit, -Remaining, -Reset, and -Retry-After on a rejection
	IETF       bool // RateLimit and RateLimit-Policy, of draft-ietf-httpapi-ratelimit-headers-10
}

// FieldNames lists the words that ParseFields takes.
var FieldNames = []string{"x_ratelimit", "ietf", "none"}

// ParseFields reads a list of FieldNames. "none" stands alone; an empty list means all fields.
func ParseFields(list []string) (Fields, error) {
	if len(list) == 0 {
		return Fields{XRateLimit: true, IETF: true}, nil
	}
	var f Fields
	for _, w := range list {
		switch w {
		case "x_ratelimit":
			f.XRateLimit = true
		case "ietf":
			f.IETF = true
		case "none":
			if len(list) > 1 {
				return Fields{}, fmt.Errorf("headers %q: none stands alone", strings.Join(list, " "))
			}
		default:
			return Fields{}, fmt.Errorf("headers %q: %s", w, words.OneOf(w, FieldNames))
		}
	}
	return f, nil
}

// The names of the fields that core has no use for, as http.Header has them.
const (
	headerXRetry     = "X-Ratelimit-Retry-After"
	headerSoft       = "X-Ratelimit-Soft"
	headerRetryAfter = "Retry-After"

	headerCacheControl = "Cache-Control"
)

// WriteHeaders sets the fields that tell the client of the verdict on its request, and on a rejection Retry-After and
// Cache-Control: no-store.
//
// X-RateLimit speaks of the rule that Verdict.Told names: Limit its quota, Remaining the units left, Reset the seconds
// until the quota is whole. RateLimit and RateLimit-Policy list every rule that is not a shadow: of more than 32 the first, and the one
// told of. The t of RateLimit is when a rule that rejects lets the request in, and of another the seconds until more units are left than
// now. It is left out where nothing is used or nobody knows; where the request waits, since it is over when the response is sent; and
// where it is later than Retry-After, since the draft has no t beyond that.
//
// Where an earlier handler
// has set the fields, its members of the lists are kept in front, and the X-RateLimit fields that are the stricter.
// X-RateLimit-Soft: exceeded says of a request that it was let through by tolerance. All times are whole seconds, rounded up.
func WriteHeaders(h http.Header, f Fields, checks []core.Check, v *core.Verdict) {
	if v.Soft && f.XRateLimit {
		h[headerSoft] = []string{"exceeded"}
	}
	if v.Told < 0 || v.Outcome != core.Reject && !f.XRateLimit && !f.IETF {
		return
	}
	if f.XRateLimit && f.IETF && (len(h) == 0 || len(h) == 1 && h[core.HeaderLimit] == nil && h[core.HeaderRemaining] == nil && h[core.HeaderRateLimit] == nil && h[core.HeaderPolicy] == nil) {
		writeAll(h, checks, v)
		return
	}
	// One array for the values of all fields. Each field's slice of it has one element and no room behind, so that an
	// append copies, and nobody's change of one response is seen in another.
	values := new([8]string)
	retry := ""
	if v.Outcome == core.Reject {
		values[0] = "no-store"
		h[headerCacheControl] = values[0:1:1]
		if v.RetryAfter != core.Never {
			retry = decimal(RetrySeconds(v.RetryAfter))
			values[1] = retry
			h[headerRetryAfter] = values[1:2:2]
		}
	}
	if f.XRateLimit {
		writeXRateLimit(h, &checks[v.Told], retry, v.Outcome == core.Reject, values)
	}
	if f.IETF {
		writeIETF(h, checks, v, retry, values)
	}
}

// writeAll is WriteHeaders for what it is mostly called for: all fields, of which an earlier handler has set none. It does in
// one function what writeXRateLimit and writeIETF do, because an interpreter pays for each of them.
func writeAll(h http.Header, checks []core.Check, v *core.Verdict) {
	var room [160]byte
	states := room[:0]
	policies, retry := "", ""
	listed := 0
	values := new([8]string)
	if v.Outcome == core.Reject {
		values[0] = "no-store"
		h[headerCacheControl] = values[0:1:1]
		if v.RetryAfter != core.Never {
			retry = decimal(RetrySeconds(v.RetryAfter))
			values[1] = retry
			values[7] = retry
			h[headerRetryAfter] = values[1:2:2]
			h[headerXRetry] = values[7:8:8]
		}
	}
	for i := range checks {
		c := &checks[i]
		if !c.Rule.Shown || c.Uncounted || len(checks) > 1 && repeats(checks, i, v.Told) {
			continue
		}
		if i != v.Told {
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
			if c.Decision.MoreAfter > 0 && v.Outcome == core.Allow { // which is most often so
				states = append(states, ";t="...)
				states = strconv.AppendInt(states, (c.Decision.MoreAfter+999_999)/1_000_000, 10)
			} else {
				states = appendMore(states, &c.Decision, v)
			}
		} else if i == v.Told && retry != "" {
			states = append(states, ";t="...)
			states = append(states, retry...)
		} else if c.Decision.RetryAfter != core.Never {
			states = append(states, ";t="...)
			states = strconv.AppendInt(states, RetrySeconds(c.Decision.RetryAfter), 10)
		}
		if i == v.Told {
			values[2] = c.Rule.LimitText
			values[3] = decimal(c.Decision.Remaining)
			values[4] = decimal((c.Decision.ResetAfter + 999_999) / 1_000_000)
		}
	}
	values[5] = string(states)
	values[6] = policies
	h[core.HeaderLimit] = values[2:3:3]
	h[core.HeaderRemaining] = values[3:4:4]
	h[core.HeaderReset] = values[4:5:5]
	h[core.HeaderRateLimit] = values[5:6:6]
	h[core.HeaderPolicy] = values[6:7:7]
}

// mostListed is how many rules the lists of RateLimit and RateLimit-Policy have. Proxies and clients bound what header fields they take.
const mostListed = 32

// repeats reports whether a check's rule is told by another check: where several keys of one request come under a rule, clients are
// told of the tightest. told is the check that the verdict tells of.
func repeats(checks []core.Check, i, told int) bool {
	for j := range checks {
		if j == i || checks[j].Rule != checks[i].Rule || checks[j].Uncounted || i == told {
			continue
		}
		if j == told {
			return true
		}
		a := &checks[i].Decision
		b := &checks[j].Decision
		if core.Tighter(b, a) || j < i && !core.Tighter(a, b) {
			return true
		}
	}
	return false
}

func writeXRateLimit(h http.Header, told *core.Check, retry string, rejected bool, values *[8]string) {
	d := &told.Decision
	if earlier := h[core.HeaderRemaining]; !rejected && len(earlier) == 1 && len(h[core.HeaderLimit]) == 1 {
		remaining, err1 := strconv.ParseInt(earlier[0], 10, 32)
		limit, err2 := strconv.ParseInt(h[core.HeaderLimit][0], 10, 32)
		if err1 != nil || err2 != nil || remaining*d.Limit <= d.Remaining*limit {
			return
		}
	}
	values[2] = told.Rule.LimitText
	values[3] = decimal(d.Remaining)
	values[4] = decimal(seconds(d.ResetAfter))
	h[core.HeaderLimit] = values[2:3:3]
	h[core.HeaderRemaining] = values[3:4:4]
	h[core.HeaderReset] = values[4:5:5]
	if retry != "" {
		values[5] = retry
		h[headerXRetry] = values[5:6:6]
	}
}

func writeIETF(h http.Header, checks []core.Check, v *core.Verdict, retry string, values *[8]string) {
	var room [160]byte
	states := room[:0]
	policies := ""
	listed := 0
	for i := range checks {
		r := checks[i].Rule
		if !r.Shown || checks[i].Uncounted || len(checks) > 1 && repeats(checks, i, v.Told) {
			continue
		}
		if i != v.Told {
			listed++
			if listed >= mostListed {
				continue
			}
		}
		d := &checks[i].Decision
		if policies == "" {
			policies = r.PolicyText
		} else {
			policies += ", " + r.PolicyText
			states = append(states, ", "...)
		}
		states = append(states, r.StateText...)
		states = strconv.AppendInt(states, d.Remaining, 10)
		if d.Allowed {
			states = appendMore(states, d, v)
		} else if i == v.Told && retry != "" {
			states = append(states, ";t="...)
			states = append(states, retry...)
		} else if d.RetryAfter != core.Never {
			states = append(states, ";t="...)
			states = strconv.AppendInt(states, RetrySeconds(d.RetryAfter), 10)
		}
	}
	values[6] = string(states)
	values[7] = policies
	if earlier := h[core.HeaderRateLimit]; len(earlier) > 0 {
		before := strings.Join(earlier, ", ")
		if retry != "" {
			before = withoutLater(before, RetrySeconds(v.RetryAfter))
		}
		values[6] = before + ", " + values[6]
	}
	if earlier := h[core.HeaderPolicy]; len(earlier) > 0 {
		values[7] = strings.Join(earlier, ", ") + ", " + values[7]
	}
	h[core.HeaderRateLimit] = values[6:7:7]
	h[core.HeaderPolicy] = values[7:8:8]
}

// appendMore appends the t of a rule that allows the request.
func appendMore(states []byte, d *core.Decision, v *core.Verdict) []byte {
	if d.MoreAfter <= 0 || v.Outcome == core.Delay || v.Outcome == core.Reject && v.RetryAfter != core.Never && seconds(d.MoreAfter) > RetrySeconds(v.RetryAfter) {
		return states
	}
	states = append(states, ";t="...)
	return strconv.AppendInt(states, seconds(d.MoreAfter), 10)
}

// withoutLater returns members of RateLimit without each t that is later than that many seconds.
func withoutLater(members string, retry int64) string {
	parts := strings.Split(members, ";t=")
	kept := parts[0]
	for _, part := range parts[1:] {
		end := len(part) - len(strings.TrimLeft(part, "0123456789"))
		after, err := strconv.ParseInt(part[:end], 10, 64)
		if err == nil && after > retry {
			kept += part[end:]
		} else {
			kept += ";t=" + part
		}
	}
	return kept
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

// decimals are the numbers that most quotas are made of.
var decimals = makeDecimals()

func makeDecimals() []string {
	list := make([]string, 1024)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
}
