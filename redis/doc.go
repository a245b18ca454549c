// Package redis keeps the counters of a fleet in Redis: its Store decides by Lua scripts, one call a request, at the
// server's own time.
//
// The scripts compute what package core's algorithms compute, to the last microsecond. Each algorithm has a row in algorithms.go, and its
// parts of the scripts in the file of its name; script.go puts the parts together, and the whole scripts stand in testdata. A Store puts keys and arguments together, remembers what it was told (so that a flood of one client costs Redis
// nothing, and counting in memory can go on from there), and keeps requests from waiting for a server that is down. The way
// to the servers is a Client's: package goredis has the one for compiled programs.
//
// The package imports the standard library and core alone, and keeps to the Go that the interpreter Yaegi can run.
package redis
