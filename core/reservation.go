package core

import "github.com/proxyweir/weir/core/rate"

// Reserves reports whether requests reserve units of the rule for as long as they are under way.
func (r *Rule) Reserves() bool {
	return r.Overflow.atEnd() || r.Limit.InFlight
}

// CountsByResponse reports whether requests are charged when their responses have ended.
func (r *Rule) CountsByResponse() bool { return r.Overflow.atEnd() }

// Measures reports whether the response says what a request has cost. Then a request may have a cost of 0: it passes if anything is left.
func (r *Rule) Measures() bool { return r.Overflow != nil && r.Overflow.Response != nil }

// countsSome reports whether a request under the rule may be one that is only checked: see Spared.
func (r *Rule) countsSome() bool { return r.Overflow != nil && r.Overflow.countsSome }

// Watches reports whether more of a response than its status decides what its request is charged.
func (r *Rule) Watches() bool {
	count := r.Overflow.counted()
	return r.Measures() || count != nil && count.Fields()
}

// AppendReservations appends to list what an allowed request has reserved, according to its checks.
func AppendReservations(list []Reservation, checks []Check) []Reservation {
	for i := range checks {
		c := &checks[i]
		if c.Ticket != 0 || c.waits {
			r := Reservation{Rule: c.Rule, Key: c.Key, Cost: c.Cost, Ticket: c.Ticket, Taken: c.Taken, waits: c.waits}
			r.Keep(c.Rule.Measures()) // until it is known what the response says
			list = append(list, r)
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

// ByResponse reports whether any of the reservations is charged by what the response says, so that Finish needs the true status.
func ByResponse(reservations []Reservation) bool {
	for i := range reservations {
		if policy := reservations[i].Rule.Overflow; policy.counted() != nil || policy != nil && policy.Response != nil {
			return true
		}
	}
	return false
}

// SeeFields notes, before Limiter.Finish, whether the header fields of the response, or its trailers, have the request count.
func (r *Reservation) SeeFields(fields map[string][]string, trailers bool) {
	if count := r.Rule.Overflow.counted(); count != nil && count.Meets(fields, trailers) {
		r.named = true
	}
}

// Counts reports whether the request counts, if its response has that status.
func (r *Reservation) Counts(status int) bool {
	count := r.Rule.Overflow.counted()
	return count == nil || r.named || count.Has(status)
}

// Keep has Store.Settle charge what was reserved, or nothing.
func (r *Reservation) Keep(kept bool) {
	r.Units = 0
	if kept {
		r.Units = r.Cost
	}
}

// Measure has Store.Settle charge what the response says, up to the rule's cost_max, and reports whether that is less than the response says.
func (r *Reservation) Measure(units int64) (cut bool) {
	r.Units = rate.AtMost(units, r.Rule.Overflow.CostMax)
	return r.Units < units
}
