package memory

import (
	"errors"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// broken is a store that has failed.
type broken struct{ *Store }

var errBroken = errors.New("broken")

func (b *broken) Decide(checks []core.Check, peek bool) error { return errBroken }

func TestLookSaysThatTheStoreHasFailed(t *testing.T) {
	l := core.NewLimiter(&broken{New(Config{})})
	l.FallBack(New(Config{}), 1)
	r := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Requests: 5, Period: time.Minute})})
	if err := l.Open(r); err != nil {
		t.Fatal(err)
	}
	var v core.Verdict
	if err := l.Look([]core.Check{{Rule: r, Key: "k", Cost: 1}}, &v); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
}
