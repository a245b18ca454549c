package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// These tests are about waiting requests in a real Traefik. The tests of the stores check when each reservation is due.

var profiled = regexp.MustCompile(`(?m)^(\d+) @ 0x.*\n((?:#.*\n?)*)`)

// waiting returns how many requests wait in the plugin: goroutines of requests that are blocked on a channel in interpreted code.
func (tr *traefik) waiting(t testing.TB) int {
	t.Helper()
	n := 0
	for _, group := range profiled.FindAllStringSubmatch(string(tr.get(t, "/debug/pprof/goroutine?debug=1")), -1) {
		if strings.Contains(group[2], "yaegi/interp.recv.") && strings.Contains(group[2], "net/http.(*conn).serve") {
			many, _ := strconv.Atoi(group[1])
			n += many
		}
	}
	return n
}

// eventuallyWaiting waits until that many requests wait.
func (s *site) eventuallyWaiting(n int) {
	s.t.Helper()
	last := 0
	if !await(func() bool { last = s.waiting(s.t); return last == n }) {
		s.t.Fatalf("%d requests wait, want %d", last, n)
	}
}

// eventuallyQueued waits until that many requests wait, and their reservations are made: a request that only waits for an answer of Redis looks the
// same, and gets it before a later request of another client.
func (s *site) eventuallyQueued(n int) {
	s.t.Helper()
	s.eventuallyWaiting(n)
	s.from(fmt.Sprintf("127.0.2.%d", bystanders.Add(1))).admit(1, "/")
}

var bystanders atomic.Int64 // so far

// abandon makes a request whose client leaves when ctx ends, and returns whether it was answered before.
func (s *site) abandon(ctx context.Context, path string) (r response, answered bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.host()+path, nil)
	if err != nil {
		s.t.Error(err)
		return r, false
	}
	r, err = exchange(s.client, request)
	return r, err == nil
}

// queue makes a request that waits until ctx ends. If it is rejected it is repeated: a client that has left may be about to cancel
// its reservation.
func (s *site) queue(ctx context.Context) {
	for ctx.Err() == nil {
		if r, answered := s.abandon(ctx, "/queued"); !answered || r.status != http.StatusTooManyRequests {
			return
		}
	}
}

// decidedOn returns how many requests of a path wait or have been served. A request that departs during the count is not included.
func (s *site) decidedOn(path string) int {
	served := upstream.reached(s.host(), path)
	return served + s.waiting(s.t)
}

// stores calls f for a store in memory, and for one in Redis, each as in a middleware's configuration.
func stores(t *testing.T, f func(t *testing.T, store string)) {
	t.Run("memory", func(t *testing.T) { f(t, "{memory: {}}") })
	t.Run("redis", func(t *testing.T) { f(t, inRedis(redistest.Start(t).Addr())) })
}

// If the machine stalls for longer than the time between two departures they may change places: one try of three must be in order.
func TestRequestsWaitInTheOrderOfArrival(t *testing.T) {
	stores(t, func(t *testing.T, store string) {
		for _, algorithm := range []string{"token_bucket", "sliding_window_log"} {
			t.Run(algorithm, func(t *testing.T) {
				s := limited(t, "{limit: 1/150ms, algorithm: "+algorithm+", onLimit: delay, store: "+store+"}")
				var mu sync.Mutex
				order := ""
				upstream.handle(s.host(), func(_ http.ResponseWriter, r *http.Request) {
					mu.Lock()
					order += r.URL.Path
					mu.Unlock()
				})
				served := func() int {
					mu.Lock()
					defer mu.Unlock()
					return strings.Count(order, "/")
				}
				for range 3 {
					order = ""
					var clients sync.WaitGroup
					for i := range 6 {
						clients.Go(func() {
							r, err := s.try(fmt.Sprintf("/%d", i))
							if err != nil || r.status != http.StatusOK || r.header.Get("X-RateLimit-Remaining") != "0" {
								t.Errorf("request %d: %+v, %v, want 200", i, r, err)
							}
						})
						eventually(t, "a request is decided on", func() bool { return served()+s.waiting(t) > i }) // the order of the two terms matters: see decidedOn
					}
					clients.Wait()
					if order == "/0/1/2/3/4/5" {
						return
					}
				}
				t.Errorf("served %s, want the order of arrival", order)
			})
		}
	})
}

