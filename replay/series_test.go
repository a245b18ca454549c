package replay

import (
	"slices"
	"testing"
	"time"
)

func TestAMinuteThatComesTwiceIsReportedOnce(t *testing.T) {
	part := linesOf(append(each("192.0.2.1", 0, 1, 2, 3), each("192.0.2.1", 300, 301)...)...)
	again := linesOf(append(each("192.0.2.2", 0, 1, 2), each("192.0.2.3", 60)...)...)
	r, _ := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, limit: 1/1m, algorithm: fixed_window}")), Logs: []string{logIn(t, "a.log", part+again)}})
	begin := time.Unix(logsBegin, 0).UTC().Truncate(time.Minute)
	want := []Minute{{begin, 7, 5}, {begin.Add(5 * time.Minute), 2, 1}}
	if got := r.Rules[0].WorstMinutes; !slices.Equal(got, want) || r.ClockSteps != 1 {
		t.Errorf("%v, want %v; %d steps", got, want, r.ClockSteps)
	}
}

func TestTheWorstMinutesOfALongLogAreKept(t *testing.T) {
	var m minutes
	for range 2 {
		for i := range int64(3 * keptMinutes) {
			m.count(i*minuteMicros, false)
			for range map[int64]int{7: 3, 5000: 2, 12000: 4}[i] {
				m.count(i*minuteMicros, true)
			}
		}
	}
	at := func(minute int64) time.Time { return time.Unix(minute*60, 0).UTC() }
	want := []Minute{{at(12000), 10, 8}, {at(7), 8, 6}, {at(5000), 6, 4}}
	if got := m.worst(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if cap(m.list) > 4*keptMinutes {
		t.Errorf("%d minutes are kept", cap(m.list))
	}
}
