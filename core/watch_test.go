package core

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A watched express way counts each request that it lets through and none that it leaves to the rest, and times one in TimedShare.
func TestAWatchedExpressWayCountsWhatItLetsThrough(t *testing.T) {
	for _, a := range []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingWindowCounter} {
		now := int64(1_700_000_000_000_000)
		m := NewMemory(MemoryConfig{Index: Mapped, Clock: func() int64 { return now }})
		r := mustRule(t, RuleConfig{Name: "r", Limit: mustLimit(t, LimitConfig{Algorithm: a, Requests: 100, Period: time.Second})})
		if err := m.Open(r); err != nil {
			t.Fatal(err)
		}
		passed, rested, aside := 0, 0, 0
		watch := &Watch{
			Allowed: new(int64), Durations: NewDurations(), Path: NoPath, Other: "/quota",
			Aside: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { aside++ }),
		}
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { passed++ })
		rest := http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			rested++
			if rested == 1 { // the key is new
				_ = m.Decide([]Check{{Rule: r, Key: "192.0.2.1", Cost: 1}}, false)
			}
		})
		h := ServeWatched(NewExpress(m, r), NewTold(r, Fields{XRateLimit: true, IETF: true}), watch, next, rest)
		ask := func(path string) {
			request := httptest.NewRequest("GET", path, nil)
			request.RemoteAddr = "192.0.2.1:1234"
			h.ServeHTTP(httptest.NewRecorder(), request)
		}
		for i := 0; i < 320; i++ {
			now += 2000 // more come than the limit lets through
			ask("/")
		}
		if *watch.Allowed != int64(passed) || passed+rested != 320 || passed < 50 || rested < 50 {
			t.Errorf("%s: %d counted, %d passed, %d left to the rest", a, *watch.Allowed, passed, rested)
		}
		if counts, _ := watch.Durations.Read(); counts[len(counts)-1] < 1 || counts[len(counts)-1] > 320/TimedShare {
			t.Errorf("%s: %d were timed", a, counts[len(counts)-1])
		}
		passed, rested = 0, 0
		ask("/quota")
		ask("/quota/")
		if aside != 1 || passed+rested != 1 {
			t.Errorf("%s: %d went aside, and %d did not", a, aside, passed+rested)
		}
	}
}
