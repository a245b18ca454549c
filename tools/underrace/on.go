//go:build race
// +build race

package underrace

// On says that the race detector watches.
const On = true
