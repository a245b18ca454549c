// Package replay runs access logs through the limits of rule files, at the times that the logs have, and says what the limits would
// have done. It decides by package core and finds rules and keys by package ruleset, as the proxies do. It adds reading logs,
// sorting their requests by their beginnings, and counting.
//
// It is for compiled programs, and not part of the plugin.
package replay
