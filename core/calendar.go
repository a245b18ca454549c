package core

import (
	"sync/atomic"
	"time"
)

// calendar finds the day, week or month that an instant lies in. Such windows differ in length (a day that changes to
// summer time has 23 hours), so the last one found is kept: a request pays for the calendar once a window.
type calendar struct {
	unit     Calendar
	location *time.Location
	latest   atomic.Value // *span
}

// span is a window of time: start ≤ t < end, in microseconds since the epoch.
type span struct {
	start, end int64
}

func newCalendar(unit Calendar, location *time.Location) *calendar {
	if location == nil {
		location = time.UTC
	}
	c := &calendar{unit: unit, location: location}
	c.latest.Store(&span{})
	return c
}

// longest returns how long the unit can be, in microseconds, with an hour that the clocks are set back.
func (c *calendar) longest() int64 {
	days := int64(1)
	if c.unit == Week {
		days = 7
	}
	if c.unit == Month {
		days = 31
	}
	return days*microsPerDay + microsPerDay/24
}

// at returns the window that now lies in.
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
	var start, end time.Time
	switch c.unit {
	case Day:
		start, end = c.midnight(year, month, day), c.midnight(year, month, day+1)
	case Week:
		weekday := int(time.Date(year, month, day, 12, 0, 0, 0, time.UTC).Weekday())
		monday := day - (weekday+6)%7
		start, end = c.midnight(year, month, monday), c.midnight(year, month, monday+7)
	default:
		start, end = c.midnight(year, month, 1), c.midnight(year, month+1, 1)
	}
	return &span{start.UnixMicro(), end.UnixMicro()}
}

// midnight returns the first instant of a day. Where the clocks are set forward at midnight there is no 0:00, and
// time.Date may answer with an instant of the day before: the day begins when the clocks have been set.
func (c *calendar) midnight(year int, month time.Month, day int) time.Time {
	t := time.Date(year, month, day, 0, 0, 0, 0, c.location)
	noon := time.Date(year, month, day, 12, 0, 0, 0, c.location)
	if t.Day() == noon.Day() {
		return t
	}
	_, after := t.ZoneBounds()
	return after
}
