package rate

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"

	"github.com/proxyweir/weir/core/words"
)

// WindowStart says when windows of a limit begin that does not follow the calendar.
type WindowStart int

// The values of WindowStart.
const (
	ByClock      WindowStart = iota // at whole periods of the Unix epoch: those of all keys at the same time
	FirstRequest                    // with the first request that counts in them
	Spread                          // as ByClock, but for each key as much later as a hash of it says, which is the same on all nodes
)

// WindowStarts lists the words for the values, in the order of the constants.
var WindowStarts = []string{"clock", "first_request", "spread"}

// String returns the word for the value.
func (w WindowStart) String() string { return WindowStarts[w] }

// checkStart says why windows of the limit cannot begin as Start says.
func (c LimitConfig) checkStart() error {
	if c.Start == ByClock {
		return nil
	}
	name := strconv.Quote(c.Start.String())
	if c.Calendar != Epoch {
		return words.Wrong("window_start", name, "a %s of the calendar begins at midnight; write a duration, such as 24h, or leave it out", c.Calendar.String())
	}
	if err := CheckWindowStart(c.Algorithm, c.Start.String()); err != nil {
		return err
	}
	if c.Start == FirstRequest && c.Algorithm != FixedWindow {
		return words.Wrong("window_start", name, "the window of a %s slides, so that its quota comes back bit by bit wherever it begins; choose the algorithm fixed_window, or `window_start` spread", c.Algorithm.String())
	}
	return nil
}

// CheckWindowStart says why limits of an algorithm have no windows that could begin at all; start is the word for when.
func CheckWindowStart(a Algorithm, start string) error {
	if a.HasWindows() {
		return nil
	}
	return words.Wrong("window_start", strconv.Quote(start), "%s have windows, not %s", onlyThose(func(row *algorithmRow) bool { return row.windows }), a.String())
}

// HasWindows reports whether limits of the algorithm have windows that may begin at a time of their own.
func (a Algorithm) HasWindows() bool { return a.Named().Row().windows }

// LeastPhase is less than any time that a key's windows are behind those of the clock if they are Spread: so scripts tell it from other numbers.
const LeastPhase = 2

// Phase returns by how much a key's windows, or its segments, begin later than those of the clock, in microseconds, if they are Spread. It may be more than
// their length, by less than LeastPhase.
func Phase(l *Limit, key string) int64 {
	length := l.Period
	if l.IsLog {
		length = l.Quantum
	}
	return LeastPhase + PartOf(key, length)
}

// PartOf returns how much of a length a hash of the key says: from 0 to less than all of it, the same on all nodes.
func PartOf(key string, length int64) int64 {
	sum := sha256.Sum256([]byte(key))
	part, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), uint64(length))
	return int64(part)
}

// RenewsAtOnce reports whether all of a limit's quota, or of what a bucket gets for a period, comes at the same times for all keys.
func (l *Limit) RenewsAtOnce() bool {
	return l.Algorithm.Named() == FixedWindow && l.Start == ByClock || l.interval
}

// Begun returns when the window of a key, or its segment, began that now lies in, if they are Spread. A state must have such a time from the first on: the
// algorithms know when the next window begins by it.
func Begun(l *Limit, key string, now int64) int64 {
	length := l.Period
	if l.IsLog {
		length = l.Quantum
	}
	return now - (now-Phase(l, key))%length
}

// intoOwn returns how long the window of that length has lasted that a time lies in. begun is when another window of the key began.
func intoOwn(at, begun, length int64) int64 {
	into := (at - begun) % length
	if into < 0 { // the clock has stepped back
		into += length
	}
	return into
}
