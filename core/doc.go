// Package core decides: it holds the rules, the five algorithms, the store in memory, and what clients are told.
//
// The way of a request: an adapter finds the rules that cover it and each rule's key, fills a Check for each, and hands
// them to a Limiter, which asks its Store once and comes to a Verdict. WriteHeaders turns that into header fields.
//
// The algorithms are pure functions of limit, state, time and cost; a store owns state, locks and clock; the limiter
// owns policy. Time is microseconds since the Unix epoch, and always an argument.
//
// The package imports the standard library alone and keeps to the Go that the interpreter Yaegi can run, in which
// Traefik loads it; on the way of a request it is therefore written flat, with functions rather than methods,
// results written through pointers, and no closures.
package core
