package rate

import (
	"math/rand"
	"testing"
	"time"
)

// interpreted says that the tests run under Yaegi: see compiled_test.go.
var interpreted = true

// loadZone returns a time zone, or nil if it is not available, as under the interpreter on a machine without the database.
func loadZone(t *testing.T, name string) *time.Location {
	location, err := time.LoadLocation(name)
	if err != nil {
		if !interpreted {
			t.Fatal(err)
		}
		t.Logf("%s is left out: %v", name, err)
		return nil
	}
	return location
}

func TestCalendarWindowsBeginAndEndWhereTheClocksSay(t *testing.T) {
	for _, c := range []struct {
		zone       string
		unit       Calendar
		on         int
		at         string
		start, end string
	}{
		{"UTC", Day, 0, "2026-11-20T22:26:00Z", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"},
		{"UTC", Day, 0, "2026-11-20T00:00:00Z", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"},
		{"UTC", Day, 0, "2026-11-20T23:59:59.999999Z", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"},
		{"UTC", Week, 0, "2026-11-20T22:26:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		{"UTC", Week, 0, "2026-11-22T23:59:59Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"}, // a Sunday
		{"UTC", Week, 0, "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"}, // a Monday
		{"UTC", Week, 0, "2027-01-01T12:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"},
		{"UTC", Month, 0, "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"UTC", Month, 0, "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"UTC", Month, 0, "2027-01-31T12:00:00Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"},
		// A day of 23 hours, and one of 25.
		{"Europe/Berlin", Day, 0, "2026-03-29T10:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"Europe/Berlin", Day, 0, "2026-10-25T10:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"Europe/Berlin", Week, 0, "2026-03-29T10:00:00Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"Europe/Berlin", Month, 0, "2026-03-31T22:30:00Z", "2026-03-31T22:00:00Z", "2026-04-30T22:00:00Z"},
		// Days that begin at one o'clock: the clocks are set forward at midnight.
		{"America/Sao_Paulo", Day, 0, "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"America/Sao_Paulo", Day, 0, "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z"},
		{"Asia/Beirut", Day, 0, "2022-03-27T12:00:00Z", "2022-03-26T22:00:00Z", "2022-03-27T21:00:00Z"},
		{"Africa/Cairo", Day, 0, "2024-04-26T12:00:00Z", "2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"},
		// Days whose last hour comes twice.
		{"America/Sao_Paulo", Day, 0, "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		{"Africa/Cairo", Day, 0, "2024-10-31T21:30:00Z", "2024-10-30T21:00:00Z", "2024-10-31T22:00:00Z"},
		// A day that has two midnights, an hour apart, begins with the first.
		{"Asia/Amman", Day, 0, "2021-10-28T21:30:00Z", "2021-10-28T21:00:00Z", "2021-10-29T22:00:00Z"},
		{"America/Havana", Day, 0, "2024-11-03T04:30:00Z", "2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"},
		// At one minute after midnight, the clocks go back to the old day for another hour, which belongs to the new day.
		{"America/St_Johns", Day, 0, "2010-11-07T02:45:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		// 30 December 2011 did not exist.
		{"Pacific/Apia", Day, 0, "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"Pacific/Apia", Day, 0, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"Pacific/Apia", Week, 0, "2011-12-30T10:00:00Z", "2011-12-26T10:00:00Z", "2012-01-01T10:00:00Z"},
		{"Pacific/Apia", Month, 0, "2011-12-30T10:00:00Z", "2011-12-01T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"UTC", Week, 7, "2026-11-22T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"}, // a Sunday
		{"UTC", Week, 7, "2026-11-21T23:59:59Z", "2026-11-15T00:00:00Z", "2026-11-22T00:00:00Z"},
		{"UTC", Week, 3, "2027-01-01T12:00:00Z", "2026-12-30T00:00:00Z", "2027-01-06T00:00:00Z"},
		{"UTC", Month, 17, "2026-12-17T00:00:00Z", "2026-12-17T00:00:00Z", "2027-01-17T00:00:00Z"},
		{"UTC", Month, 17, "2027-01-16T23:59:59Z", "2026-12-17T00:00:00Z", "2027-01-17T00:00:00Z"},
		// Months without that day begin on their last.
		{"UTC", Month, 31, "2027-02-10T12:00:00Z", "2027-01-31T00:00:00Z", "2027-02-28T00:00:00Z"},
		{"UTC", Month, 31, "2027-02-28T00:00:00Z", "2027-02-28T00:00:00Z", "2027-03-31T00:00:00Z"},
		{"UTC", Month, 30, "2028-02-29T12:00:00Z", "2028-02-29T00:00:00Z", "2028-03-30T00:00:00Z"},
		{"UTC", Month, 31, "2027-04-29T12:00:00Z", "2027-03-31T00:00:00Z", "2027-04-30T00:00:00Z"},
		// The clocks go forward on the day, and back.
		{"Europe/Berlin", Month, 29, "2026-03-28T22:59:59Z", "2026-02-27T23:00:00Z", "2026-03-28T23:00:00Z"},
		{"Europe/Berlin", Month, 25, "2026-10-25T00:30:00Z", "2026-10-24T22:00:00Z", "2026-11-24T23:00:00Z"},
		{"America/Sao_Paulo", Month, 4, "2018-11-04T02:59:59Z", "2018-10-04T03:00:00Z", "2018-11-04T03:00:00Z"},
		{"Pacific/Apia", Month, 30, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z"}, // 30 December did not exist
	} {
		location := loadZone(t, c.zone)
		if location == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		w := newCalendar(c.unit, c.on, location).at(at.UnixMicro())
		start, end := time.UnixMicro(w.start).UTC().Format(time.RFC3339), time.UnixMicro(w.end).UTC().Format(time.RFC3339)
		if start != c.start || end != c.end {
			t.Errorf("%s, the %s of %s: from %s to %s, want from %s to %s", c.zone, c.unit.String(), c.at, start, end, c.start, c.end)
		}
	}
}

// zones are time zones whose clocks change in every possible way: at night, at midnight forward and back, to midnight, by half an
// hour, by a day, after midnight to before it.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/Lisbon", "America/New_York", "America/Sao_Paulo", "America/Havana", "America/Asuncion",
	"America/St_Johns", "America/Scoresbysund", "Atlantic/Azores", "Asia/Beirut", "Asia/Amman", "Asia/Damascus", "Asia/Gaza",
	"Asia/Tehran", "Asia/Kathmandu", "Africa/Cairo", "Africa/Casablanca", "Australia/Lord_Howe", "Pacific/Apia",
	"Pacific/Kwajalein", "Pacific/Kiritimati", "Antarctica/Troll",
}

func TestEveryInstantLiesInOneCalendarWindowAndWindowsAreAdjacent(t *testing.T) {
	instants := 300
	if interpreted {
		instants = 3
	}
	r := rand.New(rand.NewSource(1))
	for _, zone := range zones {
		location := loadZone(t, zone)
		if location == nil {
			continue
		}
		for _, c := range []*calendar{newCalendar(Day, 0, location), newCalendar(Week, 0, location), newCalendar(Week, 7, location), newCalendar(Month, 0, location), newCalendar(Month, 17, location), newCalendar(Month, 29, location), newCalendar(Month, 31, location)} {
			unit := c
			for i := 0; i < instants; i++ {
				at := time.Unix(r.Int63n(2_200_000_000), 0).In(location) // until 2039
				if _, change := at.ZoneBounds(); i%3 != 0 && !change.IsZero() {
					at = change.Add(time.Duration(r.Int63n(3*3600)-3*1800) * time.Second) // near a change
				}
				now := at.UnixMicro()
				w := *c.find(now)
				if now < w.start || now >= w.end {
					t.Fatalf("%s: %s is not in its %s: %v", zone, at, unit.String(), w)
				}
				// Troll sets its clocks back by two hours, and a move across the date line may remove or add a day.
				if longest := c.longest(); w.end-w.start > longest+MicrosPerDay || w.end-w.start < longest/25*23-MicrosPerDay {
					t.Errorf("%s: the %s of %s is %s long", zone, unit.String(), at, time.Duration(w.end-w.start)*time.Microsecond)
				}
				if first := *c.find(w.start); first != w {
					t.Errorf("%s: the %s of %s is %v, that of its first instant %v", zone, unit.String(), at, w, first)
				}
				if last := *c.find(w.end - 1); last != w {
					t.Errorf("%s: the %s of %s is %v, that of its last instant %v", zone, unit.String(), at, w, last)
				}
				if next := c.find(w.end); next.start != w.end {
					t.Errorf("%s: after the %s of %s, which ends at %d, comes one that starts at %d", zone, unit.String(), at, w.end, next.start)
				}
				if before := c.find(w.start - 1); before.end != w.start {
					t.Errorf("%s: before the %s of %s, which starts at %d, comes one that ends at %d", zone, unit.String(), at, w.start, before.end)
				}
			}
		}
	}
}

func TestCalendarRemembersTheLatestWindow(t *testing.T) {
	c := newCalendar(Day, 0, nil)
	if a, b := c.at(1_600_000_000_000_000), c.at(1_600_000_000_000_001); a != b {
		t.Errorf("two instants of a day were looked up twice: %v, %v", a, b)
	}
	if got := c.location.String(); got != "UTC" {
		t.Errorf("the time zone of a calendar without one is %s, want UTC", got)
	}
}
