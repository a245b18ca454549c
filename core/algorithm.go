package core

import (
	"fmt"
	"strings"

	"github.com/proxyweir/weir/words"
)

// Algorithm names one of the ways of counting.
type Algorithm int

// The algorithms. The zero value stands for "not said": NewLimit then takes SlidingWindowCounter, or FixedWindow
// where the period is a calendar's. (The blank one counts, not `1 + iota`: under Yaegi a constant so computed equals nothing.)
const (
	_ Algorithm = iota
	TokenBucket
	LeakyBucket
	FixedWindow
	SlidingWindowLog
	SlidingWindowCounter
	inFlight // of a limit of requests in flight, which no configuration names: see NewConcurrency
)

// algorithmRow is all that core has of an algorithm. What is not said is false, and what it must say is in check.
type algorithmRow struct {
	algorithm Algorithm
	name      string // as configurations write it

	// What is kept of a key. One that is a log keeps an eventLog, and none of the functions below; all others keep a State.
	isBucket bool // a level that drains, of a burst: see level.go
	isLog    bool // the time of each unit
	inFlight bool // nothing: requests under way are counted by their holds, and no configuration names it

	queues bool // its own requests wait for their turn: one more than the burst has room, which is the one that leaves
	lends  bool // a wider limit refills it faster, and what that has lent is paid back when tolerance ends

	fastPath bool // tools/flatten writes it fast paths, out of take: see FastPath

	// What a configuration may say of it.
	mostRequests     int64 // R, and what tolerance makes of it
	hasCalendar      bool  // its windows may be a calendar's
	hasInterval      bool  // it may be refilled at each whole period
	canDelay         bool  // on_limit delay: it can say when a request's turn is
	canCountByStatus bool  // count: it need not know on arrival whether a request is charged
	canSoften        bool  // enforcement soft

	// decide says what the limit says of a request, and the state to keep: see decide. d has the quota already, and is else zero.
	decide func(l *Limit, s *State, now, cost int64, next *State, d *Decision)

	// take is the short way of a request that costs 1: see take.
	take func(l *Limit, s *State, now int64) (remaining, reset, more int64)

	// charge adds units to a state that decide has brought to its time, whole, as far as it can say them.
	charge func(l *Limit, s *State, cost int64)

	// spent is the short way to say whether a state makes no difference any more, that long after its time. Where that is not known
	// so, decide is asked.
	spent func(l *Limit, s *State, elapsed int64) (isSpent, known bool)
}

// algorithms has the row of each algorithm, by its number. To add an algorithm:
//
//  1. Name it in the constants above, ahead of inFlight, and write its row here, in their order.
//  2. Write its functions in a file of its own, as fixed_window.go has those of a fixed window.
//  3. Run go generate ./...: it writes a call for each row into algorithm_dispatch.go, since a call through the row would have what it
//     is given escape to the heap, and costs an interpreter a reflect.MakeFunc.
//  4. Write its Lua in a file of package redis, as lua_fixed_window.go, and its row in redis/algorithms.go.
//  5. Say what it does in docs/algorithms.md, in the README's table and in testdata/vectors.
//
// What is left out does not fall to another algorithm: it fails when the program starts, and in a test.
var algorithms = tabulate([]algorithmRow{
	{
		algorithm: TokenBucket, name: "token_bucket", fastPath: true, isBucket: true, lends: true,
		mostRequests: MaxRequests, hasInterval: true, canDelay: true, canCountByStatus: true, canSoften: true,
		decide: decideTokenBucket, take: takeFromTokenBucket, charge: chargeLevel, spent: levelSpent,
	},
	{
		algorithm: LeakyBucket, name: "leaky_bucket", fastPath: true, isBucket: true, queues: true,
		mostRequests: MaxRequests, canDelay: true,
		decide: decideLeakyBucket, take: takeFromLeakyBucket, charge: chargeLevel, spent: levelSpent,
	},
	{
		algorithm: FixedWindow, name: "fixed_window", fastPath: true,
		mostRequests: MaxRequests, hasCalendar: true, canDelay: true, canCountByStatus: true, canSoften: true,
		decide: decideFixedWindow, take: takeFromFixedWindow, charge: chargeFixedWindow, spent: fixedWindowSpent,
	},
	{
		algorithm: SlidingWindowLog, name: "sliding_window_log", isLog: true,
		mostRequests: MaxLogRequests, canDelay: true, canCountByStatus: true, canSoften: true,
	},
	{
		algorithm: SlidingWindowCounter, name: "sliding_window_counter", fastPath: true,
		mostRequests: MaxRequests, canCountByStatus: true, canSoften: true,
		decide: decideSlidingWindowCounter, take: takeFromSlidingWindowCounter, charge: chargeSlidingWindowCounter, spent: slidingWindowCounterSpent,
	},
	{
		algorithm: inFlight, name: "concurrency", inFlight: true, mostRequests: MaxRequests,
		decide: decideInFlight, take: takeInFlight, charge: chargeInFlight, spent: inFlightSpent,
	},
})

