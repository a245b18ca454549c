// Package core decides on requests. It holds rules, checks and the limiter, and says what a store is. It knows no proxy.
//
// This is the map of the packages, each above those it imports:
//
//	words       how names, words and numbers of a configuration are checked, and its errors written
//	match       which requests a rule covers, and what their keys are made of
//	rate        limits, the algorithms, and what nodes lease or tell each other of a limit: pure functions
//	core        whether a request is within its limits: a Limiter asks a Store about each Check, and makes a Verdict
//	transition  which limits of a rule are active, and how others take their place while requests come
//	meter       what a request has cost, read from its response while that is sent
//	memory      a Store in memory, with its fast paths
//	recent      remembers what belongs to the keys that were used last
//	usage       what instances tell each other of what they admit
//	eventual    another Store, over the memory: it charges, too, what other instances tell
//	blobstore   eventual over a storage of blobs
//	exception   what people decide for single keys until a time, and where that is kept
//	redis       a third Store: Lua scripts that decide the same; and eventual over Redis (redis/logs), also between regions (redis/regions)
//	answer      what the client gets to see of the Verdict: header fields, bodies
//	ruleset     reads rules as users write them, in files and in the settings of proxies, and finds those that cover a request
//	excepted    puts in force what people have decided for single keys
//	pressure    asks how busy a service is
//	guard       how many requests may be under way to a service
//	advice      what an advisor may say about limits
//	front       what the adapters of all proxies do with a request
//	adaptive    puts in force what an advisor says
//	metrics     the families of series, with help and labels, for all adapters
//	describe    what rules and keys are to people: tables, notes, keys without secrets
//	byhand      what people do to single keys: limits and blocks until a time, units back, forgetting
//	storetest, leasetest, fleetclock   what tests of stores and fleets share
//	caddy, traefik, replay, examples/nethttp   the adapters: they find the rules and keys of a request, ask the limiter once, and write the answer
//
// The algorithms are pure functions of limit, state, time and cost. A store owns state, locks and clock. The limiter owns policy.
// Time is in microseconds since the Unix epoch, and always an argument.
//
// Traefik loads all of these packages but blobstore, byhand, describe, caddy, replay and the example. They import only the standard library, and keep to the Go that the
// interpreter Yaegi can run. The code on the path of a request is therefore flat: functions and not methods, results written
// through pointers, no closures.
package core
