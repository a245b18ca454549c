package transition

import (
	"sync/atomic"

	"github.com/proxyweir/weir/core"
)

// Replace opens the limits next in l, and puts them in the place of the active ones: from now on Of chooses among the rules of next, which
// take over what adapters keep of the rules before, and their requests that wait. If the algorithm or the period of a rule changes,
// a transition begins. After End it does nothing. With an error, which is that of a store that cannot open limits, nothing has changed.
//
// next is Configured, to go back, or limits made for this change alone: of the same core.RuleConfig with another Limit (and the same
// core.MoreLimits, or others).
func (a *Active) Replace(l *core.Limiter, next *core.Limits) error {
	return a.Alter(l, func(kept interface{}) (interface{}, *core.Limits, error) { return kept, next, nil })
}

// Alter is Replace with the limits that how returns. how gets what it has kept the last time, which may say how the active limits differ from
// Configured; nil: it was never called. If only exceptions differ, no transition begins.
func (a *Active) Alter(l *core.Limiter, how func(kept interface{}) (interface{}, *core.Limits, error)) error {
	a.changing.Lock()
	defer a.changing.Unlock()
	before := a.current()
	kept, next, err := how(a.kept)
	if err != nil || a.ended || next == before.limits {
		return err
	}
	if next != a.Configured() { // else it is open, and has all that adapters keep
		if _, err := l.OpenAll(next.Rules()); err != nil {
			return err
		}
		next.Continue(before.limits)
	}
	if err := a.activate(l, next, before, Compare(before.limits, next).Lasts); err != nil {
		a.release(l, next)
		return err
	}
	a.kept = kept
	a.release(l, before.limits)
	return nil
}

// Continue makes a go on where before is: it takes over its transitions, and their clocks. It is for a
// configuration that replaces another: both are open, a in l. If they have another key than before, or the algorithm and
// the period of no rule changes, no transition begins.
//
// It may be called before the first request under a, and again when a replaces before: what was begun at
// the first time then begins again. For so many microseconds as late says, requests may still come under before alone. An error is that
// of a store that cannot open the previous limits.
func (a *Active) Continue(l *core.Limiter, before *Active, late int64) (Change, error) {
	var c Change
	if unmoved(a, before) { // most rules; there may be thousands
		return c, nil
	}
	a.changing.Lock()
	defer a.changing.Unlock()
	old := before.current()
	in := a.Limits()
	c = Compare(old.limits, in)
	if c.Lasts > 0 {
		c.Lasts += late
	}
	err := a.activate(l, in, old, c.Lasts)
	return c, err
}

// unmoved reports whether each of two has one limit as configured, and they count in the same place.
func unmoved(a, b *Active) bool {
	return atomic.LoadInt32(&a.Generation) == 0 && atomic.LoadInt32(&b.Generation) == 0 && a.Configured().Single() && b.Configured().Single() &&
		a.Configured().Own().Identity == b.Configured().Own().Identity
}

// End ends the transitions, and releases the limits that Replace has opened. It is for a caller that is about to release the configured ones.
func (a *Active) End() {
	a.changing.Lock()
	a.ended = true
	if in := a.current(); in.limiter != nil {
		a.set(&state{limits: in.limits}) // which late requests go on with
		in.release(in.overlaps)
		a.release(in.limiter, in.limits)
	}
	a.changing.Unlock()
}

// release releases limits, unless they are the configured ones, which are the caller's.
func (a *Active) release(l *core.Limiter, limits *core.Limits) {
	if limits != a.Configured() {
		releaseAll(l, limits)
	}
}

func releaseAll(l *core.Limiter, limits *core.Limits) {
	for _, r := range limits.Rules() {
		l.Release(r)
	}
}

// activate makes next the active limits, in the place of before, which may be the state of another Active. lasts is how long the transition
// between them lasts; 0: there is none. The caller holds the lock.
func (a *Active) activate(l *core.Limiter, next *core.Limits, before *state, lasts int64) error {
	now := l.Now()
	in := &state{limits: next, limiter: l}
	if lasts > 0 {
		t, err := begin(l, before.limits, next, now, lasts)
		if err != nil {
			return err
		}
		in.overlaps = append(in.overlaps, t)
	}
	for _, old := range before.overlaps {
		if !old.lives(now) {
			before.carry(old)
			continue
		}
		if !differ(old.previous, next) {
			continue
		}
		t, err := begin(l, old.previous, next, old.since, old.lasts)
		if err != nil {
			in.release(in.overlaps)
			return err
		}
		in.overlaps = append(in.overlaps, t)
	}
	last := a.current()
	for _, t := range in.overlaps {
		if !t.continues(last.overlaps) && !t.continues(before.overlaps) {
			in.carry(t)
		}
	}
	a.set(in)
	last.release(last.overlaps)
	return nil
}

// endSome ends the transitions that are over.
func (a *Active) endSome(now int64) {
	a.changing.Lock()
	defer a.changing.Unlock()
	in := a.current()
	next := &state{limits: in.limits, limiter: in.limiter}
	var over []*overlap
	for _, t := range in.overlaps {
		if !t.lives(now) && !t.carried {
			t.carried = true
			in.carry(t) // what has come since it began, where the previous limit alone was known
		}
		if t.lives(now) {
			next.overlaps = append(next.overlaps, t)
		} else {
			over = append(over, t)
		}
	}
	if len(over) == 0 { // another request was faster, or the store is not done yet
		return
	}
	a.set(next)
	in.release(over)
}

// carry makes what blocks keys under the previous rules of an overlap block them under the rules in their place, too.
func (in *state) carry(t *overlap) {
	carrying := t.carrying
	done := func() { atomic.AddInt64(carrying, -1) }
	for _, p := range t.pairs {
		atomic.AddInt64(carrying, 1)
		in.limiter.Carry(p.from, p.to, done)
	}
}

// release releases the previous rules of overlaps.
func (in *state) release(overlaps []*overlap) {
	for _, t := range overlaps {
		releaseAll(in.limiter, t.previous)
	}
}
