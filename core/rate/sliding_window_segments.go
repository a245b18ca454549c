package rate

// decideSlidingWindowSegments is decideSlidingWindowCounter with n segments of length S = ⌈P/n⌉, aligned to the Unix epoch, in place of one window. The
// window that slides, of n·S, covers n of them whole, the present one among them, and of the oldest only a share, overlap:
//
//	⌊oldest × overlap⌋ + newer + cost ≤ R
//
// (If n divides P, n·S is P; else it is longer by less than n microseconds.) The state is an EventLog as a ring of n+1 counts, with the present one at Head;
// N is newer, the sum of all but the oldest. It returns when the present segment began, which is the time of the state.
func decideSlidingWindowSegments(l *Limit, log *EventLog, last, now, cost int64, d *Decision) int64 {
	at := now
	if !l.Own {
		last -= last % l.Quantum // of a new key it is the time of the first request
	}
	begun := int64(0)
	if last <= now {
		begun = (now - last) / l.Quantum
	} else if last-now <= l.Period {
		at = last
	} else { // the clock has stepped back: the key starts over
		begun = l.Window + 1
	}
	into := at % l.Quantum
	if l.Own {
		into = intoOwn(at, last, l.Quantum)
	}
	beginSegments(l, log, begun)
	weighted := overlap(l, segment(log, l.Window), l.Quantum-into, l.Quantum)
	room := l.Requests - weighted - int64(log.N)
	*d = Decision{Limit: l.Quota}
	d.Allowed = cost <= room || cost == 0
	added := int64(0)
	if d.Allowed {
		added = cost
		room -= cost
	} else {
		d.RetryAfter = Never
		if cost <= l.Requests {
			d.RetryAfter = at - now + segmentsFree(l, log, into, 0, cost)
		}
	}
	d.Remaining = AtLeast(room, 0)
	if room < l.Requests {
		d.ResetAfter = at - now + segmentsReset(l, log, into, added)
		if d.Allowed {
			d.MoreAfter = at - now + segmentsFree(l, log, into, added, d.Remaining+1)
		}
	}
	return at - into
}

// beginSegments moves the ring on by so many segments.
func beginSegments(l *Limit, log *EventLog, segments int64) {
	if len(log.Times) == 0 {
		return
	}
	for i := AtMost(segments, l.Window+1); i > 0; i-- {
		log.N -= int(segment(log, l.Window-1))
		log.Head = (log.Head + 1) % len(log.Times)
		log.Times[log.Head] = 0
	}
}

// segment returns the count of the segment that began so many segments before the present one. An empty ring has none.
func segment(log *EventLog, before int64) int64 {
	if len(log.Times) == 0 {
		return 0
	}
	return int64(log.Times[(log.Head+len(log.Times)-int(before))%len(log.Times)])
}

// segmentsFree returns in how many microseconds so many units are free, which are not free now, if added units more are in the present segment. into is how
// long that has lasted.
func segmentsFree(l *Limit, log *EventLog, into, added, units int64) int64 {
	room := l.Requests - units
	newer := int64(log.N) + added
	before := l.Window
	for newer > room { // once that segment has left the window, too much is in those that began later
		before--
		newer -= segment(log, before)
		if before == 0 {
			newer -= added
		}
	}
	count := segment(log, before)
	if before == 0 {
		count += added
	}
	return (l.Window-before)*l.Quantum + leftBehind(l, count, room-newer, l.Quantum) - into
}

// segmentsReset is segmentsFree for all units. It looks for the last segment with any, which mostly is the present one.
func segmentsReset(l *Limit, log *EventLog, into, added int64) int64 {
	before := int64(0)
	count := segment(log, 0) + added
	for count == 0 && before < l.Window {
		before++
		count = segment(log, before)
	}
	return (l.Window-before)*l.Quantum + leftBehind(l, count, 0, l.Quantum) - into
}

// chargeSlidingWindowSegments adds units to the present segment. All counts together stop at 2³¹−1, whatever most says. It returns by how much the ring has
// grown: it is made when the first units come.
func chargeSlidingWindowSegments(l *Limit, log *EventLog, at, cost int64, most int) int {
	return addToSegment(l, log, 0, cost)
}

// lateSlidingWindowSegments adds units to the segment that is the slot. now is when the present one began.
func lateSlidingWindowSegments(l *Limit, log *EventLog, slot *Slot, now, units int64) int {
	before := AtLeast((now-slot.Start)/l.Quantum, 0)
	if before > l.Window {
		return 0
	}
	return addToSegment(l, log, before, units)
}

func addToSegment(l *Limit, log *EventLog, before, units int64) int {
	grown := 0
	if len(log.Times) == 0 {
		grown = int(l.Window) + 1
		log.Times = make([]uint32, grown)
		log.Head = 0
		log.N = 0
	}
	units = AtMost(units, mostInSegments-int64(log.N))
	i := (log.Head + len(log.Times) - int(before)) % len(log.Times)
	if before == l.Window {
		units = AtMost(units, mostInSegments-int64(log.Times[i]))
	} else {
		log.N += int(units)
	}
	log.Times[i] += uint32(units)
	return grown
}

// mostInSegments is the most that all segments together count.
const mostInSegments = 1<<31 - 1

// slidingWindowSegmentsSlot is slot: a segment.
func slidingWindowSegmentsSlot(l *Limit, now, grain int64) Slot {
	start := now - now%l.Quantum
	return Slot{start, start + (l.Window+1)*l.Quantum}
}

// leaseSlidingWindowSegments is lease. A lease ends with its segment.
func leaseSlidingWindowSegments(l *Limit, t *LeaseTerms) {
	t.Charges = true
	t.Length = AtMost(t.Length, l.Quantum)
}
