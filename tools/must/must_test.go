package must

import (
	"errors"
	"fmt"
	"testing"
)

// judged is a test that notes what is said of it.
type judged struct {
	testing.TB
	said string
}

func (j *judged) Helper()            {}
func (j *judged) Fatal(words ...any) { j.said = "ended: " + fmt.Sprint(words...) }
func (j *judged) Error(words ...any) { j.said = "failed: " + fmt.Sprint(words...) }

func TestWhatIsWrongIsSaid(t *testing.T) {
	for want, check := range map[string]func(t testing.TB){
		"": func(t testing.TB) {
			Succeed(t, nil)
			Equal(t, "a", "a")
			Equal(t, int64(5), 5, "a number")
			Equal(t, true, true)
		},
		"ended: it broke":                           func(t testing.TB) { Succeed(t, errors.New("it broke")) },
		"failed: got 1, want 2":                     func(t testing.TB) { Equal(t, 1, 2) },
		"failed: of k: got true, want false":        func(t testing.TB) { Equal(t, true, false, "of %s", "k") },
		`failed: the log: there is no "d" in "abc"`: func(t testing.TB) { Contain(t, "abc", "d", "the log") },
		"failed: got , want a":                      func(t testing.TB) { Equal(t, "", "a") },
	} {
		j := &judged{}
		if check(j); j.said != want {
			t.Errorf("said %q, want %q", j.said, want)
		}
	}
}
