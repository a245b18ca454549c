package ratelimit_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// service is what stands behind Weir. It answers with a status and a Retry-After, and counts requests.
type service struct {
	*httptest.Server
	status     atomic.Int64
	retryAfter atomic.Value
	requests   atomic.Int64
}

func startService(t *testing.T) *service {
	up := new(service)
	up.status.Store(http.StatusOK)
	up.retryAfter.Store("")
	up.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		up.requests.Add(1)
		if said := up.retryAfter.Load().(string); said != "" {
			w.Header().Set("Retry-After", said)
		}
		w.WriteHeader(int(up.status.Load()))
	}))
	t.Cleanup(up.Close)
	return up
}

// says sets what it answers.
func (up *service) says(status int, retryAfter string) {
	up.status.Store(int64(status))
	up.retryAfter.Store(retryAfter)
}

// respecting is a site before the service. Its key is one that a request names, so that each case of a test has its own.
func (up *service) respecting(store, settings string) string {
	return "rate_limit {\n" + store + "\nzone api {\nkey {header.X-Key}\n" + settings + "\n}\n}\nreverse_proxy " + up.Listener.Addr().String()
}

func TestAServiceThatAsksToWaitIsLeftAlone(t *testing.T) {
	for name, store := range map[string]string{"memory": "", "redis": "redis"} {
		t.Run(name, func(t *testing.T) {
			if store != "" {
				store = storeAt(redistest.Start(t).Addr(), "")
			}
			up := startService(t)
			s := startSite(t, up.respecting(store, "limit 100/1m\nrespect_upstream 30m"))
			now := time.Now()
			for said, want := range map[string][2]int{
				"7":                     {6, 7},
				"3600":                  {1799, 1800}, // bounded
				"9999999":               {1799, 1800}, // the same
				strings.Repeat("9", 40): {1799, 1800}, // no number of seconds
				now.Add(100 * time.Second).UTC().Format(http.TimeFormat): {60, 101},
				now.Add(-time.Minute).UTC().Format(http.TimeFormat):      {},
				"":     {},
				"0":    {},
				"-5":   {},
				"1.5":  {},
				"soon": {},
			} {
				for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusOK} {
					key := said + " " + http.StatusText(status)
					up.says(status, said)
					s.do("/", "X-Key", key)
					up.says(http.StatusOK, "")
					before := up.requests.Load()
					r := s.do("/", "X-Key", key)
					if want[1] == 0 || status == http.StatusOK {
						must.Equal(t, r.status, http.StatusOK, "after %q with %d", said, status)
						continue
					}
					must.Equal(t, r.status, http.StatusTooManyRequests, "after %q with %d", said, status)
					r.seconds(t, "Retry-After", want[0], want[1])
					must.Equal(t, up.requests.Load(), before, "requests that the service got")
				}
			}
			s.admit(1, "/", "X-Key", "another")
			s.awaitLog(4, "the service asks to wait")
			s.awaitLog(2, `the service asks to wait, by a Retry-After that is not taken: "soon"`)
			s.awaitLog(2, `the service asks to wait, by a Retry-After that is not taken: "3600"`)
		})
	}
}

// All nodes of a fleet keep to it at once. The longer of two pauses counts.
func TestAPauseHoldsForAllNodesAndTheLongerCounts(t *testing.T) {
	redis := redistest.Start(t)
	const far, near = "600", "60"
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
		}
		w.Header().Set("Retry-After", map[string]string{"/slow": near, "/": far}[r.URL.Path])
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(slow.Close)
	site := ""
	for path, timeout := range map[string]string{"/a": "timeout 1s", "/b": "timeout 2s"} { // each has a store of its own, as if in another process
		site += "handle_path " + path + "/* {\nrate_limit {\n" + storeAt(redis.Addr(), timeout) + "\nzone api {\nkey {header.X-Key}\nlimit 100/1m\nrespect_upstream 1h\n}\n}\nreverse_proxy " + slow.Listener.Addr().String() + "\n}\n"
	}
	s := startSite(t, site)
	ended := make(chan response)
	go func() {
		r, _ := s.try(s.client, "/a/slow", "X-Key", "k")
		ended <- r
	}()
	eventually(t, "the slow request to be under way", func() bool { return strings.Contains(stacks(), "TestAPauseHoldsForAllNodesAndTheLongerCounts.func1") })
	s.do("/a/", "X-Key", "k")
	close(release)
	awaitOne(t, "the slow answer", ended)
	for _, path := range []string{"/a/", "/b/"} {
		s.reject(path, "X-Key", "k").seconds(t, "Retry-After", 580, 600)
	}
}

// What waits in the queue when the service asks to be left alone is told so at its turn.
func TestRequestsInTheQueueArePausedToo(t *testing.T) {
	for name, settings := range map[string]string{"leaky_bucket": "burst 5", "leaky_bucket ": "burst 1", "token_bucket": "burst 1\non_limit delay"} {
		t.Run(name+settings, func(t *testing.T) {
			up := startService(t)
			s := startSite(t, up.respecting("", "limit 1/300ms\nalgorithm "+name+"\n"+settings+"\nmax_delay 1m\nrespect_upstream 1h"))
			queue := func() map[int]int {
				ended := make(chan response, 3)
				for range 3 {
					go func() {
						r, _ := s.try(s.client, "/", "X-Key", "k")
						ended <- r
					}()
				}
				statuses := map[int]int{}
				for range 3 {
					statuses[awaitOne(t, "an answer", ended).status]++
				}
				return statuses
			}
			if statuses := queue(); settings != "burst 1" && statuses[http.StatusOK] != 3 { // of a leaky bucket with room for one, two may come too late
				t.Errorf("without a pause: %v", statuses)
			}
			served := up.requests.Load()
			up.says(http.StatusTooManyRequests, "600")
			statuses := queue()
			must.Equal(t, up.requests.Load()-served, 1, "requests that the service got: %v", statuses)
			r := s.reject("/", "X-Key", "k")
			r.seconds(t, "Retry-After", 500, 600)
		})
	}
}

func TestTheExampleOfOutgoingCallsQueuesThemPausesAndKeepsToItsBudget(t *testing.T) {
	text, err := os.ReadFile("../examples/outgoing/Caddyfile")
	must.Succeed(t, err)
	up := startService(t)
	s := newServer(t)
	config := string(text)
	for was, is := range map[string]string{"mail.internal:8080": ":PORT", "https://api.mail.example": up.Listener.Addr().String(), "5000/day": "4/day"} {
		must.Contain(t, config, was)
		config = strings.Replace(config, was, is, 1)
	}
	s.load(s.caddyfile("", config))
	began := time.Now()
	s.admit(3, "/v1/send")
	if took := time.Since(began); took < 190*time.Millisecond {
		t.Errorf("three calls took %s; two must have waited for 100 ms each", took)
	}
	up.says(http.StatusTooManyRequests, "1")
	must.Equal(t, s.do("/v1/send").status, http.StatusTooManyRequests) // the API's, the fourth call
	up.says(http.StatusOK, "")
	s.reject("/v1/send")
	eventually(t, "the pause to be over, and the budget to be used up", func() bool {
		return s.reject("/v1/send").seconds(t, "Retry-After", 1, 24*3600) > 1
	})
	must.Equal(t, up.requests.Load(), 4)
}
