package core

// Reservation is what a request under way has reserved of a rule: units that may be charged when its status is known, one of the
// requests in flight, or its place in the queue while it waits. AppendReservations returns those of a request; Finish or Leave
// ends them.
type Reservation struct {
	Rule   *Rule
	Key    string
	Cost   int64
	Ticket uint64 // identifies it in the store
	Keep   bool   // for Store.Settle: charge what was reserved; else give it back
	waits  bool   // the request is counted among those that wait for the rule
}

// Reserves reports whether requests reserve units of the rule for as long as they are under way.
func (r *Rule) Reserves() bool {
	return r.Overflow != nil && (r.Overflow.Count != nil || r.Limit.InFlight)
}

// AppendReservations appends to list what an allowed request has reserved, according to its checks.
func AppendReservations(list []Reservation, checks []Check) []Reservation {
	for i := range checks {
		c := &checks[i]
		if c.Ticket != 0 || c.waits {
			list = append(list, Reservation{Rule: c.Rule, Key: c.Key, Cost: c.Cost, Ticket: c.Ticket, waits: c.waits})
		}
		if len(c.parts) > 0 {
			list = AppendReservations(list, c.parts)
		}
	}
	return list
}

// UnderWay reports whether any of the reservations lasts until the request is over, so that Limiter.Finish must be called.
func UnderWay(reservations []Reservation) bool {
	for i := range reservations {
		if reservations[i].Rule.Reserves() {
			return true
		}
	}
	return false
}

// ByStatus reports whether any of the reservations ends by the status of the response, so that Finish needs the true status.
func ByStatus(reservations []Reservation) bool {
	for i := range reservations {
		if policy := reservations[i].Rule.Overflow; policy != nil && policy.Count != nil {
			return true
		}
	}
	return false
}

// Depart must be called when a request has waited until its departure: its place is free for others.
func (l *Limiter) Depart(reservations []Reservation) {
	for i := range reservations {
		if reservations[i].waits {
			reservations[i].waits = false
			reservations[i].Rule.room.leave(reservations[i].Rule, reservations[i].Key)
		}
	}
}

// Leave ends the reservations of a request that was allowed but is not served, because its client left while it waited. Its place
// in the queue is given back if it is the last, and else stays unused. All other reservations are given back. The error is the
// store's.
func (l *Limiter) Leave(reservations []Reservation) error {
	l.Depart(reservations)
	kept := reservations[:0]
	for i := range reservations {
		r := reservations[i]
		r.Keep = false
		if r.Ticket != 0 { // else it waited in a leaky bucket, which gives nothing back
			kept = append(kept, r)
		}
	}
	return l.settle(kept)
}

// Finish ends the reservations of a request that was served. Rules that count by status charge it or not, by that status. Finish
// must be called for each request with reservations, however it ended. The error is the store's.
func (l *Limiter) Finish(reservations []Reservation, status int) error {
	kept := reservations[:0]
	for i := range reservations {
		r := reservations[i]
		if !r.Rule.Reserves() { // it was charged at its departure
			continue
		}
		count := r.Rule.Overflow.Count
		r.Keep = count != nil && count.Has(status)
		kept = append(kept, r)
	}
	return l.settle(kept)
}

// settle passes each reservation to the store that has it.
func (l *Limiter) settle(reservations []Reservation) error {
	if len(reservations) == 0 {
		return nil
	}
	local := 0
	for i := range reservations {
		if reservations[i].Rule.isLocal {
			local++
		}
	}
	if local == 0 {
		return l.store.Settle(reservations)
	}
	var there, here []Reservation
	for i := range reservations {
		if reservations[i].Rule.isLocal {
			here = append(here, reservations[i])
		} else {
			there = append(there, reservations[i])
		}
	}
	_ = l.local.Settle(here) // memory does not fail
	if len(there) == 0 {
		return nil
	}
	return l.store.Settle(there)
}
