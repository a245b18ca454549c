// Package exception is what people decide for single keys while requests come: a limit until a time, or a block. They are kept with the counters, so
// that all who share these obey: in Redis, or in this process, and there in a file if one is named. Package excepted puts them in force.
package exception
