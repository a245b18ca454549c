package answer

import (
	"strconv"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// AppendQuotas appends the result of Look to buf, as JSON for clients, and returns the extended buffer:
//
//	{"quotas":[{"name":"everyone","limit":300,"remaining":297,"reset":41}]}
//
// The numbers are those that WriteHeaders would write: the quota, the units left, and the seconds until the quota is whole again. A rule
// that rejects the key now also has retry_after, unless it would never admit the request. Shadow rules are left out. Of several
// keys under one rule, the one with the least left is listed. The JSON contains no keys.
func AppendQuotas(buf []byte, checks []core.Check, v *core.Verdict) []byte {
	buf = append(buf, `{"quotas":[`...)
	first := true
	for i := range checks {
		if len(checks) > 1 && repeats(checks, i, v.Reported) {
			continue
		}
		for c := &checks[i]; c != nil; c = c.InFlight {
			if !c.Rule.Shown || c.Uncounted {
				continue
			}
			if !first {
				buf = append(buf, ',')
			}
			first = false
			buf = append(buf, `{"name":"`...)
			buf = append(buf, c.Rule.Policy()...)
			buf = append(buf, `","limit":`...)
			buf = append(buf, c.Rule.LimitText...)
			buf = append(buf, `,"remaining":`...)
			buf = strconv.AppendInt(buf, c.Decision.Remaining, 10)
			buf = append(buf, `,"reset":`...)
			buf = strconv.AppendInt(buf, seconds(c.Decision.ResetAfter), 10)
			if !c.Decision.Allowed && c.Decision.RetryAfter != rate.Never {
				buf = append(buf, `,"retry_after":`...)
				buf = strconv.AppendInt(buf, RetrySeconds(c.Decision.RetryAfter), 10)
			}
			buf = append(buf, '}')
		}
	}
	return append(buf, "]}\n"...)
}
