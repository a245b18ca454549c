package core

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
