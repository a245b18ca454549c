package core

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/words"
)

// Calendar is the unit that a fixed window is aligned to, if it is not aligned to the Unix epoch.
type Calendar int

// The units of the calendar: a day from midnight, a week from midnight on Monday, a month from midnight of its first day, each in
// the limit's time zone. The zero value means the epoch.
const (
	Epoch Calendar = iota
	Day
	Week
	Month
)

var calendarNames = []string{"", "day", "week", "month"}

// String returns the word for the unit in a limit ("day"), or "" for Epoch.
func (c Calendar) String() string {
	if c < Day || c > Month {
		return ""
	}
	return calendarNames[c]
}

// Bounds of a limit's numbers. Within them, no computation overflows an int64 in Go, or needs more than the 2⁵³ of a double in
// Lua.
const (
	MaxRequests    = 1_000_000_000           // R and B
	MaxLogRequests = 100_000                 // R of a sliding_window_log, which stores a time for each request
	MinPeriod      = time.Millisecond        // P
	MaxPeriod      = 366 * 24 * time.Hour    // P
	MaxDrain       = 3650 * 24 * time.Hour   // B·P/R: how long a full bucket takes to drain
	DefaultDelay   = 10 * time.Second        // the default of max_delay
	maxDelay       = time.Hour               // the largest max_delay
	microsPerDay   = 24 * 60 * 60 * 1000_000 // the microseconds of a day
)

// LimitConfig describes a limit. NewLimit checks it and makes the Limit.
type LimitConfig struct {
	Algorithm Algorithm
	Requests  int64         // R: units per period; 1 to MaxRequests
	Period    time.Duration // P: whole microseconds, MinPeriod to MaxPeriod; zero with a Calendar
	Calendar  Calendar      // instead of Period; only for a FixedWindow
	Location  *time.Location
	Burst     int64         // B: 0 means R; buckets only
	Interval  bool          // a TokenBucket gets R tokens at each whole P of the epoch, instead of continuously
	Delays    bool          // requests over the limit wait until they are within it; a SlidingWindowCounter cannot do this
	MaxDelay  time.Duration // the longest that a request waits, in a LeakyBucket or under a limit that Delays; 0 means DefaultDelay
}

// Limit is an algorithm with its numbers. NewLimit makes it. It is immutable, and so safe for concurrent use. Times are in
// microseconds.
type Limit struct {
	algorithm Algorithm
	isBucket  bool // this and the next six are from the algorithm's row
	isLog     bool
	ages      bool
	inFlight  bool
	queues    bool
	lends     bool
	fastPath  bool
	requests  int64 // R
	period    int64 // P; with a calendar, the longest that its unit can be
	burst     int64 // B, for buckets
	interval  bool
	delays    bool
	maxDelay  int64
	slack     int64     // how far a key's time may be ahead of the clock before that means that the clock has stepped back
	calendar  *calendar // nil: aligned to the epoch

	capacity int64 // what the state can hold: B; B+1 for a leaky bucket (B that wait and the one that leaves); else R
	quota    int64 // the limit that clients see: B, or R
	narrow   bool  // requests·period and (capacity+1)·period fit an int64
	quantum  int64 // the unit of a log's times, in microseconds
	window   int64 // a log's window in quanta, rounded up

	// For take, which handles only narrow limits. The values of other limits keep take from applying.
	full      int64 // the level of a full bucket that refills continuously: capacity·period; else -1
	emptied   int64 // how long that level takes to drain, in microseconds, rounded up
	weighable int64 // the largest count of a previous window that can be multiplied by a period; else -1
}

// Algorithm returns the limit's algorithm.
func (l *Limit) Algorithm() Algorithm { return l.algorithm }

// Requests returns R, the units that the limit allows in a period.
func (l *Limit) Requests() int64 { return l.requests }

// Period returns P in microseconds; with a calendar, the longest that its unit can be.
func (l *Limit) Period() int64 { return l.period }

// Quota returns the limit that clients see: a bucket's burst, else R.
func (l *Limit) Quota() int64 { return l.quota }

// refilled returns how long it takes until the whole Quota is available again, in microseconds. For a bucket, that is the time in
// which its burst refills or drains; else it is the period. It is 0 if that is not a whole number of microseconds, or varies, as
// months do.
func (l *Limit) refilled() int64 {
	if l.calendar != nil {
		return 0
	}
	if !l.isBucket {
		return l.period
	}
	if l.interval {
		return (l.burst + l.requests - 1) / l.requests * l.period
	}
	hi, lo := bits.Mul64(uint64(l.burst), uint64(l.period))
	if hi >= uint64(l.requests) { // not reached: MaxDrain is less
		return 0
	}
	refill, rest := bits.Div64(hi, lo, uint64(l.requests))
	if rest != 0 {
		return 0
	}
	return int64(refill)
}

