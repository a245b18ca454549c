// Package redis keeps the counters of a fleet in Redis. Its Store decides with Lua scripts, in one call for each request, by the
// server's clock.
//
// The scripts compute the same as the algorithms of package core, to the microsecond. They are in scripts, in Lua: each algorithm has a file there,
// and a row in algorithms.go. go generate makes lua.go of the files, and script.go puts the scripts together.
//
// A Store makes the keys and the arguments. It remembers decisions, so that a flood from one client costs Redis nothing, and counting in
// memory can continue from there. With a circuit breaker it keeps requests from waiting for a server that is down. A Client connects it to
// the servers: package goredis has the client for compiled programs, package resp the one for interpreted programs.
//
// The package imports the standard library, core and match alone, and keeps to the Go that the interpreter Yaegi can run.
package redis

import (
	// EVALSHA names scripts by it; it keeps no secret

	"github.com/proxyweir/weir/core/rate"
)

// algorithm is one of package rate's algorithms as Redis runs it. Its Lua is in the file of scripts with its name: scripts/algorithm.lua says in which parts.
type algorithm struct {
	name     string // as in core
	kind     int64  // bits of a rule's kind: see scripts/accounts.lua
	commands string // the Redis commands that it runs besides commandsOfAll

	numbers func(l *rate.Limit) (x, y int64) // X and Y in the scripts
}

// Bits of a rule's kind: see scripts/accounts.lua.
const (
	kindInFlight  = 1
	kindCounts    = 2
	kindSoft      = 4
	kindDelays    = 8
	kindCandidate = 16
	kindBucket    = 32
	kindQueue     = 64
	kindLog       = 128
)

// algorithms has the rows by rate.Algorithm. To add an algorithm, add a file of Lua, and a row.
var algorithms = tabulate([]*algorithm{
	{name: "token_bucket", kind: kindBucket, numbers: numbersOfTokenBucket},
	{name: "leaky_bucket", kind: kindBucket + kindQueue, numbers: numbersOfLeakyBucket},
	{name: "fixed_window", numbers: numbersOfFixedWindow},
	{name: "sliding_window_log", kind: kindLog, commands: " GETRANGE STRLEN SETRANGE APPEND PEXPIRE ", numbers: numbersOfLog},
	{name: "sliding_window_counter", numbers: noNumbers},
	{name: "concurrency", numbers: noNumbers}, // requests in flight
	{name: "sliding_window_segments", kind: kindLog, numbers: numbersOfLog},
})

func numbersOfTokenBucket(l *rate.Limit) (x, y int64) { return l.Capacity, oneIf(l.Interval()) }

func numbersOfLeakyBucket(l *rate.Limit) (x, y int64) { return l.Capacity, l.MaxDelay }

func numbersOfFixedWindow(l *rate.Limit) (x, y int64) {
	if l.Start == rate.FirstRequest {
		return 0, -1
	}
	return 0, oneIf(l.Windows(0) != nil)
}

func numbersOfLog(l *rate.Limit) (x, y int64) { return l.Quantum, l.Window }

// spreadNumber returns Y for a key under a limit that is Spread.
func spreadNumber(l *rate.Limit, key string) int64 {
	if l.IsLog {
		return l.Window + 64*rate.Phase(l, key)
	}
	return rate.Phase(l, key)
}

func noNumbers(_ *rate.Limit) (x, y int64) { return 0, 0 }

// algorithmOf returns the row of a limit's algorithm.
func algorithmOf(l *rate.Limit) *algorithm { return algorithms[l.Algorithm] }

// tabulate returns the rows by rate.Algorithm. It panics if a row is missing, or has no numbers.
func tabulate(rows []*algorithm) []*algorithm {
	for i := 0; rate.Algorithm(i+1).String() != ""; i++ {
		name := rate.Algorithm(i + 1).Row().Name
		if i >= len(rows) || rows[i].name != name {
			panic("redis: algorithms.go has no row for the algorithm " + name + " in its place")
		}
		if rows[i].numbers == nil {
			panic("redis: in algorithms.go the row of the algorithm " + name + " has no numbers")
		}
	}
	table := make([]*algorithm, len(rows)+1)
	copy(table[1:], rows)
	return table
}

func oneIf(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
