package e2e

import (
	"fmt"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
)

// Two Caddys and a Traefik with consistency eventual admit what each of them may by itself, and then hear of each other: all three reject.
func TestEventualProxiesHearOfEachOther(t *testing.T) {
	server := redistest.Start(t)
	s := newSite(t)
	s.limit("api", "{namespace: fleet, rules: [{name: api, limit: 30/366d, algorithm: fixed_window, key: 'header:X-Who', consistency: eventual 100ms}], store: "+inRedis(server.Addr())+"}")
	s.route("/api", "api")
	s.apply()
	proxies := []func() (response, error){func() (response, error) { return s.try("/api", "X-Who", "ann") }}
	for range 2 {
		c := startCaddy(t, "respond /up ok\nroute /api {\nrate_limit {\nzone api {\nlimit 30/366d\nalgorithm fixed_window"+
			"\nkey {header.X-Who}\nconsistency eventual 100ms\n}\nnamespace fleet\nstore redis "+server.Addr()+" {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 1\n}\n}\nrespond ok\n}\n")
		proxies = append(proxies, func() (response, error) { return c.try("/api", "X-Who", "ann") })
	}
	for i, try := range proxies {
		for range 10 { // together the limit; none of them rejects before it is used up
			if r, err := try(); err != nil || r.status != 200 {
				t.Fatalf("proxy %d: %+v, %v", i, r, err)
			}
		}
	}
	for i, try := range proxies {
		eventually(t, fmt.Sprint("proxy ", i, " rejects"), func() bool {
			r, err := try()
			return err == nil && r.status == 429
		})
	}
}
