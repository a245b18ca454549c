package adaptive

import (
	"testing"

	"github.com/proxyweir/weir/core/guard"
)

func TestConditionsAreThoseThatTheGuardSees(t *testing.T) {
	const second = 1_000_000
	if c := AdviceConditions(nil, nil, second, true); c.Known || c.Overloaded || !c.Switching {
		t.Errorf("without a guard: %+v", c)
	}
	g := guard.New(guard.Config{Max: 1, Min: 1, Cells: 64})
	r := guard.Track(g, "api")
	if c := AdviceConditions(g, nil, second, false); c.Known {
		t.Errorf("a rule that is not tracked: %+v", c)
	}
	now := int64(1000 * second)
	for i := 0; i < 60; i++ {
		guard.Ask(g, r, uint64(i%5), now)
		now += second
	}
	c := AdviceConditions(g, r, now, false)
	if !c.Known || c.Overloaded || c.Concentrated || c.Learnt < 40*second || c.Edge < 2 || c.P90 < 2 || c.Switching {
		t.Errorf("%+v", c)
	}
	for i := 0; i < 3; i++ {
		guard.Begin(g, 1, false, now) // the second one is turned away
		guard.Begin(g, 1, false, now)
		now += second
	}
	if c := AdviceConditions(g, r, now, false); !c.Overloaded {
		t.Errorf("%+v", c)
	}
	for i := 0; i < 200; i++ {
		guard.Ask(g, r, 77, now)
	}
	now += second
	guard.Ask(g, r, 1, now)
	if c := AdviceConditions(g, r, now, false); !c.Concentrated {
		t.Errorf("%+v", c)
	}
}
