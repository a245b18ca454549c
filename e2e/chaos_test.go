package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
)

// deadline is the longest that a request may take, whatever happens to Redis: far more than the store's timeout of 50 ms, since the
// machine may be busy.
const deadline = 20 * time.Second

// scripts returns how many decisions a server has been asked for since it started.
func scripts(t testing.TB, server *redistest.Server) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(server.MustDo(t, "INFO", "commandstats").Text) {
		name, stats, _ := strings.Cut(line, ":")
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			var calls int
			if _, err := fmt.Sscanf(stats, "calls=%d,", &calls); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			n += calls
		}
	}
	return n
}

// Whatever happens to Redis, requests are answered in time; and afterwards Redis decides again without any action.
func TestNoRequestIsLostWhateverBefallsRedis(t *testing.T) {
	redis := redistest.Start(t)
	proxy := redistest.NewProxy(t, redis.Addr())
	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"killed, and started again", redis.Kill, redis.Restart},
		{"stopped, and continued", redis.Pause, redis.Resume},
		{"connections cut", proxy.Cut, func() {}},
		{"connections refused", proxy.Refuse, proxy.Pass},
		{"connections closed as they come", proxy.HangUp, proxy.Pass},
		{"nothing answered", proxy.BlackHole, proxy.Pass},
		{"answers that make no sense", func() { proxy.Garble(nil) }, proxy.Pass},
		{"slow", func() { proxy.Delay(time.Second) }, proxy.Pass},
		{"without the scripts", func() { redis.MustDo(t, "SCRIPT", "FLUSH") }, func() {}},
		{"read only", func() { redis.MustDo(t, "REPLICAOF", "127.0.0.1", "1") }, func() { redis.MustDo(t, "REPLICAOF", "NO", "ONE") }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			s := newSite(t)
			store := "store: {redis: {address: '" + proxy.Addr() + "', nodes: 1}}}"
			s.limit("open", "{limit: 1000000/366d, key: [header:X-User], "+store)
			s.limit("spent", "{limit: 5/366d, store: "+inRedis(proxy.Addr())+"}") // no client may get its limit twice
			s.route("/open", "open")
			s.route("/spent", "spent")
			s.apply()
			s.exactly(5, "/spent")
			s.limit("spent", "{limit: 5/366d, "+store)
			s.apply()
			eventually(t, "it is known that nothing is left", func() bool { return s.do("/spent").status == http.StatusTooManyRequests })
			eventually(t, "Redis decides", func() bool {
				_ = s.do("/open")
				return scripts(t, redis) > 0
			})

			var made atomic.Int64
			l := startLoad(6, 0, func(client, n int) (response, error) {
				made.Add(1)
				time.Sleep(2 * time.Millisecond) // and not as fast as they can, since Redis may take a second to decide again
				return s.try("/open", "X-User", fmt.Sprint(client, n%10))
			})
			spent := startLoad(1, 0, func(int, int) (response, error) {
				time.Sleep(2 * time.Millisecond)
				return s.try("/spent")
			})
			more := func(n int64) {
				t.Helper()
				until := made.Load() + n
				eventually(t, "requests go on", func() bool { return made.Load() >= until })
			}
			more(50)
			fault.begin()
			more(300)
			fault.end()
			before := scripts(t, redis)
			eventually(t, "Redis decides again", func() bool { return scripts(t, redis) > before+20 })
			more(50)
			l.stop()
			spent.stop()
			if l.lost+l.rejected+spent.lost > 0 {
				t.Errorf("%d of %d requests were lost, %d rejected that were not over their limit: %q", l.lost+spent.lost, l.requests()+spent.requests(),
					l.rejected, append(l.losses, spent.losses...))
			}
			if worst := max(l.slowest, spent.slowest); worst > deadline {
				t.Errorf("a request took %v", worst)
			}
			// Only a Redis that comes back empty admits the limit anew; any other, and memory meanwhile, does not.
			if fault.name != "killed, and started again" && spent.admitted > 0 || spent.admitted > 5 {
				t.Errorf("%d requests more were admitted than the limit", spent.admitted)
			}
			t.Logf("%d requests, none lost, the slowest took %v", l.requests()+spent.requests(), max(l.slowest, spent.slowest))
		})
	}
}

