package e2e

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// Tests that count requests use the longest period, so that no window ends while a test runs.

func TestEachAlgorithmAdmitsTheLimit(t *testing.T) {
	for _, c := range []struct {
		name, config string
		admits       int
	}{
		{"token bucket", "{limit: 5/366d, algorithm: token_bucket}", 5},
		{"token bucket with a burst", "{limit: 5/366d, algorithm: token_bucket, burst: 8}", 8},
		{"token bucket by intervals", "{limit: 5/366d, algorithm: token_bucket, refill: interval}", 5},
		{"fixed window", "{limit: 5/366d, algorithm: fixed_window}", 5},
		{"calendar", "{limit: 5/month, algorithm: fixed_window, timeZone: Asia/Tokyo}", 5},
		{"sliding window log", "{limit: 5/366d, algorithm: sliding_window_log}", 5},
		{"sliding window counter", "{limit: 5/366d, algorithm: sliding_window_counter}", 5},
		{"sliding window counter with segments", "{limit: 5/366d, segments: 12}", 5},
		{"what a rule has unless it says otherwise", "{limit: 5/366d}", 5},
		{"a cost", "{limit: 6/366d, cost: 2}", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := limited(t, c.config)
			s.exactly(c.admits, "/")
			s.reject("/")
			if n := upstream.reached(s.host(), "/"); n != c.admits {
				t.Errorf("%d requests have reached the backend, want %d", n, c.admits)
			}
		})
	}
}

// Each request waits for its slot: none departs earlier than the slots before it permit, counted from the first request.
func TestALeakyBucketDelaysRequestsUntilTheirReservationsAreDue(t *testing.T) {
	const (
		interval = 100 * time.Millisecond
		requests = 8
	)
	s := limited(t, "{limit: 10/1s, algorithm: leaky_bucket, burst: 10}")
	var mu sync.Mutex
	var served []time.Time
	upstream.handle(s.host(), func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		served = append(served, time.Now())
	})
	began := time.Now()
	startLoad(requests, 1, func(int, int) (response, error) { return s.try("/") }).wait().want(t, requests)
	for i, at := range served {
		if least := time.Duration(i) * interval; at.Sub(began) < least {
			t.Errorf("request %d was served after %v, want %v or more", i, at.Sub(began), least)
		}
	}
}

func TestSeveralRulesAreDecidedTogether(t *testing.T) {
	s := limited(t, `
		rules:
		  - {name: all, key: [static:all], limit: 4/366d}
		  - {name: posts, match: {methods: [POST]}, key: [static:posts], limit: 1/366d}
		  - {name: shy, limit: 1/366d, enforcement: shadow}`)
	s.exactly(1, "POST /")
	s.reject("POST /")
	// A request that one rule rejects is not charged to the others: three are left.
	s.exactly(3, "/")
}

func TestRulesNextToEachOtherCountApart(t *testing.T) {
	s := newSite(t)
	s.limit("strict", "limit: 1/366d")
	s.limit("loose", "limit: 3/366d")
	s.route("/", "loose", "strict") // one after the other: what the first has charged stays charged
	s.route("/loose", "loose")
	s.apply()
	s.admit(1, "/")
	s.reject("/")
	s.exactly(1, "/loose")
}
