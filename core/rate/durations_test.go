package rate

import (
	"testing"
	"time"
)

func TestDurationsAreCountedUpToEachBound(t *testing.T) {
	d := NewDurations()
	for _, duration := range []time.Duration{0, 250, 251, 500, time.Millisecond, time.Millisecond + 1, 250 * time.Millisecond, time.Second, time.Hour} {
		Observe(d, duration)
	}
	counts, sum := d.Read()
	want := map[int]int64{250: 2, 500: 4, 1000: 4, 1_000_000: 5, 2_500_000: 6, 100_000_000: 6, 250_000_000: 7}
	for i, bound := range DurationBounds {
		if n, said := want[bound]; said && counts[i] != n {
			t.Errorf("%d up to %d, want %d", counts[i], bound, n)
		}
		if i > 0 && (bound <= DurationBounds[i-1] || counts[i] < counts[i-1]) {
			t.Errorf("bound %d comes behind %d, with %d behind %d", bound, DurationBounds[i-1], counts[i], counts[i-1])
		}
	}
	if all := counts[len(counts)-1]; all != 9 || sum != time.Hour+time.Second+252*time.Millisecond+1002 {
		t.Errorf("%d in all, %s together", all, sum)
	}
}
