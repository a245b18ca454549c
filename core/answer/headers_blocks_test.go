package answer

import (
	"net/http"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func TestABlockedRequestHasALimitOfZero(t *testing.T) {
	limiter := core.NewLimiter(memory.New(memory.Config{Clock: func() int64 { return 1_700_000_000_000_000 }}))
	blocks := mustRule(t, core.RuleConfig{Name: "none", Blocks: true, Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: time.Minute})})
	must.Succeed(t, limiter.Open(blocks))
	for _, f := range []Fields{{XRateLimit: true, IETF: true}, {XRateLimit: true}, {IETF: true}} {
		var v core.Verdict
		checks := []core.Check{{Rule: blocks, Key: "k", Cost: 1}}
		must.Succeed(t, limiter.Decide(checks, false, &v))
		want := map[string]string{memory.HeaderLimit: "", memory.HeaderRemaining: "", memory.HeaderReset: "", memory.HeaderPolicy: "", memory.HeaderRateLimit: "", "Retry-After": "", "Cache-Control": "no-store"}
		if f.XRateLimit {
			want[memory.HeaderLimit] = "0"
			want[memory.HeaderRemaining] = "0"
			want[memory.HeaderReset] = "0"
		}
		if f.IETF {
			want[memory.HeaderPolicy] = `"none";q=0;w=60`
			want[memory.HeaderRateLimit] = `"none";r=0`
		}
		h := http.Header{}
		WriteHeaders(h, f, checks, &v)
		for name, value := range want {
			must.Equal(t, h.Get(name), value, "%+v: %s", f, name)
		}
	}
}
