package goredis_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// handled is two nodes with a rule without an overflow policy. Their user has just the permissions that docs/redis.md lists for such rules.
type handled struct {
	t     *testing.T
	clock *storetest.Clock // of the server, and of the nodes' memory
	nodes [2]*redis.Store
	rules [2]*core.Rule
}

func newHandled(t *testing.T, server *redistest.Server, prefix string, l rate.LimitConfig) *handled {
	h := &handled{t: t, clock: &storetest.Clock{}}
	h.clock.Set(time.Date(2026, 3, 2, 12, 0, 20, 0, time.UTC).UnixMicro())
	h.clock.Follow(server.SetTime)
	limit, err := rate.NewLimit(l)
	must.Succeed(t, err)
	for i := range h.nodes {
		// The first is a Traefik, whose client alone has the fast path.
		c := redis.Config{Prefix: prefix, Clock: h.clock.Now, WallClock: h.clock.Now, PlainKeys: true, Lines: i == 0}
		h.nodes[i] = newStore(t, c, goredis.Config{Addresses: []string{server.Addr()}, Username: "weir", Password: "secret"})
		if h.rules[i], err = core.NewRule(core.RuleConfig{Name: "r", Limit: limit}); err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, h.nodes[i].Open(h.rules[i]))
	}
	return h
}

// take takes a unit by a node, and checks the decision.
func (h *handled) take(node int, want bool, retry time.Duration) {
	h.t.Helper()
	checks := []core.Check{{Rule: h.rules[node], Key: "alice", Cost: 1}}
	must.Succeed(h.t, h.nodes[node].Decide(checks, false))
	if d := checks[0].Decision; d.Allowed != want || d.RetryAfter != retry.Microseconds() {
		h.t.Fatalf("node %d: %+v; want %v, and a retry after %v", node, d, want, retry)
	}
}

func (h *handled) block(node int, span time.Duration) {
	h.t.Helper()
	must.Succeed(h.t, h.nodes[node].Block(h.rules[node], "alice", span.Microseconds()))
}

// Blocks, unblocks and resets by hand take effect on all nodes at once, except that a node remembers rejections for ten seconds at most.
func TestBlocksByHandTakeEffectOnAllNodes(t *testing.T) {
	server := redistest.Start(t, redistest.WithClock(), redistest.WithUser("weir", "secret", "~hand* "+acl))
	for _, l := range []rate.LimitConfig{
		{Algorithm: rate.TokenBucket, Requests: 3, Period: time.Hour, Interval: true},
		{Algorithm: rate.LeakyBucket, Requests: 3600, Period: time.Hour, Burst: 3},
		{Algorithm: rate.FixedWindow, Requests: 3, Calendar: rate.Day},
		{Algorithm: rate.SlidingWindowLog, Requests: 3, Period: time.Hour},
		{Algorithm: rate.SlidingWindowCounter, Requests: 3, Period: time.Hour},
	} {
		h := newHandled(t, server, "hand"+l.Algorithm.String()+":", l)
		h.take(0, true, 0)
		h.block(1, time.Minute)
		h.take(0, false, time.Minute)
		h.take(1, false, time.Minute)
		h.block(0, 0) // the other node remembers the rejection for ten seconds
		h.take(0, true, 0)
		h.clock.Add((10*time.Second - time.Microsecond).Microseconds())
		h.take(1, false, 50*time.Second+time.Microsecond)
		h.clock.Add(1)
		h.take(1, true, 0)
		h.block(0, time.Minute)
		h.take(0, false, time.Minute)
		must.Succeed(t, h.nodes[0].Reset(h.rules[0], "alice"))
		h.take(0, true, 0)
		h.block(0, time.Minute)
		h.clock.Add(time.Minute.Microseconds())
		h.take(0, true, 0)
		h.take(1, true, 0)
		if left := server.MustDo(t, "KEYS", "hand"+l.Algorithm.String()+":*").List; len(left) != 1 {
			t.Errorf("%s: the keys that are left are %v", l.Algorithm, left)
		}
	}
	if log := server.MustDo(t, "ACL", "LOG"); len(log.List) != 0 {
		t.Errorf("the server has refused something: %v", log)
	}
}

// concluded keeps the decision.
type concluded struct{ decision rate.Decision }

func (c *concluded) ServeHTTP(http.ResponseWriter, *http.Request) {}

func (c *concluded) Conclude(_ http.ResponseWriter, _ *http.Request, checks []core.Check, _ error) {
	c.decision = checks[0].Decision
}

func (c *concluded) Finish([]core.Reservation) {}

// The fast path rejects a key that another node has blocked.
func TestTheFastPathRejectsABlockedKey(t *testing.T) {
	server := redistest.Start(t, redistest.WithClock(), redistest.WithUser("weir", "secret", "~hand* "+acl))
	h := newHandled(t, server, "hand:", rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Hour})
	passed := 0
	rest := &concluded{}
	handler := redis.Serve(h.nodes[0], h.rules[0], &memory.ServeConfig{
		QuotaFields: answer.NewQuotaFields(h.rules[0], answer.Fields{}),
		Direct:      true,
		Next:        http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }),
		Rest:        rest,
	}, rest)
	serve := func() {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "192.0.2.1:80"
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	// The key is not known at first, nor is the connection there.
	until(t, "a request passes by the fast path", func() bool { serve(); return passed == 1 })
	must.Succeed(t, h.nodes[1].Block(h.rules[1], "192.0.2.1", time.Minute.Microseconds()))
	until(t, "a request is decided by it", func() bool { serve(); return rest.decision.RetryAfter != 0 || passed > 1 })
	if d := rest.decision; passed != 1 || d.Allowed || d.RetryAfter != time.Minute.Microseconds() || d.Remaining != 0 {
		t.Errorf("%d passed; the decision is %+v", passed, d)
	}
}
