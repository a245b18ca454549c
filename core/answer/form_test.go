package answer

import (
	"net/http"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// formed returns fields in another form, at 100.5 s since the epoch.
func formed(t *testing.T, f Fields, prefix, reset string) Fields {
	must.Succeed(t, SetForm(&f, prefix, reset))
	if f.Form != nil && f.Form.now != nil {
		f.Form.now = func() int64 { return 100_500_000 }
	}
	return f
}

func TestFieldsCanHaveAnotherPrefixAndTellWhenTheQuotaIsWhole(t *testing.T) {
	allowed := []core.Check{decided(t, "a", 10, rate.Decision{Allowed: true, Remaining: 7, ResetAfter: 18_500_000, MoreAfter: 6_000_001})}
	rejected := []core.Check{decided(t, "a", 10, rate.Decision{RetryAfter: 2_000_000, ResetAfter: 2_000_000})}
	all := formed(t, allFields, "RateLimit", "epoch")
	wantHeader(t, written(http.Header{}, all, allowed), map[string]string{
		"RateLimit-Limit": "10", "RateLimit-Remaining": "7", "RateLimit-Reset": "119", "RateLimit": `"a";r=7;t=7`, "RateLimit-Policy": `"a";q=10;w=60`,
	})
	wantHeader(t, written(http.Header{"Cache-Control": {"public"}}, formed(t, Fields{XRateLimit: true}, "x-acme", ""), rejected), map[string]string{
		"X-Acme-Limit": "10", "X-Acme-Remaining": "0", "X-Acme-Reset": "2", "X-Acme-Retry-After": "2", "Retry-After": "2", "Cache-Control": "no-store",
	})
	wantHeader(t, written(http.Header{}, formed(t, Fields{XRateLimit: true}, "", "epoch"), rejected), map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "103", "X-RateLimit-Retry-After": "2", "Retry-After": "2", "Cache-Control": "no-store",
	})
	// The stricter of two handlers stays, and those of a handler with other names stay beside them.
	strict := []core.Check{decided(t, "b", 10, rate.Decision{Allowed: true, Remaining: 1, ResetAfter: 9_000_000})}
	h := written(written(written(http.Header{}, all, strict), all, allowed), Fields{XRateLimit: true}, allowed)
	wantHeader(t, h, map[string]string{
		"RateLimit-Limit": "10", "RateLimit-Remaining": "1", "RateLimit-Reset": "110", "RateLimit": `"b";r=1, "a";r=7;t=7`, "RateLimit-Policy": `"b";q=10;w=60, "a";q=10;w=60`,
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "19",
	})
	must.Equal(t, strings.Join(Names(all), " "), "Retry-After RateLimit RateLimit-Policy RateLimit-Limit RateLimit-Remaining RateLimit-Reset RateLimit-Retry-After RateLimit-Soft", "the names")
	must.Equal(t, LimitName(all)+" "+LimitName(allFields), "Ratelimit-Limit X-Ratelimit-Limit", "the name of the limit's field")
}

func TestSetFormTakesItsWordsAndNoOthers(t *testing.T) {
	for _, c := range []struct {
		f                   Fields
		prefix, reset, want string
	}{
		{allFields, "X-RateLimit", "seconds", ""},
		{allFields, "X-Acme-", "", `header_prefix "X-Acme-": must be what the names of header fields begin with, up to 64 characters without a dash at the end: X-Acme is for X-Acme-Limit, X-Acme-Remaining and X-Acme-Reset`},
		{allFields, "X Acme\r\n", "", `header_prefix "X Acme\r\n": must be what`},
		{allFields, strings.Repeat("x", 65), "", `: must be what`},
		{allFields, "", "unix", `header_reset "unix": must be seconds or epoch`},
		{Fields{IETF: true}, "X-Acme", "", `header_prefix "X-Acme": has no effect where headers leaves out x_ratelimit; add that, or remove it`},
		{Fields{}, "", "epoch", `header_reset "epoch": has no effect where headers leaves out x_ratelimit; add that, or remove it`},
	} {
		err := SetForm(&c.f, c.prefix, c.reset)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || c.f.Form != nil {
			t.Errorf("%q %q: %v, %+v", c.prefix, c.reset, err, c.f)
		}
	}
}
