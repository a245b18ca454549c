package ratelimit_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// quick is shop with a limit that admits more.
func quick(site string) string { return strings.Replace(site, "limit 1/2s", "limit 20/1s", 1) }

// deferredOf returns the numbers of a customer's orders that arrived deferred, in the order of arrival.
func (up *warehouse) deferredOf(t *testing.T, customer string) []int {
	t.Helper()
	up.mu.Lock()
	defer up.mu.Unlock()
	var numbers []int
	for _, a := range up.arrivals {
		of, number, _ := strings.Cut(a.body, "-")
		if of != customer || !a.isDeferred() {
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil || a.once() != a.body {
			t.Errorf("%q has the key %q", a.body, a.once())
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// Twice, all Caddys and Redis are killed while orders come and are done. Each order that got a 202 arrives, in the order of its customer; and more
// than once only if it was under way at such a moment.
func TestNoAcceptedOrderIsLostWhenEverythingIsKilled(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	up.open()
	var stops sync.RWMutex // locked: the warehouse answers nothing
	var stopped atomic.Int64
	up.answer = func(w http.ResponseWriter, a arrival) {
		if a.isDeferred() {
			stopped.Add(1)
			stops.RLock()
			stopped.Add(-1)
			stops.RUnlock()
		}
		w.WriteHeader(http.StatusCreated)
	}
	site := quick(shop(redis, up, "max_jobs 10000 1000"))
	fleet := []*member{startMember(t, site), startMember(t, site)}
	const customers, orders = 10, 100
	var accepted atomic.Int64
	var all [customers][]int // the numbers of each customer's orders that got a 202
	var over atomic.Bool     // the test gives up
	var done sync.WaitGroup
	for c := range customers {
		done.Go(func() {
			for n := 0; len(all[c]) < orders && !over.Load(); {
				body := fmt.Sprintf("c%d-%d", c, n)
				s := fleet[(c+n)%len(fleet)].server
				r, err := s.send("POST", "/orders", body, "Prefer", "respond-async", "X-Customer", fmt.Sprint(c), "Idempotency-Key", body)
				switch {
				case err == nil && r.status == http.StatusAccepted:
					all[c] = append(all[c], n)
					accepted.Add(1)
					n++
				case err == nil && r.status == http.StatusCreated: // it was within the limit
					n++
				default: // the same once more
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	t.Cleanup(func() {
		over.Store(true)
		done.Wait()
	})
	for _, at := range []int64{300, 700} {
		for began := time.Now(); accepted.Load() < at; time.Sleep(time.Millisecond) {
			if time.Since(began) > 5*patience {
				t.Fatalf("only %d orders were accepted", accepted.Load())
			}
		}
		stops.Lock()
		for began := time.Now(); stopped.Load() < 3; time.Sleep(time.Millisecond) { // orders are under way
			if time.Since(began) > 5*patience {
				stops.Unlock()
				t.Fatal("too few orders are under way")
			}
		}
		redis.Kill()
		for _, m := range fleet {
			m.kill()
		}
		stops.Unlock()
		redis.Restart()
		for _, m := range fleet {
			m.start()
		}
	}
	done.Wait()
	arrived := func() bool {
		for c := range customers {
			got := up.deferredOf(t, fmt.Sprintf("c%d", c))
			for _, n := range all[c] {
				if !slices.Contains(got, n) {
					return false
				}
			}
		}
		return true
	}
	for began := time.Now(); !arrived(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 5*patience {
			t.Fatal("not all accepted orders have arrived")
		}
	}
	again := 0
	for c := range customers {
		got := up.deferredOf(t, fmt.Sprintf("c%d", c))
		once := slices.Compact(slices.Clone(got)) // an order is repeated before the next
		again += len(got) - len(once)
		for i := 1; i < len(once); i++ {
			if once[i] <= once[i-1] {
				t.Errorf("customer %d: order %d arrived after order %d", c, once[i], once[i-1])
			}
		}
	}
	if most := 2 * customers; again < 6 || again > most { // of each customer one is under way
		t.Errorf("%d orders arrived once more, want 6 to %d", again, most)
	}
	t.Logf("%d orders were accepted, and %d arrived once more", accepted.Load(), again)
}

// Direct and deferred requests share the limit: at no time have more arrived than it admits from the first on.
func TestDirectAndDeferredRequestsShareTheLimit(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	up.open()
	const most = 80
	var mu sync.Mutex
	var times []time.Duration // of arrivals
	began := time.Now()
	up.answer = func(http.ResponseWriter, arrival) {
		mu.Lock()
		times = append(times, time.Since(began))
		mu.Unlock()
	}
	s := startSite(t, quick(shop(redis, up)))
	arrived := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(times)
	}
	for i := 0; arrived() < most; i++ {
		fields := []string{"X-Customer", "ann"}
		if i%2 == 0 {
			fields = append(fields, "Prefer", "respond-async")
		}
		if r := s.must("POST", "/orders", "x", fields...); r.status == http.StatusTooManyRequests {
			time.Sleep(time.Millisecond)
		}
		if time.Since(began) > 5*patience {
			t.Fatalf("only %d have arrived", arrived())
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i, at := range times {
		if admitted := 1 + int(20*at.Seconds()) + 1; i+1 > admitted { // its burst, what refills, and one for a clock that is adjusted
			t.Errorf("%d have arrived %s after the first was sent; the limit admits %d", i+1, at, admitted)
		}
	}
}
