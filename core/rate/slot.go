package rate

// Slot is a part of time, by which instances tell each other what they admit. What is admitted in it counts against the limit until its end, as far as
// another instance can tell that only knows how much was admitted in the slot. Times are in microseconds since the Unix epoch.
type Slot struct {
	Start int64
	End   int64 // when its units cease to count; the next slot begins before that, unless the limit has fixed windows
}

// How many slots a log's period has at most, and the time in which a bucket is full again. So another instance counts units of a log for up to an eighth of the
// period longer than this one. One that starts charges a bucket for what was admitted in that time and up to a quarter more.
const (
	logSlots    = 8
	bucketSlots = 4
)

// windowSlot is the slot of limits with windows: a window.
func windowSlot(l *Limit, now int64) Slot {
	if l.Calendar != nil {
		w := l.Calendar.at(now)
		return Slot{w.start, w.end}
	}
	start := now - now%l.Period
	return Slot{start, start + l.Period}
}

// partSlot is the slot of other limits: of so many that the time has in which the limit is whole again.
func partSlot(l *Limit, now, grain, slots int64) Slot {
	whole := WholeAfter(l)
	length := AtLeast((whole+slots-1)/slots, AtLeast(grain, 1))
	start := now - now%length
	return Slot{start, start + length + whole}
}

// SlotShows returns for how long before a time, in microseconds, admissions still count against the limit, at most: in windows since the present one began.
func SlotShows(l *Limit, now int64) int64 {
	if l.hasWindows() {
		return now - SlotOf(l, now, 1).Start
	}
	return WholeAfter(l)
}
