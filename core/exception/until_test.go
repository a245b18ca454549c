package exception

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

func TestUntilIsReadAsPeopleWriteIt(t *testing.T) {
	now := time.Date(2026, 11, 28, 23, 30, 0, 0, time.UTC) // a Saturday; in Berlin it is Sunday
	berlin := time.FixedZone("Berlin", 3600)
	for text, want := range map[string]string{
		"2026-12-24T18:00:00+01:00": "2026-12-24T17:00:00Z",
		"2026-12-24":                "2026-12-24T23:00:00Z",
		"2h":                        "2026-11-29T01:30:00Z",
		"7d":                        "2026-12-05T23:30:00Z",
		"today":                     "2026-11-29T23:00:00Z",
		" Tomorrow ":                "2026-11-30T23:00:00Z",
		"sunday":                    "2026-11-29T23:00:00Z",
		"Sat":                       "2026-12-05T23:00:00Z",
		"friday":                    "2026-12-04T23:00:00Z",
		"week":                      "2026-11-29T23:00:00Z",
		"month":                     "2026-11-30T23:00:00Z",
	} {
		until, err := ParseUntil(text, now, berlin)
		must.Succeed(t, err)
		must.Equal(t, until.UTC().Format(time.RFC3339), want, text)
	}
	for text, want := range map[string]string{
		"":                     `until "": must be a time such as 2026-11-30T00:30:00+01:00, a duration such as 2h or 7d, a date, a weekday, today`,
		"fryday":               `until "fryday": must be a time`,
		"2026-11-28T23:30:00Z": `until "2026-11-28T23:30:00Z": is past: here it is 2026-11-29T00:30:00+01:00`,
		"-1h":                  `is past`,
		"367d":                 `until "367d": must be within 366 days`,
	} {
		_, err := ParseUntil(text, now, berlin)
		if err == nil {
			t.Fatalf("%q is accepted", text)
		}
		must.Contain(t, err.Error(), want)
	}
}