// The next request gets a place whose reservation was cancelled: otherwise it would have to wait longer than it may.
func TestAClientThatLeavesTheQueueCancelsItsReservation(t *testing.T) {
	stores(t, func(t *testing.T, store string) {
		for _, algorithm := range []string{"token_bucket", "sliding_window_log", "fixed_window"} {
			t.Run(algorithm, func(t *testing.T) {
				s := limited(t, "{limit: 1/1h, algorithm: "+algorithm+", onLimit: delay, maxDelay: 1h, store: "+store+"}")
				s.admit(1, "/")
				for range 3 {
					ctx, leave := context.WithCancel(t.Context())
					go s.queue(ctx)
					s.eventuallyQueued(1)
					s.reject("/queued")
					leave()
					s.eventuallyWaiting(0)
				}
				must.Equal(t, upstream.reached(s.host(), "/queued"), 0, "requests have reached the backend whose clients have left")
			})
		}
	})
}

// When some hundred clients leave the queue, nothing of them remains: no goroutine, and no request in the queue.
func TestNothingIsLeftOfHundredsThatLeaveTheQueue(t *testing.T) {
	const clients = 400
	stores(t, func(t *testing.T, store string) {
		s := limited(t, fmt.Sprintf("{limit: %d/1h, algorithm: token_bucket, burst: 1, onLimit: delay, maxDelay: 1h, maxWaiting: %d, maxWaitingPerKey: %d, store: %s}", clients, clients, clients, store))
		s.client = s.newClient(nil)
		s.admit(1, "/")
		before := s.figures(t).goroutines
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var gone sync.WaitGroup
		for range clients { // one departs every 9 s, so the first few may be served
			gone.Go(func() {
				if r, answered := s.abandon(ctx, "/queued"); answered && r.status != http.StatusOK {
					t.Errorf("status %d", r.status)
				}
			})
		}
		eventually(t, "hundreds wait", func() bool { return s.waiting(t) >= clients*9/10 })
		leave()
		gone.Wait()
		s.client.CloseIdleConnections()
		s.eventuallyWaiting(0)
		eventually(t, "their goroutines are gone", func() bool { return s.figures(t).goroutines <= before+3 })
		if n := upstream.reached(s.host(), "/queued"); n > clients/10 {
			t.Errorf("%d requests have reached the backend", n)
		}
	})
}

// A client that leaves takes no other's reservation, in whatever order they leave. (The reservations of clients that leave from the
// middle of the queue are lost: there are so many that all are due during the test. In the interpreter, a select statement mixes up the channels of
// goroutines that are at the same statement: waiting requests were once answered 499.)
func TestReservationsAreKeptThoughOthersLeave(t *testing.T) {
	stores(t, func(t *testing.T, store string) {
		s := limited(t, "{limit: 1000/1s, algorithm: token_bucket, burst: 1, onLimit: delay, maxDelay: 1h, store: "+store+"}")
		leavers := startLoad(16, 20, func(int, int) (response, error) {
			ctx, leave := context.WithTimeout(t.Context(), 3*time.Millisecond)
			defer leave()
			r, _ := s.abandon(ctx, "/")
			return r, nil
		})
		startLoad(32, 20, func(int, int) (response, error) { return s.try("/") }).wait().want(t, 640)
		leavers.stop()
		s.eventuallyWaiting(0)
	})
}

