package memory

import (
	"fmt"
	"math/rand"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// history.decide, beside the oracles, tests that Take decides as Decide does.

func TestWhatHasAFastPath(t *testing.T) {
	perMinute := rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 5, Period: time.Minute}
	for name, c := range map[string]struct {
		index Index
		limit rate.LimitConfig
		want  bool
	}{
		"a bucket":                   {Mapped, perMinute, true},
		"a store that is not mapped": {Probing, perMinute, false},
		"a log":                      {Mapped, rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 5, Period: time.Minute}, true},
	} {
		m := New(Config{Index: c.index})
		r := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, c.limit)})
		must.Succeed(t, m.Open(r))
		must.Equal(t, NewFastPath(m, r) != nil, c.want, "%s", name)
	}
}

// Rules of files get another path with the first request after a change, while the memory may be swept. (The race detector sees what is wrong.)
func TestFastPathsAreMadeDuringASweep(t *testing.T) {
	m := New(Config{Index: Mapped})
	r := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 5, Period: time.Minute})})
	must.Succeed(t, m.Open(r))
	swept := make(chan bool)
	go func() {
		m.Sweep()
		close(swept)
	}()
	must.Equal(t, NewFastPath(m, r) != nil && NewLinkedPath(m, r) != nil, true, "there are paths")
	<-swept
}

func TestTheFastPathLeavesRareCasesAlone(t *testing.T) {
	now := int64(1_700_000_000_000_000)
	m := New(Config{Index: Mapped, Clock: func() int64 { return now }})
	r := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 2, Period: time.Minute})})
	must.Succeed(t, m.Open(r))
	e := NewFastPath(m, r)
	checks := []core.Check{{Rule: r, Key: "k", Cost: 1}}
	for i, want := range []int64{-1, 0, -1, -1} { // a new key, an allowed request, rejected ones
		remaining, _, _ := Take(e, "k")
		if remaining != want {
			t.Fatalf("request %d: remaining %d, want %d", i, remaining, want)
		}
		if remaining >= 0 {
			continue
		}
		if m.Keys(r) != int64(smaller(1, int64(i))) {
			t.Fatalf("request %d: %d keys", i, m.Keys(r))
		}
		if err := m.Decide(checks, false); err != nil || checks[0].Decision.Allowed != (i == 0) {
			t.Fatalf("request %d: %+v, %v", i, checks[0].Decision, err)
		}
	}
	now += 30_000_000
	if remaining, reset, more := Take(e, "k"); remaining != 0 || reset != 60_000_000 || more != 30_000_000 {
		t.Errorf("after half a minute: remaining %d, reset %d, more in %d", remaining, reset, more)
	}
}

// allQuotaFields returns quota fields with all fields wanted. If an earlier handler has set any, they go to a field "After", so
// that a test sees it.
func allQuotaFields(r *core.Rule) *QuotaFields {
	return MakeQuotaFields(r, true, true, func(h http.Header, remaining, reset, more int64) {
		h["After"] = []string{fmt.Sprint(remaining, reset, more)}
	})
}

// generalPath decides by Limiter.Decide, sets the quota fields by SetQuotaFields, and counts the requests that it gets.
type generalPath struct {
	t           *testing.T
	store       *Store
	rule        *core.Rule
	quotaFields *QuotaFields
	next        http.Handler
	asked       int
}

func (p *generalPath) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.asked++
	checks := []core.Check{{Rule: p.rule, Key: hostOf(r), Cost: 1}}
	var v core.Verdict
	limiter := core.NewLimiter(p.store)
	must.Succeed(p.t, limiter.Decide(checks, false, &v))
	if v.Outcome == core.Delay {
		w.Header().Set("Delay", strconv.FormatInt(v.Delay, 10))
	}
	if v.Outcome == core.Reject {
		w.Header().Set("Retry", strconv.FormatInt(v.RetryAfter, 10))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	d := &checks[0].Decision
	SetQuotaFields(p.quotaFields, w.Header(), d.Remaining, inWhole(d.ResetAfter), inWhole(d.MoreAfter))
	p.next.ServeHTTP(w, r)
}

// hostOf is the Key of a ServeConfig.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// inWhole rounds microseconds up to seconds.
func inWhole(micros int64) int64 { return (micros + 999_999) / 1_000_000 }

