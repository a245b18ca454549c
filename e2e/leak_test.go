package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
)

// figures are the resources of a process after a garbage collection.
type figures struct {
	goroutines  int
	heap        uint64 // reachable bytes
	heapObjects uint64
}

func (f figures) String() string {
	return fmt.Sprintf("%d goroutines, %.2f MB in %d objects", f.goroutines, float64(f.heap)/1e6, f.heapObjects)
}

// figures asks Traefik for its resources.
func (tr *traefik) figures(t testing.TB) figures {
	t.Helper()
	tr.client.CloseIdleConnections()
	for range 2 { // objects with finalizers need two
		tr.get(t, "/debug/pprof/heap?gc=1")
	}
	var vars struct {
		Goroutines2 int
		Memstats    struct{ HeapAlloc, HeapObjects uint64 }
	}
	if err := json.Unmarshal(tr.get(t, "/debug/vars"), &vars); err != nil {
		t.Fatal(err)
	}
	return figures{vars.Goroutines2, vars.Memstats.HeapAlloc, vars.Memstats.HeapObjects}
}

// Hundreds of reloads leave nothing behind: no goroutine, no connection to Redis, and no memory once each handler is released, a minute after it was
// replaced. If handlers were kept, each would leave some fifty objects at least, and there are ten. (Traefik alone creates and frees a few thousand.) Some of the middlewares
// share a store in Redis, which is kept; and one has a store of its own, which each reload replaces.
func TestNothingIsLeftOfHundredsOfReloads(t *testing.T) {
	t.Parallel() // it waits for two minutes
	const reloads = 300
	tr := startTraefik(t, settings{})
	s := tr.newSite(t)
	server := redistest.Start(t)
	shared := ", store: " + inRedis(server.Addr())
	rules := map[string]string{
		"limit":   "{name: a, limit: %d/1h, algorithm: token_bucket}, {name: b, key: ['header:X-User'], limit: 100000/1h, match: {methods: [GET], pathPrefixes: [/]}}]",
		"log":     "{name: a, limit: %d/1h, algorithm: sliding_window_log}]",
		"large":   "{name: a, limit: 50%d/1h, algorithm: token_bucket}]",
		"one":     "{name: a, limit: %d/1h, algorithm: token_bucket}]" + shared,
		"several": "{name: a, limit: %d/1h, algorithm: token_bucket}, {name: b, limit: 100000/1h}]" + shared,
		"lease":   "{name: a, limit: %d/1h, algorithm: token_bucket, consistency: lease}]" + shared,
		"sync":    "{name: a, limit: %d/1h, algorithm: token_bucket, consistency: eventual 100ms}]" + shared,
	}
	for name := range rules {
		s.route("/"+name, name)
	}
	s.route("/own", "own")
	reload := func(n int) {
		for name, list := range rules {
			s.limit(name, fmt.Sprintf("{message: This is version %d., rules: ["+list+"}", n, 10_000+n%5))
		}
		s.limit("own", fmt.Sprintf("{rules: [{name: a, limit: 10000/1h, consistency: lease}], store: {redis: {address: '%s', nodes: 1, prefix: 'p%d:', timeout: 20s, readTimeout: 20s, dialTimeout: 20s}}}", server.Addr(), n))
		s.route("/changing", []string{"limit"}[:n%2]...)
		s.apply()
		for name := range rules {
			s.admit(1, "/"+name, "X-User", "somebody")
		}
		s.admit(1, "/own")
	}
	connections := func() int { return strings.Count(fmt.Sprint(server.MustDo(t, "CLIENT", "LIST")), "id=") }
	for i := range 25 { // so that everything that is made only once exists
		reload(i)
	}
	time.Sleep(65 * time.Second) // until the last but one of these is released
	before, connected := tr.figures(t), connections()
	began := time.Now()
	for i := range reloads {
		reload(1000 + i)
	}
	took := time.Since(began)
	var after figures
	settled := await(func() bool {
		after = tr.figures(t)
		return after.goroutines <= before.goroutines+5 && connections() <= connected
	}) // the last handlers are about to end
	t.Logf("%d reloads in %.1f s", reloads, took.Seconds())
	t.Logf("before:       %v", before)
	t.Logf("after:        %v", after)
	if !settled {
		t.Errorf("%d goroutines and %d connections after %d reloads, %d and %d before", after.goroutines, connections(), reloads, before.goroutines, connected)
	}
	var later figures
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(4 * time.Second) { // rarely: each look collects garbage twice
		later = tr.figures(t)
		if later.heapObjects < before.heapObjects+12_000 && later.heap < before.heap+2_500_000 && later.goroutines <= before.goroutines+2 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("%v, want what there was before", later)
			break
		}
	}
	t.Logf("later:        %v", later)
}
