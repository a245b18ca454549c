package redis

import "github.com/proxyweir/weir/core"

// algorithm is what Redis has of one of core's algorithms. What its parts in Lua read and set is said in luaRule; see whole scripts in testdata.
type algorithm struct {
	name     string // core's
	read     string // Lua: reads what is under the key into v
	most     string // Lua: what a request can cost at most
	decide   string // Lua: decides by the state in v
	overflow string // Lua: the same in scripts with a conduct; "" means decide
	refund   string // Lua: sets value to the state in v less a charge of that cost, made at the time charged
	kind     int64  // bits of a rule's kind: see luaOverflowBegin
	commands string // that are run for it, beside commandsOfAll
	atOnce   bool   // all units come back at the same time, when a window ends

	numbers func(l *core.Limit) (x, y int64) // the scripts' X and Y
}

// algorithms has the rows by core.Algorithm. A sixth is a file with its Lua, and a row.
var algorithms = tabulate([]*algorithm{
	{
		name: "token_bucket", read: luaRead, most: "X", decide: luaUnpackBucket + luaTokenBucket, overflow: luaUnpackBucket + luaLent + luaTokenBucket,
		refund: luaIntervals + luaRefundBucket, kind: kindBucket, numbers: numbersOfTokenBucket,
	},
	{
		name: "leaky_bucket", read: luaRead, most: "X", decide: luaUnpackBucket + luaLeakyBucket,
		refund: luaContinuous + luaRefundBucket, kind: kindBucket + kindQueue, numbers: numbersOfLeakyBucket,
	},
	{
		name: "fixed_window", read: luaRead, most: "R", decide: luaFixedWindow,
		refund: luaRefundFixedWindow, atOnce: true, numbers: numbersOfFixedWindow,
	},
	{
		name: "sliding_window_log", read: luaReadLog, most: "R", decide: luaSlidingWindowLog, overflow: luaSlidingWindowLog + luaEntries,
		refund: luaRefundLog, kind: kindLog, commands: " GETRANGE STRLEN SETRANGE APPEND PEXPIRE ", numbers: numbersOfLog,
	},
	{
		name: "sliding_window_counter", read: luaRead, most: "R", decide: luaSlidingWindowCounter,
		refund: luaRefundSlidingWindowCounter, numbers: noNumbers,
	},
	{name: "concurrency", read: luaRead, most: "1000000000", overflow: "-- see weigh\n", numbers: noNumbers}, // of requests in flight
})

func numbersOfTokenBucket(l *core.Limit) (x, y int64) { return l.Capacity(), oneIf(l.Interval()) }
func numbersOfLeakyBucket(l *core.Limit) (x, y int64) { return l.Capacity(), l.MaxDelay() }
func numbersOfFixedWindow(l *core.Limit) (x, y int64) { return 0, oneIf(l.Windows(0) != nil) }
func numbersOfLog(l *core.Limit) (x, y int64)         { return l.Quantum() }
func noNumbers(_ *core.Limit) (x, y int64)            { return 0, 0 }

// algorithmOf returns the row of a limit's algorithm.
func algorithmOf(l *core.Limit) *algorithm { return algorithms[l.Algorithm()] }

// tabulate returns the rows by core.Algorithm. It panics where one is not there, or a part of one.
func tabulate(rows []*algorithm) []*algorithm {
	for i := 0; core.Algorithm(i+1).String() != ""; i++ {
		name := core.Algorithm(i + 1).String()
		if i >= len(rows) || rows[i].name != name {
			panic("redis: algorithms.go has no row for the algorithm " + name + " in its place")
		}
		a := rows[i]
		counts := i < len(core.AlgorithmNames) // others keep no state
		for part, missing := range map[string]bool{
			"read": a.read == "", "most": a.most == "", "numbers": a.numbers == nil, "decide": counts && a.decide == "", "refund": counts && a.refund == "",
		} {
			if missing {
				panic("redis: in algorithms.go the row of the algorithm " + name + " has no " + part)
			}
		}
	}
	table := make([]*algorithm, len(rows)+1)
	copy(table[1:], rows)
	return table
}
