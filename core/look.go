package core

// Look asks how things stand for the keys of checks, at no cost: the verdict, and which checks are rejected and for how long, are those
// of a request now, and what is told of the others is what there is before any. Shadows may be among the checks. An error is the store's,
// and nothing is known then.
//
// The store is asked twice where no rule rejects, since a decision tells what is left after the request that it is on. In between
// others may have come: each answer is right for its moment.
func (l *Limiter) Look(checks []Check, v *Verdict) error {
	if err := l.Decide(checks, true, v); err != nil {
		return err
	}
	if v.Outcome == Reject || len(checks) == 0 { // then those that would allow the request have told how things stand without it
		return nil
	}
	idle := make([]Check, len(checks))
	for i := range checks {
		idle[i].Rule = checks[i].Rule
		idle[i].Key = checks[i].Key
	}
	if err := l.store.Decide(idle, true); err != nil { // at a cost of 0
		return err
	}
	for i := range checks {
		d := &checks[i].Decision
		d.Remaining = idle[i].Decision.Remaining
		d.ResetAfter = idle[i].Decision.ResetAfter
		if checks[i].Rule.limit.inFlight && d.Remaining < d.Limit { // which has no request of cost 0
			d.Remaining++
		}
	}
	return nil
}
