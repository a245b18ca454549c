package memory

import (
	"fmt"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// A metered fast path counts each request that it allows, and none that it passes on. It times one in TimedShare.
func TestAMeteredFastPathCountsWhatItAllows(t *testing.T) {
	for _, a := range []rate.Algorithm{rate.TokenBucket, rate.LeakyBucket, rate.FixedWindow, rate.SlidingWindowCounter} {
		now := int64(1_700_000_000_000_000)
		rng := rand.New(rand.NewSource(1)) // the clock's microseconds choose what is timed
		m := New(Config{Index: Mapped, Clock: func() int64 { return now }})
		r := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: a, Requests: 100, Period: time.Second})})
		if err := m.Open(r); err != nil {
			t.Fatal(err)
		}
		known := make(map[string]bool)
		passed, rested, aside := 0, 0, 0
		metering := &Metering{
			Allowed: new(int64), Durations: rate.NewDurations(), Path: NoPath, Other: "/quota",
			OwnPaths: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { aside++ }),
		}
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { passed++ })
		rest := http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			rested++
			if address, _, _ := net.SplitHostPort(request.RemoteAddr); !known[address] { // the key is new
				known[address] = true
				_ = m.Decide([]core.Check{{Rule: r, Key: address, Cost: 1}}, false)
			}
		})
		h := Serve(NewFastPath(m, r), &ServeConfig{QuotaFields: allQuotaFields(r), Key: hostOf, Direct: true, Metering: metering, Next: next, Rest: rest})
		ask := func(path string, client int) {
			request := httptest.NewRequest("GET", path, nil)
			request.RemoteAddr = fmt.Sprintf("192.0.2.%d:1234", client)
			h.ServeHTTP(httptest.NewRecorder(), request)
		}
		for i := 0; i < 3200; i++ {
			now += 1 + rng.Int63n(4000) // more requests than the limit allows
			ask("/", i/320)
		}
		if *metering.Allowed != int64(passed) || passed+rested != 3200 || passed < 500 || rested < 500 {
			t.Errorf("%s: %d counted, %d passed, %d left to the rest", a, *metering.Allowed, passed, rested)
		}
		if counts, _ := metering.Durations.Read(); counts[len(counts)-1] < int64(passed)/TimedShare/2 || counts[len(counts)-1] > 2*int64(passed)/TimedShare {
			t.Errorf("%s: %d of %d were timed", a, counts[len(counts)-1], passed)
		}
		passed, rested = 0, 0
		ask("/quota", 0)
		ask("/quota/", 0)
		if aside != 1 || passed+rested != 1 {
			t.Errorf("%s: %d went aside, and %d did not", a, aside, passed+rested)
		}
	}
}
