package core_test

import (
	"strconv"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// Nodes of several versions enforce the same keys, so these never change.
func TestTheSameKeysAreEnforcedForEver(t *testing.T) {
	for key, from := range map[string]int64{"": 89, "a": 80, "d": 10, "192.0.2.1": 22, "2001:db8::/64": 70, "5:alice3:/v1": 54} {
		got := int64(1)
		for got <= 100 && !core.Enforces(key, got) {
			got++
		}
		must.Equal(t, got, from, "the least percentage that enforces", key)
	}
}

func TestAGrowingShareKeepsThoseWhoAreEnforced(t *testing.T) {
	const keys = 4000
	for percent := int64(1); percent < 100; percent += 7 {
		enforced := int64(0)
		for i := 0; i < keys; i++ {
			key := "192.0.2." + strconv.Itoa(i)
			if core.Enforces(key, percent) {
				enforced++
				if !core.Enforces(key, percent+1) {
					t.Fatalf("%s is among %d %% and not among more", key, percent)
				}
			}
		}
		if want := keys * percent / 100; enforced < want-130 || enforced > want+130 { // four standard deviations
			t.Errorf("%d %%: %d of %d keys", percent, enforced, keys)
		}
	}
}

func TestWhatAShadowCannotHaveAShareCannotHaveEither(t *testing.T) {
	limit, err := rate.NewLimit(rate.LimitConfig{Requests: 5, Period: 1_000_000_000})
	must.Succeed(t, err)
	c := core.RuleConfig{Name: "r", Limit: limit, EnforcedPercent: 10}
	c.OverflowPolicy.Penalties = append(c.OverflowPolicy.Penalties, 1_000_000_000)
	_, err = core.NewLimits(c, core.MoreLimits{})
	must.Equal(t, err.Error(), `rule "r": enforcement 10%: penalty and enforcement shadow are mutually exclusive: a shadow blocks nobody; remove one`)
}
