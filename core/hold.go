package core

// Hold is what a request under way has reserved of a rule: units that may be charged when its status is known, a place among the
// requests in flight, or its turn while it waits. Holds returns those of a request; Finish or Leave ends them.
type Hold struct {
	Rule   *Rule
	Key    string
	Cost   int64
	Ticket uint64 // names it in the store
	Keep   bool   // for Store.Settle: what was reserved is charged; else it is given back
	waits  bool   // it is counted among those that wait for the rule
}

// holds reports whether requests of the rule hold something of it for as long as they are under way.
func (r *Rule) holds() bool {
	return r.conduct != nil && (r.conduct.count != nil || r.limit.inFlight)
}

// Holds appends what a request that was admitted has reserved, by its checks, to a list.
func Holds(list []Hold, checks []Check) []Hold {
	for i := range checks {
		c := &checks[i]
		if c.Ticket != 0 || c.waits {
			list = append(list, Hold{Rule: c.Rule, Key: c.Key, Cost: c.Cost, Ticket: c.Ticket, waits: c.waits})
		}
	}
	return list
}

// UnderWay reports whether any of the holds lasts until the request is over: whether Limiter.Finish is to be called.
func UnderWay(holds []Hold) bool {
	for i := range holds {
		if holds[i].Rule.holds() {
			return true
		}
	}
	return false
}

// ByStatus reports whether any of the holds ends by the status of the response, so that Finish must be told the true one.
func ByStatus(holds []Hold) bool {
	for i := range holds {
		if co := holds[i].Rule.conduct; co != nil && co.count != nil {
			return true
		}
	}
	return false
}

// Depart is called when a request has waited for its turn: its place is free for others that want to wait.
func (l *Limiter) Depart(holds []Hold) {
	for i := range holds {
		if holds[i].waits {
			holds[i].waits = false
			holds[i].Rule.room.leave(holds[i].Rule, holds[i].Key)
		}
	}
}

// Leave ends the holds of a request that was admitted, but is not served, because it has left while it waited. Its turn is given to
// others where it is the last in line, and else is lost; all else that it has reserved is given back.
func (l *Limiter) Leave(holds []Hold) error {
	l.Depart(holds)
	kept := holds[:0]
	for i := range holds {
		h := holds[i]
		h.Keep = false
		if h.Ticket != 0 { // else it has waited in a leaky bucket, which gives nothing back
			kept = append(kept, h)
		}
	}
	return l.settle(kept)
}

// Finish ends the holds of a request that was served: by its status it is charged, where a rule counts by it, or not. It must be
// called for each request that has any, whatever has become of it.
func (l *Limiter) Finish(holds []Hold, status int) error {
	kept := holds[:0]
	for i := range holds {
		h := holds[i]
		if !h.Rule.holds() { // its turn has been charged
			continue
		}
		count := h.Rule.conduct.count
		h.Keep = count != nil && count.Has(status)
		kept = append(kept, h)
	}
	return l.settle(kept)
}

// settle has each hold settled by the store that it is in.
func (l *Limiter) settle(holds []Hold) error {
	if len(holds) == 0 {
		return nil
	}
	local := 0
	for i := range holds {
		if holds[i].Rule.isLocal {
			local++
		}
	}
	if local == 0 {
		return l.store.Settle(holds)
	}
	var there, here []Hold
	for i := range holds {
		if holds[i].Rule.isLocal {
			here = append(here, holds[i])
		} else {
			there = append(there, holds[i])
		}
	}
	_ = l.local.Settle(here) // memory does not fail
	if len(there) == 0 {
		return nil
	}
	return l.store.Settle(there)
}