// TimeZone returns the name of the time zone if the limit follows the calendar, else "".
func (l *Limit) TimeZone() string {
	if l.calendar == nil {
		return ""
	}
	return l.calendar.location.String()
}

// CalendarText returns the unit of the calendar that the limit follows, and its time zone: "day@Europe/Berlin"; "" if it follows none.
func (l *Limit) CalendarText() string {
	if l.calendar == nil {
		return ""
	}
	return l.calendar.unit.String() + "@" + l.calendar.location.String()
}

// Capacity returns the most that one request may cost: all that the limit can hold.
func (l *Limit) Capacity() int64 { return l.capacity }

// Interval reports whether a token bucket refills at each whole period, instead of continuously.
func (l *Limit) Interval() bool { return l.interval }

// Delays reports whether requests over the limit wait until they are within it.
func (l *Limit) Delays() bool { return l.delays }

// MaxDelay returns the longest that a request waits, in microseconds; 0 if the limit does not make requests wait.
func (l *Limit) MaxDelay() int64 { return l.maxDelay }

// Ahead returns how far the time of a key may be ahead of the clock, since requests wait for it, in microseconds; further ahead by more than
// a period means that the clock has stepped back.
func (l *Limit) Ahead() int64 { return l.slack - l.period }

// InFlight reports whether the limit is on requests in flight: see NewConcurrency.
func (l *Limit) InFlight() bool { return l.inFlight }

// IsBucket reports whether the limit has a burst, and a level that drains.
func (l *Limit) IsBucket() bool { return l.isBucket }

// Queues reports whether the algorithm itself makes requests wait in a queue, for MaxDelay at most.
func (l *Limit) Queues() bool { return l.queues }

// Waits reports whether a request under the limit may have to wait: because it Queues, or because it Delays.
func (l *Limit) Waits() bool { return l.queues || l.delays }

// MostRequests returns the most that R may be with the limit's algorithm.
func (l *Limit) MostRequests() int64 { return l.algorithm.row().mostRequests }

// Quantum returns the unit of a sliding_window_log's times, in microseconds.
func (l *Limit) Quantum() int64 { return l.quantum }

// Window returns the window of a sliding_window_log in such units, rounded up.
func (l *Limit) Window() int64 { return l.window }

// Windows returns the bounds of the calendar's windows around time now, in microseconds since the epoch: the starts of the
// previous window, of the present one and of the next two, and the end of the last. It returns nil if the limit does not follow
// the calendar.
func (l *Limit) Windows(now int64) []int64 {
	if l.calendar == nil {
		return nil
	}
	w := l.calendar.find(now)
	next := l.calendar.find(w.end)
	return []int64{l.calendar.find(w.start - 1).start, w.start, w.end, next.end, l.calendar.find(next.end).end}
}

// Share returns the limit for each of so many nodes, so that all together keep to l. Requests and burst are divided and rounded
// down, but are at least 1. Its Identity is l's.
func (l *Limit) Share(nodes int) *Limit {
	if nodes <= 1 {
		return l
	}
	n := int64(nodes)
	share := *l
	share.requests = atLeastOne(l.requests / n)
	if l.isBucket {
		share.burst = atLeastOne(l.burst / n)
		for share.drainsTooLong() { // because its rate was rounded down
			share.burst /= 2
		}
	}
	share.setWidths()
	return &share
}

func atLeastOne(n int64) int64 {
	if n < 1 {
		return 1
	}
	return n
}

// Identity returns the part of the limit that identifies its state: algorithm, period and alignment, but never the numbers that a
// reload may change.
func (l *Limit) Identity() string {
	id := l.algorithm.String()
	if l.inFlight {
		return id
	}
	if l.interval {
		id += "+interval"
	}
	if l.calendar != nil {
		return id + "/" + l.CalendarText()
	}
	return id + "/" + strconv.FormatInt(l.period, 10) + "us"
}

// Same reports whether two limits decide the same.
func (l *Limit) Same(o *Limit) bool {
	return l.requests == o.requests && l.burst == o.burst && l.delays == o.delays && l.maxDelay == o.maxDelay && l.Identity() == o.Identity()
}

// terms returns a text that is equal for limits that are the Same, and for no others.
func (l *Limit) terms() string {
	return l.Identity() + " " + strconv.FormatInt(l.requests, 10) + " " + strconv.FormatInt(l.burst, 10) + " " + strconv.FormatInt(l.maxDelay, 10) + " " + strconv.FormatBool(l.delays)
}

