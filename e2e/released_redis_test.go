package e2e

import (
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
)

// A fleet can be updated node by node: a released node and one of this checkout admit each limit exactly, together.
func TestTheReleaseAndThisBuildAdmitExactlyTheLimitTogether(t *testing.T) {
	t.Parallel()
	programs := releasedAndOurs(t)
	const units = 1200
	type zone struct{ name, settings string }
	zones := []zone{ // the former cannot be leased; the latter may begin while units are lent, which are then not all spent
		{"leaky_bucket", "algorithm leaky_bucket\nlimit 100000/1s\nburst 1199"},
		{"penalty", "algorithm sliding_window_log\nlimit 1200/366d\npenalty 10m 1h"},
	}
	for _, z := range []zone{
		{"token_bucket", "algorithm token_bucket\nlimit 1200/366d"},
		{"token_bucket_by_intervals", "algorithm token_bucket\nlimit 1200/366d\nrefill interval"},
		{"fixed_window", "algorithm fixed_window\nlimit 1200/366d"},
		{"calendar", "limit 1200/month\ntime_zone Asia/Tokyo"},
		{"sliding_window_log", "algorithm sliding_window_log\nlimit 1200/366d"},
		{"sliding_window_counter", "algorithm sliding_window_counter\nlimit 1200/366d"},
		{"soft", "algorithm token_bucket\nlimit 800/366d\nenforcement soft 50% 1h"},
		{"cost", "algorithm fixed_window\nlimit 3600/366d\ncost 3"},
	} {
		zones = append(zones, z, zone{z.name + "_leased", z.settings + "\nconsistency lease"})
	}
	redis := redistest.Start(t, redistest.WithClock())
	redis.SetTime(1_790_000_000_000_000) // and stands still: no window ends, and nothing is refilled
	conn, err := redistest.Dial(redis.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var routes strings.Builder
	for _, z := range zones {
		routes.WriteString("route /" + z.name + " {\nrate_limit {\nzone " + z.name + " {\nkey all\n" + z.settings + "\n}\n}\nrespond ok\n}\n")
	}
	nodes := make(map[string]*caddy)
	for name, program := range programs {
		addr := freeAddr()
		nodes[name] = runProgram(t, program, t.TempDir(), addr, "/up", "admin off\nauto_https off\nrate_limit {\nstore redis "+redis.Addr()+
			" {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 2\n}\n}", "http://"+addr+" {\nrespond /up ok\n"+routes.String()+"}\n")
	}
	for _, z := range zones {
		t.Run(z.name, func(t *testing.T) {
			before := scriptCalls(t, conn)
			var byReleased tally
			flood := startLoad(16, 0, func(client, _ int) (r response, err error) {
				if client%2 == 0 {
					return nodes["ours"].try("/" + z.name)
				}
				r, err = nodes["released"].try("/" + z.name)
				byReleased.add(r, err, 0)
				return r, err
			})
			await(func() bool { // a node may reject for half a second what the other has given back
				flood.mu.Lock()
				defer flood.mu.Unlock()
				return flood.admitted >= units && flood.rejected >= units || flood.admitted+flood.rejected > 50*units || flood.lost > 0
			})
			flood.stop().want(t, units)
			calls := scriptCalls(t, conn) - before
			t.Logf("%d admitted by the release, %d requests, %d calls", byReleased.admitted, flood.requests(), calls)
			if byReleased.admitted == 0 || byReleased.admitted == units {
				t.Errorf("the release has admitted %d of %d", byReleased.admitted, units)
			}
			if leased := strings.HasSuffix(z.name, "_leased"); leased != (calls < units) {
				t.Errorf("%d calls of Redis for %d units", calls, units)
			}
		})
	}
}
