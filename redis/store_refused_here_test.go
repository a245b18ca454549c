package redis

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// TestWhatThisNodeRejectsIsRejectedAgainWhileRedisIsAway: without asking or counting, for as long as the rule that rejects it says, and no longer than Redis is
// away.
func TestWhatThisNodeRejectsIsRejectedAgainWhileRedisIsAway(t *testing.T) {
	for name, apart := range map[string]bool{"one key": false, "different keys": true} {
		s := newScene(t, false)
		s.answer = func(*sentCall) ([]int64, error) { return nil, errDown }
		s.nodes = 2
		v := openSeveral(s, apart, 20)
		send := func() *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = "a:1"
			w := httptest.NewRecorder()
			v.checks = nil
			v.passed = false
			v.handler.ServeHTTP(w, r)
			return w
		}
		for !s.server("a").breaker.Open() {
			send()
		}
		refuse := func() {
			checks := append([]core.Check{}, v.checks...)
			for i := range checks {
				checks[i].Rule = v.rules[i].Local
			}
			checks[0].Decision = rate.Decision{Allowed: true, Limit: 5, Remaining: 4}
			checks[1].Decision = rate.Decision{Limit: 10, RetryAfter: 2 * second, ResetAfter: 7 * second}
			checks[2].Decision = rate.Decision{Allowed: true, Limit: 1, Remaining: 1}
			s.store.RefusedLocally(v.rules, checks)
		}
		refuse()
		calls := len(s.calls)
		w := send()
		got := []string{w.Header().Get("Retry-After"), w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("X-RateLimit-Reset"), w.Header().Get("RateLimit")}
		want := []string{"2", "10", "0", "7", `"a";r=4, "b";r=0;t=2, "c";r=1`}
		if w.Code != http.StatusTooManyRequests || v.checks != nil || len(s.calls) != calls || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %d with %q, checks %v; want %d with %q, and none", name, w.Code, got, v.checks, http.StatusTooManyRequests, want)
		}
		s.now += 2 * second
		if send(); v.checks == nil {
			t.Errorf("%s: a request is rejected when a unit is free", name)
		}
		refuse()
		s.answer = func(c *sentCall) ([]int64, error) {
			var reply []int64
			for range c.keys {
				reply = append(reply, allowedWith(1)...)
			}
			return reply, nil
		}
		s.server("a").breaker.Probe()
		s.server("a").breaker.Probed(true)
		if w = send(); w.Code == http.StatusTooManyRequests || v.err != nil || len(s.calls) != calls+1 {
			t.Errorf("%s: when Redis is back, status %d, %v, and %d calls", name, w.Code, v.err, len(s.calls)-calls)
		}
	}
}

// node is a limiter with a fast path for one rule, whose general path counts in memory where Redis fails.
type node struct {
	limiter *core.Limiter
	rule    *core.Rule
	handler http.Handler
	general int // requests that have taken the general path
}

// newNode returns one of so many nodes, which counts in counts while Redis is away.
func newNode(s *scene, counts core.Store, nodes int, c core.RuleConfig, l rate.LimitConfig) *node {
	n := &node{limiter: core.NewLimiter(s.store), rule: mustRule(s.t, c, l)}
	n.limiter.FallBack(counts, nodes)
	n.limiter.OnRefusedLocally(s.store)
	must.Succeed(s.t, n.limiter.Open(n.rule))
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	config := &memory.ServeConfig{
		QuotaFields: answer.NewQuotaFields(n.rule, answer.Fields{XRateLimit: true}), Refusal: answer.NewRefusal("", "r"), Key: hostOf, Direct: true, Next: next, Rest: n,
	}
	n.handler = Serve(s.store, n.rule, config, n)
	return n
}

func (n *node) Conclude(w http.ResponseWriter, r *http.Request, checks []core.Check, err error) {
	var v core.Verdict
	_, _ = n.limiter.Conclude(nil, checks, err, &v) // the verdict is valid all the same
	say(w, &v)
}

func (n *node) Finish([]core.Reservation) {}

// ServeHTTP takes the general path.
func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.general++
	var v core.Verdict
	_ = n.limiter.Decide([]core.Check{check(n.rule, hostOf(r), 1)}, false, &v)
	say(w, &v)
}

