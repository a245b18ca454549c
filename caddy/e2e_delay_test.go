package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/underrace"
)

// delayingSite is a site with a zone whose requests wait, between two probes: "decided" receives the requests that were decided, "served" those whose
// reservations are due. What comes for /up passes none of them.
func delayingSite(zone string) string {
	return strings.Replace(httpApp(`[{"handler":"subroute","routes":[{"match":[{"path":["/up"]}],"handle":[{"handler":"static_response"}]}]},
		{"handler":"weir_test_probe","name":"decided","decided":true},
		{"handler":"rate_limit","rate_limits":{"queue":{"key":"everyone","on_limit":"delay",`+zone+`}}},
		{"handler":"weir_test_probe","name":"served"},
		{"handler":"static_response","body":"ok"}]`), `"listen"`, `"protocols": ["h1", "h2c"], "listen"`, 1)
}

// If the machine stalls for longer than the 100 ms between two departures, both may come at once and change places. One try of
// three must be in order; a queue without order passes by chance once in 720 tries.
func TestRequestsWaitInTheOrderOfArrival(t *testing.T) {
	decided, served := watch(t, "decided"), watch(t, "served")
	s := startJSON(t, delayingSite(`"algorithm":"token_bucket","requests":1,"period":"100ms"`))
	const n = 6
	order := ""
	for range 3 {
		var clients sync.WaitGroup
		for i := range n {
			path := fmt.Sprintf("/%d", i)
			clients.Go(func() {
				if r, err := s.try(s.client, path); err != nil || r.status != http.StatusOK || r.header.Get("X-RateLimit-Remaining") != "0" {
					t.Errorf("%s: %+v, %v, want 200", path, r, err)
				}
			})
			if got := awaitOne(t, "a decision", decided).URL.Path; got != path {
				t.Fatalf("decided on %s, want %s", got, path)
			}
		}
		order = ""
		for range n {
			order += awaitOne(t, "a departure", served).URL.Path
		}
		clients.Wait()
		if order == "/0/1/2/3/4/5" {
			return
		}
	}
	t.Errorf("served %s, want the order of arrival", order)
}

// An hour between two departures: a waiting request waits longer than any test.
const hourlyDelay = `"algorithm":"token_bucket","requests":1,"period":"1h","max_delay":"1h"`

func TestMaxDelayAndMaxWaitingBoundTheQueue(t *testing.T) {
	for name, test := range map[string]struct {
		zone  string
		waits int
		retry [2]int
	}{
		"max_delay":   {`"algorithm":"token_bucket","requests":2,"period":"1h","burst":1,"max_delay":"1h"`, 2, [2]int{1700, 1800}},
		"max_waiting": {`"algorithm":"token_bucket","requests":60,"period":"1h","burst":1,"max_delay":"1h","max_waiting":3`, 3, [2]int{200, 240}},
	} {
		t.Run(name, func(t *testing.T) {
			decided := watch(t, "decided")
			s := startJSON(t, delayingSite(test.zone))
			s.admit(1, "/")
			awaitOne(t, "a decision", decided)
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			for range test.waits {
				go s.abandon(ctx, s.client, "/")
				awaitOne(t, "a decision", decided)
			}
			eventually(t, "they wait", func() bool { return waitingNow() == test.waits })
			r := s.reject("/")
			r.seconds(t, "Retry-After", test.retry[0], test.retry[1])
			awaitOne(t, "a decision", decided)
			leave()
			eventually(t, "nobody waits", func() bool { return waitingNow() == 0 })
			// All of them cancel their reservations, in any order: at least the last place in the queue is free again.
			eventually(t, "another waits", func() bool { return s.waits(decided) })
		})
	}
}

// A request that has waited leaves its place to the next.
func TestARequestThatHasWaitedFreesItsPlace(t *testing.T) {
	s := startJSON(t, delayingSite(`"algorithm":"token_bucket","requests":1,"period":"100ms","burst":1,"max_delay":"1h","max_waiting":1`))
	s.admit(6, "/") // one after the other: all but the first wait, unless the machine is slow
}

// waits makes a request, which decided receives, and reports whether it had to wait and was not rejected. Then the client leaves.
func (s *server) waits(decided <-chan *http.Request) bool {
	ctx, leave := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		s.abandon(ctx, s.client, "/")
		close(over)
	}()
	awaitOne(s.t, "a decision", decided)
	waits := false
	eventually(s.t, "it waits, or has its answer", func() bool {
		select {
		case <-over:
			return true
		default:
			waits = waitingNow() == 1
			return waits
		}
	})
	leave()
	<-over
	return waits
}

// abandon makes a request whose client leaves when ctx ends.
func (s *server) abandon(ctx context.Context, client *http.Client, path string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	if answer, err := client.Do(r); err == nil {
		answer.Body.Close()
	} else if ctx.Err() == nil { // it did not leave
		s.t.Error(err)
	}
}

