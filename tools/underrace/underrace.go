// Package underrace says to tests whether the race detector watches them, and leaves out those in which it would see nothing.
package underrace

import "testing"

// OneGoroutine begins a test that does its work in one goroutine, where the race detector makes it ten times as slow and finds nothing, or
// waits in one for a client that other tests show at work in many, or has a smaller one beside it that does the same in many. Under the
// detector the test is skipped; the part `plain` of `make test` runs it without, and finds it by this line.
func OneGoroutine(t *testing.T) {
	t.Helper()
	if On {
		t.Skip("one goroutine: runs without the race detector")
	}
}
