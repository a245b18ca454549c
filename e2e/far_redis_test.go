package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
)

// A Redis that is further away than the timeout of a decision decides for lease and eventual all the same: no request falls back on on_error, which would reject
// it here, and leases admit nothing beyond the limit. All timeouts are the standard ones.
func TestAFarRedisServesLeasesAndEventual(t *testing.T) {
	const far, each, lasts, requests = 100 * time.Millisecond, 75, 8 * time.Second, 1500
	for _, consistency := range []string{"lease", "eventual 1s"} {
		t.Run(consistency, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			relay := redistest.NewProxy(t, server.Addr())
			relay.Delay(far)
			s := newSite(t)
			s.limit("api", "{namespace: fleet, rules: [{name: api, limit: "+fmt.Sprint(requests)+"/366d, algorithm: fixed_window, key: 'header:X-Who', onError: closed, consistency: "+
				consistency+"}], store: {redis: {address: '"+relay.Addr()+"', nodes: 3}}}")
			s.route("/api", "api")
			s.apply()
			proxies := []func() (response, error){func() (response, error) { return s.try("/api", "X-Who", "ann") }}
			for range 2 {
				c := startCaddy(t, "respond /up ok\nroute /api {\nrate_limit {\nzone api {\nlimit "+fmt.Sprint(requests)+"/366d\nalgorithm fixed_window\non_error closed"+
					"\nkey {header.X-Who}\nconsistency "+consistency+"\n}\nnamespace fleet\nstore redis "+relay.Addr()+" {\nnodes 3\n}\n}\nrespond ok\n}\n")
				proxies = append(proxies, func() (response, error) { return c.try("/api", "X-Who", "ann") })
			}
			for i, try := range proxies { // a client may connect when it is first asked
				eventually(t, fmt.Sprint("proxy ", i, " asks Redis"), func() bool {
					r, err := try()
					return err == nil && r.status == 200
				})
			}
			var mu sync.Mutex
			statuses := make(map[int]int)
			admitted := 0
			var took []time.Duration // of requests after a while, and before the last quarter of the limit
			var all sync.WaitGroup
			begun := time.Now()
			for i, try := range proxies {
				for worker := range 32 {
					all.Go(func() {
						for n := worker; time.Duration(n)*time.Second/each < lasts; n += 32 {
							time.Sleep(time.Until(begun.Add(time.Duration(n) * time.Second / each)))
							asked := time.Now()
							r, err := try()
							now := time.Now()
							mu.Lock()
							if err != nil {
								r.status = 0
							}
							if r.status == 200 {
								if admitted++; asked.Sub(begun) > 3*time.Second && admitted < requests*3/4 {
									took = append(took, now.Sub(asked))
								}
							}
							statuses[r.status]++
							if r.status != 200 && r.status != 429 {
								t.Logf("proxy %d, after %v: status %d in %v, %v", i, asked.Sub(begun), r.status, now.Sub(asked), err)
							}
							mu.Unlock()
						}
					})
				}
			}
			all.Wait()
			slices.Sort(took)
			t.Logf("%v; median %v, p99 %v of %d, longest %v", statuses, took[len(took)/2], took[len(took)*99/100], len(took), took[len(took)-1])
			if others := statuses[503]; others*50 > statuses[200]+statuses[429] {
				t.Errorf("%d requests have gone by on_error", others)
			}
			if consistency == "lease" && admitted > requests {
				t.Errorf("%d beyond the limit", admitted-requests)
			} else if admitted < requests*9/10 {
				t.Errorf("%d admitted of %d", admitted, requests)
			}
		})
	}
}
