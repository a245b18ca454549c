//go:build gc
// +build gc

package answer_test

// Yaegi leaves this file out: to it a package that imports itself is a cycle.

import (
	"fmt"
	"net/http"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

func ExampleWriteHeaders() {
	limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: time.Minute})
	if err != nil {
		panic(err)
	}
	rule, err := core.NewRule(core.RuleConfig{Name: "search", Limit: limit})
	if err != nil {
		panic(err)
	}
	now := time.Date(2026, 11, 20, 12, 0, 48, 0, time.UTC)
	store := memory.New(memory.Config{Clock: func() int64 { return now.UnixMicro() }})
	if err := store.Open(rule); err != nil {
		panic(err)
	}
	limiter := core.NewLimiter(store)

	checks := []core.Check{{Rule: rule, Key: "192.0.2.1"}}
	var v core.Verdict
	for i := 0; i < 2; i++ {
		if err := limiter.Decide(checks, false, &v); err != nil {
			panic(err)
		}
		h := http.Header{}
		answer.WriteHeaders(h, answer.Fields{IETF: true}, checks, &v)
		fmt.Printf("%s: %s, %s, retry after %q\n", v.Outcome, h.Get("RateLimit-Policy"), h.Get("RateLimit"), h.Get("Retry-After"))
	}
	// Output:
	// allow: "search";q=1;w=60, "search";r=0;t=12, retry after ""
	// reject: "search";q=1;w=60, "search";r=0;t=12, retry after "12"
}
