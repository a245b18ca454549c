package adaptive

import (
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/guard"
)

// Controller carries out what an advisor's state says, in all instances of its rules. Turn is called each second, and never twice at a time.
type Controller struct {
	State *advice.State

	// Rules returns the instances of a rule and the guards that watch it.
	Rules func(label string) ([]*Instance, []Watched)

	// Notify gets each change of a limit, or of what would be one, why limits could not change, and each change of why the advisor abstains.
	Notify func(Change)
}

// Watched is a guard, and what it knows of a rule; zero where no guard watches the rule in some of its instances.
type Watched struct {
	Guard *guard.Guard
	Rule  *guard.Rule
}

// Change is a change of a rule's limit.
type Change struct {
	Label         string
	Before, After advice.Outcome
	Applied       bool  // else it is only what would be
	Err           error // the change has failed, and the limit is what it was
	Abstains      bool  // nothing else has changed than why the advisor has nothing for the rule
}

// Resume tells what the reload for which the state was made has changed.
func (a *Controller) Resume() {
	for _, c := range a.State.Reloaded() {
		a.Notify(Change{Label: c.Label, Before: c.Before, After: c.After, Applied: true})
	}
}

// Turn draws the consequences of a second. now is the time since the Unix epoch, and guardNow that by which guards go, both in microseconds.
func (a *Controller) Turn(now, guardNow int64) {
	changes := a.State.Turn(now, func(label string) advice.Conditions {
		instances, guards := a.Rules(label)
		switching := false
		for _, p := range instances {
			switching = switching || p.Rule.Active.Changing()
		}
		return conditionsOf(guards, guardNow, switching)
	})
	for i := range changes {
		a.carryOut(&changes[i], now, guardNow)
	}
}

// End ends what guards do by advice: they outlive the controller. Places go on until they are closed.
func (a *Controller) End() {
	for _, label := range a.State.Labels() {
		_, guards := a.Rules(label)
		for _, w := range guards {
			if w.Rule != nil {
				guard.Advise(w.Rule, 0, 0, 0)
			}
		}
	}
}

// carryOut has the instances and guards of a rule do what a change says, and tells of it.
func (a *Controller) carryOut(c *advice.Change, now, guardNow int64) {
	var failed error
	instances, guards := a.Rules(c.Label)
	applies := a.State.Applies()
	if applies {
		for _, p := range instances {
			if err := p.Put(&c.After); err != nil {
				failed = err
			}
		}
	}
	for _, w := range guards {
		if above := c.After.Above; w.Rule != nil && applies && above != nil {
			guard.Advise(w.Rule, above.Edge, above.Limit, guardNow+above.Until-now)
		} else if w.Rule != nil {
			guard.Advise(w.Rule, 0, 0, 0)
		}
	}
	if c.Changed || failed != nil {
		a.Notify(Change{Label: c.Label, Before: c.Before, After: c.After, Applied: applies && failed == nil, Err: failed})
	} else if abstainsAnew(&c.Before, &c.After) {
		a.Notify(Change{Label: c.Label, Before: c.Before, After: c.After, Abstains: true})
	}
}

// abstainsAnew reports whether the advisor has just given a reason for having nothing for a rule that it had not before.
func abstainsAnew(before, after *advice.Outcome) bool {
	if after.Why != advice.Abstains || after.Reason == "" {
		return false
	}
	return before.Why != advice.Abstains || before.Reason != after.Reason
}

// conditionsOf returns what guards see of a rule: of several, the worst; of none, nothing is known.
func conditionsOf(guards []Watched, guardNow int64, switching bool) advice.Conditions {
	all := AdviceConditions(nil, nil, guardNow, switching)
	for i, w := range guards {
		c := AdviceConditions(w.Guard, w.Rule, guardNow, switching)
		if i == 0 {
			all = c
			continue
		}
		all.Known = all.Known && c.Known
		all.Overloaded = all.Overloaded || c.Overloaded
		all.Concentrated = all.Concentrated || c.Concentrated
		if c.Learnt < all.Learnt {
			all.Learnt = c.Learnt
		}
		if c.Edge > all.Edge {
			all.Edge = c.Edge
		}
		if c.P90 > all.P90 {
			all.P90 = c.P90
		}
	}
	return all
}