// tabulate returns the rows by their numbers; there is none by 0. It panics where one is not there, or a part of one.
func tabulate(rows []algorithmRow) []algorithmRow {
	table := make([]algorithmRow, int(inFlight)+1)
	for i := range rows {
		if int(rows[i].algorithm) != i+1 {
			panic(fmt.Sprintf("core: algorithm.go has no row for algorithm %d in its place", i+1))
		}
		if missing := rows[i].missing(); missing != "" {
			panic(fmt.Sprintf("core: the row of algorithm %d (%s) has no %s", i+1, rows[i].name, missing))
		}
		table[i+1] = rows[i]
	}
	if len(rows) != int(inFlight) {
		panic(fmt.Sprintf("core: algorithm.go has %d rows, for %d algorithms", len(rows), int(inFlight)))
	}
	return table
}

// missing returns a part that the row must have, and has not; "" if it has all.
func (row *algorithmRow) missing() string {
	switch {
	case row.name == "":
		return "name"
	case row.mostRequests == 0:
		return "mostRequests"
	case row.isLog: // decideLog and chargeLog are its functions
		return ""
	case row.decide == nil:
		return "decide"
	case row.take == nil:
		return "take"
	case row.charge == nil:
		return "charge"
	case row.spent == nil:
		return "spent"
	}
	return ""
}

// row returns the algorithm's row: that of number 0, in which nothing is said, where there is none.
func (a Algorithm) row() *algorithmRow {
	if a < 0 || a > inFlight {
		a = 0
	}
	return &algorithms[a]
}

// noFunction is what to panic with where an algorithm has no case in algorithm_dispatch.go. Nothing is decided by another one's.
func noFunction(a Algorithm, name string) string {
	return fmt.Sprintf("core: algorithm %d (%s) has no %s: run go generate ./...", int(a), a, name)
}

// AlgorithmNames lists the names that ParseAlgorithm accepts, in the order of the constants.
var AlgorithmNames = namesOf(func(row *algorithmRow) bool { return !row.inFlight })

// namesOf returns the names of the rows that a condition is true of.
func namesOf(reservations func(row *algorithmRow) bool) []string {
	var names []string
	for i := 1; i < len(algorithms); i++ {
		if reservations(&algorithms[i]) {
			names = append(names, algorithms[i].name)
		}
	}
	return names
}

// onlyThose writes their names as the subject of a sentence: "only token_bucket and leaky_bucket".
func onlyThose(reservations func(row *algorithmRow) bool) string {
	return "only " + strings.Join(namesOf(reservations), " and ")
}

// String returns the configuration's name of the algorithm, or "" for the zero value.
func (a Algorithm) String() string { return a.row().name }

// ParseAlgorithm returns the algorithm of that name. The error lists the names that exist.
func ParseAlgorithm(name string) (Algorithm, error) {
	for i, n := range AlgorithmNames {
		if n == name {
			return Algorithm(i + 1), nil
		}
	}
	return 0, fmt.Errorf("algorithm %q: %s", name, words.OneOf(name, AlgorithmNames))
}
