package core

import (
	"net/http"
	"testing"
	"time"
)

func TestABlockedRequestIsToldALimitOfNone(t *testing.T) {
	limiter := NewLimiter(NewMemory(MemoryConfig{Clock: func() int64 { return 1_700_000_000_000_000 }}))
	blocks := mustRule(t, RuleConfig{Name: "none", Blocks: true, Limit: mustLimit(t, LimitConfig{Algorithm: FixedWindow, Requests: 1, Period: time.Minute})})
	if err := limiter.Open(blocks); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Fields{{XRateLimit: true, IETF: true}, {XRateLimit: true}, {IETF: true}} {
		var v Verdict
		checks := []Check{{Rule: blocks, Key: "k", Cost: 1}}
		if err := limiter.Decide(checks, false, &v); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{HeaderLimit: "", HeaderRemaining: "", HeaderReset: "", HeaderPolicy: "", HeaderRateLimit: "", "Retry-After": "", "Cache-Control": "no-store"}
		if f.XRateLimit {
			want[HeaderLimit] = "0"
			want[HeaderRemaining] = "0"
			want[HeaderReset] = "0"
		}
		if f.IETF {
			want[HeaderPolicy] = `"none";q=0;w=60`
			want[HeaderRateLimit] = `"none";r=0`
		}
		h := http.Header{}
		WriteHeaders(h, f, checks, &v)
		for name, value := range want {
			if got := h.Get(name); got != value {
				t.Errorf("%+v: %s is %q, want %q", f, name, got, value)
			}
		}
	}
}