func say(w http.ResponseWriter, v *core.Verdict) {
	if v.Outcome == core.Reject {
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// get returns the status of a request of that client.
func (n *node) get(client string) int {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = client + ":1"
	w := httptest.NewRecorder()
	n.handler.ServeHTTP(w, r)
	return w.Code
}

// A rule whose units are another region's is not open in the store itself.
func TestWhatIsNotOpenIsNotNoted(t *testing.T) {
	s := newScene(t, false)
	r := mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{})
	checks := []core.Check{check(r, "a", 1)}
	checks[0].Decision = rate.Decision{RetryAfter: second, ResetAfter: second}
	s.store.RefusedLocally([]*core.Rule{r}, checks)
	if found := s.store.decisions.find(s.store.hashOf(&openRule{}, "a"), &cachedDecision{}); found {
		t.Error("it is noted")
	}
}

// share gives a rule its rule in memory, with the share of one of so many nodes.
func share(s *scene, r *core.Rule, nodes int) {
	l := core.NewLimiter(s.store)
	l.FallBack(memory.New(memory.Config{}), nodes)
	must.Succeed(s.t, l.Open(r))
}

// TestOneRulesRejectionsAreRepeatedWhileRedisIsAway: with a single rule, for as long as its count in memory rejects, and no longer.
func TestOneRulesRejectionsAreRepeatedWhileRedisIsAway(t *testing.T) {
	for _, algorithm := range []rate.Algorithm{rate.TokenBucket, rate.FixedWindow, rate.SlidingWindowLog, rate.SlidingWindowCounter} {
		s := newScene(t, false)
		s.answer = func(*sentCall) ([]int64, error) { return nil, errDown }
		counts := memory.New(memory.Config{Clock: func() int64 { return s.now }})
		n := newNode(s, counts, 2, core.RuleConfig{Name: "r"}, rate.LimitConfig{Algorithm: algorithm, Requests: 20, Period: 10 * time.Second})
		for !s.server("a").breaker.Open() {
			n.get("b")
		}
		repeated, general := 0, n.general
		for i := 0; i < 3000; i++ {
			s.now += 7900
			checks := []core.Check{check(n.rule.Local, "a", 1)}
			must.Succeed(t, counts.Decide(checks, true)) // what the count would say
			before := n.general
			allowed := n.get("a") == http.StatusOK
			if n.general == before {
				repeated++
			}
			if allowed != checks[0].Decision.Allowed {
				t.Fatalf("%v, request %d: allowed %v, by the count %v", algorithm, i, allowed, checks[0].Decision.Allowed)
			}
		}
		if asked := n.general - general; repeated < 2900 || asked > 100 {
			t.Errorf("%v: %d of 3000 requests are rejected again without counting, %d are counted", algorithm, repeated, asked)
		}
	}
}

// A defect of the first form: a single failure, after which nobody probes, had a key rejected for seconds, though Redis would have allowed it.
func TestASingleFailureRejectsNoRequestsToCome(t *testing.T) {
	s := newScene(t, false)
	counts := memory.New(memory.Config{Clock: func() int64 { return s.now }})
	n := newNode(s, counts, 3, core.RuleConfig{Name: "r"}, rate.LimitConfig{Requests: 10, Period: time.Minute})
	s.answer = always([]int64{1, 0, 60 * second, 6 * second})
	must.Equal(t, [2]int{n.get("a"), n.get("a")}, [2]int{200, 200})
	s.answer = func(*sentCall) ([]int64, error) { return nil, ErrTimeout }
	s.now += 1000
	must.Equal(t, n.get("a"), 429, "nine tenths are used, so that a share of three is, too")
	s.answer = always([]int64{0, 0, 60 * second, 6 * second})
	s.now += second
	must.Equal(t, n.get("a"), 200, "Redis is well")
}

// A reload with another on_error, or for another number of nodes, takes effect at once.
func TestWhatAFormerRuleHasRejectedIsNotRepeated(t *testing.T) {
	s := newScene(t, false)
	s.answer = func(*sentCall) ([]int64, error) { return nil, ErrTimeout }
	limit := rate.LimitConfig{Requests: 4, Period: time.Minute}
	for name, c := range map[string]struct {
		nodes   int
		onError core.OnError
		want    int
	}{
		"the same":           {2, core.CountLocally, 429},
		"open":               {2, core.LetPass, 200},
		"closed":             {2, core.RejectAll, 200}, // a 503 in truth, of which say says nothing
		"for half the fleet": {1, core.CountLocally, 200},
	} {
		counts := memory.New(memory.Config{Clock: func() int64 { return s.now }})
		former := newNode(s, counts, 2, core.RuleConfig{Name: "r"}, limit)
		for i := 0; i < 9; i++ {
			former.get(name)
		}
		must.Equal(t, former.get(name), 429, name)
		now := newNode(s, memory.New(memory.Config{}), c.nodes, core.RuleConfig{Name: "r", OnError: c.onError}, limit)
		now.general = 0
		if code := now.get(name); code != c.want || (now.general == 0) != (c.want == 429) {
			t.Errorf("%s: %d, %d on the general path, want %d", name, code, now.general, c.want)
		}
	}
}
