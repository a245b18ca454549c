package core

// Hold is what a request under way has reserved of a rule: units that may be charged when its status is known, a place among the
// requests in flight, or its turn while it waits. Holds returns those of a request; Finish or Leave ends them.
type Reservation struct {
	Rule   *Rule
	Key    string
	Cost   int64
	Ticket uint64 // names it in the store
	Keep   bool   // for Store.Settle: what was reserved is charged; else it is given back
	waits  bool   // it is counted among those that wait for the rule
}

// holds reports whether requests of the rule hold something of it for as long as they are under way.
func (r *Rule) reservations() bool {
	return r.overflow != nil && (r.overflow.count != nil || r.limit.inFlight)
}

// Holds appends what a request that was admitted has reserved, by its checks, to a list.
func AppendReservations(list []Reservation, checks []Check) []Reservation {
	for i := range checks {
		c := &checks[i]
		if c.Ticket != 0 || c.waits {
			list = append(list, Reservation{Rule: c.Rule, Key: c.Key, Cost: c.Cost, Ticket: c.Ticket, waits: c.waits})
		}
	}
	return list
}

// UnderWay reports whether any of the holds lasts until the request is over: whether Limiter.Finish is to be called.
func UnderWay(reservations []Reservation) bool {
	for i := range reservations {
		if reservations[i].Rule.reservations() {
			return true
		}
	}
	return false
}

// ByStatus reports whether any of the holds ends by the status of the response, so that Finish must be told the true one.
func ByStatus(reservations []Reservation) bool {
	for i := range reservations {
		if co := reservations[i].Rule.overflow; co != nil && co.count != nil {
			return true
		}
	}
	return false
}

// Depart is called when a request has waited for its turn: its place is free for others that want to wait.
func (l *Limiter) Depart(reservations []Reservation) {
	for i := range reservations {
		if reservations[i].waits {
			reservations[i].waits = false
			reservations[i].Rule.room.leave(reservations[i].Rule, reservations[i].Key)
		}
	}
}

// Leave ends the holds of a request that was admitted, but is not served, because it has left while it waited. Its turn is given to
// others where it is the last in line, and else is lost; all else that it has reserved is given back.
func (l *Limiter) Leave(reservations []Reservation) error {
	l.Depart(reservations)
	kept := reservations[:0]
	for i := range reservations {
		h := reservations[i]
		h.Keep = false
		if h.Ticket != 0 { // else it has waited in a leaky bucket, which gives nothing back
			kept = append(kept, h)
		}
	}
	return l.settle(kept)
}

// Finish ends the holds of a request that was served: by its status it is charged, where a rule counts by it, or not. It must be
// called for each request that has any, whatever has become of it.
func (l *Limiter) Finish(reservations []Reservation, status int) error {
	kept := reservations[:0]
	for i := range reservations {
		h := reservations[i]
		if !h.Rule.reservations() { // its turn has been charged
			continue
		}
		count := h.Rule.overflow.count
		h.Keep = count != nil && count.Has(status)
		kept = append(kept, h)
	}
	return l.settle(kept)
}

// settle has each hold settled by the store that it is in.
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