// Requests that wait when the configuration changes keep their reservations, and are served when those are due, by the previous
// handlers; or their clients leave.
func TestNoWaitingRequestIsLostInAReload(t *testing.T) {
	const clients = 40
	stores(t, func(t *testing.T, store string) {
		for name, change := range map[string]func(s *site){
			"of another limit": func(s *site) {
				s.limit("limit", "{limit: 41/1s, algorithm: token_bucket, burst: 1, onLimit: delay, maxDelay: 1m, store: "+store+"}")
			},
			"that takes the middleware away": func(s *site) { s.route("/") },
			"that takes the router away":     func(s *site) { s.unroute("/") },
		} {
			t.Run(name, func(t *testing.T) {
				for rate := 40; rate > 2; rate /= 2 { // slower, in case no request waited any more when the configuration came into force
					s := limited(t, fmt.Sprintf("{limit: %d/1s, algorithm: token_bucket, burst: 1, onLimit: delay, maxDelay: 1m, store: %s}", rate, store))
					s.admit(1, "/")
					l := startLoad(clients, 1, func(int, int) (response, error) { return s.try("/queued") })
					eventually(t, "they wait", func() bool { return s.decidedOn("/queued") == clients })
					change(s)
					s.apply()
					waited := upstream.reached(s.host(), "/queued") < clients
					l.wait().want(t, clients)
					if waited {
						return
					}
				}
				t.Error("no request was still waiting when the configuration came into force")
			})
		}
	})
}

func TestAClientThatLeavesAfterAReloadCancelsItsReservation(t *testing.T) {
	stores(t, func(t *testing.T, store string) {
		s := newSite(t)
		set := func(message string) {
			s.limit("limit", "{limit: 1/1h, algorithm: token_bucket, onLimit: delay, maxDelay: 1h, message: "+message+", store: "+store+"}")
			s.apply()
		}
		s.route("/", "limit")
		set("before")
		s.admit(1, "/")
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		go s.queue(ctx)
		s.eventuallyWaiting(1)
		set("after")
		must.Contain(t, s.reject("/").body, "after", "the new configuration is not in force")
		leave()
		s.eventuallyWaiting(0)
		ctx, leave = context.WithCancel(t.Context())
		defer leave()
		go s.queue(ctx)
		s.eventuallyWaiting(1)
		leave()
		s.eventuallyWaiting(0)
	})
}

// A waiting request has already been decided, so what happens to Redis in the meantime does not affect it.
func TestWaitingRequestsAreServedThoughRedisIsGone(t *testing.T) {
	const clients = 40
	redis := redistest.Start(t)
	s := limited(t, "{limit: 40/1s, algorithm: token_bucket, burst: 1, onLimit: delay, store: {redis: {address: '"+redis.Addr()+"', nodes: 1}}}")
	eventually(t, "Redis decides", func() bool {
		_ = s.do("/")
		return scripts(t, redis) > 0
	})
	l := startLoad(clients, 1, func(int, int) (response, error) { return s.try("/queued") })
	eventually(t, "they wait", func() bool { return s.decidedOn("/queued") == clients })
	redis.Kill()
	l.wait().want(t, clients)
	redis.Restart()
}

// Traefik waits for requests that are under way, ten seconds by default, and so for those whose reservations are due by then.
func TestTraefikServesWaitingRequestsBeforeItEnds(t *testing.T) {
	const clients = 40
	stores(t, func(t *testing.T, store string) {
		tr := startTraefik(t, settings{})
		s := tr.newSite(t)
		s.limit("limit", "{limit: 40/1s, algorithm: token_bucket, burst: 1, onLimit: delay, store: "+store+"}")
		s.route("/", "limit")
		s.apply()
		s.admit(1, "/")
		l := startLoad(clients, 1, func(int, int) (response, error) { return s.try("/queued") })
		eventually(t, "they wait", func() bool { return s.decidedOn("/queued") == clients })
		if err := tr.program.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		l.wait().want(t, clients)
		eventually(t, "Traefik has ended", func() bool { return !tr.running() })
		must.Equal(t, tr.program.ProcessState.ExitCode(), 0, "exit code")
	})
}
