package rate

// EventLog is the state of a sliding_window_log: a ring of the times at which units were taken, with the oldest at head. A time
// takes 4 bytes: the low 32 bits of a count of the limit's quanta, rounded up. Ages are differences, so they survive the wrap: no
// age is ever above twice the window, which is below 2³².
type EventLog struct {
	Times []uint32
	Head  int
	N     int
}

// DecideSlidingWindowLog allows at most R in any window of length P, (now−P, now]: a unit taken at t counts until t+P, exclusive. For periods
// up to 35 minutes times are exact. For longer ones they are in quanta of ⌈P/(2³¹−1)⌉ µs, and expire late by less than two of
// these. last is the time of the last look at the log, when expired entries were dropped from it.
//
// If the limit Owes, the log has all units that a key was charged, those that fit first. When one of these expires, the first of those that are owed takes
// its place, and counts from then on.
//
// It returns the time of this look, at which to charge the request: now, or last if the clock has stepped back by at most a
// period. A longer step back empties the log.
func DecideSlidingWindowLog(l *Limit, log *EventLog, last, now, cost int64, d *Decision) int64 {
	at := now
	if last > now {
		if last-now <= l.Period {
			at = last
		} else {
			log.Head, log.N = 0, 0
		}
	}
	tick := at / l.Quantum
	if log.N > 0 {
		looked := last / l.Quantum
		if l.Owes && int64(log.N) > l.Requests {
			looked = payFromLog(l, log, looked, tick)
		}
		if tick-looked > l.Window {
			log.Head, log.N = 0, 0
		}
		for log.N > 0 && int64(uint32(tick+1)-log.Times[log.Head]) > l.Window {
			log.Head++
			if log.Head == len(log.Times) {
				log.Head = 0
			}
			log.N--
		}
	}
	room := l.Requests - int64(log.N)
	*d = Decision{Limit: l.Quota}
	d.Allowed = cost <= room || cost == 0
	if d.Allowed && cost > 0 {
		room -= cost
		d.ResetAfter = ((at+l.Quantum-1)/l.Quantum+l.Window)*l.Quantum - now
		d.MoreAfter = d.ResetAfter
		if log.N > 0 {
			d.MoreAfter = LogExpiry(l, log, 0, tick) - now
		}
	} else {
		if !d.Allowed {
			d.RetryAfter = Never
			if cost <= l.Requests {
				d.RetryAfter = LogExpiry(l, log, int(cost-room)-1, tick) - now
			}
		}
		if log.N > 0 {
			d.ResetAfter = LogExpiry(l, log, log.N-1, tick) - now
			if d.Allowed {
				excess := 0
				if room < 0 { // the limit was lowered
					excess = int(-room)
				}
				d.MoreAfter = LogExpiry(l, log, excess, tick) - now
			}
		}
	}
	d.Remaining = room
	if room < 0 {
		d.Remaining = 0
	}
	return at
}

// payFromLog brings a log to the present that has more than R entries. It goes on by a window at a time, since entries that are older do not tell their
// age. looked is the last look, and tick is now, both in quanta. It returns up to when the log was brought.
func payFromLog(l *Limit, log *EventLog, looked, tick int64) int64 {
	for looked < tick && int64(log.N) > l.Requests {
		looked = AtMost(looked+l.Window, tick)
		for log.N > 0 && int64(uint32(looked+1)-log.Times[log.Head]) > l.Window {
			if int64(log.N) > l.Requests {
				log.Times[(log.Head+int(l.Requests))%len(log.Times)] = log.Times[log.Head] + uint32(l.Window)
			}
			log.Head = (log.Head + 1) % len(log.Times)
			log.N--
		}
	}
	return looked
}

// LogExpiry returns when the i-th oldest entry expires. tick is now in quanta.
func LogExpiry(l *Limit, log *EventLog, i int, tick int64) int64 {
	if l.Owes && int64(i) >= l.Requests { // it takes the place of one that expires
		return LogExpiry(l, log, i%int(l.Requests), tick) + int64(i)/l.Requests*l.Window*l.Quantum
	}
	i += log.Head
	if i >= len(log.Times) {
		i -= len(log.Times)
	}
	age := int64(uint32(tick+1) - log.Times[i])
	return (tick + 1 - age + l.Window) * l.Quantum
}

// ChargeSlidingWindowLog adds cost entries at time at. It keeps the newest, up to most, or up to as many as there were before. most is R if
// the limit has decided, so that rejected requests that count use up the limit and no more. It is MaxLogRequests for requests
// that were allowed before, perhaps by a higher limit, and are charged whole. It returns by how much the ring has grown: the ring
// grows as entries come, up to what is needed, and is never allocated in advance.
func ChargeSlidingWindowLog(l *Limit, log *EventLog, at, cost int64, most int) int {
	if log.N > most {
		most = log.N
	}
	add := int(cost)
	if cost > int64(most) {
		add = most
	}
	if excess := log.N + add - most; excess > 0 && l.Owes { // no more can be owed
		add -= excess
	} else if excess > 0 { // the oldest entries are dropped
		log.Head += excess
		if log.Head >= len(log.Times) {
			log.Head -= len(log.Times)
		}
		log.N -= excess
	}
	grown := GrowLog(log, add, most)
	entry := uint32((at + l.Quantum - 1) / l.Quantum)
	for ; add > 0; add-- {
		i := log.Head + log.N
		if i >= len(log.Times) {
			i -= len(log.Times)
		}
		log.Times[i] = entry
		log.N++
	}
	return grown
}

