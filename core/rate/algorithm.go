package rate

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// Algorithm is one of the ways of counting.
type Algorithm int

// The algorithms. The zero value means unset: NewLimit then takes SlidingWindowCounter, or FixedWindow if the limit follows the
// calendar. (The blank constant is there because under Yaegi a constant made by `1 + iota` equals nothing.)
const (
	_ Algorithm = iota
	TokenBucket
	LeakyBucket
	FixedWindow
	SlidingWindowLog
	SlidingWindowCounter
	InFlight              // for limits of requests in flight, which no configuration names: see NewConcurrency
	SlidingWindowSegments // what configurations name SlidingWindowCounter, with segments
)

// last is the algorithm with the highest number.
const last = SlidingWindowSegments

// algorithmRow is all that core knows of an algorithm. An unset trait is false; missing lists the fields that must be set.
type algorithmRow struct {
	algorithm Algorithm
	Name      string    // its name in configurations, unless they name another
	named     Algorithm // the other

	// What a store keeps of a key: an EventLog, or a State. Each has its own functions below.
	isBucket bool // a level that drains, with a burst: see level.go
	IsLog    bool // the time of each unit, or counts
	Counts   bool // of an EventLog: its length never changes
	inFlight bool // nothing: reservations count the requests under way

	queues  bool // requests wait in a queue: besides those that wait, capacity counts the one that leaves
	lends   bool // a wider limit refills it faster, and it pays that back when tolerance ends
	windows bool // units count by the window that they were admitted in, and not by their time
	ages    bool // an old state must be brought to the present before take allows a request: see readyIn

	fastPath bool // tools/flatten writes a fast path with take and reject: see FastPath

	// What a configuration may set.
	MostRequests     int64 // the most that R may be, tolerance included
	HasCalendar      bool  // its windows may follow the calendar
	hasInterval      bool  // it may be refilled at each whole period
	canDelay         bool  // on_limit delay: it knows when a request may depart
	CanCountByStatus bool  // count: it can reserve a request on arrival, and charge it later
	CanSoften        bool  // enforcement soft
	CanOwe           bool  // cost_response: what is charged beyond the limit is owed, and paid before the next request passes

	// The functions are an interface that each algorithm has whole: missing says what a row lacks. tools/flatten writes a function for each, by
	// which all rows are called, such as decideBy and Take. It is a switch of direct calls. A call through the row, or through an interface of
	// Go, would make its arguments escape to the heap, and costs an interpreter a reflect.MakeFunc. The first functions are for a State.

	// decide makes the decision on a request, and the state to keep: see the function decide. d has the quota already; the rest
	// of it is zero.
	decide func(l *Limit, s *State, now, cost int64, next *State, d *Decision)

	// take is the shortcut for a request that costs 1, as most do, or what the limit's Cost says. If the request is allowed, and neither limit nor state is unusual, it charges
	// the state, and returns how much remains, and in how many microseconds the quota is whole again and more is left. Else remaining is -1, and
	// nothing has changed.
	take func(l *Limit, s *State, now int64) (remaining, reset, more int64)

	// reject is the shortcut for a request that costs 1 and is rejected. If neither limit nor state is unusual, and none of the quota remains, it
	// returns in how many microseconds such a request is allowed, and in how many the quota is whole again. Else retry is -1; so it is if the
	// request is allowed.
	reject func(l *Limit, s *State, now int64) (retry, reset int64)

	// roll moves an old state to the present, as decide would, if that allows a request: then take allows it, too. Else it changes nothing, and
	// returns false. nil: take does that itself.
	roll func(l *Limit, s *State, now int64) bool

	// charge adds units to a state that decide has brought to the present: all of them, as far as the state can hold them.
	charge func(l *Limit, s *State, cost int64)

	// credit takes units from a state, whatever its time: the newest first, and no more than there are. creditLog does so for an EventLog that
	// decideLog has brought to the present. Rows of requests in flight, which end by themselves, have none.
	credit    func(l *Limit, s *State, units int64)
	creditLog func(l *Limit, log *EventLog, units int64)

	// spent is the shortcut to find out whether a state is unused again, that long after its time. If known is false, decide
	// must be asked.
	spent func(l *Limit, s *State, elapsed int64) (isSpent, known bool)

	// late adds units to a state of the present, all of them, which another instance has admitted in a slot that still counts.
	late func(l *Limit, s *State, slot *Slot, now, units int64)

	// decideLog, chargeLog and lateLog are for an EventLog: see DecideSlidingWindowLog, ChargeSlidingWindowLog and lateSlidingWindowLog.
	decideLog func(l *Limit, log *EventLog, last, now, cost int64, d *Decision) int64
	chargeLog func(l *Limit, log *EventLog, at, cost int64, most int) int
	lateLog   func(l *Limit, log *EventLog, slot *Slot, now, units int64) int

	// slot returns the slot in which a time lies. Slots of limits without windows last at least as long as grain, in microseconds, since units are
	// told no more often.
	slot func(l *Limit, now, grain int64) Slot

	// lease sets how the limit is leased, as far as that depends on the algorithm: AtOnce, and Charges or Whole. Length is set.
	lease func(l *Limit, t *LeaseTerms)
}

