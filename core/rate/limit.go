package rate

import (
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
	LeastSegments  = 2                       // of a SlidingWindowCounter
	MostSegments   = 60                      // the same
	MinPeriod      = time.Millisecond        // P
	MaxPeriod      = 366 * 24 * time.Hour    // P
	MaxDrain       = 3650 * 24 * time.Hour   // B·P/R: how long a full bucket takes to drain
	DefaultDelay   = 10 * time.Second        // the default of max_delay
	maxDelay       = time.Hour               // the largest max_delay
	MicrosPerDay   = 24 * 60 * 60 * 1000_000 // the microseconds of a day
)

// LimitConfig describes a limit. NewLimit checks it and makes the Limit.
type LimitConfig struct {
	Algorithm Algorithm
	Requests  int64         // R: units per period; 1 to MaxRequests
	Period    time.Duration // P: whole microseconds, MinPeriod to MaxPeriod; zero with a Calendar
	Calendar  Calendar      // instead of Period; only for a FixedWindow
	On        int           // the day on which the Calendar's unit begins: see ParseLimit; 0 means the first
	Location  *time.Location
	Start     WindowStart   // when windows without a Calendar begin
	Burst     int64         // B: 0 means R; buckets only
	Segments  int64         // of a SlidingWindowCounter, LeastSegments to MostSegments; 0: it has two windows instead
	Interval  bool          // a TokenBucket gets R tokens at each whole P of the epoch, instead of continuously
	Delays    bool          // requests over the limit wait until they are within it; a SlidingWindowCounter cannot do this
	MaxDelay  time.Duration // the longest that a request waits, in a LeakyBucket or under a limit that Delays; 0 means DefaultDelay
	Owes      bool          // units that are charged beyond the limit are owed: windows to come are charged with them, as far as each holds
}

// Limit is an algorithm with its numbers. NewLimit makes it. Nobody changes it after that, and so it is safe for concurrent use. Times are in
// microseconds. Its numbers are fields, since methods cost an interpreter more.
type Limit struct {
	Algorithm Algorithm
	IsBucket  bool // it has a burst, and a level that drains. This and the next seven are from the algorithm's row
	IsLog     bool // its state is an EventLog: a log's, or that of segments
	Ages      bool // an old state must be brought to the present before Take allows a request
	InFlight  bool // it is on requests in flight: see NewConcurrency
	Queues    bool // the algorithm itself makes requests wait in a queue, for MaxDelay at most
	Lends     bool // a wider limit refills it faster
	FastPath  bool // it has a fast path
	windows   bool
	Requests  int64 // R, the units that it allows in a period
	Period    int64 // P; with a calendar, the longest that its unit can be
	Burst     int64 // B, for buckets
	interval  bool
	Delays    bool      // requests over the limit wait until they are within it
	MaxDelay  int64     // the longest that a request waits; 0 if the limit does not make requests wait
	usual     int64     // P; with a calendar, how long its unit lasts on average
	Owes      bool      // windows that follow are charged with what does not fit into one; buckets always owe it
	slack     int64     // how far a key's time may be ahead of the clock before that means that the clock has stepped back
	Calendar  *calendar // nil: aligned to the epoch, or as Start says
	Start     WindowStart
	Spread    bool // Start is Spread
	Own       bool // windows are not those of the epoch: Take does not apply

	Capacity int64 // what the state can hold, and so the most that one request may cost: B; B+1 for a leaky bucket (B that wait and the one that leaves); else R
	Quota    int64 // the limit that clients see: B, or R
	Narrow   bool  // requests·period and (capacity+1)·period fit an int64
	Quantum  int64 // the unit of a log's times, in microseconds; how long a segment lasts
	Window   int64 // a log's window in quanta, rounded up; how many segments there are

	Cost int64 // of the requests that take decides on: 1, or what Costing says
	Step int64 // the cost times the period

	// For take, which handles only narrow limits. The values of other limits keep take from applying.
	Full      int64 // the level of a full bucket that refills continuously: capacity·period; else -1
	Emptied   int64 // how long that level takes to drain, in microseconds, rounded up
	Weighable int64 // the largest count of a previous window that can be multiplied by a period; else -1
}

