package redis

import (
	"fmt"

	"github.com/proxyweir/weir/core"
)

// algorithm is what Redis has of one of core's algorithms. What the parts in Lua set and may read is said in luaRule; whole scripts stand in
// testdata.
type algorithm struct {
	name string // core's

	read    string // Lua that reads what is under the key into v
	shutOut string // Lua that sets wait to -1 where a request costs more than there can be, of a key that is shut out by hand
	unpack  string // Lua that reads the state in v
	decide  string // Lua of core's decision
	refund  string // Lua that sets value to the state in v without a charge of that cost, made at the time charged

	// Lua of scripts with a conduct alone; "" is none.
	lent    string // adds what tolerance has lent to the state
	entries string // finds out when what the state has counts no longer

	kind     int                              // bits of a rule's kind: see luaConductBegin
	commands string                           // that are run for it beside commandsOfAll
	atOnce   bool                             // all units come back at the same time, when a window ends
	numbers  func(l *core.Limit) (x, y int64) // the scripts' X and Y
}

// algorithms has the rows by core.Algorithm. A sixth is a file with its Lua, and a row.
var algorithms = mustTabulate([]*algorithm{
	{
		name:    "token_bucket",
		read:    luaRead,
		shutOut: luaShutOutBucket,
		unpack:  luaUnpackBucket,
		decide:  luaTokenBucket,
		refund:  luaTokenBucketInterval + luaRefundBucket,
		lent:    luaLent,
		kind:    kindBucket,
		numbers: numbersOfTokenBucket,
	},
	{
		name:    "leaky_bucket",
		read:    luaRead,
		shutOut: luaShutOutBucket,
		unpack:  luaUnpackBucket,
		decide:  luaLeakyBucket,
		refund:  luaLeakyBucketInterval + luaRefundBucket,
		kind:    kindBucket + kindQueue,
		numbers: numbersOfLeakyBucket,
	},
	{
		name:    "fixed_window",
		read:    luaRead,
		shutOut: luaShutOutFixedWindow,
		unpack:  luaUnpackFixedWindow,
		decide:  luaFixedWindow,
		refund:  luaRefundFixedWindow,
		atOnce:  true,
		numbers: numbersOfFixedWindow,
	},
	{
		name:     "sliding_window_log",
		read:     luaReadSlidingWindowLog,
		shutOut:  luaShutOutWindow,
		unpack:   luaUnpackSlidingWindowLog,
		decide:   luaSlidingWindowLog,
		refund:   luaRefundSlidingWindowLog,
		entries:  luaEntries,
		kind:     kindLog,
		commands: " GETRANGE STRLEN SETRANGE APPEND PEXPIRE ",
		numbers:  numbersOfSlidingWindowLog,
	},
	{
		name:    "sliding_window_counter",
		read:    luaRead,
		shutOut: luaShutOutWindow,
		unpack:  luaUnpackSlidingWindowCounter,
		decide:  luaSlidingWindowCounter,
		refund:  luaRefundSlidingWindowCounter,
		numbers: noNumbers,
	},
	{ // requests in flight, which the script of a conduct counts by their reservations
		name:    "concurrency",
		read:    luaRead,
		shutOut: luaShutOutConcurrency,
		numbers: noNumbers,
	},
})

func numbersOfTokenBucket(l *core.Limit) (x, y int64) {
	x = l.Capacity()
	if l.Interval() {
		y = 1
	}
	return x, y
}

func numbersOfLeakyBucket(l *core.Limit) (x, y int64) { return l.Capacity(), l.MaxDelay() }

func numbersOfFixedWindow(l *core.Limit) (x, y int64) {
	if l.Windows(0) != nil {
		y = 1
	}
	return x, y
}

func numbersOfSlidingWindowLog(l *core.Limit) (x, y int64) { return l.Quantum() }

func noNumbers(*core.Limit) (x, y int64) { return x, y }

// algorithmOf returns the row of a limit's algorithm.
func algorithmOf(l *core.Limit) *algorithm { return algorithms[l.Algorithm()] }

func mustTabulate(rows []*algorithm) []*algorithm {
	table, err := tabulate(rows)
	if err != nil {
		panic(err)
	}
	return table
}

// tabulate returns the rows by core.Algorithm. The error says what is missing.
func tabulate(rows []*algorithm) ([]*algorithm, error) {
	concurrency, err := core.NewConcurrency(1)
	if err != nil {
		return nil, err
	}
	inFlight := int(concurrency.Algorithm())
	table := make([]*algorithm, inFlight+1)
	for i := 1; i <= len(core.AlgorithmNames); i++ {
		if table[i], err = rowOf(rows, core.AlgorithmNames[i-1], true); err != nil {
			return nil, err
		}
	}
	table[inFlight], err = rowOf(rows, concurrency.Algorithm().String(), false)
	return table, err
}

// rowOf returns the row of that name. counts says that the algorithm has a state, and decides.
func rowOf(rows []*algorithm, name string, counts bool) (*algorithm, error) {
	for _, a := range rows {
		if a.name != name {
			continue
		}
		parts := []string{"read", a.read, "shutOut", a.shutOut, "unpack", a.unpack, "decide", a.decide, "refund", a.refund}
		if !counts {
			parts = parts[:4]
		}
		for i := 0; i < len(parts); i += 2 {
			if parts[i+1] == "" {
				return nil, fmt.Errorf("redis: the row of the algorithm %s has no %s", name, parts[i])
			}
		}
		if a.numbers == nil {
			return nil, fmt.Errorf("redis: the row of the algorithm %s has no numbers", name)
		}
		return a, nil
	}
	return nil, fmt.Errorf("redis: the algorithm %s has no row in algorithms.go", name)
}
