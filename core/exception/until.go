package exception

import (
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// ParseUntil reads until when an exception holds, as people write it: a time of RFC 3339; a date, a weekday, "today", "tomorrow", "week" or "month", to the
// end of that, in the time zone of zone; or a duration from now.
func ParseUntil(text string, now time.Time, zone *time.Location) (time.Time, error) {
	var none time.Time
	until, known := readUntil(strings.ToLower(strings.TrimSpace(text)), now, zone)
	if !known {
		return none, words.Wrong("until", strconv.Quote(text), "must be a time such as %s, a duration such as 2h or 7d, a date, a weekday, today, tomorrow, week or month",
			now.Add(24*time.Hour).In(zone).Format(time.RFC3339))
	}
	if !until.After(now) {
		return none, words.Wrong("until", strconv.Quote(text), "is past: here it is %s", now.In(zone).Format(time.RFC3339))
	}
	if until.Sub(now) > rate.MaxPeriod {
		return none, words.Wrong("until", strconv.Quote(text), "must be within 366 days")
	}
	return until, nil
}

func readUntil(text string, now time.Time, zone *time.Location) (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339, strings.ToUpper(text)); err == nil {
		return at, true
	}
	if d, err := rate.ParseDuration(text); err == nil {
		return now.Add(d), true
	}
	if day, err := time.ParseInLocation("2006-01-02", text, zone); err == nil {
		return day.AddDate(0, 0, 1), true
	}
	at := now.In(zone)
	year, month, day := at.Date()
	weekday := int(at.Weekday())
	end := func(days int) time.Time { return time.Date(year, month, day+days+1, 0, 0, 0, 0, zone) }
	switch text {
	case "today":
		return end(0), true
	case "tomorrow":
		return end(1), true
	case "week":
		return end((7 - weekday) % 7), true // it ends with Sunday
	case "month":
		return time.Date(year, month+1, 1, 0, 0, 0, 0, zone), true
	}
	for i := 0; i < 7; i++ {
		if name := strings.ToLower(time.Weekday(i).String()); text == name || text == name[:3] {
			return end((i - weekday + 7) % 7), true
		}
	}
	return now, false
}