func TestServeDoesWhatDecideAndSetQuotaFieldsDo(t *testing.T) {
	underrace.OneGoroutine(t)
	servesAsDecide(t, Serve)
}

func TestTheTemplateOfServeDoesTheSame(t *testing.T) {
	underrace.OneGoroutine(t)
	servesAsDecide(t, templateServe)
}

func servesAsDecide(t *testing.T, serve func(e *FastPath, c *ServeConfig) http.Handler) {
	t.Helper()
	steps := 4000
	if interpreted {
		steps = 400
	}
	for _, c := range []rate.LimitConfig{
		{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Second, Burst: 5},
		{Algorithm: rate.TokenBucket, Requests: 20_000, Period: time.Second},
		{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Second, Interval: true},
		{Algorithm: rate.LeakyBucket, Requests: 10, Period: time.Second, Burst: 3},
		{Algorithm: rate.FixedWindow, Requests: 8, Period: time.Second},
		{Algorithm: rate.SlidingWindowCounter, Requests: 8, Period: time.Second},
		{Algorithm: rate.SlidingWindowCounter, Requests: 30_000, Period: time.Hour * 10},
		{Algorithm: rate.SlidingWindowLog, Requests: 8, Period: time.Second},
		{Algorithm: rate.SlidingWindowLog, Requests: 20_000, Period: 10 * time.Hour},
	} {
		random := rand.New(rand.NewSource(2))
		now := int64(1_700_000_000_000_000)
		clock := func() int64 { return now }
		passed := 0
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed++
			w.WriteHeader(http.StatusOK)
		})
		paths := make([]*generalPath, 2) // for requests that Serve leaves, and for all
		for i := range paths {
			m := New(Config{Index: Mapped, Clock: clock})
			if i > 0 { // with the same seed, a new key makes both look at the same old keys
				m.seed = paths[0].store.seed
			}
			r := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, c)})
			must.Succeed(t, m.Open(r))
			paths[i] = &generalPath{t: t, store: m, rule: r, quotaFields: allQuotaFields(r), next: next}
		}
		handler := serve(NewFastPath(paths[0].store, paths[0].rule), &ServeConfig{QuotaFields: paths[0].quotaFields, Key: hostOf, Direct: true, Keyless: paths[0], Next: next, Rest: paths[0]})
		for i := 0; i < steps; i++ {
			now += random.Int63n(200_000)
			if random.Intn(50) == 0 {
				now -= random.Int63n(3_000_000)
			}
			if random.Intn(40) == 0 {
				key := []string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "x"}[random.Intn(4)]
				span := random.Int63n(2) * random.Int63n(2_000_000)
				for _, path := range paths {
					if span%5 == 1 {
						_ = path.store.Reset(path.rule, key)
					} else {
						_ = path.store.Block(path.rule, key, span)
					}
				}
			}
			r := &http.Request{Header: http.Header{}, RemoteAddr: []string{"192.0.2.1:80", "192.0.2.2:81", "[2001:db8::1]:80", "", ":", "x"}[random.Intn(6)]}
			got, want := newWritten(), newWritten()
			if random.Intn(3) == 0 {
				got.Header()["Content-Type"] = nil // as in Traefik
				want.Header()["Content-Type"] = nil
			}
			if random.Intn(5) == 0 { // as by an earlier handler
				for _, w := range []*writtenResponse{got, want} {
					w.header["X-Ratelimit-Limit"] = []string{"4"}
					w.header["X-Ratelimit-Remaining"] = []string{"2"}
					w.header["Ratelimit"] = []string{`"a";r=2`}
				}
			}
			handler.ServeHTTP(got, r)
			paths[1].ServeHTTP(want, r)
			if got.status != want.status || !reflect.DeepEqual(got.header, want.header) {
				t.Fatalf("%s, request %d of %q %v: %d %v, want %d %v", mustLimit(t, c).String(), i, r.RemoteAddr, r.Header, got.status, got.header, want.status, want.header)
			}
		}
		if paths[0].store.Stats() != paths[1].store.Stats() {
			t.Errorf("%+v, want %+v", paths[0].store.Stats(), paths[1].store.Stats())
		}
		if left := paths[0].asked; left > steps*9/10 && !c.Interval {
			t.Errorf("%s: of %d requests %d were left to the rest", mustLimit(t, c).String(), steps, left)
		}
	}
}

