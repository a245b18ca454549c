package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
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

// A thousand reloads leave nothing behind: no goroutine, and no memory once each handler is released, a minute after it was
// replaced. If handlers were kept, each would leave some fifty objects. (Traefik alone creates and frees a few thousand.)
func TestNothingIsLeftOfAThousandReloads(t *testing.T) {
	t.Parallel() // it waits for a minute
	const reloads = 1000
	tr := startTraefik(t, settings{})
	s := tr.newSite(t)
	s.route("/", "limit")
	reload := func(n int) {
		s.limit("limit", fmt.Sprintf(`
			message: This is version %d.
			rules:
			  - {name: a, limit: %d/1h, algorithm: token_bucket}
			  - {name: b, key: ['header:X-User'], limit: 100000/1h, match: {methods: [GET], pathPrefixes: [/]}}`, n, 10_000+n%5))
		s.route("/changing", []string{"limit"}[:n%2]...)
		s.apply()
		s.admit(1, "/", "X-User", "somebody")
	}
	for i := range 100 { // so that everything that is made only once exists
		reload(i)
	}
	before := tr.figures(t)
	began := time.Now()
	for i := range reloads {
		reload(1000 + i)
	}
	took := time.Since(began)
	var after figures
	settled := await(func() bool { after = tr.figures(t); return after.goroutines <= before.goroutines+5 }) // the last handlers are about to end
	t.Logf("%d reloads in %.1f s", reloads, took.Seconds())
	t.Logf("before:       %v", before)
	t.Logf("after:        %v", after)
	if !settled {
		t.Errorf("%d goroutines after %d reloads, %d before", after.goroutines, reloads, before.goroutines)
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
