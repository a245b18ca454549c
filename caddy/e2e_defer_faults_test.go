package ratelimit_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/underrace"
)

// jobsUnderFaults returns how many orders are to be accepted under each fault: 160, or as many as WEIR_DEFER_JOBS says.
func jobsUnderFaults(t *testing.T) int64 {
	text := os.Getenv("WEIR_DEFER_JOBS")
	if text == "" {
		return 160
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 100 {
		t.Fatalf("WEIR_DEFER_JOBS %q: must be how many orders are to be accepted under each fault, at least 100, such as 5000", text)
	}
	return n
}

// ledger is what the customers of a shop were told.
type ledger struct {
	t        *testing.T
	up       *warehouse
	accepted atomic.Int64
	over     atomic.Bool // no more orders
	done     sync.WaitGroup

	mu        sync.Mutex
	locations map[string]string // of the orders with a 202, by their bodies
	refused   map[string]bool   // orders with an answer other than that and a 201
	unsure    map[string]bool   // orders that were sent more than once, since there was no answer
	direct    int
}

// open has customers order at the nodes in turn, each one order after the other, until so many are accepted.
func (l *ledger) open(customers int, most int64, nodes ...*server) {
	l.locations, l.refused, l.unsure = make(map[string]string), make(map[string]bool), make(map[string]bool)
	for c := range customers {
		l.done.Go(func() {
			for n := 0; !l.over.Load() && l.accepted.Load() < most; {
				body := fmt.Sprintf("c%d-%d", c, n)
				r, err := nodes[(c+n)%len(nodes)].send("POST", "/orders", body, "Prefer", "respond-async", "X-Customer", fmt.Sprint(c), "Idempotency-Key", body)
				l.mu.Lock()
				switch {
				case err != nil: // the same once more
					l.unsure[body] = true
				case r.status == http.StatusAccepted:
					l.locations[body] = r.header.Get("Location")
					l.accepted.Add(1)
					n++
				case r.status == http.StatusCreated:
					l.direct++
					n++
				default:
					l.refused[body] = true
					n++
				}
				l.mu.Unlock()
				if err != nil || r.status >= 400 {
					time.Sleep(5 * time.Millisecond) // as clients do; nothing depends on it
				}
			}
		})
	}
	l.t.Cleanup(func() {
		l.over.Store(true)
		l.done.Wait()
	})
}

// await waits until so many orders are accepted.
func (l *ledger) await(n int64) {
	l.t.Helper()
	for began := time.Now(); l.accepted.Load() < n; time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*patience {
			l.t.Fatalf("only %d orders were accepted", l.accepted.Load())
		}
	}
}

// arrived returns the numbers of each customer's orders as they arrived, and whether each came more than once.
func (l *ledger) arrived() map[string][]int {
	l.up.mu.Lock()
	defer l.up.mu.Unlock()
	of := make(map[string][]int)
	for _, a := range l.up.arrivals {
		customer, number, _ := strings.Cut(a.body, "-")
		if n, err := strconv.Atoi(number); err == nil {
			of[customer] = append(of[customer], n)
		}
	}
	return of
}

// close waits until all accepted orders have ended, and checks what became of them: none is lost, none was refused and done, and those of a customer were done in
// order. dead says which orders could not be done, and were seen as such.
func (l *ledger) close(node *server, dead func(body string) bool) {
	l.t.Helper()
	l.done.Wait()
	began := time.Now()
	var deaths int
	for missing := l.locations; len(missing) > 0; {
		if time.Since(began) > 20*patience {
			l.t.Fatalf("%d accepted orders have not ended, such as %v", len(missing), some(missing))
		}
		left := make(map[string]string)
		for body, location := range missing {
			r, err := node.send("GET", location, "")
			if err == nil && r.status == http.StatusNotFound {
				l.t.Errorf("%s was accepted, and %s is unknown", body, location)
				continue
			}
			if err != nil || r.status != http.StatusOK {
				left[body] = location
				continue
			}
			switch r.job(l.t).Status {
			case "done":
				if dead(body) {
					l.t.Errorf("%s is done, and should be dead", body)
				}
			case "dead":
				if deaths++; !dead(body) {
					l.t.Errorf("%s is dead: %s", body, r.job(l.t).Reason)
				}
			default:
				left[body] = location
			}
		}
		missing = left
	}
	again := 0
	arrived := l.arrived()
	seen := make(map[string]bool)
	for customer, numbers := range arrived {
		last := -1
		for _, n := range numbers {
			body := fmt.Sprintf("%s-%d", customer, n)
			if seen[body] {
				again++
				continue
			}
			seen[body] = true
			if l.refused[body] && !l.unsure[body] {
				l.t.Errorf("%s was refused, and is done", body)
			}
			if n < last && !l.unsure[body] {
				l.t.Errorf("customer %s: order %d is done after order %d", customer, n, last)
			}
			last = max(last, n)
		}
	}
	for body := range l.locations {
		if !seen[body] {
			l.t.Errorf("%s was accepted, and never arrived", body)
		}
	}
	l.t.Logf("%d orders were accepted, %d done at once, %d refused, and %d sent more than once; %d arrived once more, %d are dead", len(l.locations), l.direct, len(l.refused), len(l.unsure), again, deaths)
}

