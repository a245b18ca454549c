package rate

import (
	"strconv"
	"sync/atomic"
	"time"
)

// calendar finds the day, week or month that an instant lies in. Such windows differ in length (a day on which summer time begins
// has 23 hours). The last window found is kept, so that only one request in each window pays for the search.
type calendar struct {
	unit     Calendar
	on       int // of a week, the weekday that it begins with, 1 (Monday) to 7; of a month the day, 1 to 31, or its last if that is earlier
	location *time.Location
	latest   atomic.Value // *span
}

// span is a window of time: start ≤ t < end, in microseconds since the epoch.
type span struct {
	start, end int64
}

func newCalendar(unit Calendar, on int, location *time.Location) *calendar {
	if location == nil {
		location = time.UTC
	}
	if on == 0 {
		on = 1
	}
	c := &calendar{unit: unit, on: on, location: location}
	c.latest.Store(&span{})
	return c
}

// String returns the unit as a limit has it: "day", or "month on 17".
func (c *calendar) String() string {
	if c.on == 1 {
		return c.unit.String()
	}
	if c.unit == Week {
		return "week on " + weekdays[c.on-1]
	}
	return c.unit.String() + " on " + strconv.Itoa(c.on)
}

// longest returns the longest that the unit can be, in microseconds. It includes two hours, the most that any zone sets clocks
// back (Troll).
func (c *calendar) longest() int64 {
	days := int64(1)
	if c.unit == Week {
		days = 7
	}
	if c.unit == Month {
		days = 31
	}
	return days*MicrosPerDay + MicrosPerDay/12
}

// usual returns how long the unit lasts on average, in microseconds. Any number of units in a row lasts so long times their number, within half a unit.
func (c *calendar) usual() int64 {
	switch c.unit {
	case Day:
		return MicrosPerDay
	case Week:
		return 7 * MicrosPerDay
	}
	return 146097 * MicrosPerDay / 4800 // 400 years of the Gregorian calendar
}

// at returns the window that contains now.
func (c *calendar) at(now int64) *span {
	s := c.latest.Load().(*span)
	if s.start <= now && now < s.end {
		return s
	}
	s = c.find(now)
	c.latest.Store(s)
	return s
}

func (c *calendar) find(now int64) *span {
	year, month, day := time.UnixMicro(now).In(c.location).Date()
	for {
		var start, end time.Time
		switch c.unit {
		case Day:
			start, end = c.midnight(year, month, day), c.midnight(year, month, day+1)
		case Week:
			weekday := int(time.Date(year, month, day, 12, 0, 0, 0, time.UTC).Weekday())
			first := day - (weekday+7-c.on)%7
			start, end = c.midnight(year, month, first), c.midnight(year, month, first+7)
		default:
			if day < c.dayIn(year, month) {
				month--
			}
			start, end = c.midnight(year, month, c.dayIn(year, month)), c.midnight(year, month+1, c.dayIn(year, month+1))
		}
		if now < end.UnixMicro() {
			return &span{start.UnixMicro(), end.UnixMicro()}
		}
		// If the clocks are set back over midnight, they show the old date again, but the new day has begun.
		year, month, day = end.Date()
	}
}

// dayIn returns on which of its days the window of a month begins.
func (c *calendar) dayIn(year int, month time.Month) int {
	if c.on <= 28 {
		return c.on
	}
	last := time.Date(year, month+1, 0, 12, 0, 0, 0, time.UTC).Day()
	if last < c.on {
		return last
	}
	return c.on
}

// midnight returns the first instant at which the clocks show that day or a later one. It walks through the spans between two
// changes of the clocks: if they are set forward at midnight, there is no 0:00; if they are set back to it, there are two; and if
// a zone moves across the date line, a day is missing.
func (c *calendar) midnight(year int, month time.Month, day int) time.Time {
	wall := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	t := wall.Add(-26 * time.Hour).In(c.location) // the day before, in every zone
	for {
		_, offset := t.Zone()
		start := wall.Add(-time.Duration(offset) * time.Second).In(c.location)
		if start.Before(t) {
			start = t
		}
		_, end := t.ZoneBounds()
		// Without an end this is the last span. An end that is not after t is wrong: after a zone's table of changes ends, Go's bounds
		// are a day short in leap years.
		if end.IsZero() || start.Before(end) || !t.Before(end) {
			return start
		}
		t = end
	}
}
