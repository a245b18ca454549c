package memory

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func mustLimit(t testing.TB, c rate.LimitConfig) *rate.Limit {
	l, err := rate.NewLimit(c)
	must.Succeed(t, err)
	return l
}

func mustRule(t testing.TB, c core.RuleConfig) *core.Rule {
	if c.Limit == nil {
		c.Limit = mustLimit(t, rate.LimitConfig{Requests: 10, Period: time.Minute})
	}
	r, err := core.NewRule(c)
	must.Succeed(t, err)
	return r
}

// loadZone returns a time zone, or nil if it is not available, as under the interpreter on a machine without the database.
func loadZone(t *testing.T, name string) *time.Location {
	location, err := time.LoadLocation(name)
	if err != nil {
		if !interpreted {
			t.Fatal(err)
		}
		t.Logf("%s is left out: %v", name, err)
		return nil
	}
	return location
}