// Meanwhile memory counts, from the last known state of each client.
func TestCountingGoesOnInMemoryWhileRedisIsDown(t *testing.T) {
	redis := redistest.Start(t)
	s := limited(t, "{limit: 10/366d, store: "+inRedis(redis.Addr())+"}") // a dead server is not waited for
	eventually(t, "Redis decides", func() bool {
		_ = s.do("/")
		return scripts(t, redis) > 0
	})
	used := 10 - s.admit(1, "/").number(t, "X-RateLimit-Remaining", 0, 10)
	redis.Kill()
	if r := s.admit(10-used, "/"); r.header.Get("X-RateLimit-Limit") != "10" {
		t.Errorf("X-RateLimit-Limit: %q", r.header.Get("X-RateLimit-Limit"))
	}
	s.reject("/")
	s.from("127.0.0.2").exactly(10, "/")
	redis.Restart()
	eventually(t, "Redis counts again", func() bool {
		_ = s.do("/")
		return len(redis.MustDo(t, "KEYS", "weir:*").List) > 0
	})
}

func TestOnErrorSaysWhatHappensWithoutRedis(t *testing.T) {
	redis := redistest.Start(t)
	s := newSite(t)
	store := ", nodes: 1}}}"
	for name, words := range map[string]string{"open": "onError: open", "closed": "onError: closed", "local": "onError: local", "unsaid": "headers: [ietf]"} {
		s.limit(name, "{limit: 3/366d, "+words+", store: {redis: {address: '"+redis.Addr()+"'"+store)
		s.route("/"+name, name)
	}
	s.limit("mixed", `
		rules:
		  - {name: open, limit: 3/366d, onError: open}
		  - {name: local, limit: 2/366d}
		store: {redis: {address: '`+redis.Addr()+`', nodes: 1}}`)
	s.route("/mixed", "mixed")
	redis.Kill()
	s.apply()

	if r := s.admit(9, "/open"); r.header.Get("X-RateLimit-Limit") != "" {
		t.Errorf("an uncounted request has quota fields: %v", r.header)
	}
	for range 4 {
		r := s.do("/closed")
		if r.status != http.StatusServiceUnavailable {
			t.Fatalf("status %d, want 503", r.status)
		}
		r.number(t, "Retry-After", 1, 60)
		r.want(t, "X-RateLimit-Limit", "-", "RateLimit", "-", "Cache-Control", "no-store")
	}
	r := s.overHTTP2().do("POST /closed", "Content-Type", "application/grpc")
	r.want(t, "Grpc-Status", "14", "Content-Type", "application/grpc")
	s.exactly(3, "/local")
	s.exactly(3, "/unsaid")
	s.exactly(2, "/mixed")

	redis.Restart()
	eventually(t, "Redis decides", func() bool { return s.do("/closed").status == http.StatusOK })
	eventually(t, "Redis rejects", func() bool { return s.do("/open").status == http.StatusTooManyRequests })
	eventually(t, "Redis rejects", func() bool { return s.do("/closed").status == http.StatusTooManyRequests })
}

// If Redis hangs during a reload, the new configuration is still in force at once.
func TestReloadsWhileRedisHangs(t *testing.T) {
	redis := redistest.Start(t)
	s := newSite(t)
	set := func(limit int) {
		s.limit("limit", fmt.Sprintf("{limit: %d/366d, store: {redis: {address: '%s', nodes: 1}}}", limit, redis.Addr()))
		s.apply()
	}
	s.route("/", "limit")
	set(5)
	eventually(t, "Redis decides", func() bool {
		_ = s.do("/")
		return scripts(t, redis) > 0
	})
	redis.Pause()
	l := startLoad(4, 0, func(int, int) (response, error) { return s.try("/") })
	for limit := range 20 {
		set(6 + limit)
	}
	l.stop()
	redis.Resume()
	if l.lost > 0 || l.slowest > deadline {
		t.Errorf("%d of %d requests were lost, the slowest took %v: %q", l.lost, l.requests(), l.slowest, l.losses)
	}
	if l.admitted > 25 {
		t.Errorf("%d requests were admitted, want at most 25", l.admitted)
	}
}

// Errors of the store are not logged for every request.
func TestTheLogIsNotFloodedWhileRedisIsDown(t *testing.T) {
	s := limited(t, "{limit: 1000000/366d, store: {redis: {address: '"+freeAddr()+"', nodes: 1}}}")
	startLoad(4, 500, func(int, int) (response, error) { return s.try("/") }).wait().want(t, 2000)
	eventually(t, "the log has an error", func() bool { return len(s.errors("limit")) > 0 })
	if errors := s.errors("limit"); len(errors) > 50 {
		t.Errorf("%d lines of 2000 requests: %q", len(errors), errors[:min(len(errors), 5)])
	}
}
