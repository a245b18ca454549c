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

// SlotOf returns the slot of a limit in which a time lies. Slots of a log or a bucket last at least as long as grain, in microseconds, since units are told
// no more often.
func SlotOf(l *Limit, now, grain int64) Slot {
	if l.hasWindows() {
		start, end := now-now%l.Period, now-now%l.Period+l.Period
		if l.Calendar != nil {
			w := l.Calendar.at(now)
			start, end = w.start, w.end
		}
		if l.Algorithm == SlidingWindowCounter {
			end += l.Period
		}
		return Slot{start, end}
	}
	whole := WholeAfter(l)
	slots := int64(bucketSlots)
	if l.IsLog {
		slots = logSlots
	}
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
