package replay

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"
)

// Times are nanoseconds since the Unix epoch while a line is read, and microseconds from then on, which is what package core counts in.

// The times that a line may have. Buckets keep times that end in the year 2255, and requests may wait past the last one.
const (
	earliest = int64(time.Second)
	latest   = 230 * 365 * 24 * int64(time.Hour) // in the year 2199
)

// longest is the longest duration of a request that is believed; a longer one is a mistake in the log.
const longest = 10 * 365 * 24 * int64(time.Hour)

// wholeSecond is the precision of times without a fraction.
const wholeSecond = int64(time.Second)

// parseNumberTime reads a time since the epoch in seconds, milliseconds, microseconds or nanoseconds, with or without a fraction. The size of the
// number shows the unit: in each unit it is a time between 1973 and 5138.
func parseNumberTime(text []byte) (nanos int64, ok bool) {
	whole, fraction, fine := splitNumber(text)
	if !fine {
		return 0, false
	}
	unit := int64(time.Second)
	switch {
	case whole < 1e11:
	case whole < 1e14:
		unit = int64(time.Millisecond)
	case whole < 1e17:
		unit = int64(time.Microsecond)
	default:
		unit = 1
	}
	if whole > latest/unit {
		return 0, false
	}
	return whole*unit + fraction/(int64(time.Second)/unit), true
}

// parseNumberDuration reads a duration as Caddy's encoder writes it: seconds with a fraction, or a whole number of nanoseconds or
// milliseconds. Whole numbers are told apart by their size: below 100,000 they are milliseconds, which nanoseconds never are. A whole
// number of seconds, which is written without a fraction, is taken for milliseconds; but of measured times that is 0 alone.
func parseNumberDuration(text []byte) (nanos int64, ok bool) {
	if len(text) > 0 && text[0] == '-' {
		if _, _, fine := splitNumber(text[1:]); fine {
			return 0, true
		}
		return 0, false
	}
	whole, fraction, fine := splitNumber(text)
	if !fine {
		return 0, false
	}
	unit := int64(1)
	if bytes.ContainsAny(text, ".eE") {
		unit = int64(time.Second)
	} else if whole < 100_000 {
		unit = int64(time.Millisecond)
	}
	if whole >= longest/unit {
		return longest, true
	}
	return whole*unit + fraction/(int64(time.Second)/unit), true
}

// splitNumber returns a number's whole part, and its fraction in parts of 10⁻⁹.
func splitNumber(text []byte) (whole, fraction int64, ok bool) {
	if bytes.ContainsAny(text, "eE") {
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil || !(f >= 0 && f < 9e18) {
			return 0, 0, false
		}
		w, rest := math.Modf(f)
		return int64(w), int64(rest * 1e9), true
	}
	digits, rest, _ := bytes.Cut(text, []byte{'.'})
	if len(digits) == 0 || len(digits) > 18 && !(len(digits) == 19 && digits[0] <= '8') {
		return 0, 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, 0, false
		}
		whole = whole*10 + int64(c-'0')
	}
	scale := int64(1e8)
	for _, c := range rest {
		if c < '0' || c > '9' {
			return 0, 0, false
		}
		fraction += int64(c-'0') * scale
		scale /= 10
	}
	return whole, fraction, true
}

// commonLogTime is the layout of times in NCSA's formats.
const commonLogTime = "02/Jan/2006:15:04:05 -0700"

// textTimes are the layouts in which Caddy's encoder can write a time as text. Times without a zone are taken for UTC, which they are unless
// the encoder has time_local. The seconds of each may have a fraction.
var textTimes = []string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006/01/02 15:04:05", commonLogTime, "2006-01-02 15:04:05", "2006-01-02T15:04:05"}

// parseTextTime reads a time that is written as text. precision is wholeSecond or 1 nanosecond.
func parseTextTime(text string) (nanos, precision int64, ok bool) {
	if text == "" {
		return 0, 0, false
	}
	if c := text[len(text)-1]; c >= '0' && c <= '9' && strings.Trim(text, "0123456789.") == "" {
		nanos, ok = parseNumberTime([]byte(text))
		return nanos, 1, ok
	}
	for _, layout := range textTimes {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		if t.Year() < 1970 || t.Year() > 2199 {
			return 0, 0, false
		}
		precision = 1
		if t.Nanosecond() == 0 && !strings.Contains(text, ".") && !strings.Contains(text, ",") {
			precision = wholeSecond
		}
		return t.UnixNano(), precision, true
	}
	return 0, 0, false
}

// parseCommonTime reads 21/Nov/2026:19:48:38 +0000, as time.Parse does, and faster.
func parseCommonTime(text string) (nanos int64, ok bool) {
	if len(text) != len(commonLogTime) || text[2] != '/' || text[6] != '/' || text[11] != ':' || text[14] != ':' || text[17] != ':' || text[20] != ' ' {
		return 0, false
	}
	day, year := digitsOf(text[0:2]), digitsOf(text[7:11])
	hour, minute, second := digitsOf(text[12:14]), digitsOf(text[15:17]), digitsOf(text[18:20])
	zoneHour, zoneMinute := digitsOf(text[22:24]), digitsOf(text[24:26])
	month := strings.Index("JanFebMarAprMayJunJulAugSepOctNovDec", text[3:6])
	if month < 0 || month%3 != 0 || day < 1 || day > 31 || year < 1970 || year > 2199 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60 || zoneHour < 0 || zoneHour > 23 || zoneMinute < 0 || zoneMinute > 59 {
		return 0, false
	}
	zone := int64(zoneHour*60+zoneMinute) * 60
	switch text[21] {
	case '+':
	case '-':
		zone = -zone
	default:
		return 0, false
	}
	t := time.Date(year, time.Month(month/3+1), day, hour, minute, second, 0, time.UTC)
	if t.Day() != day && second < 60 { // 31/Feb
		return 0, false
	}
	return (t.Unix() - zone) * int64(time.Second), true
}

// digitsOf returns the number that digits spell, -1 if there is anything else among them.
func digitsOf(text string) int {
	n := 0
	for i := 0; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			return -1
		}
		n = n*10 + int(text[i]-'0')
	}
	return n
}
