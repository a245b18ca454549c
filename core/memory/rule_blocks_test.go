package memory

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

func TestARuleThatBlocksRejectsEveryRequest(t *testing.T) {
	for _, index := range []Index{Probing, Mapped} {
		now := int64(1_700_000_000_000_000)
		store := New(Config{Clock: func() int64 { return now }, Index: index})
		limiter := core.NewLimiter(store)
		blocks := mustRule(t, core.RuleConfig{Name: "none", Blocks: true, Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: time.Minute})})
		other := mustRule(t, core.RuleConfig{Name: "other", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 2, Period: time.Minute})})
		shadow := mustRule(t, core.RuleConfig{Name: "shadow", Blocks: true, Shadow: true})
		for _, r := range []*core.Rule{blocks, other, shadow} {
			if err := limiter.Open(r); err != nil {
				t.Fatal(err)
			}
		}
		var v core.Verdict
		checks := []core.Check{{Rule: blocks, Key: "k"}, {Rule: other, Key: "k"}}
		for i := 0; i < 3; i++ {
			checks[0].Cost = 1
			checks[1].Cost = 1
			if err := limiter.Decide(checks, i == 2, &v); err != nil || v.Outcome != core.Reject || v.Reported != 0 || v.RetryAfter != rate.Never {
				t.Fatalf("%v, %+v", err, v)
			}
			if d := checks[0].Decision; d.Allowed || d.Limit != 0 || d.Remaining != 0 || d.RetryAfter != rate.Never {
				t.Errorf("%+v", d)
			}
			now += 3_600_000_000
		}
		if !blocks.Blocks() || other.Blocks() {
			t.Error("which rules block")
		}

		// The other rule was not charged, which a request that is not blocked comes under, too. A shadow blocks nothing.
		alone := []core.Check{{Rule: other, Key: "k"}, {Rule: shadow, Key: "k"}}
		for i, want := range []core.Outcome{core.Allow, core.Allow, core.Reject} {
			alone[0].Cost = 1
			alone[1].Cost = 1
			if err := limiter.Decide(alone, false, &v); err != nil || v.Outcome != want || alone[1].Decision.Allowed {
				t.Errorf("request %d: %v, %+v, the shadow %+v", i, err, v, alone[1].Decision)
			}
		}
	}
}

// If the store has failed, a rule that blocks still blocks, unless it then lets all requests pass.
func TestABlockedRequestIsRejectedWithoutTheStoreToo(t *testing.T) {
	for _, c := range []struct {
		onError core.OnError
		want    core.Outcome
	}{{core.CountLocally, core.Reject}, {core.LetPass, core.Allow}, {core.RejectAll, core.Unavailable}} {
		f := newFallen(t, 2)
		r := f.open(core.RuleConfig{Name: "none", Blocks: true, OnError: c.onError, Limit: perHour(t, rate.FixedWindow, 1)})
		for i := 0; i < 2; i++ {
			checks, v := f.ask("k", 1, false, r)
			if v.Outcome != c.want || v.Outcome == core.Reject && checks[0].Decision.Limit != 0 {
				t.Errorf("%v: %s, want %s; %+v", c.onError, v.Outcome.String(), c.want.String(), checks[0].Decision)
			}
		}
	}
}