// Refilled returns how long it takes until the whole Quota is available again, in microseconds. For a bucket, that is the time in
// which its burst refills or drains; else it is the period. It is 0 if that is not a whole number of microseconds, or varies, as
// months do.
func (l *Limit) Refilled() int64 {
	if l.Calendar != nil {
		return 0
	}
	if !l.IsBucket {
		return l.Period
	}
	if l.interval {
		return (l.Burst + l.Requests - 1) / l.Requests * l.Period
	}
	hi, lo := bits.Mul64(uint64(l.Burst), uint64(l.Period))
	if hi >= uint64(l.Requests) { // not reached: MaxDrain is less
		return 0
	}
	refill, rest := bits.Div64(hi, lo, uint64(l.Requests))
	if rest != 0 {
		return 0
	}
	return int64(refill)
}

// TimeZone returns the name of the time zone if the limit follows the calendar, else "".
func (l *Limit) TimeZone() string {
	if l.Calendar == nil {
		return ""
	}
	return l.Calendar.location.String()
}

// CalendarText returns the unit of the calendar that the limit follows, and its time zone: "day@Europe/Berlin"; "" if it follows none.
func (l *Limit) CalendarText() string {
	if l.Calendar == nil {
		return ""
	}
	return l.Calendar.String() + "@" + l.Calendar.location.String()
}

// Interval reports whether a token bucket refills at each whole period, instead of continuously.
func (l *Limit) Interval() bool { return l.interval }

// Segments returns how many segments a SlidingWindowCounter has; 0: none.
func (l *Limit) Segments() int64 {
	if l.Algorithm != SlidingWindowSegments {
		return 0
	}
	return l.Window
}

// Ahead returns how far the time of a key may be ahead of the clock, since requests wait for it, in microseconds; further ahead by more than
// a period means that the clock has stepped back.
func (l *Limit) Ahead() int64 { return l.slack - l.Period }

// Waits reports whether a request under the limit may have to wait: because it Queues, or because it Delays.
func (l *Limit) Waits() bool { return l.Queues || l.Delays }

// MostRequests returns the most that R may be with the limit's algorithm.
func (l *Limit) MostRequests() int64 { return l.Algorithm.Row().MostRequests }

// Windows returns the bounds of the calendar's windows around time now, in microseconds since the epoch: the starts of the
// previous window, of the present one and of the next two, and the end of the last. It returns nil if the limit does not follow
// the calendar.
func (l *Limit) Windows(now int64) []int64 {
	if l.Calendar == nil {
		return nil
	}
	w := l.Calendar.find(now)
	next := l.Calendar.find(w.end)
	return []int64{l.Calendar.find(w.start - 1).start, w.start, w.end, next.end, l.Calendar.find(next.end).end}
}

// Share returns the limit for each of so many nodes, which need be no whole number, so that all together keep to l. Requests and burst are divided and rounded
// down, but are at least 1. Its Identity is l's.
func (l *Limit) Share(nodes float64) *Limit {
	if nodes <= 1 {
		return l
	}
	share := *l
	share.Requests = atLeastOne(int64(float64(l.Requests) / nodes))
	if l.IsBucket {
		share.Burst = atLeastOne(int64(float64(l.Burst) / nodes))
		for share.drainsTooLong() { // because its rate was rounded down
			share.Burst /= 2
		}
	}
	share.setWidths()
	return &share
}

// Divided divides the limit among regions: each keeps to its share by itself, and rest is lent to those that need more. What all admit together is never
// more than the limit allows, whatever their clocks say, since in any time of a period a share admits no more than that part of the limit: where windows are those of a clock,
// it is a log. (Where an earlier window weighs, too, it is a log of half of that.) The error says why it cannot be divided.
func (l *Limit) Divided(share float64, regions int) (part, rest *Limit, err error) {
	if err = l.Divides(); err != nil {
		return nil, nil, err
	}
	n := int64(float64(l.Requests) * share)
	burst := int64(float64(l.Burst) * share)
	c := LimitConfig{Algorithm: SlidingWindowLog, Requests: n, Period: time.Duration(l.Period) * time.Microsecond}
	of := LimitConfig{Algorithm: l.Algorithm, Requests: l.Requests - n*int64(regions), Period: c.Period}
	switch {
	case l.IsBucket:
		c.Algorithm, c.Burst, of.Burst = l.Algorithm, burst, l.Burst-burst*int64(regions)
	case l.Segments() > 0:
		c.Requests = n / 2
		of.Algorithm, of.Segments = SlidingWindowCounter, l.Segments()
	case l.Algorithm == SlidingWindowCounter:
		c.Requests = n / 2
	}
	if c.Requests < 1 || l.IsBucket && burst < 1 || of.Requests < 1 || l.IsBucket && of.Burst < 1 {
		return nil, nil, fmt.Errorf("the limit %s is too small to be divided among %d regions with a share of %g each; a share must be of a unit or more, two for a sliding_window_counter: choose a larger limit or share", l, regions, share)
	}
	if part, err = NewLimit(c); err == nil {
		rest, err = NewLimit(of)
	}
	return part, rest, err
}