// String writes the limit as a configuration does: "100/1m sliding_window_counter".
func (l *Limit) String() string {
	if l.inFlight {
		return l.algorithm.String() + " " + strconv.FormatInt(l.requests, 10)
	}
	s := strconv.FormatInt(l.requests, 10) + "/"
	if l.calendar != nil {
		s += l.calendar.unit.String()
	} else {
		s += formatPeriod(time.Duration(l.period) * time.Microsecond)
	}
	s += " " + l.algorithm.String()
	if l.burst != 0 && l.burst != l.requests {
		s += " burst " + strconv.FormatInt(l.burst, 10)
	}
	return s
}

// NewLimit checks c and returns its limit. The error names the field, its value and what would be accepted.
func NewLimit(c LimitConfig) (*Limit, error) {
	if c.Algorithm == 0 {
		c.Algorithm = SlidingWindowCounter
		if c.Calendar != Epoch {
			c.Algorithm = FixedWindow
		}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	l := newLimit(c.Algorithm, c.Requests, int64(c.Period/time.Microsecond))
	l.interval = c.Interval
	l.delays = c.Delays
	if c.Calendar != Epoch {
		l.calendar = newCalendar(c.Calendar, c.Location)
		l.period = l.calendar.longest()
	}
	if l.isBucket {
		l.burst = c.Burst
		if l.burst == 0 {
			l.burst = c.Requests
		}
		if l.drainsTooLong() {
			return nil, words.Wrong("burst", fmt.Sprint(l.burst), "at %d per %s a full bucket would take more than 10 years to drain", l.requests, formatPeriod(c.Period))
		}
	}
	l.slack = l.period
	if l.Waits() {
		l.maxDelay = int64(c.MaxDelay / time.Microsecond)
		if c.MaxDelay == 0 {
			l.maxDelay = int64(DefaultDelay / time.Microsecond)
		}
	}
	if c.Delays {
		l.slack += l.maxDelay
	}
	if l.isLog {
		// Times are kept as 32-bit counts of quanta, which must not wrap around. A log that was not touched for a whole period is
		// empty, so no age is ever above twice the window.
		l.quantum = (l.period + 1<<31 - 2) / (1<<31 - 1)
		l.window = (l.period + l.quantum - 1) / l.quantum
	}
	l.setWidths()
	return l, nil
}

// newLimit returns a limit of that algorithm. Its other numbers are zero.
func newLimit(a Algorithm, requests, period int64) *Limit {
	row := a.row()
	return &Limit{
		algorithm: a, isBucket: row.isBucket, isLog: row.isLog, inFlight: row.inFlight, queues: row.queues, lends: row.lends, ages: row.ages, fastPath: row.fastPath,
		requests: requests, period: period,
	}
}

// drainsTooLong reports whether a full bucket takes longer to drain than MaxDrain.
func (l *Limit) drainsTooLong() bool {
	return over(l.burst, l.period, l.requests, int64(MaxDrain/time.Microsecond))
}

// widen returns the limit with so many percent more requests and burst, rounded down. Its Identity is l's.
func (l *Limit) widen(percent int64) (*Limit, error) {
	wide := *l
	most := l.MostRequests()
	wide.requests += l.requests * percent / 100
	wide.burst += l.burst * percent / 100
	if l.isBucket && wide.drainsTooLong() { // after rounding, the rate may have grown less than the burst
		return nil, words.Wrong("", "", "%d %% of %s: a full bucket would take more than 10 years to drain", percent, l.String())
	}
	if wide.requests == l.requests && wide.burst == l.burst {
		return nil, words.Wrong("", "", "%d %% of %s is less than one request, so that there would be no tolerance", percent, l.String())
	}
	if wide.requests > most || wide.burst > most {
		return nil, words.Wrong("", "", "%d %% more than %s is above %d, the most that such a limit can have", percent, l.String(), most)
	}
	wide.setWidths()
	return &wide, nil
}

// setWidths sets the fields that depend on requests, burst and period.
func (l *Limit) setWidths() {
	l.quota = l.requests
	if l.isBucket {
		l.quota = l.burst
	}
	l.capacity = l.quota
	if l.queues {
		l.capacity++
	}
	widest := l.capacity + 1
	if l.requests > widest {
		widest = l.requests
	}
	hi, lo := bits.Mul64(uint64(widest), uint64(l.period))
	l.narrow = hi == 0 && lo < 1<<62
	l.full, l.emptied, l.weighable = -1, 0, -1
	if l.narrow {
		l.weighable = l.capacity
	}
	if l.narrow && !l.interval {
		l.full = l.capacity * l.period
		l.emptied = (l.full + l.requests - 1) / l.requests
	}
}

func (c LimitConfig) check() error {
	row := c.Algorithm.row()
	if row.name == "" || row.inFlight {
		return words.OneOf("algorithm", fmt.Sprint(int(c.Algorithm)), "", AlgorithmNames)
	}
	if c.Requests < 1 || c.Requests > MaxRequests {
		return words.Wrong("requests", fmt.Sprint(c.Requests), "must be from 1 to %d", MaxRequests)
	}
	if c.Requests > row.mostRequests {
		return words.Wrong("requests", fmt.Sprint(c.Requests), "a %s keeps a time for each request and takes at most %d; sliding_window_counter takes more", row.name, row.mostRequests)
	}
	if c.Calendar == Epoch {
		if c.Period < MinPeriod || c.Period > MaxPeriod {
			return words.Wrong("period", formatPeriod(c.Period), "must be from 1ms to 366d")
		}
		if c.Period%time.Microsecond != 0 {
			return words.Wrong("period", fmt.Sprint(c.Period), "must be whole microseconds")
		}
		if c.Location != nil {
			return words.Wrong("time_zone", strconv.Quote(c.Location.String()), "only windows of the calendar have one (limit <requests>/day, /week or /month)")
		}
	} else {
		if c.Calendar < Day || c.Calendar > Month {
			return words.Wrong("calendar", fmt.Sprint(int(c.Calendar)), "must be day, week or month")
		}
		if !row.hasCalendar {
			return words.Wrong("period", strconv.Quote(c.Calendar.String()), "%s follows the calendar, not %s; write a duration such as 24h", onlyThose(func(row *algorithmRow) bool { return row.hasCalendar }), row.name)
		}
		if c.Period != 0 {
			return words.Wrong("period", formatPeriod(c.Period), "a window of the calendar has none of its own")
		}
	}
	if c.Burst != 0 && !row.isBucket {
		return words.Wrong("burst", fmt.Sprint(c.Burst), "%s have a burst, not %s", onlyThose(func(row *algorithmRow) bool { return row.isBucket }), row.name)
	}
	if c.Burst < 0 || c.Burst > MaxRequests {
		return words.Wrong("burst", fmt.Sprint(c.Burst), "must be from 1 to %d", MaxRequests)
	}
	if c.Interval && !row.hasInterval {
		return words.Wrong("refill", "interval", "%s is refilled, not %s", onlyThose(func(row *algorithmRow) bool { return row.hasInterval }), row.name)
	}
	if c.Delays && !row.canDelay {
		return words.Wrong("on_limit", "delay", "%s cannot say when a request may leave; choose the algorithm token_bucket, sliding_window_log or fixed_window", row.name)
	}
	if c.MaxDelay != 0 && !row.queues && !c.Delays {
		return words.Wrong("max_delay", c.MaxDelay.String(), "%s and `on_limit` delay make requests wait, not %s", onlyThose(func(row *algorithmRow) bool { return row.queues }), row.name)
	}
	if c.MaxDelay != 0 && c.MaxDelay < time.Microsecond || c.MaxDelay > maxDelay {
		return words.Wrong("max_delay", c.MaxDelay.String(), "must be from 1µs to %s", formatPeriod(maxDelay))
	}
	if c.MaxDelay%time.Microsecond != 0 {
		return words.Wrong("max_delay", c.MaxDelay.String(), "must be whole microseconds")
	}
	return nil
}

// over reports whether a·b/c > most, without overflow.
func over(a, b, c, most int64) bool {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(most))
	return hi > hi2 || hi == hi2 && lo > lo2
}

