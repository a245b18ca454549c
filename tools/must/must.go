// Package must says in one line what tests say most often.
package must

import (
	"fmt"
	"strings"
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
	fail(t, what, fmt.Sprintf("got %v, want %v", got, want))
}

// Contain notes a failure, with which the test goes on, if a text does not have a part. What the text is follows as for fmt.Printf.
func Contain(t testing.TB, text, part string, what ...interface{}) {
	if !strings.Contains(text, part) {
		t.Helper()
		fail(t, what, fmt.Sprintf("there is no %q in %q", part, text))
	}
}

func fail(t testing.TB, what []interface{}, text string) {
	t.Helper()
	if len(what) > 0 {
		text = fmt.Sprintf(what[0].(string), what[1:]...) + ": " + text
	}
	t.Error(text)
}
