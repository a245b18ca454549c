// Package must ends tests whose preparations fail.
package must

import "testing"

// Succeed ends the test at an error. Like t.Fatal, it is for the goroutine of the test.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
