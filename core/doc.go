// Package core decides: it holds limits, the five algorithms, rules, the limiter and the store in memory. It knows no proxy. The map:
//
//	words     how names, words and numbers of a configuration are checked
//	match     which requests a rule covers, and what their keys are made of
//	core      whether a request is within its limits: Limiter asks a Store about each Check, and comes to a Verdict
//	redis     the other Store: Lua scripts that decide the same
//	answer    what the client is told of the Verdict: header fields, bodies
//	ruleset   rules as they are written, in files and by proxies, and finding those that cover a request
//	front     what the adapters of all proxies do with a request
//	caddy, traefik, replay   the adapters: they find the rules and keys of a request, ask the limiter once, and write the answer
//
// The algorithms are pure functions of limit, state, time and cost; a store owns state, locks and clock; the limiter
// owns policy. Time is microseconds since the Unix epoch, and always an argument.
//
// What Traefik loads (all of these but caddy and replay) imports the standard library alone and keeps to the Go that the interpreter
// Yaegi can run; on the way of a request it is therefore written flat, with functions rather than methods, results written through
// pointers, and no closures.
package core