// lateSlidingWindowLog adds entries at the latest time at which units of a slot may have been admitted, behind the log's newer entries. now is the time of the
// last look. It returns by how much the ring has grown.
func lateSlidingWindowLog(l *Limit, log *EventLog, slot *Slot, now, units int64) int {
	at := AtMost(slot.End-l.Period, now)
	tick := uint32(now/l.Quantum + 1)
	age := int64(tick - uint32((at+l.Quantum-1)/l.Quantum))
	if age > l.Window {
		return 0
	}
	var newer []uint32
	for log.N > 0 {
		last := log.Times[(log.Head+log.N-1)%len(log.Times)]
		if int64(tick-last) >= age {
			break
		}
		newer = append(newer, last)
		log.N--
	}
	grown := ChargeSlidingWindowLog(l, log, at, AtMost(units, AtLeast(MaxLogRequests-int64(log.N+len(newer)), 0)), MaxLogRequests)
	grown += GrowLog(log, len(newer), MaxLogRequests)
	for k := len(newer) - 1; k >= 0; k-- {
		log.Times[(log.Head+log.N)%len(log.Times)] = newer[k]
		log.N++
	}
	return grown
}

// slidingWindowLogSlot is slot.
func slidingWindowLogSlot(l *Limit, now, grain int64) Slot { return partSlot(l, now, grain, logSlots) }

// GrowLog makes room for so many more entries, of which there are at most so many as most. It returns by how much the ring has grown.
func GrowLog(log *EventLog, add, most int) int {
	need := log.N + add
	before := len(log.Times)
	if need <= before {
		return 0
	}
	size := 2 * before
	if size < need {
		size = need
	}
	if size < 4 {
		size = 4
	}
	if size > most {
		size = most
	}
	ResizeLog(log, size)
	return size - before
}

// ResizeLog moves the entries into a ring of that size, which must have room for them.
func ResizeLog(log *EventLog, size int) {
	times := make([]uint32, size)
	if end := log.Head + log.N; end <= len(log.Times) {
		copy(times, log.Times[log.Head:end])
	} else {
		k := copy(times, log.Times[log.Head:])
		copy(times[k:], log.Times[:end-len(log.Times)])
	}
	log.Times = times
	log.Head = 0
}

// TakeFromSlidingWindowLog is the shortcut: see algorithmRow.take. It gives up, too, if the log has no room, or has not been looked at for a whole period:
// see readyLog. The key is not blocked by hand.
//
//flatten:inline
func TakeFromSlidingWindowLog(l *Limit, s *State, log *EventLog, now int64) (remaining, reset, more int64) {
	tick := now / l.Quantum
	age := s.B // of the oldest entry; at first, the time of the last look
	if age > now || tick-age/l.Quantum > l.Window {
		return -1, 0, 0
	}
	tick++
	for log.N > 0 {
		age = int64(uint32(tick) - log.Times[log.Head])
		if age <= l.Window {
			break
		}
		log.Head++
		if log.Head == len(log.Times) {
			log.Head = 0
		}
		log.N--
	}
	entry := (now + l.Quantum - 1) / l.Quantum
	remaining = l.Requests - int64(log.N)
	if remaining <= 0 || log.N == len(log.Times) {
		return -1, 0, 0
	}
	if log.N == 0 {
		age = tick - entry
	}
	log.Times[(log.Head+log.N)%len(log.Times)] = uint32(entry)
	log.N++
	s.B = now
	return remaining - 1, (entry+l.Window)*l.Quantum - now, (tick-age+l.Window)*l.Quantum - now
}

// RejectFromSlidingWindowLog is the shortcut: see algorithmRow.reject.
//
//flatten:inline
func RejectFromSlidingWindowLog(l *Limit, s *State, log *EventLog, now int64) (retry, reset int64) {
	tick := now/l.Quantum + 1
	over := int64(log.N) - l.Requests
	if s.B > now || tick-s.B/l.Quantum > l.Window || over < 0 {
		return -1, 0
	}
	retry = (tick-int64(uint32(tick)-log.Times[(log.Head+int(over))%len(log.Times)])+l.Window)*l.Quantum - now
	if retry <= 0 {
		return -1, 0
	}
	s.B = now
	return retry, (tick-int64(uint32(tick)-log.Times[(log.Head+log.N-1)%len(log.Times)])+l.Window)*l.Quantum - now
}
