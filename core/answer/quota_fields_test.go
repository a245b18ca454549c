package answer

import (
	"math/rand"
	"net/http"
	"reflect"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

func TestTellSaysWhatWriteHeadersSays(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	earlier := []http.Header{
		{},
		{"Content-Type": {"text/plain"}},
		{"X-Ratelimit-Limit": {"7"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"3"}, "Ratelimit": {`"a";r=0;t=3`}, "Ratelimit-Policy": {`"a";q=7`}},
		{"X-Ratelimit-Limit": {"7"}, "X-Ratelimit-Remaining": {"7"}, "X-Ratelimit-Reset": {"3"}},
	}
	for i := 0; i < 2000; i++ {
		f := Fields{XRateLimit: r.Intn(4) > 0, IETF: r.Intn(4) > 0}
		quota := spread(r, 1, 5000)
		c := decided(t, "r", quota, rate.Decision{Allowed: true, Remaining: r.Int63n(quota + 1), ResetAfter: spread(r, 1, 5_000_000_000) - 1})
		c.Decision.MoreAfter = r.Int63n(c.Decision.ResetAfter + 1)
		if i == 0 {
			c.Decision.Remaining, c.Decision.ResetAfter, c.Decision.MoreAfter = 0, 0, 0
		}
		h := earlier[r.Intn(len(earlier))]
		want := written(h.Clone(), f, []core.Check{c})
		got := h.Clone()
		memory.SetQuotaFields(NewQuotaFields(c.Rule, f), got, c.Decision.Remaining, seconds(c.Decision.ResetAfter), seconds(c.Decision.MoreAfter))
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %+v, after %v:\n%v, want\n%v", c.Decision, f, h, got, want)
		}
	}
}

// The fields of one response must not change when another response is changed.
func TestValuesOfQuotaFieldsHaveNoRoomBehind(t *testing.T) {
	c := decided(t, "r", 10, rate.Decision{})
	quotaFields := NewQuotaFields(c.Rule, allFields)
	first := http.Header{}
	memory.SetQuotaFields(quotaFields, first, 9, 1, 1)
	for name := range first {
		first.Add(name, "more")
	}
	second := http.Header{}
	memory.SetQuotaFields(quotaFields, second, 9, 1, 1)
	third := http.Header{}
	memory.SetQuotaFields(quotaFields, third, 10, 2, 1)
	for name, values := range second {
		if len(values) != 1 {
			t.Errorf("%s: %q", name, values)
		}
	}
	if third.Get("X-RateLimit-Remaining") != "10" || third.Get("X-RateLimit-Reset") != "2" {
		t.Errorf("%v", third)
	}
}