// algorithms has the row of each algorithm, indexed by its number. To add an algorithm:
//
//  1. Name it at the end of the constants above, and write its row here, in the same order. (The numbers are in the scripts of the last release.)
//  2. Write its functions in a file of its own, as in fixed_window.go.
//  3. Write its Lua in a file of redis/scripts, as fixed_window.lua, and its row in redis/algorithms.go.
//  4. Run go generate ./...: it writes the Lua into redis/lua.go, the calls of the functions into algorithm_dispatch.go, and the fast paths.
//  5. Describe it in docs/algorithms.md and in the README's table, and add examples to testdata/vectors.
//
// No algorithm takes the place of another: if a part is missing, the program fails when it starts, and so does a test.
var algorithms = tabulate([]algorithmRow{
	{
		algorithm: TokenBucket, Name: "token_bucket", fastPath: true, isBucket: true, lends: true,
		MostRequests: MaxRequests, hasInterval: true, canDelay: true, CanCountByStatus: true, CanSoften: true, CanOwe: true,
		decide: decideTokenBucket, take: TakeFromTokenBucket, reject: rejectFromTokenBucket, charge: chargeLevel, credit: creditLevel, spent: levelSpent,
		late: chargeNow, slot: tokenBucketSlot, lease: leaseTokenBucket,
	},
	{
		algorithm: LeakyBucket, Name: "leaky_bucket", fastPath: true, isBucket: true, queues: true,
		MostRequests: MaxRequests, canDelay: true, CanOwe: true,
		decide: decideLeakyBucket, take: TakeFromLeakyBucket, reject: rejectFromLeakyBucket, charge: chargeLevel, credit: creditLevel, spent: levelSpent,
		late: chargeNow, slot: levelSlot, lease: leaseByTime,
	},
	{
		algorithm: FixedWindow, Name: "fixed_window", fastPath: true, windows: true,
		MostRequests: MaxRequests, HasCalendar: true, canDelay: true, CanCountByStatus: true, CanSoften: true, CanOwe: true,
		decide: decideFixedWindow, take: TakeFromFixedWindow, reject: rejectFromFixedWindow, charge: chargeFixedWindow, credit: creditFixedWindow, spent: fixedWindowSpent,
		late: chargeNow, slot: fixedWindowSlot, lease: leaseAtOnce,
	},
	{
		algorithm: SlidingWindowLog, Name: "sliding_window_log", fastPath: true, IsLog: true, ages: true,
		MostRequests: MaxLogRequests, canDelay: true, CanCountByStatus: true, CanSoften: true, CanOwe: true,
		decideLog: DecideSlidingWindowLog, chargeLog: ChargeSlidingWindowLog, creditLog: creditSlidingWindowLog, lateLog: lateSlidingWindowLog, slot: slidingWindowLogSlot, lease: leaseByTime,
	},
	{
		algorithm: SlidingWindowCounter, Name: "sliding_window_counter", fastPath: true, windows: true, ages: true,
		MostRequests: MaxRequests, CanCountByStatus: true, CanSoften: true, CanOwe: true,
		decide: decideSlidingWindowCounter, take: TakeFromSlidingWindowCounter, reject: rejectFromSlidingWindowCounter, roll: rollSlidingWindowCounter, charge: chargeSlidingWindowCounter, credit: creditSlidingWindowCounter, spent: slidingWindowCounterSpent,
		late: lateSlidingWindowCounter, slot: slidingWindowCounterSlot, lease: leaseByWindow,
	},
	{ // no instance tells another of it, or leases it
		algorithm: InFlight, Name: "concurrency", inFlight: true, MostRequests: MaxRequests,
		decide: decideInFlight, take: takeInFlight, charge: chargeInFlight, spent: inFlightSpent,
	},
	{
		algorithm: SlidingWindowSegments, Name: "sliding_window_segments", named: SlidingWindowCounter, IsLog: true, Counts: true,
		MostRequests: MaxRequests, CanCountByStatus: true, CanSoften: true,
		decideLog: decideSlidingWindowSegments, chargeLog: chargeSlidingWindowSegments, creditLog: creditSlidingWindowSegments, lateLog: lateSlidingWindowSegments,
		slot: slidingWindowSegmentsSlot, lease: leaseSlidingWindowSegments,
	},
})

