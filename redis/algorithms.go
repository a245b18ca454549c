package redis

import "github.com/proxyweir/weir/core"

// algorithm is one of core's algorithms as Redis runs it. luaRule says which variables its parts in Lua read and set. The files in testdata
// show whole scripts.
type algorithm struct {
	name     string // as in core
	read     string // Lua: reads the key's value into v
	most     string // Lua: the highest cost that a request may have
	decide   string // Lua: decides by the state in v
	overflow string // Lua: as decide, in scripts of rules with an overflow policy; "" means decide
	refund   string // Lua: sets value to the state in v without a charge of that cost, made at the time charged
	lease    leaseParts
	replica  replicaParts
	kind     int64  // bits of a rule's kind: see luaOverflowBegin
	commands string // the Redis commands that it runs besides commandsOfAll
	atOnce   bool   // all units come back at the same time, when a window ends

	numbers func(l *core.Limit) (x, y int64) // X and Y in the scripts
}

// leaseParts are an algorithm's parts in the script of leases: see luaLeaseDecide. The zero value is that of an algorithm that has no leases.
type leaseParts struct {
	settle string // Lua: takes account in v of what the node has spent and gives back
	window string // Lua: sets here, the mark of leases that are taken now, and ends, when they must have ended
	lend   string // Lua: lends extra units
}

// replicaParts are an algorithm's parts in the script of replicas: see luaReplicaDecide. The zero value is that of an algorithm that has no replicas.
type replicaParts struct {
	late  string // Lua: charges units to the window before the present one
	state string // Lua: sets one, two and three to the state that is left: see core's ReplicaState
}

// algorithms has the rows by core.Algorithm. To add an algorithm, add a file with its Lua, and a row.
var algorithms = tabulate([]*algorithm{
	{
		name: "token_bucket", read: luaRead, most: "X", decide: luaUnpackBucket + luaHeldOfBucket + luaTokenBucket, overflow: luaUnpackBucket + luaLent + luaHeldOfBucket + luaTokenBucket,
		refund: luaIntervals + luaRefundBucket, lease: leaseParts{luaSettleBucket, luaWindowOfBucket, luaLendBucket}, replica: replicaParts{state: luaStateOfBucket}, kind: kindBucket, numbers: numbersOfTokenBucket,
	},
	{
		name: "leaky_bucket", read: luaRead, most: "X", decide: luaUnpackBucket + luaLeakyBucket,
		refund: luaContinuous + luaRefundBucket, kind: kindBucket + kindQueue, numbers: numbersOfLeakyBucket,
	},
	{
		name: "fixed_window", read: luaRead, most: "R", decide: luaFixedWindow,
		refund: luaRefundFixedWindow, lease: leaseParts{luaSettleFixedWindow, luaWindowOfFixedWindow, luaLendCharged}, replica: replicaParts{state: luaStateOfFixedWindow}, atOnce: true, numbers: numbersOfFixedWindow,
	},
	{
		name: "sliding_window_log", read: luaReadLog, most: "R", decide: luaSlidingWindowLog, overflow: luaSlidingWindowLog + luaEntries,
		refund: luaRefundLog, lease: leaseParts{luaSettleLog, luaWindowOfLog, luaLendLog}, replica: replicaParts{state: luaStateOfLog}, kind: kindLog, commands: " GETRANGE STRLEN SETRANGE APPEND PEXPIRE ", numbers: numbersOfLog,
	},
	{
		name: "sliding_window_counter", read: luaRead, most: "R", decide: luaSlidingWindowCounter,
		refund: luaRefundSlidingWindowCounter, lease: leaseParts{luaSettleSlidingWindowCounter, luaWindowOfSlidingWindowCounter, luaLendCharged},
		replica: replicaParts{luaLateOfSlidingWindowCounter, luaStateOfSlidingWindowCounter}, numbers: noNumbers,
	},
	{name: "concurrency", read: luaRead, most: "1000000000", overflow: "-- see weigh\n", numbers: noNumbers}, // requests in flight
})

func numbersOfTokenBucket(l *core.Limit) (x, y int64) { return l.Capacity(), oneIf(l.Interval()) }
func numbersOfLeakyBucket(l *core.Limit) (x, y int64) { return l.Capacity(), l.MaxDelay() }
func numbersOfFixedWindow(l *core.Limit) (x, y int64) { return 0, oneIf(l.Windows(0) != nil) }
func numbersOfLog(l *core.Limit) (x, y int64)         { return l.Quantum() }
func noNumbers(_ *core.Limit) (x, y int64)            { return 0, 0 }

// algorithmOf returns the row of a limit's algorithm.
func algorithmOf(l *core.Limit) *algorithm { return algorithms[l.Algorithm()] }

// tabulate returns the rows by core.Algorithm. It panics if a row, or a part of one, is missing.
func tabulate(rows []*algorithm) []*algorithm {
	for i := 0; core.Algorithm(i+1).String() != ""; i++ {
		name := core.Algorithm(i + 1).String()
		if i >= len(rows) || rows[i].name != name {
			panic("redis: algorithms.go has no row for the algorithm " + name + " in its place")
		}
		a := rows[i]
		counts := i < len(core.AlgorithmNames) // the others keep no state
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
