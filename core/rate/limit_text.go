package rate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/words"
)

// ParseLimit reads "<requests>/<period>". The requests are a whole number. The period is a duration ("10s", "1m30s", "7d"), or a
// unit of the calendar ("day", "week", "month"), the latter two also with the day on which they begin: "week on sunday", "month on 17". In months without
// that day it is their last. It sets c's Requests, and Period, or Calendar and On.
func ParseLimit(s string, c *LimitConfig) error {
	number, period, found := strings.Cut(s, "/")
	if !found {
		return words.Wrong("limit", strconv.Quote(s), "has no period; write <requests>/<period>, such as %s/1m", digitsOr(s, "100")).Guess(meantLimit(s))
	}
	requests, err := words.ParseCount(number, MaxRequests)
	if err != nil {
		return words.Wrong("limit", strconv.Quote(s), "the requests must be a whole number from 1 to %d", MaxRequests).Guess(meantLimit(s))
	}
	c.Requests = requests
	c.On = 0
	unit, day, dated := strings.Cut(period, " on ")
	for i, name := range calendarNames {
		if i > 0 && unit == name {
			c.Calendar = Calendar(i)
			c.Period = 0
			if dated {
				on, wrong := parseOn(c.Calendar, day)
				if wrong != nil {
					return words.Of(wrong).Within("limit", strconv.Quote(s))
				}
				c.On = on
			}
			return nil
		}
	}
	if dated {
		return words.Wrong("limit", strconv.Quote(s), "only a week or a month begins on a day; write such as %d/month on 17, or leave it out", requests)
	}
	c.Calendar = Epoch
	c.Period, err = ParsePeriod(period)
	if err != nil {
		return words.Of(err).Within("limit", strconv.Quote(s))
	}
	return nil
}

// weekdays are the days that a week may begin with, the first in the first place.
var weekdays = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

// parseOn reads the day on which a week or a month begins.
func parseOn(unit Calendar, day string) (int, error) {
	if unit == Day {
		return 0, words.Wrong("", "", "a day begins at midnight; leave %q out", "on "+day)
	}
	if unit == Month {
		n, err := words.ParseCount(day, 31)
		if err != nil {
			return 0, words.Wrong("", "", "a month begins on a day from 1 to 31, such as month on 17, not on %q", day)
		}
		return int(n), nil
	}
	for i, name := range weekdays {
		if day == name {
			return i + 1, nil
		}
	}
	return 0, words.Wrong("", "", "a week begins on a day from monday to sunday, such as week on sunday, not on %q", day)
}

// ReadCost returns the cost that a text names. A text that is not a number costs 1. A number too large for an int64 is
// Unaffordable.
func ReadCost(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err == nil {
		return n
	}
	if errors.Is(err, strconv.ErrRange) && n > 0 {
		return Unaffordable
	}
	return 1
}

// ParsePeriod reads a duration from 1ms to 366d in Go's syntax, with days allowed in front ("7d", "1d12h").
func ParsePeriod(s string) (time.Duration, error) {
	if s == "s" || s == "m" || s == "h" || s == "d" {
		return 0, words.Wrong("", "", "the period %q has no number; write 1%s", s, s)
	}
	d, err := ParseDuration(s)
	if err != nil {
		return 0, words.Wrong("", "", "the period %q must be a duration such as 10s, 1m, 24h or 7d, or day, week or month", s).Guess(meantPeriod(s))
	}
	if d < MinPeriod || d > MaxPeriod {
		return 0, words.Wrong("", "", "the period must be from 1ms to 366d")
	}
	if d%time.Microsecond != 0 {
		return 0, words.Wrong("", "", "the period must be whole microseconds")
	}
	return d, nil
}

// meantPeriod returns the right form of a period that is written in words, such as 1h for hour; "": it is not known.
func meantPeriod(s string) string {
	count := len(s) - len(strings.TrimLeft(s, "0123456789"))
	word := strings.ToLower(strings.Trim(s[count:], " ."))
	number := s[:count]
	if number == "" {
		number = "1"
	}
	for i, name := range calendarNames {
		if i > 0 && number == "1" && (word == name || word == name+"s") {
			return name
		}
	}
	for _, unit := range []string{"s sec secs second seconds", "m min mins minute minutes", "h hr hrs hour hours", "d day days daily"} {
		for _, name := range strings.Fields(unit) {
			if word == name {
				return number + unit[:1]
			}
		}
	}
	if word == "" && count > 0 {
		return number + "s"
	}
	weeks, err := strconv.Atoi(number)
	if err == nil && weeks <= 52 && (word == "w" || word == "wk" || word == "week" || word == "weeks") {
		return strconv.Itoa(7*weeks) + "d"
	}
	return ""
}

func ParseDuration(s string) (time.Duration, error) {
	days, rest, found := strings.Cut(s, "d")
	if !found {
		return time.ParseDuration(s)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, err
	}
	d := time.Duration(n) * 24 * time.Hour
	if rest == "" {
		return d, nil
	}
	if strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, words.Wrong("duration", strconv.Quote(s), "a sign in the middle")
	}
	more, err := time.ParseDuration(rest)
	return d + more, err
}

// FormatPeriod writes a duration in its largest whole unit: 1m, not 1m0s.
func FormatPeriod(d time.Duration) string {
	units := []time.Duration{24 * time.Hour, time.Hour, time.Minute}
	for i, unit := range units {
		if d >= unit && d%unit == 0 {
			return strconv.FormatInt(int64(d/unit), 10) + "dhm"[i:i+1]
		}
	}
	return d.String()
}

// meantLimit returns the right form of a limit that is written as other limiters and people write it, such as 10r/m, 10-M or 10 per minute;
// "": it is not known.
func meantLimit(s string) string {
	count := len(s) - len(strings.TrimLeft(s, "0123456789"))
	requests, err := words.ParseCount(s[:count], MaxRequests)
	if err != nil {
		return ""
	}
	period := strings.ToLower(strings.ReplaceAll(s[count:], "-", " / "))
	if short, found := strings.CutPrefix(strings.TrimSpace(period), "rp"); found { // rps, rpm
		period = "/" + short
	}
	said := false
	var rest []string
	for _, word := range strings.Fields(strings.ReplaceAll(period, "/", " / ")) {
		switch {
		case strings.Contains(" r req reqs request requests hit hits call calls time times x ", " "+word+" ") && !said && len(rest) == 0:
		case strings.Contains(" / per a an each every in ", " "+word+" ") && len(rest) == 0:
			said = true
		default:
			rest = append(rest, word)
		}
	}
	if !said {
		return ""
	}
	period = strings.Join(rest, "")
	if _, err := ParsePeriod(period); err != nil {
		if period = meantPeriod(period); period == "" {
			return ""
		}
	}
	return fmt.Sprintf("%d/%s", requests, period)
}

func digitsOr(s, fallback string) string {
	if s == "" || len(s) > 9 || strings.Trim(s, "0123456789") != "" {
		return fallback
	}
	return s
}