// Divides says why the limit cannot be divided among regions, however large it is.
func (l *Limit) Divides() error {
	if l.Calendar != nil || l.Start != ByClock || l.interval || l.Queues || l.InFlight || l.Delays || l.Owes {
		return fmt.Errorf("the limit %s cannot be divided among regions: calendar periods, window_start other than clock, refill interval, leaky_bucket and on_limit delay cannot", l)
	}
	return nil
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
	id := l.Algorithm.String()
	if l.InFlight {
		return id
	}
	if l.interval {
		id += "+interval"
	}
	if n := l.Segments(); n > 0 {
		id += "+" + strconv.FormatInt(n, 10)
	}
	if l.Start != ByClock {
		id += "+" + l.Start.String()
	}
	if l.Calendar != nil {
		return id + "/" + l.CalendarText()
	}
	return id + "/" + strconv.FormatInt(l.Period, 10) + "us"
}

// Same reports whether two limits decide the same.
func (l *Limit) Same(o *Limit) bool {
	return l.Requests == o.Requests && l.Burst == o.Burst && l.Delays == o.Delays && l.MaxDelay == o.MaxDelay && l.Owes == o.Owes && l.Identity() == o.Identity()
}

// Terms returns a text that is equal for limits that are the Same, and for no others.
func (l *Limit) Terms() string {
	return l.Identity() + " " + strconv.FormatInt(l.Requests, 10) + " " + strconv.FormatInt(l.Burst, 10) + " " + strconv.FormatInt(l.MaxDelay, 10) + " " + strconv.FormatBool(l.Delays) + " " + strconv.FormatBool(l.Owes)
}

// Written writes the requests and the period as a configuration does: "100/1m", or "100/month on 17".
func (l *Limit) Written() string {
	s := strconv.FormatInt(l.Requests, 10) + "/"
	if l.Calendar != nil {
		return s + l.Calendar.String()
	}
	return s + FormatPeriod(time.Duration(l.Period)*time.Microsecond)
}

