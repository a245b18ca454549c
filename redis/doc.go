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
