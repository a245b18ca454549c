package answer

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// Fields says which quota fields responses have.
type Fields struct {
	XRateLimit bool // X-RateLimit-Limit, -Remaining, -Reset, and -Retry-After on a rejection
	IETF       bool // RateLimit and RateLimit-Policy, of draft-ietf-httpapi-ratelimit-headers-10

	Form *Form // of the X-RateLimit fields; nil: the usual one
}

// FieldNames lists the words that ParseFields takes.
var FieldNames = []string{"x_ratelimit", "ietf", "none"}

// ParseFields reads a list of FieldNames. "none" excludes the others; an empty list means all fields.
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
				return Fields{}, words.Wrong("headers", strconv.Quote(strings.Join(list, " ")), "none excludes all other words; write it alone, or remove it")
			}
		default:
			return Fields{}, words.OneOf("headers", strconv.Quote(w), w, FieldNames)
		}
	}
	return f, nil
}

// headerSoft is a field that only WriteHeaders uses, as http.Header has it.
const headerSoft = "X-Ratelimit-Soft"

// mostListed is the most rules that RateLimit and RateLimit-Policy list. Proxies and clients bound the size of header fields.
const mostListed = 32

// repeats reports whether another check reports the same rule: if a rule counts one request under several keys, the lists have only the
// tightest. reported is Verdict.Reported.
func repeats(checks []core.Check, i, reported int) bool {
	for j := range checks {
		if j == i || checks[j].Rule != checks[i].Rule || checks[j].Uncounted || i == reported {
			continue
		}
		if j == reported {
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

// stricter reports whether a rule is stricter than the fields that an earlier handler has set.
func stricter(h http.Header, d *rate.Decision) bool {
	earlier, quota := h[memory.HeaderRemaining], h[memory.HeaderLimit]
	if len(earlier) != 1 || len(quota) != 1 {
		return true
	}
	remaining, err1 := strconv.ParseInt(earlier[0], 10, 32)
	limit, err2 := strconv.ParseInt(quota[0], 10, 32)
	return err1 == nil && err2 == nil && remaining*d.Limit > d.Remaining*limit
}

// behind appends a list's members to those that an earlier handler has set. From the latter it removes each t later than retryAfter, in
// microseconds, if retry says that the response has a Retry-After.
func behind(earlier []string, members, retry string, retryAfter int64) string {
	if len(earlier) == 0 {
		return members
	}
	before := strings.Join(earlier, ", ")
	if retry != "" {
		before = withoutLater(before, RetrySeconds(retryAfter))
	}
	return before + ", " + members
}

// appendMore appends the t of a rule that allows the request.
func appendMore(states []byte, d *rate.Decision, v *core.Verdict) []byte {
	if d.MoreAfter <= 0 || v.Outcome == core.Delay || v.Outcome == core.Reject && v.RetryAfter != rate.Never && seconds(d.MoreAfter) > RetrySeconds(v.RetryAfter) {
		return states
	}
	states = append(states, memory.MoreText...)
	return strconv.AppendInt(states, seconds(d.MoreAfter), 10)
}

// withoutLater returns members of RateLimit without each t that is later than retry seconds.
func withoutLater(members string, retry int64) string {
	parts := strings.Split(members, memory.MoreText)
	kept := parts[0]
	for _, part := range parts[1:] {
		end := len(part) - len(strings.TrimLeft(part, "0123456789"))
		after, err := strconv.ParseInt(part[:end], 10, 64)
		if err == nil && after > retry {
			kept += part[end:]
		} else {
			kept += memory.MoreText + part
		}
	}
	return kept
}

// seconds rounds microseconds up to whole seconds.
func seconds(micros int64) int64 {
	return (micros + 999_999) / 1_000_000
}
