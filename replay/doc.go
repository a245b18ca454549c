// Package replay runs access logs through the limits of rule files, at the times that the logs have, and says what the limits would
// have done. It decides by package core and finds rules and keys by package ruleset, as the proxies do; what it adds is reading logs,
// putting their requests in the order in which they came, and counting.
//
// It is for programs that are compiled, and is no part of the plugin.
package replay