// tabulate returns the rows indexed by their numbers; row 0 is zero. It panics if a row, or a part of one, is missing.
func tabulate(rows []algorithmRow) []algorithmRow {
	table := make([]algorithmRow, int(last)+1)
	for i := range rows {
		if int(rows[i].algorithm) != i+1 {
			panic(fmt.Sprintf("rate: algorithm.go has no row for algorithm %d in its place", i+1))
		}
		if missing := rows[i].missing(); missing != "" {
			panic(fmt.Sprintf("rate: the row of algorithm %d (%s) has no %s", i+1, rows[i].Name, missing))
		}
		table[i+1] = rows[i]
	}
	if len(rows) != int(last) {
		panic(fmt.Sprintf("rate: algorithm.go has %d rows, for %d algorithms", len(rows), int(last)))
	}
	return table
}

// missing returns the name of a field that the row lacks, or "" if it is complete.
func (row *algorithmRow) missing() string {
	switch {
	case row.Name == "":
		return "name"
	case row.MostRequests == 0:
		return "MostRequests"
	}
	for _, part := range []struct {
		name          string
		there, needed bool
	}{
		{"decide", row.decide != nil, !row.IsLog},
		{"take", row.take != nil, !row.IsLog},
		{"reject", row.reject != nil, !row.IsLog && row.fastPath},
		{"charge", row.charge != nil, !row.IsLog},
		{"credit", row.credit != nil, !row.IsLog && !row.inFlight},
		{"spent", row.spent != nil, !row.IsLog},
		{"late", row.late != nil, !row.IsLog && !row.inFlight},
		{"decideLog", row.decideLog != nil, row.IsLog},
		{"chargeLog", row.chargeLog != nil, row.IsLog},
		{"creditLog", row.creditLog != nil, row.IsLog},
		{"lateLog", row.lateLog != nil, row.IsLog},
		{"slot", row.slot != nil, !row.inFlight},
		{"lease", row.lease != nil, !row.inFlight},
	} {
		if part.needed && !part.there {
			return part.name
		}
	}
	return ""
}

// Row returns the algorithm's row, or the zero row if there is no such algorithm.
func (a Algorithm) Row() *algorithmRow {
	if a < 0 || a > last {
		a = 0
	}
	return &algorithms[a]
}

// NoFunction returns the text of the panic for an algorithm without a case in algorithm_dispatch.go.
func NoFunction(a Algorithm, name string) string {
	return fmt.Sprintf("rate: algorithm %d (%s) has no %s: run go generate ./...", int(a), a, name)
}

// AlgorithmNames lists the names that ParseAlgorithm accepts, in the order of the constants.
var AlgorithmNames = namesOf(func(row *algorithmRow) bool { return !row.inFlight && row.named == 0 })

// namesOf returns the names of the rows that meet a condition.
func namesOf(meets func(row *algorithmRow) bool) []string {
	var names []string
	for i := 1; i < len(algorithms); i++ {
		if meets(&algorithms[i]) {
			names = append(names, algorithms[i].Name)
		}
	}
	return names
}

// onlyThose returns those names as the subject of a sentence: "only token_bucket and leaky_bucket".
func onlyThose(meets func(row *algorithmRow) bool) string {
	return "only " + strings.Join(namesOf(meets), " and ")
}

// IsBucket reports whether limits of the algorithm have a burst.
func (a Algorithm) IsBucket() bool { return a.Row().isBucket }

// Named returns the algorithm that configurations name.
func (a Algorithm) Named() Algorithm {
	if named := a.Row().named; named != 0 {
		return named
	}
	return a
}

// String returns the algorithm's name in configurations, or "" for the zero value.
func (a Algorithm) String() string { return a.Named().Row().Name }

// ParseAlgorithm returns the algorithm of that name. The error lists the names that are accepted.
func ParseAlgorithm(name string) (Algorithm, error) {
	for i, n := range AlgorithmNames {
		if n == name {
			return Algorithm(i + 1), nil
		}
	}
	return 0, words.OneOf("algorithm", strconv.Quote(name), name, AlgorithmNames)
}
