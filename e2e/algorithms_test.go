package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
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
		{"windows from the first request", "{limit: 5/366d, algorithm: fixed_window, windowStart: first_request}", 5},
		{"spread windows", "{limit: 5/366d, windowStart: spread}", 5},
		{"spread segments", "{limit: 5/366d, segments: 12, windowStart: spread}", 5},
		{"a day of renewal", "{limit: 5/month on 17}", 5},
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

// With first_request a window begins with the first request. With spread it begins, in memory and in Redis, when the key says, and not for all at once.
func TestWindowsBeginWhenTheRuleSays(t *testing.T) {
	redis := redistest.Start(t)
	resets := func(config string) (list []int) {
		t.Helper()
		s := limited(t, "{key: ['header:X-Key'], limit: 5/100h, algorithm: fixed_window, "+config+"}")
		for _, key := range []string{"alice", "bob", "carol"} {
			r, err := s.try("/", "X-Key", key)
			must.Succeed(t, err)
			n, err := strconv.Atoi(r.header.Get("X-RateLimit-Reset"))
			must.Succeed(t, err)
			list = append(list, n)
		}
		return list
	}
	must.Equal(t, fmt.Sprint(resets("windowStart: first_request")), "[360000 360000 360000]")
	must.Equal(t, fmt.Sprint(resets("windowStart: first_request, store: "+inRedis(redis.Addr()))), "[360000 360000 360000]")
	here, there := resets("windowStart: spread"), resets("windowStart: spread, store: "+inRedis(redis.Addr()))
	for i := range here {
		if later := here[i] - there[i]; later < 0 || later > 600 { // seconds between the requests
			t.Errorf("key %d: its window ends in %d s in memory, in %d s in Redis", i, here[i], there[i])
		}
	}
	leased := resets("windowStart: spread, consistency: lease, store: " + inRedis(redis.Addr()))
	if later := here[0] - leased[0]; later < 0 || later > 600 {
		t.Errorf("with leases a window ends in %d s, without in %d s", leased[0], here[0])
	}
	if here[0]-here[1] < 600 && here[1]-here[0] < 600 {
		t.Errorf("the windows of two keys end together: %v", here)
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
