//go:build gc
// +build gc

package memory_test

// Yaegi leaves this file out: a package that imports itself is a cycle to it.

import (
	"fmt"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// Two rules decide together on each request: ten a minute from one address, and three logins in ten seconds.
func ExampleLimiter() {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	store := memory.New(memory.Config{Clock: func() int64 { return now.UnixMicro() }})
	limiter := core.NewLimiter(store)

	rule := func(name, limit string) *core.Rule {
		c := rate.LimitConfig{Algorithm: rate.SlidingWindowLog}
		if err := rate.ParseLimit(limit, &c); err != nil {
			panic(err)
		}
		l, err := rate.NewLimit(c)
		if err != nil {
			panic(err)
		}
		r, err := core.NewRule(core.RuleConfig{Name: name, Limit: l})
		if err != nil {
			panic(err)
		}
		if err := store.Open(r); err != nil {
			panic(err)
		}
		return r
	}
	checks := []core.Check{
		{Rule: rule("per-address", "10/1m"), Key: "192.0.2.1"},
		{Rule: rule("login", "3/10s"), Key: "alice"},
	}

	var v core.Verdict
	for i := 0; i < 4; i++ {
		if err := limiter.Decide(checks, false, &v); err != nil {
			panic(err)
		}
		quotaFields := checks[v.Reported]
		fmt.Println(v.Outcome, "by", quotaFields.Rule.Name(), "with", quotaFields.Decision.Remaining, "left")
		now = now.Add(time.Second)
	}
	fmt.Println("try again in", time.Duration(v.RetryAfter)*time.Microsecond)
	// Output:
	// allow by login with 2 left
	// allow by login with 1 left
	// allow by login with 0 left
	// reject by login with 0 left
	// try again in 7s
}

func ExampleParseLimit() {
	var c rate.LimitConfig
	fmt.Println(rate.ParseLimit("100/1m", &c), c.Requests, c.Period)
	fmt.Println(rate.ParseLimit("1000/day", &c), c.Requests, c.Calendar)
	fmt.Println(rate.ParseLimit("5/0s", &c))
	fmt.Println(rate.ParseLimit("100", &c))
	// Output:
	// <nil> 100 1m0s
	// <nil> 1000 day
	// limit "5/0s": the period must be from 1ms to 366d
	// limit "100": has no period; write <requests>/<period>, such as 100/1m
}