// Ten thousand requests wait, on streams of HTTP/2. When their clients leave, all requests and their goroutines end.
func TestTenThousandWait(t *testing.T) {
	underrace.OneGoroutine(t)
	keepWaiting(t, 10_000)
}

// The same in smaller numbers, which the race detector can watch.
func TestTwoThousandWait(t *testing.T) {
	keepWaiting(t, 2_000)
}

func keepWaiting(t *testing.T, n int) {
	t.Helper()
	decided := watch(t, "decided")
	s := startJSON(t, delayingSite(strings.Replace(hourlyDelay, `"requests":1,`, fmt.Sprintf(`"requests":%d,"burst":1,`, n*6/5), 1)+fmt.Sprintf(`,"max_waiting":%d`, n)))
	s.admit(1, "/")
	awaitOne(t, "a decision", decided)
	before := runtime.NumGoroutine()
	ctx, leave := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	var used []*http.Client
	// As many streams as a client opens on a connection before the server says how many it takes. For more the client dials again, many times
	// at once, and a server closes a new connection, with the requests on it, if the machine keeps it from its first frame for two seconds.
	const streams = 100
	for range n / streams {
		client := s.newClient(protocols)
		client.Timeout = 0
		used = append(used, client)
		eventually(t, "there is one connection, on which all open streams", func() bool {
			r, err := s.once(client, "/up")
			return err == nil && r.status == http.StatusOK
		})
		for range streams {
			clients.Go(func() { s.abandon(ctx, client, "/") })
		}
	}
	for range n {
		awaitOne(t, "a decision", decided)
	}
	// All depart within fifty minutes, so some may be served already.
	eventually(t, "they wait", func() bool { return waitingAtMost(n) > n*9/10 })
	leave()
	left := time.Now()
	eventually(t, "nobody waits", func() bool { return waitingAtMost(n) == 0 })
	t.Logf("all were gone %v after their clients had left", time.Since(left).Round(time.Millisecond))
	clients.Wait()
	for _, client := range used {
		client.CloseIdleConnections()
	}
	settledGoroutines(t, before)
}

// waitingAtMost is waitingNow for numbers up to n, which may be large.
func waitingAtMost(n int) int {
	stackRecords.Lock()
	defer stackRecords.Unlock()
	if most := runtime.NumGoroutine() + n; len(stackRecords.list) < most { // each log file of a test before has left one behind
		stackRecords.list = make([]runtime.StackRecord, 2*most)
	}
	profile := stackRecords.list
	count, ok := runtime.GoroutineProfile(profile)
	if !ok {
		return -1
	}
	waiting := 0
	for _, record := range profile[:count] {
		frames := runtime.CallersFrames(record.Stack())
		for {
			frame, more := frames.Next()
			if strings.HasSuffix(frame.Function, "weir/caddy.(*Handler).wait") {
				waiting++
				break
			}
			if !more {
				break
			}
		}
	}
	return waiting
}

// stackRecords are kept for the reason for which stackText is.
var stackRecords struct {
	sync.Mutex
	list []runtime.StackRecord
}

// When the configuration is loaded, a file with a rule that makes requests wait is accepted next to zones. An edit that adds such a
// rule is refused: the zones in force do not see what waiting requests have reserved.
func TestARuleInAFileThatMakesRequestsWaitBesideZones(t *testing.T) {
	const zone = "rate_limit {\nrules_file DIR/rules/*.yaml\nrules_interval 1s\nzone all {\nkey everyone\nlimit 3/366d\n}\n}\nrespond ok"
	plain := rulesOf("{name: clients, key: header:X-Client, limit: 9/366d}")
	delaying := rulesOf("{name: queue, key: header:X-Client, algorithm: token_bucket, limit: 1/1h, on_limit: delay, max_delay: 1h}")
	t.Run("from the beginning", func(t *testing.T) {
		s := startFiles(t, zone, "a.yaml", delaying)
		s.admit(1, "/", "X-Client", "a")
		ctx, leave := context.WithCancel(context.Background())
		defer leave()
		go func() {
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/", nil)
			r.Header.Set("X-Client", "a")
			if answer, err := s.client.Do(r); err == nil {
				answer.Body.Close()
			}
		}()
		eventually(t, "it waits", func() bool { return waitingNow() == 1 })
		s.admit(1, "/", "X-Client", "b")
		s.reject("/", "X-Client", "c") // the zone: two were served, and one waits
	})
	t.Run("by a change", func(t *testing.T) {
		s := startFiles(t, zone, "a.yaml", plain)
		s.admit(1, "/", "X-Client", "a")
		s.put("a.yaml", delaying)
		line := s.awaitLog(1, saysRefused)[0]
		if problem := fmt.Sprint(line["problem"]); !strings.Contains(problem, `rule "queue": on_limit delay: is new beside zones`) || line["line"] == nil {
			t.Errorf("log: %v", line)
		}
		s.admit(1, "/", "X-Client", "a")
	})
}

