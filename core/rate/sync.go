package rate

import (
	"fmt"
	"time"

	"github.com/proxyweir/weir/core/words"
)

// SyncTerms are how nodes keep a limit with consistency eventual: see package eventual. Times are in microseconds.
type SyncTerms struct {
	Every int64 // the interval at which nodes tell each other, S
	Slack int64 // how long a call may take at least, d, or twice what the last one took; the store sets it
	Whole int64 // in which the limit is whole again: P, or of a bucket B·P/R
}

// The intervals of synchronisation.
const (
	DefaultSync  = time.Second
	ShortestSync = 10 * time.Millisecond
	LongestSync  = time.Minute

	ShortestRegions = 100 * time.Millisecond // of regions
)

// wholes is how many intervals the limit should take to be whole again.
const wholes = 20

// goesOn is for how many intervals nodes decide by what they know while the store fails.
const goesOn = 3

// SyncTermsOf returns the terms on which nodes keep a limit. The error says why they cannot.
func SyncTermsOf(l *Limit, every time.Duration) (SyncTerms, error) {
	if l.Start != ByClock {
		return SyncTerms{}, words.Wrong("", "", "the limit %s has windows of each key's own, and nodes tell each other what they have admitted in windows of the clock; choose `window_start` clock, or consistency strict or lease", l.String())
	}
	t := SyncTerms{Every: int64(every / time.Microsecond), Whole: WholeAfter(l)}
	if t.Every > t.Whole {
		return t, fmt.Errorf("the limit %s is whole again after %s; the interval, %s, must not be longer: choose a shorter one, or consistency strict", l, FormatMicroseconds(t.Whole), FormatPeriod(every))
	}
	return t, nil
}

// Advice returns what is unwise about the interval: it is long for the limit. "" means nothing.
func (t *SyncTerms) Advice(l *Limit) string {
	if t.Every*wholes <= t.Whole {
		return ""
	}
	return fmt.Sprintf("consistency eventual %s: is long for the limit %s, which is whole again after %s: in that time nodes can admit a large part of the limit more; an interval of at most %s is better",
		FormatMicroseconds(t.Every), l, FormatMicroseconds(t.Whole), FormatMicroseconds(t.Whole/wholes))
}

// Fresh reports whether a node may decide by what it has heard so long ago. slack is how long a call may take; failing says that the last calls have failed.
func (t *SyncTerms) Fresh(age, slack int64, failing bool) bool {
	most := t.Every
	if failing {
		most *= goesOn
	}
	return age <= most+slack
}

func FormatMicroseconds(n int64) string { return FormatPeriod(time.Duration(n) * time.Microsecond) }
