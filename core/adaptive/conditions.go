package adaptive

import (
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/guard"
)

// AdviceConditions returns what a guard sees, as the gates of advice want it, at a time of the guard's clock: g is the guard of a rule's requests, nil
// if there is none, and r what it learns of the rule, nil if it does not. switching says that the rule passes from one algorithm to another.
func AdviceConditions(g *guard.Guard, r *guard.Rule, now int64, switching bool) advice.Conditions {
	c := advice.Conditions{Switching: switching}
	if g == nil || r == nil {
		return c
	}
	s := guard.LookAt(r, now)
	c.Known = true
	c.Overloaded = guard.Overloaded(g, now)
	c.Concentrated = guard.Concentrated(r, now)
	c.Learnt = s.Learnt
	c.Edge = s.Edge
	c.P90 = s.P90
	return c
}