// some returns a key of a map.
func some(m map[string]string) string {
	for key, value := range m {
		return key + " at " + value
	}
	return ""
}

// While customers order at two Caddys with on_error closed, for which docs/defer.md names no gap in the order, what it names fails. No order is lost that has a 202, none
// is done that was refused, those of a customer are done in their order, and those that fail end where they are seen.
func TestAnswersAndLinesAgreeUnderEveryFault(t *testing.T) {
	// TestNoAcceptedOrderIsLostWhenEverythingIsKilled does the same under the detector.
	underrace.OneGoroutine(t)
	jobs := jobsUnderFaults(t)
	never := func(string) bool { return false }
	const customers = 20
	begin := func(t *testing.T) *ledger {
		up := newWarehouse(t)
		up.open()
		up.answer = func(w http.ResponseWriter, _ arrival) { w.WriteHeader(http.StatusCreated) }
		return &ledger{t: t, up: up}
	}
	const briskly = "timeout 1s\nread_timeout 1s\ndial_timeout 1s\nnodes 2"
	siteAt := func(store string, up *warehouse, lines ...string) string { // store is the line of its store
		redis := new(redistest.Server)
		text := shop(redis, up, append(lines, "max_jobs 100000 10000")...)
		return strings.NewReplacer("limit 1/2s", "limit 20/1s\non_error closed", storeAt(redis.Addr(), patiently), store).Replace(text)
	}
	site := func(redis *redistest.Server, up *warehouse, lines ...string) string {
		return siteAt(storeAt(redis.Addr(), briskly), up, lines...)
	}
	// while has f fail at two points, and mended when some orders were refused or a while has passed.
	while := func(l *ledger, f func()) {
		for _, share := range []int64{3, 6} {
			l.await(share * jobs / 10)
			f()
		}
	}
	someRefusals := func(l *ledger) {
		count := func() int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.refused)
		}
		before := count()
		eventually(l.t, "orders are refused", func() bool { return count() >= before+customers })
	}

	t.Run("Redis is killed", func(t *testing.T) {
		t.Parallel()
		l, redis := begin(t), durably(t)
		fleet := startFleet(t, 2, site(redis, l.up))
		l.open(customers, jobs, fleet[0].server, fleet[1].server)
		while(l, func() {
			redis.Kill()
			someRefusals(l)
			redis.Restart()
		})
		l.close(fleet[0].server, never)
	})

	t.Run("a Caddy is killed", func(t *testing.T) {
		t.Parallel()
		l, redis := begin(t), durably(t)
		fleet := startFleet(t, 2, site(redis, l.up))
		l.open(customers, jobs, fleet[0].server, fleet[1].server)
		which := 0
		while(l, func() {
			fleet[which].kill()
			fleet[which].start()
			which++
		})
		l.close(fleet[0].server, never)
	})

	t.Run("Sentinel fails over", func(t *testing.T) {
		t.Parallel()
		l, sentinel := begin(t), redistest.StartSentinel(t, redistest.WithConfig("maxmemory-policy noeviction"))
		master := sentinel.Master()
		store := storeAt(strings.Join(sentinel.Addrs(), " "), "master_name "+redistest.MasterName, briskly)
		fleet := startFleet(t, 2, siteAt(store, l.up, "durability best_effort", "replicas 2"))
		l.open(customers, jobs, fleet[0].server, fleet[1].server)
		l.await(3 * jobs / 10)
		sentinel.KillMaster()
		master.Restart()
		sentinel.Settle()
		l.await(6 * jobs / 10)
		sentinel.Failover()
		l.close(fleet[0].server, never)
	})

	t.Run("WAIT fails", func(t *testing.T) {
		t.Parallel()
		l, redis, replica := begin(t), durably(t), redistest.Start(t)
		host, port, _ := strings.Cut(redis.Addr(), ":")
		replica.MustDo(t, "REPLICAOF", host, port)
		fleet := startFleet(t, 2, site(redis, l.up, "replicas 1"))
		l.open(customers, jobs, fleet[0].server, fleet[1].server)
		for share := range int64(8) {
			l.await((share + 1) * jobs / 10)
			replica.Pause()
			someRefusals(l)
			replica.Resume()
		}
		l.close(fleet[0].server, never)
	})

	t.Run("Redis is full", func(t *testing.T) {
		t.Parallel()
		l, redis := begin(t), durably(t)
		fleet := startFleet(t, 2, site(redis, l.up))
		l.open(customers, jobs, fleet[0].server, fleet[1].server)
		while(l, func() {
			redis.MustDo(t, "CONFIG", "SET", "maxmemory", "1")
			someRefusals(l)
			redis.MustDo(t, "CONFIG", "SET", "maxmemory", "0")
		})
		l.close(fleet[0].server, never)
	})

	t.Run("the network is cut", func(t *testing.T) {
		t.Parallel()
		l, redis := begin(t), durably(t)
		proxies := [2]*redistest.Proxy{redistest.NewProxy(t, redis.Addr()), redistest.NewProxy(t, redis.Addr())}
		var fleet [2]*member
		for i, proxy := range proxies {
			fleet[i] = startMember(t, siteAt(storeAt(proxy.Addr(), briskly), l.up))
		}
		l.open(customers, jobs, fleet[0].server, fleet[1].server)
		for share := range int64(8) {
			l.await((share + 1) * jobs / 10)
			for i, proxy := range proxies {
				switch share % 4 {
				case 0:
					proxy.CutAfter(1000 * (i + 1))
				case 1:
					proxy.DropReply("evalsha")
				case 2:
					proxy.Cut()
				default:
					proxy.BlackHole()
				}
			}
			if share%4 == 3 {
				someRefusals(l)
			}
			for _, proxy := range proxies {
				proxy.Pass()
			}
		}
		l.close(fleet[0].server, never)
	})

	t.Run("Caddy is reloaded", func(t *testing.T) { // in this process, and so not beside others
		l, redis := begin(t), durably(t)
		other, s := startMember(t, site(redis, l.up)), startSite(t, site(redis, l.up))
		l.open(customers, jobs, other.server, s)
		for share := range int64(8) {
			l.await((share + 1) * jobs / 10)
			s.load(s.caddyfile("", ":PORT {\n"+site(redis, l.up, fmt.Sprintf("max_wait %dm", 50+share))+"\n}"))
		}
		l.close(other.server, never)
	})

	t.Run("the service is slow, fails and hangs", func(t *testing.T) {
		t.Parallel()
		l, redis := begin(t), durably(t)
		hang := make(chan struct{})
		t.Cleanup(func() { close(hang) })
		hangs := func(body string) bool { return strings.HasSuffix(body, "-3") || strings.HasSuffix(body, "53") }
		var tries sync.Map
		l.up.answer = func(w http.ResponseWriter, a arrival) {
			n, _ := tries.LoadOrStore(a.body, new(atomic.Int64))
			switch try := n.(*atomic.Int64).Add(1); {
			case a.isDeferred() && hangs(a.body):
				<-hang
			case a.isDeferred() && strings.HasSuffix(a.body, "7") && try == 1:
				w.WriteHeader(http.StatusBadGateway)
				return
			default:
				time.Sleep(time.Duration(len(a.body)%4) * 10 * time.Millisecond) // the service is slow
			}
			w.WriteHeader(http.StatusCreated)
		}
		fleet := startFleet(t, 2, site(redis, l.up, "give_up_after 8s", "max_running 100"))
		l.open(customers, jobs, fleet[0].server, fleet[1].server)
		l.close(fleet[0].server, hangs)
	})
}
