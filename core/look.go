package core

// Look reports the state of the checks' keys at no cost. The verdict, the rejected checks and their waits are those of a request
// now. Remaining and ResetAfter of the other checks are those before any such request. Shadow rules may be among the checks.
// After an error, which is the store's, nothing is known.
//
// If no rule rejects, the store is asked twice, since a decision reports what is left after its request. Requests may come in
// between: each answer is right at its own moment.
func (l *Limiter) Look(checks []Check, v *Verdict) error {
	if err := l.Decide(checks, true, v); err != nil {
		return err
	}
	if v.Outcome == Reject || len(checks) == 0 { // the decisions that allow the request already leave it out
		return nil
	}
	idle := make([]Check, len(checks))
	for i := range checks {
		idle[i] = Check{Rule: checks[i].Rule, Key: checks[i].Key, Previous: checks[i].Previous}
	}
	pooled := expand(idle)
	defer release(pooled)
	if err := l.store.Decide(*pooled, true); err != nil { // at a cost of 0
		return err
	}
	collect(idle, *pooled)
	for i := range checks {
		stand(&checks[i], &idle[i])
		if other := checks[i].InFlight; other != nil && idle[i].InFlight != nil {
			stand(other, idle[i].InFlight)
		}
	}
	return nil
}

// stand takes over how a key stands without a request.
func stand(c, idle *Check) {
	d := &c.Decision
	d.Remaining = idle.Decision.Remaining
	d.ResetAfter = idle.Decision.ResetAfter
	if c.Rule.Limit.InFlight && d.Remaining < d.Limit { // a limit of requests in flight does not know a cost of 0
		d.Remaining++
	}
}
