package progress

import (
	"testing"
	"time"
)

func TestALineTellsTheTimeLeft(t *testing.T) {
	for _, c := range []struct {
		done, all int
		passed    time.Duration
		want      string
	}{
		{0, 4, time.Second, "[..............................] 0 of 4, ? left"},
		{1, 4, time.Minute, "[#######.......................] 1 of 4, 3m0s left"},
		{4, 4, time.Minute, "[##############################] 4 of 4, 0s left"},
	} {
		if got := Line(c.done, c.all, c.passed); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
