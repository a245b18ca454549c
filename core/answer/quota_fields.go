package answer

import (
	"net/http"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// NewQuotaFields prepares the quota fields of a rule for memory.SetQuotaFields, which sets them as WriteHeaders does.
func NewQuotaFields(r *core.Rule, f Fields) *memory.QuotaFields {
	if !r.Shown {
		f = Fields{}
	}
	return memory.MakeQuotaFields(r, f.XRateLimit, f.IETF, func(h http.Header, remaining, reset, more int64) {
		checks := []core.Check{{Rule: r}}
		checks[0].Decision = rate.Decision{Allowed: true, Limit: r.Limit.Quota, Remaining: remaining, ResetAfter: reset * 1_000_000, MoreAfter: more * 1_000_000}
		v := core.Verdict{}
		WriteHeaders(h, f, checks, &v)
	})
}
