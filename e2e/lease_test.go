package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// Three Caddys and a Traefik lease one key's limit from one Redis. They admit no more than the limit, nearly all of it, and ask Redis once for many
// requests.
func TestProxiesThatLeaseAdmitTheLimitWithFewCalls(t *testing.T) {
	const each, lasts, requests = 600, 6 * time.Second, 8000 // requests a second at each proxy; the limit, for a minute
	server := redistest.Start(t)
	s := newSite(t)
	s.limit("api", "{namespace: fleet, rules: [{name: api, limit: "+fmt.Sprint(requests)+"/1m, algorithm: token_bucket"+
		", key: 'header:X-Who', consistency: lease}], store: "+inRedis(server.Addr())+"}")
	s.route("/api", "api")
	s.apply()
	proxies := []func() (response, error){func() (response, error) { return s.try("/api", "X-Who", "ann") }}
	for range 3 {
		c := startCaddy(t, "respond /up ok\nroute /api {\nrate_limit {\nzone api {\nlimit "+fmt.Sprint(requests)+"/1m\nalgorithm token_bucket"+
			"\nkey {header.X-Who}\nconsistency lease\n}\nnamespace fleet\nstore redis "+server.Addr()+" {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 1\n}\n}\nrespond ok\n}\n")
		proxies = append(proxies, func() (response, error) { return c.try("/api", "X-Who", "ann") })
	}
	conn, err := redistest.Dial(server.Addr(), nil)
	must.Succeed(t, err)
	defer conn.Close()
	var admitted, rejected, others atomic.Int64
	var all sync.WaitGroup
	before := scriptCalls(t, conn)
	begun := time.Now()
	for _, try := range proxies {
		for worker := range 8 {
			all.Go(func() {
				for n := worker; time.Since(begun) < lasts; n += 8 {
					time.Sleep(time.Until(begun.Add(time.Duration(n) * time.Second / each)))
					r, err := try()
					switch {
					case err != nil:
						others.Add(1)
					case r.status == 200:
						admitted.Add(1)
					case r.status == 429:
						rejected.Add(1)
					default:
						others.Add(1)
					}
				}
			})
		}
	}
	all.Wait()
	took := time.Since(begun)
	calls := scriptCalls(t, conn) - before
	limit := requests + int64(took.Seconds()*requests/60) + 1
	t.Logf("%d admitted of %d, %d rejected, %d calls in %s", admitted.Load(), limit, rejected.Load(), calls, took)
	if others.Load() > 0 {
		t.Errorf("%d requests were neither admitted nor rejected", others.Load())
	}
	if admitted.Load() > limit {
		t.Errorf("%d admitted, %d beyond the limit", admitted.Load(), admitted.Load()-limit)
	}
	if rejected.Load() > 0 && admitted.Load() < limit*97/100 {
		t.Errorf("%d admitted of %d, though requests were rejected", admitted.Load(), limit)
	}
	if int64(calls)*20 > admitted.Load() { // without leases there would be one for each
		t.Errorf("%d calls for %d requests that were admitted", calls, admitted.Load())
	}
}

// scriptCalls returns how many scripts a server has run by EVALSHA.
func scriptCalls(t *testing.T, c *redistest.Conn) int {
	t.Helper()
	info, err := c.Do("INFO", "commandstats")
	must.Succeed(t, err)
	_, after, _ := strings.Cut(info.Text, "cmdstat_evalsha:calls=")
	number, _, _ := strings.Cut(after, ",")
	n, _ := strconv.Atoi(number)
	return n
}
