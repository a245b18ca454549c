package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
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

// A bucket that leaks once an hour admits one; the next would wait longer than maxDelay, which is known when it arrives.
func TestALeakyBucketRejectsAtOnceWhatWouldWaitTooLong(t *testing.T) {
	s := limited(t, "{limit: 1/1h, algorithm: leaky_bucket, burst: 5}")
	s.exactly(1, "/")
	r := s.reject("/")
	r.want(t, "X-RateLimit-Limit", "5")
	if wait := r.number(t, "Retry-After", 3500-10, 3600-10); r.body == "" || wait == 0 {
		t.Errorf("body %q, Retry-After %d", r.body, wait)
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

// A request beyond the queue's length is rejected while the others still wait.
func TestALeakyBucketQueuesAsManyAsItsBurst(t *testing.T) {
	s := limited(t, "{limit: 1/10m, algorithm: leaky_bucket, burst: 2, maxDelay: 1h}") // every wait is longer than the test
	s.admit(1, "/")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var waiting sync.WaitGroup
	answers := make(chan response, 5)
	for range 5 {
		waiting.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.host()+"/waiting", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if answer, err := exchange(s.client, r); err == nil {
				answers <- answer
			}
		})
	}
	for range 3 { // those beyond the burst
		if r := <-answers; r.status != http.StatusTooManyRequests {
			t.Errorf("status %d, want 429", r.status)
		}
	}
	leave()
	waiting.Wait()
	if len(answers) > 0 {
		t.Errorf("one more was answered: %d", (<-answers).status)
	}
	if n := upstream.reached(s.host(), "/waiting"); n != 0 {
		t.Errorf("%d requests have come through before their reservations were due", n)
	}
}

// Their requests never reach the backend, and no test waits until their reservations are due, in an hour.
func TestClientsThatLeaveTheQueueAreNotServed(t *testing.T) {
	const clients = 20
	s := limited(t, "{limit: 100/1h, algorithm: leaky_bucket, burst: 100, maxDelay: 1h}")
	s.admit(1, "/")
	s.client.CloseIdleConnections()
	before := s.figures(t).goroutines
	var connections []net.Conn
	for range clients {
		conn, err := net.Dial("tcp", s.web)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET /gone HTTP/1.1\r\nHost: %s\r\n\r\n", s.host())
		connections = append(connections, conn)
	}
	eventually(t, "the requests wait", func() bool { return s.figures(t).goroutines >= before+clients })
	for _, conn := range connections {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "nobody waits for them", func() bool { return s.figures(t).goroutines < before+clients/2 })
	if n := upstream.reached(s.host(), "/gone"); n != 0 {
		t.Errorf("%d requests of clients that have left have reached the backend", n)
	}
}

func TestATokenBucketRefills(t *testing.T) {
	s := limited(t, "{limit: 10/1s, algorithm: token_bucket, burst: 2}")
	eventually(t, "the bucket is empty", func() bool { return s.do("/").status == http.StatusTooManyRequests })
	eventually(t, "the bucket has a token again", func() bool { return s.do("/").status == http.StatusOK })
}

func TestAWindowEnds(t *testing.T) {
	for _, algorithm := range []string{"fixed_window", "sliding_window_log", "sliding_window_counter"} {
		t.Run(algorithm, func(t *testing.T) {
			s := limited(t, "{limit: 2/300ms, algorithm: "+algorithm+"}")
			eventually(t, "the limit is used up", func() bool { return s.do("/").status == http.StatusTooManyRequests })
			eventually(t, "a request is admitted again", func() bool { return s.do("/").status == http.StatusOK })
		})
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

func TestAShadowIsNeverSeen(t *testing.T) {
	s := limited(t, `
		rules:
		  - {name: seen, limit: 5/366d}
		  - {name: unseen, limit: 1/366d, enforcement: shadow}`)
	for range 5 {
		if r := s.admit(1, "/"); strings.Contains(fmt.Sprint(r.header), "unseen") {
			t.Errorf("the shadow shows in %v", r.header)
		}
	}
	s.reject("/")
}

func TestCountRejectedChargesWhatIsRejected(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"} {
		for word, left := range map[string]int{"true": http.StatusTooManyRequests, "false": http.StatusOK} {
			t.Run(algorithm+" "+word, func(t *testing.T) {
				s := limited(t, "{limit: 5/366d, cost: header:X-Cost, algorithm: "+algorithm+", countRejected: "+word+"}")
				s.admit(1, "/", "X-Cost", "3")
				s.reject("/", "X-Cost", "3")
				if r := s.do("/", "X-Cost", "2"); r.status != left {
					t.Errorf("status %d for what was left before the rejection, want %d", r.status, left)
				}
			})
		}
	}
}

// No reservation is lost, or taken by a client that leaves. (In the interpreter, a select statement mixes up the channels of
// goroutines that are at the same statement: waiting requests were answered 499.)
func TestWaitingRequestsAreServedThoughOthersLeave(t *testing.T) {
	s := limited(t, "{limit: 2500/1s, algorithm: leaky_bucket, burst: 1000, maxDelay: 1h}")
	for range 10 {
		leavers := startLoad(16, 20, func(int, int) (response, error) {
			ctx, leave := context.WithTimeout(t.Context(), 3*time.Millisecond)
			defer leave()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.host()+"/", nil)
			if err != nil {
				return response{}, err
			}
			return exchange(s.client, r)
		})
		startLoad(32, 20, func(int, int) (response, error) { return s.try("/") }).wait().want(t, 640)
		leavers.stop()
	}
}