// ParseLimit reads "<requests>/<period>". The requests are a whole number. The period is a duration ("10s", "1m30s", "7d"), or a
// unit of the calendar ("day", "week", "month"). It sets c's Requests, and Period or Calendar.
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
	for i, name := range calendarNames {
		if i > 0 && period == name {
			c.Calendar = Calendar(i)
			c.Period = 0
			return nil
		}
	}
	c.Calendar = Epoch
	c.Period, err = ParsePeriod(period)
	if err != nil {
		return words.Of(err).Within("limit", strconv.Quote(s))
	}
	return nil
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
	d, err := parseDuration(s)
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

func parseDuration(s string) (time.Duration, error) {
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

// formatPeriod writes a duration in its largest whole unit: 1m, not 1m0s.
func formatPeriod(d time.Duration) string {
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

// memory returns the longest time for which the limit makes a promise, in microseconds: its period, or the time in which a full bucket drains,
// if that is longer. The latter is how long a bucket's burst may stay used.
func (l *Limit) memory() int64 {
	if !l.isBucket {
		return l.period
	}
	hi, lo := addUnits(l, 0, 0, l.capacity)
	drained := drainTime(l, hi, lo)
	if l.interval {
		drained = ((l.capacity+l.requests-1)/l.requests + 1) * l.period
	}
	return latest(l.period, drained)
}

func latest(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}

// hasWindows reports whether units count by the window that they were admitted in, and not by their time.
func (l *Limit) hasWindows() bool {
	return l.algorithm == FixedWindow || l.algorithm == SlidingWindowCounter || l.interval && l.capacity <= l.requests
}

// Unaffordable is a cost that no limit can hold.
const Unaffordable int64 = 2 * MaxRequests
