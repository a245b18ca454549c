// Package must says in one line what tests say most often.
package must

import (
	"fmt"
	"testing"
)

// Succeed ends the test at an error. Like t.Fatal, it is for the goroutine of the test.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal notes a failure, with which the test goes on, if what a test got is not what it wants. Both are texts, whole numbers or truth values, which
// are compared as they are printed: so a constant may have another type. What they are follows as for fmt.Printf.
func Equal(t testing.TB, got, want interface{}, what ...interface{}) {
	if got == want || fmt.Sprint(got) == fmt.Sprint(want) {
		return
	}
	t.Helper()
	text := fmt.Sprintf("got %v, want %v", got, want)
	if len(what) > 0 {
		text = fmt.Sprintf(what[0].(string), what[1:]...) + ": " + text
	}
	t.Error(text)
}