// writtenResponse records the answer of a handler.
type writtenResponse struct {
	header http.Header
	status int
}

func newWritten() *writtenResponse { return &writtenResponse{header: http.Header{}} }

func (w *writtenResponse) Header() http.Header { return w.header }

func (w *writtenResponse) Write(b []byte) (int, error) { return len(b), nil }

func (w *writtenResponse) WriteHeader(status int) { w.status = status }

// newKeyPaths returns a fast path for each algorithm and one for all of them together, which share a store. Decide serves what they leave.
func newKeyPaths(t *testing.T, m *Store, requests int64) []http.Handler {
	var paths []http.Handler
	var all []*ServedRule
	var checks []core.Check
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})
	rest := func(checks ...core.Check) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i := range checks {
				checks[i].Key = r.RemoteAddr[:len(r.RemoteAddr)-len(":80")]
			}
			must.Succeed(t, m.Decide(checks, false))
		})
	}
	for a := rate.TokenBucket; a < rate.InFlight; a++ {
		r := mustRule(t, core.RuleConfig{Name: a.String(), Limit: mustLimit(t, rate.LimitConfig{Algorithm: a, Requests: requests, Period: time.Hour})})
		must.Succeed(t, m.Open(r))
		e := NewFastPath(m, r)
		c := core.Check{Rule: r, Cost: 1}
		checks = append(checks, c)
		all = append(all, &ServedRule{FastPath: e, QuotaFields: allQuotaFields(r), Allowed: new(int64)})
		paths = append(paths, Serve(e, &ServeConfig{QuotaFields: allQuotaFields(r), Key: hostOf, Direct: true, Next: next, Rest: rest(c)}))
	}
	return append(paths, ServeSeveral(all, &ServeConfig{Key: hostOf, Direct: true, Next: next, Rest: rest(checks...)}))
}

func TestAMillionNewKeysStayWithinMaxKeysOnEachFastPath(t *testing.T) {
	underrace.OneGoroutine(t)
	maxKeys, requests := 10_000, 1_000_000
	if interpreted {
		maxKeys, requests = 100, 1_000
	}
	now := int64(1_700_000_000_000_000)
	m := New(Config{MaxKeys: maxKeys, Index: Mapped, Clock: func() int64 { return now }})
	paths := newKeyPaths(t, m, 5)
	w := newWritten()
	for i := 0; i < requests; i++ {
		now += 10
		w.header = http.Header{}
		paths[i%len(paths)].ServeHTTP(w, &http.Request{RemoteAddr: strconv.Itoa(i) + ":80"})
		if n := m.Stats().Keys; n > int64(maxKeys)+100 { // evict may need more than one request
			t.Fatalf("after %d new keys there are %d, want at most %d and a few", i+1, n, maxKeys)
		}
	}
	if n := m.Stats().Keys; n < int64(maxKeys)*9/10 {
		t.Errorf("there are %d keys, want nearly %d", n, maxKeys)
	}
}

func TestLogsStayWithinTheirBoundOnTheFastPath(t *testing.T) {
	underrace.OneGoroutine(t)
	now := int64(1_700_000_000_000_000)
	m := New(Config{MaxKeys: 100, Index: Mapped, Clock: func() int64 { return now }})
	paths := newKeyPaths(t, m, rate.MaxLogRequests)
	logs, several := paths[rate.SlidingWindowLog-rate.TokenBucket], paths[len(paths)-1]
	rule := m.spaces.Load().([]*space)[rate.SlidingWindowLog-rate.TokenBucket].rules[0]
	w := newWritten()
	for i := 0; i < 20; i++ {
		key := strconv.Itoa(i)
		must.Succeed(t, m.Decide([]core.Check{{Rule: rule, Key: key, Cost: rate.MaxLogRequests / 2}}, false))
		for j, path := range []http.Handler{logs, several, logs} { // of which the first makes the ring twice as large
			w.header = http.Header{}
			path.ServeHTTP(w, &http.Request{RemoteAddr: key + ":80"})
			if n := m.logTimes.Load(); n > logBudgetFloor {
				t.Fatalf("after request %d of key %d logs hold %d times, want at most %d", j, i, n, logBudgetFloor)
			}
		}
	}
}
