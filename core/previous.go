package core

import "github.com/proxyweir/weir/core/rate"

// Previous returns the limits as they are while requests must pass them besides next, which have taken their place: see package transition.
func (l *Limits) Previous(next *Limits) *Limits {
	p := &Limits{tiers: l.tiers, overrides: l.overrides}
	for _, r := range l.rules {
		previous := r.previousTo(next.rules[0])
		p.rules = append(p.rules, previous)
		if r == l.own {
			p.own = previous
		}
	}
	if l.requested != nil {
		p.setRequested(l.Requested().previousTo(next.rules[0]))
	}
	return p
}

// previousTo returns the rule as it is in a transition to next: with the limit that it had and what belongs to that, and for the
// rest with what holds now. It rejects, but what it alone rejects is no offence; and it makes no requests wait
// where next does not, since others would have to know of that.
func (r *Rule) previousTo(next *Rule) *Rule {
	p := &Rule{
		Namespace:     r.Namespace,
		name:          r.name,
		keySpec:       r.keySpec,
		Identity:      r.Identity,
		Limit:         r.Limit,
		Shadow:        r.Shadow,
		blocks:        r.blocks,
		CountRejected: r.CountRejected,
		onError:       next.onError,
		waitQuota:     r.waitQuota,
		noted:         next.noted,
		previous:      true,
		policy:        r.policy,
		Message:       next.Message,
		Answer:        next.Answer,
		Allowed:       new(int64), // that nobody reads
	}
	if r.Overflow != nil {
		policy := *r.Overflow
		policy.Longest = 0
		if len(policy.Penalties) > 0 {
			policy.Penalties = []int64{0}
		}
		p.Overflow = &policy
	}
	if r.Limit.Delays && !next.Limit.Delays {
		limit := *r.Limit
		limit.Delays = false
		p.Limit = &limit
	}
	if r.TracksReservations() || next.TracksReservations() {
		p.TrackReservations()
	}
	return p
}

// merge combines a decision with that of a previous limit. It then is that of a limit as strict as the two: the request passes if both allow it, as many
// units are left as the one with fewer has, and the wait is the longer. Its quota stays its own.
func merge(d, previous *rate.Decision) {
	d.Penalty = d.Penalty || previous.Penalty
	if previous.ResetAfter > d.ResetAfter {
		d.ResetAfter = previous.ResetAfter
	}
	if d.Allowed && previous.Allowed {
		d.Soft = d.Soft || previous.Soft
		if previous.Delay > d.Delay {
			d.Delay = previous.Delay
		}
		if previous.Remaining < d.Remaining {
			d.MoreAfter = previous.MoreAfter
		} else if previous.Remaining == d.Remaining && (previous.MoreAfter == 0 || d.MoreAfter != 0 && previous.MoreAfter > d.MoreAfter) {
			d.MoreAfter = previous.MoreAfter
		}
	} else {
		d.Soft = false
		d.Delay = 0
		d.MoreAfter = 0
		if !previous.Allowed && (d.Allowed || longer(previous.RetryAfter, d.RetryAfter)) {
			d.RetryAfter = previous.RetryAfter
		}
		d.Allowed = false
	}
	if previous.Remaining < d.Remaining {
		d.Remaining = previous.Remaining
	}
}