// One zone is in two handlers, in one of them together with a zone that makes requests wait. Both handlers see what those requests
// have reserved in it, whichever comes first, in memory and in Redis.
func TestAZoneSharedWithAHandlerThatDelaysSeesWhatIsReserved(t *testing.T) {
	redis := redistest.Start(t)
	const shared = "zone x {\nkey all\nlimit 3/366d\nalgorithm sliding_window_log\n}\n"
	const delaying = "zone d {\nkey all\nlimit 1/1h\nalgorithm token_bucket\nburst 1\non_limit delay\nmax_delay 1h\n}\n"
	for i, store := range []string{"", storeAt(redis.Addr(), patiently)} {
		for _, paths := range [][2]string{{"/a", "/bbbb"}, {"/aaaa", "/b"}} { // the route with the longer path comes first
			plain, waiting := paths[0], paths[1]
			s := startSite(t, "route "+plain+" {\nrate_limit {\n"+shared+store+"}\nrespond ok\n}\nroute "+waiting+" {\nrate_limit {\n"+shared+delaying+store+"}\nrespond ok\n}")
			if i == 1 {
				redis.MustDo(t, "FLUSHALL")
			}
			ctx, leave := context.WithCancel(context.Background())
			s.admit(1, waiting)
			go s.abandon(ctx, s.client, waiting)
			eventually(t, "it waits", func() bool { return waitingNow() == 1 })
			s.admit(1, plain)
			s.reject(plain)
			leave()
			eventually(t, "nobody waits", func() bool { return waitingNow() == 0 })
			if err := caddy.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Defect found: the requests that wait in a leaky bucket were not counted.
func TestRequestsInALeakyBucketAreCounted(t *testing.T) {
	s := startSite(t, "route {\nmetrics /metrics\nrate_limit {\nzone queue {\nkey all\nlimit 100/10h\nalgorithm leaky_bucket\nburst 5\nmax_delay 1h\n}\n}\nrespond ok\n}")
	waiting := func() float64 {
		family := s.scrape()["weir_waiting"]
		if family == nil || len(family.GetMetric()) != 1 {
			t.Fatal("there is no series")
		}
		return family.GetMetric()[0].GetGauge().GetValue()
	}
	s.admit(1, "/")
	if n := waiting(); n != 0 {
		t.Errorf("%v wait", n)
	}
	ctx, leave := context.WithCancel(context.Background())
	for range 3 {
		go s.abandon(ctx, s.client, "/")
	}
	eventually(t, "three are seen to wait", func() bool { return waiting() == 3 })
	leave()
	eventually(t, "none is", func() bool { return waiting() == 0 })
}

// Defect found: the first client to return, of those that a reload refused, came back before the others had cancelled their
// reservations. It got a place behind theirs, which then passed unused.
func TestNoReservationIsLostInReloadsWhenAllReturnAtOnce(t *testing.T) {
	redis := redistest.Start(t)
	for name, store := range map[string]string{"memory": "", "Redis": storeAt(redis.Addr(), patiently)} {
		t.Run(name, func(t *testing.T) {
			const clients = 60
			site := func(text string) string { // 70 requests fit within max_delay
				return "rate_limit {\n" + store + "\nzone queue {\nkey all\nlimit 70/1h\nalgorithm token_bucket\nburst 1\non_limit delay\nmax_delay 1h\n}\n}\nrespond " + text
			}
			s := startSite(t, site("first"))
			s.admit(1, "/")
			ctx, leave := context.WithCancel(context.Background())
			client := s.newClient(nil)
			client.Timeout = 0
			var refused, refusedNow, served atomic.Int64
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					for ctx.Err() == nil {
						r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/", nil)
						if err != nil {
							t.Error(err)
							return
						}
						answer, err := client.Do(r)
						if err != nil { // the client leaves, or the reload has closed its connection
							continue
						}
						answer.Body.Close()
						switch answer.StatusCode {
						case http.StatusServiceUnavailable:
							refusedNow.Add(1)
						case http.StatusTooManyRequests:
							refused.Add(1)
							return
						default: // its reservation was due
							served.Add(1)
							return
						}
					}
				})
			}
			allWait := func() bool { return refused.Load() > 0 || int64(waitingAtMost(clients)) == clients-served.Load() }
			for i := range 5 {
				eventually(t, "all wait", allWait)
				s.reload(site(fmt.Sprintf("again%d", i)))
			}
			eventually(t, "all wait", allWait)
			leave()
			all.Wait()
			if n := refused.Load(); n > 0 {
				t.Errorf("%d of %d were not served, after %d were refused: reservations passed unused", n, clients, refusedNow.Load())
			}
		})
	}
}