// String writes the limit as a configuration does: "100/1m sliding_window_counter".
func (l *Limit) String() string {
	if l.InFlight {
		return l.Algorithm.String() + " " + strconv.FormatInt(l.Requests, 10)
	}
	s := l.Written() + " " + l.Algorithm.String()
	if n := l.Segments(); n > 0 {
		s += " segments " + strconv.FormatInt(n, 10)
	}
	if l.Burst != 0 && l.Burst != l.Requests {
		s += " burst " + strconv.FormatInt(l.Burst, 10)
	}
	if l.Start != ByClock {
		s += " window_start " + l.Start.String()
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
	c.Algorithm = c.Algorithm.Named()
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Segments > 0 {
		c.Algorithm = SlidingWindowSegments
	}
	l := newLimit(c.Algorithm, c.Requests, int64(c.Period/time.Microsecond))
	l.interval = c.Interval
	l.Delays = c.Delays
	l.Owes = c.Owes && !l.IsBucket
	if c.Start != ByClock {
		l.Start = c.Start
		l.Spread = c.Start == Spread
		l.Own = true
		l.FastPath = false
	}
	if c.Calendar != Epoch {
		l.Calendar = newCalendar(c.Calendar, c.On, c.Location)
		l.Own = true
		l.Period = l.Calendar.longest()
		l.usual = l.Calendar.usual()
	}
	if l.IsBucket {
		l.Burst = c.Burst
		if l.Burst == 0 {
			l.Burst = c.Requests
		}
		if l.drainsTooLong() {
			return nil, words.Wrong("burst", fmt.Sprint(l.Burst), "at %d per %s a full bucket would take more than 10 years to drain", l.Requests, FormatPeriod(c.Period))
		}
	}
	l.slack = l.Period
	if l.Waits() {
		l.MaxDelay = int64(c.MaxDelay / time.Microsecond)
		if c.MaxDelay == 0 {
			l.MaxDelay = int64(DefaultDelay / time.Microsecond)
		}
	}
	if c.Delays {
		l.slack += l.MaxDelay
	}
	if c.Segments > 0 {
		l.Window = c.Segments
		l.Quantum = (l.Period + l.Window - 1) / l.Window
	} else if l.IsLog {
		// Times are kept as 32-bit counts of quanta, which must not wrap around. A log that was not touched for a whole period is
		// empty, so no age is ever above twice the window.
		l.Quantum = (l.Period + 1<<31 - 2) / (1<<31 - 1)
		l.Window = (l.Period + l.Quantum - 1) / l.Quantum
	}
	l.setWidths()
	return l, nil
}

// newLimit returns a limit of that algorithm. Its other numbers are zero.
func newLimit(a Algorithm, requests, period int64) *Limit {
	row := a.Row()
	return &Limit{
		Algorithm: a, IsBucket: row.isBucket, IsLog: row.IsLog, InFlight: row.inFlight, Queues: row.queues, Lends: row.lends, Ages: row.ages, FastPath: row.fastPath, windows: row.windows,
		Requests: requests, Period: period, Cost: 1, Step: period, usual: period,
	}
}

// Costing returns the limit for requests whose cost is not 1, which only Take may be asked about; nil: there is no such shortcut.
func (l *Limit) Costing(cost int64) *Limit {
	if l.Queues || l.IsLog || !l.Narrow || cost > l.Capacity {
		return nil
	}
	other := *l
	other.Cost = cost
	other.Step = cost * l.Period
	return &other
}

// drainsTooLong reports whether a full bucket takes longer to drain than MaxDrain.
func (l *Limit) drainsTooLong() bool {
	return over(l.Burst, l.Period, l.Requests, int64(MaxDrain/time.Microsecond))
}

// Widen returns the limit with so many percent more requests and burst, rounded down. Its Identity is l's.
func (l *Limit) Widen(percent int64) (*Limit, error) {
	wide := *l
	most := l.MostRequests()
	wide.Requests += l.Requests * percent / 100
	wide.Burst += l.Burst * percent / 100
	if l.IsBucket && wide.drainsTooLong() { // after rounding, the rate may have grown less than the burst
		return nil, words.Wrong("", "", "%d %% of %s: a full bucket would take more than 10 years to drain", percent, l.String())
	}
	if wide.Requests == l.Requests && wide.Burst == l.Burst {
		return nil, words.Wrong("", "", "%d %% of %s is less than one request, so that there would be no tolerance", percent, l.String())
	}
	if wide.Requests > most || wide.Burst > most {
		return nil, words.Wrong("", "", "%d %% more than %s is above %d, the most that such a limit can have", percent, l.String(), most)
	}
	wide.setWidths()
	return &wide, nil
}

// setWidths sets the fields that depend on requests, burst and period.
func (l *Limit) setWidths() {
	l.Quota = l.Requests
	if l.IsBucket {
		l.Quota = l.Burst
	}
	l.Capacity = l.Quota
	if l.Queues {
		l.Capacity++
	}
	widest := l.Capacity + 1
	if l.Requests > widest {
		widest = l.Requests
	}
	hi, lo := bits.Mul64(uint64(widest), uint64(l.Period))
	l.Narrow = hi == 0 && lo < 1<<62
	l.Full, l.Emptied, l.Weighable = -1, 0, -1
	if l.Narrow {
		l.Weighable = l.Capacity
	}
	if l.Narrow && !l.interval {
		l.Full = l.Capacity * l.Period
		l.Emptied = (l.Full + l.Requests - 1) / l.Requests
	}
}

func (c LimitConfig) check() error {
	row := c.Algorithm.Row()
	if row.Name == "" || row.inFlight {
		return words.OneOf("algorithm", fmt.Sprint(int(c.Algorithm)), "", AlgorithmNames)
	}
	if c.Requests < 1 || c.Requests > MaxRequests {
		return words.Wrong("requests", fmt.Sprint(c.Requests), "must be from 1 to %d", MaxRequests)
	}
	if c.Requests > row.MostRequests {
		return words.Wrong("requests", fmt.Sprint(c.Requests), "a %s keeps a time for each request and takes at most %d; sliding_window_counter takes more", row.Name, row.MostRequests)
	}
	if c.Calendar == Epoch {
		if c.Period < MinPeriod || c.Period > MaxPeriod {
			return words.Wrong("period", FormatPeriod(c.Period), "must be from 1ms to 366d")
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
		if !row.HasCalendar {
			return words.Wrong("period", strconv.Quote(c.Calendar.String()), "%s follows the calendar, not %s; write a duration such as 24h", onlyThose(func(row *algorithmRow) bool { return row.HasCalendar }), row.Name)
		}
		if c.Period != 0 {
			return words.Wrong("period", FormatPeriod(c.Period), "a window of the calendar has none of its own")
		}
	}
	if err := c.checkStart(); err != nil {
		return err
	}
	if c.Burst != 0 && !row.isBucket {
		return words.Wrong("burst", fmt.Sprint(c.Burst), "%s have a burst, not %s", onlyThose(func(row *algorithmRow) bool { return row.isBucket }), row.Name)
	}
	if c.Burst < 0 || c.Burst > MaxRequests {
		return words.Wrong("burst", fmt.Sprint(c.Burst), "must be from 1 to %d", MaxRequests)
	}
	if c.Segments != 0 && c.Algorithm != SlidingWindowCounter {
		return words.Wrong("segments", fmt.Sprint(c.Segments), "only sliding_window_counter has segments, not %s", row.Name)
	}
	if c.Segments != 0 && (c.Segments < LeastSegments || c.Segments > MostSegments) {
		return words.Wrong("segments", fmt.Sprint(c.Segments), "must be from %d to %d", LeastSegments, MostSegments)
	}
	if c.Interval && !row.hasInterval {
		return words.Wrong("refill", "interval", "%s is refilled, not %s", onlyThose(func(row *algorithmRow) bool { return row.hasInterval }), row.Name)
	}
	if c.Delays && !row.canDelay {
		return words.Wrong("on_limit", "delay", "%s cannot say when a request may leave; choose the algorithm token_bucket, sliding_window_log or fixed_window", row.Name)
	}
	if c.Owes && !row.CanOwe {
		return words.Wrong("cost_response", "", "%s cannot owe what a response says that a request has cost; choose %s", row.Name, strings.Join(namesOf(func(row *algorithmRow) bool { return row.CanOwe }), " or "))
	}
	if c.Owes && c.Segments != 0 {
		return words.Wrong("segments", fmt.Sprint(c.Segments), " and cost_response are mutually exclusive: what a key owes would be forgotten when its segment has slid out of the window; remove one")
	}
	if c.MaxDelay != 0 && !row.queues && !c.Delays {
		return words.Wrong("max_delay", c.MaxDelay.String(), "%s and `on_limit` delay make requests wait, not %s", onlyThose(func(row *algorithmRow) bool { return row.queues }), row.Name)
	}
	if c.MaxDelay != 0 && c.MaxDelay < time.Microsecond || c.MaxDelay > maxDelay {
		return words.Wrong("max_delay", c.MaxDelay.String(), "must be from 1µs to %s", FormatPeriod(maxDelay))
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

// Memory returns the longest time for which the limit makes a promise, in microseconds: its period, or the time in which a full bucket drains,
// if that is longer. The latter is how long a bucket's burst may stay used.
func (l *Limit) Memory() int64 {
	if !l.IsBucket {
		return l.Period
	}
	hi, lo := addUnits(l, 0, 0, l.Capacity)
	drained := drainTime(l, hi, lo)
	if l.interval {
		drained = ((l.Capacity+l.Requests-1)/l.Requests + 1) * l.Period
	}
	return Latest(l.Period, drained)
}

func Latest(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}

// hasWindows reports whether units count by the window that they were admitted in, and not by their time.
func (l *Limit) hasWindows() bool {
	return l.windows || l.interval && l.Capacity <= l.Requests
}

// Unaffordable is a cost that no limit can hold.
const Unaffordable int64 = 2 * MaxRequests

// MostWithin returns the most requests in the period of l with which a limit could not allow more than the requests of most in the period of that: of a
// shorter period, their share; of a longer one, all of them. 0: that is less than one.
func MostWithin(most, l *Limit) int64 {
	return most.Requests / ((most.usual + l.usual - 1) / l.usual)
}
