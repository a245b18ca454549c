package core

// eventLog is the state of a sliding_window_log: a ring of the times at which units were taken, with the oldest at head. A time
// takes 4 bytes: the low 32 bits of a count of the limit's quanta, rounded up. Ages are differences, so they survive the wrap: no
// age is ever above twice the window, which is below 2³².
type eventLog struct {
	times []uint32
	head  int
	n     int
}

// decideLog allows at most R in any window of length P, (now−P, now]: a unit taken at t counts until t+P, exclusive. For periods
// up to 35 minutes times are exact. For longer ones they are in quanta of ⌈P/(2³¹−1)⌉ µs, and expire late by less than two of
// these. last is the time of the last look at the log, when expired entries were dropped from it.
//
// It returns the time of this look, at which to charge the request: now, or last if the clock has stepped back by at most a
// period. A longer step back empties the log.
func decideLog(l *Limit, log *eventLog, last, now, cost int64, d *Decision) int64 {
	at := now
	if last > now {
		if last-now <= l.period {
			at = last
		} else {
			log.head, log.n = 0, 0
		}
	}
	tick := at / l.quantum
	if log.n > 0 {
		if tick-last/l.quantum > l.window {
			log.head, log.n = 0, 0
		}
		for log.n > 0 && int64(uint32(tick+1)-log.times[log.head]) > l.window {
			log.head++
			if log.head == len(log.times) {
				log.head = 0
			}
			log.n--
		}
	}
	room := l.requests - int64(log.n)
	*d = Decision{Limit: l.quota}
	d.Allowed = cost <= room || cost == 0
	if d.Allowed && cost > 0 {
		room -= cost
		d.ResetAfter = ((at+l.quantum-1)/l.quantum+l.window)*l.quantum - now
		d.MoreAfter = d.ResetAfter
		if log.n > 0 {
			d.MoreAfter = logExpiry(l, log, 0, tick) - now
		}
	} else {
		if !d.Allowed {
			d.RetryAfter = Never
			if cost <= l.requests {
				d.RetryAfter = logExpiry(l, log, int(cost-room)-1, tick) - now
			}
		}
		if log.n > 0 {
			d.ResetAfter = logExpiry(l, log, log.n-1, tick) - now
			if d.Allowed {
				excess := 0
				if room < 0 { // the limit was lowered
					excess = int(-room)
				}
				d.MoreAfter = logExpiry(l, log, excess, tick) - now
			}
		}
	}
	d.Remaining = room
	if room < 0 {
		d.Remaining = 0
	}
	return at
}

// logExpiry returns when the i-th oldest entry expires. tick is now in quanta.
func logExpiry(l *Limit, log *eventLog, i int, tick int64) int64 {
	i += log.head
	if i >= len(log.times) {
		i -= len(log.times)
	}
	age := int64(uint32(tick+1) - log.times[i])
	return (tick + 1 - age + l.window) * l.quantum
}

// chargeLog adds cost entries at time at. It keeps the newest, up to most, or up to as many as there were before. most is R if
// the limit has decided, so that rejected requests that count use up the limit and no more. It is MaxLogRequests for requests
// that were allowed before, perhaps by a higher limit, and are charged whole. It returns by how much the ring has grown: the ring
// grows as entries come, up to what is needed, and is never allocated in advance.
func chargeLog(l *Limit, log *eventLog, at, cost int64, most int) int {
	if log.n > most {
		most = log.n
	}
	add := int(cost)
	if cost > int64(most) {
		add = most
	}
	if excess := log.n + add - most; excess > 0 { // the oldest entries are dropped
		log.head += excess
		if log.head >= len(log.times) {
			log.head -= len(log.times)
		}
		log.n -= excess
	}
	grown := growLog(log, add, most)
	entry := uint32((at + l.quantum - 1) / l.quantum)
	for ; add > 0; add-- {
		i := log.head + log.n
		if i >= len(log.times) {
			i -= len(log.times)
		}
		log.times[i] = entry
		log.n++
	}
	return grown
}

// growLog makes room for so many more entries, of which there are at most so many as most. It returns by how much the ring has grown.
func growLog(log *eventLog, add, most int) int {
	need := log.n + add
	before := len(log.times)
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
	resizeLog(log, size)
	return size - before
}

// resizeLog moves the entries into a ring of that size, which must have room for them.
func resizeLog(log *eventLog, size int) {
	times := make([]uint32, size)
	if end := log.head + log.n; end <= len(log.times) {
		copy(times, log.times[log.head:end])
	} else {
		k := copy(times, log.times[log.head:])
		copy(times[k:], log.times[:end-len(log.times)])
	}
	log.times = times
	log.head = 0
}

// takeFromSlidingWindowLog is the shortcut: see take. It gives up, too, if the log has no room, or has not been looked at for a whole period:
// see readyLog. The key is not blocked by hand.
//
//flatten:inline
func takeFromSlidingWindowLog(l *Limit, s *State, log *eventLog, now int64) (remaining, reset, more int64) {
	tick := now / l.quantum
	age := s.B // of the oldest entry; at first, the time of the last look
	if age > now || tick-age/l.quantum > l.window {
		return -1, 0, 0
	}
	tick++
	for log.n > 0 {
		age = int64(uint32(tick) - log.times[log.head])
		if age <= l.window {
			break
		}
		log.head++
		if log.head == len(log.times) {
			log.head = 0
		}
		log.n--
	}
	entry := (now + l.quantum - 1) / l.quantum
	remaining = l.requests - int64(log.n)
	if remaining <= 0 || log.n == len(log.times) {
		return -1, 0, 0
	}
	if log.n == 0 {
		age = tick - entry
	}
	log.times[(log.head+log.n)%len(log.times)] = uint32(entry)
	log.n++
	s.B = now
	return remaining - 1, (entry+l.window)*l.quantum - now, (tick-age+l.window)*l.quantum - now
}

// rejectFromSlidingWindowLog is the shortcut: see reject.
//
//flatten:inline
func rejectFromSlidingWindowLog(l *Limit, s *State, log *eventLog, now int64) (retry, reset int64) {
	tick := now/l.quantum + 1
	over := int64(log.n) - l.requests
	if s.B > now || tick-s.B/l.quantum > l.window || over < 0 {
		return -1, 0
	}
	retry = (tick-int64(uint32(tick)-log.times[(log.head+int(over))%len(log.times)])+l.window)*l.quantum - now
	if retry <= 0 {
		return -1, 0
	}
	s.B = now
	return retry, (tick-int64(uint32(tick)-log.times[(log.head+log.n-1)%len(log.times)])+l.window)*l.quantum - now
}
