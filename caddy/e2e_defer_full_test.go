package ratelimit_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/deferral"
	"github.com/proxyweir/weir/redis/redistest"
)

// usedMemory returns how many bytes a Redis has allocated.
func usedMemory(t *testing.T, store *redistest.Server) int64 {
	t.Helper()
	for line := range strings.Lines(store.MustDo(t, "INFO", "memory").String()) {
		if text, found := strings.CutPrefix(line, "used_memory:"); found {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("INFO has no used_memory")
	return 0
}

// Ten thousand jobs of a hundred customers wait, 2 KB each. The next gets a 429, and Redis takes at most twice the configured bytes. Those of one customer are
// real requests, and the others are stored as Caddy does it.
func TestTheOrderBeyondAllBoundsIsRejected(t *testing.T) {
	const customers, each, most = 100, 100, 40 << 20
	store, up := durably(t, "appendfsync everysec"), newWarehouse(t)
	site := slow(shop(store, up), fmt.Sprintf("max_jobs %d %d", customers*each, each), fmt.Sprintf("max_bytes %d", most))
	s := startSite(t, strings.Replace(site, "limit 1/8h", "limit 1/1h", 1)) // so that the hundredth waits for less than 30 days
	body := strings.Repeat("x", 2000)
	order := func(customer, body string) response {
		return s.must("POST", "/orders", body, of(customer)...)
	}
	if r := order("ann", body); r.status != http.StatusCreated { // the only one that the limit admits
		t.Fatalf("%d %s", r.status, r.body)
	}
	var first response
	eventually(t, "Redis has been found safe", func() bool {
		first = order("ann", body)
		return first.status == http.StatusAccepted
	})
	before := usedMemory(t, store)
	for i := 1; i < each; i++ {
		if r := order("ann", body); r.status != http.StatusAccepted || r.job(t).Position != i+1 {
			t.Fatalf("order %d: %d %s", i+1, r.status, r.body)
		}
	}
	if r := order("ann", body); r.status != http.StatusTooManyRequests {
		t.Errorf("beyond what one customer may have: %d %s", r.status, r.body)
	}
	queue := queueAt(t, store.Addr(), deferral.Config{MaxJobs: customers * each, MaxKeyJobs: each, MaxBytes: most, Keep: 24 * time.Hour, KeepDead: 24 * time.Hour})
	_, like, err := queue.RequestOf(t.Context(), first.job(t).ID)
	if err != nil {
		t.Fatal(err)
	}
	var filling sync.WaitGroup
	for c := 1; c < customers; c++ {
		filling.Go(func() {
			for range each {
				e := &deferral.Entry{ID: deferral.NewID(), Key: queue.KeyDigest(fmt.Sprint("customer ", c)), Request: like, Wait: 24 * time.Hour}
				if _, err := queue.Enter(t.Context(), e); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	filling.Wait()
	sums, err := queue.Sums(t.Context())
	if err != nil || sums.Open != customers*each || sums.Bytes > most || sums.Bytes < customers*each*(2000+deferral.Overhead) {
		t.Fatalf("%+v, %v", sums, err)
	}
	used := usedMemory(t, store) - before
	t.Logf("%d jobs count for %d bytes, and Redis takes %d for them", sums.Open, sums.Bytes, used)
	if used > 2*most || used < customers*each*2000 {
		t.Errorf("Redis takes %d bytes, want at most %d, and at least the bodies", used, 2*most)
	}

	if r := order("bob", body); r.status != http.StatusCreated { // within his limit
		t.Errorf("%d %s", r.status, r.body)
	}
	refused := func(customer, body, what string) {
		t.Helper()
		if r := order(customer, body); r.status != http.StatusTooManyRequests || r.header.Get("Location") != "" || r.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %v %s", what, r.status, r.header, r.body)
		}
		if now, err := queue.Sums(t.Context()); err != nil || now.Open != sums.Open || now.Bytes != sums.Bytes {
			t.Errorf("%s: %+v, %v", what, now, err)
		}
	}
	refused("bob", body, "the 10,001st job")
	if r := s.must("DELETE", first.header.Get("Location"), ""); r.status != http.StatusNoContent {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := order("bob", body); r.status != http.StatusAccepted {
		t.Errorf("in the place of another: %d %s", r.status, r.body)
	}
	if sums, err = queue.Sums(t.Context()); err != nil || sums.Open != customers*each {
		t.Errorf("%+v, %v", sums, err)
	}
	refused("bob", body, "the 10,001st job again")
}
