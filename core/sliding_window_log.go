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
	grown := 0
	if need := log.n + add; need > len(log.times) {
		size := 2 * len(log.times)
		if size < need {
			size = need
		}
		if size < 4 {
			size = 4
		}
		if size > most {
			size = most
		}
		grown = size - len(log.times)
		resizeLog(log, size)
	}
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
