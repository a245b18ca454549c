package traefik

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/tools/must"
)

func bodyOf(r *http.Response) string {
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

func TestAllowedRequestsHaveQuotaFields(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rules: []Rule{
		{Name: "wide", Limit: "100/1m"},
		{Name: "tight", Limit: "3/1m", Algorithm: "fixed_window"},
		{Name: "hidden", Limit: "1/1m", Enforcement: "shadow"},
	}}, "m@file")
	want := map[string]string{
		"X-Ratelimit-Limit":     "3",
		"X-Ratelimit-Remaining": "2",
		"X-Ratelimit-Reset":     "60",
		"Ratelimit-Policy":      `"wide";q=100;w=60, "tight";q=3;w=60`,
		"Ratelimit":             `"wide";r=99;t=61, "tight";r=2;t=60`,
	}
	response := get(h, "192.0.2.1", nil)
	if response.StatusCode != 200 || len(response.Header) != len(want) {
		t.Errorf("%s %v", response.Status, response.Header)
	}
	for name, value := range want {
		must.Equal(t, response.Header.Get(name), value, "%s", name)
	}
}

func TestTheChosenHeadersAreSet(t *testing.T) {
	for _, test := range []struct {
		headers string
		x, ietf bool
	}{
		{"x_ratelimit", true, false},
		{"ietf", false, true},
		{"x_ratelimit, ietf", true, true},
		{"none", false, false},
	} {
		s := newStage(t)
		h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1m"}, Headers: strings.Split(test.headers, ",")}, "m@file")
		for i := 0; i < 2; i++ {
			response := get(h, "192.0.2.1", nil)
			must.Equal(t, response.Header["X-Ratelimit-Limit"] != nil, test.x, "%s: X-RateLimit", test.headers)
			must.Equal(t, response.Header["Ratelimit"] != nil, test.ietf, "%s: RateLimit", test.headers)
			must.Equal(t, response.Header["Retry-After"] != nil, i == 1, "%s: Retry-After", test.headers)
		}
	}
}

func TestRejectedRequestsHaveRetryAfter(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rules: []Rule{
		{Name: "minute", Limit: "1/1m", Algorithm: "fixed_window", Jitter: "0"},
		{Name: "wide", Limit: "2/1m", Algorithm: "fixed_window"},
	}}, "m@file")
	get(h, "192.0.2.1", nil)
	response := get(h, "192.0.2.1", nil)
	body := bodyOf(response)
	if response.StatusCode != 429 || response.Header.Get("Retry-After") != "60" || response.Header.Get("X-Ratelimit-Retry-After") != "60" || response.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %v", response.Status, response.Header)
	}
	if got := response.Header.Get("Ratelimit"); got != `"minute";r=0;t=60, "wide";r=1;t=60` {
		t.Errorf("RateLimit %s: the rule that would have admitted the request was charged", got)
	}
	if want := answer.DefaultMessage + " Try again in 60 seconds.\n"; body != want || response.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%s %q", response.Header.Get("Content-Type"), body)
	}
	response = get(h, "192.0.2.1", func(r *http.Request) { r.Header.Set("Accept", "application/json") })
	var problem struct {
		Type     string
		Status   int
		Violated []string `json:"violated-policies"`
	}
	must.Succeed(t, json.Unmarshal([]byte(bodyOf(response)), &problem))
	if response.Header.Get("Content-Type") != "application/problem+json" || problem.Type != answer.QuotaExceeded || problem.Status != 429 || len(problem.Violated) != 1 || problem.Violated[0] != "minute" {
		t.Errorf("%+v", problem)
	}
	must.Equal(t, s.passed, 1, "%d requests reached the service", s.passed)
}

func TestMessageAndJitter(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/100s", Algorithm: "fixed_window"}, Message: "Slowly, please.", Jitter: "0.5"}, "m@file")
	get(h, "192.0.2.1", nil)
	waits := make(map[string]bool)
	for i := 0; i < 50; i++ {
		response := get(h, "192.0.2.1", nil)
		if body := bodyOf(response); body != "Slowly, please.\n" {
			t.Fatalf("%q", body)
		}
		wait := response.Header.Get("Retry-After")
		waits[wait] = true
		if len(wait) < 2 || len(wait) > 3 || len(wait) == 3 && wait > "150" {
			t.Errorf("Retry-After %s of a wait of at most 100 s and a half", wait)
		}
		if response.Header.Get("X-Ratelimit-Retry-After") != wait || !strings.HasSuffix(response.Header.Get("Ratelimit"), "t="+wait) {
			t.Errorf("the fields differ: %v", response.Header)
		}
	}
	if len(waits) < 5 {
		t.Errorf("only %d waits", len(waits))
	}
}

// asked asks for a path.
func asked(h http.Handler, path string) *http.Response {
	return get(h, "192.0.2.1", func(r *http.Request) { r.URL.Path = path })
}

// The text is that of the reported rule: if several reject, the one with the longest wait.
func TestARuleHasAMessageOfItsOwn(t *testing.T) {
	s := newStage(t)
	file := writeFile(t, t.TempDir()+"/limits.json", `{"rules": [{"name": "filed", "match": {"paths": ["/filed"]}, "limit": "1/1h", "message": "Filed."}]}`)
	h := s.handler(context.Background(), &Config{Message: "Slowly, please.", RulesFile: []string{file}, Rules: []Rule{
		{Name: "short", Match: map[string]interface{}{"paths": "/login,/both"}, Limit: "1/1h", Message: "Too many {logins}."},
		{Name: "long", Match: map[string]interface{}{"paths": "/both"}, Limit: "1/1d", Message: "Too long."},
		{Name: "wordless", Match: map[string]interface{}{"paths": "/wordless"}, Limit: "1/1h"},
	}}, "m@file")
	for _, path := range []string{"/both", "/filed", "/wordless"} {
		if r := asked(h, path); r.StatusCode != 200 {
			t.Fatalf("%s: %d", path, r.StatusCode)
		}
	}
	for path, want := range map[string]string{"/login": "Too many {logins}.", "/both": "Too long.", "/filed": "Filed.", "/wordless": "Slowly, please."} {
		if r := asked(h, path); r.StatusCode != 429 || bodyOf(r) != want+"\n" {
			t.Errorf("%s: %d, want 429 and %q", path, r.StatusCode, want)
		}
	}

	h = s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1h", Message: "Mine."}}, "own@file")
	asked(h, "/")
	must.Equal(t, bodyOf(asked(h, "/")), "Mine.\n", "body")
}

func TestGRPCCallsAreAnsweredInTheirWay(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1m"}}, "m@file")
	call := func(r *http.Request) {
		r.Method = "POST"
		r.ProtoMajor = 2
		r.Header.Set("Content-Type", "application/grpc+proto")
	}
	get(h, "192.0.2.1", call)
	response := get(h, "192.0.2.1", call)
	if response.StatusCode != 200 || response.Header.Get("Grpc-Status") != "8" || response.Header.Get("Content-Type") != "application/grpc" || response.Header.Get("Retry-After") == "" {
		t.Errorf("%s %v", response.Status, response.Header)
	}
	must.Equal(t, s.passed, 1, "%d calls reached the service", s.passed)
}

// What a cost or a tier is taken from, and no request has, is told once. What some have is not.
func TestAValueThatNoRequestHasIsTold(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rules: []Rule{
		{Name: "a", Limit: "50000/1h", Cost: "header:X-Cots"},
		{Name: "b", Limit: "50000/1h", Tiers: object{"source": "cookie:plan", "limits": object{"gold": "60000/1h"}}},
		{Name: "c", Limit: "50000/1h", Cost: "header:X-Cost"},
		{Name: "d", Limit: "50000/1h", Cost: "query:cost", Match: object{"paths": "/other"}},
	}}, "m@file")
	for i := 0; i < 1100; i++ {
		get(h, "192.0.2.1", func(r *http.Request) {
			if i == 900 {
				r.Header.Set("X-Cost", "2")
			}
		})
	}
	for want, times := range map[string]int{
		`rule "a": cost: the first 1000 requests had no header:X-Cots; is its name spelt as they have it?`: 1,
		`rule "b": tiers: the first 1000 requests had no cookie:plan; is its name spelt as they have it?`:  1,
		`the first 1000 requests`: 2,
	} {
		if got := s.log.count(want); got != times {
			t.Errorf("%d lines %s, want %d: %s", got, want, times, s.log)
		}
	}
}

func TestAShadowCountsAndRejectsNothing(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1m", Enforcement: "shadow"}}, "m@file")
	must.Equal(t, statuses(h, "192.0.2.1", 4), "200 200 200 200")
	if response := get(h, "192.0.2.1", nil); len(response.Header) != 0 {
		t.Errorf("%v", response.Header)
	}
	s.step(time.Minute)
	must.Equal(t, s.log.count("rule \"m\", a shadow, would have rejected 4 requests in the last minute"), 1, "the log: %s", s.log)
	s.step(time.Minute)
	must.Equal(t, s.log.count("a shadow"), 1, "what did not happen was logged: %s", s.log)
}

func TestALeakyBucketMakesRequestsWaitUntilTheyAreDue(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1s", Algorithm: "leaky_bucket", Burst: "4"}}, "m@file")
	answers := make(chan int, 10)
	for i := 0; i < 6; i++ {
		if i == 0 || i == 5 {
			answers <- get(h, "192.0.2.1", nil).StatusCode
			continue
		}
		go func() { answers <- get(h, "192.0.2.1", nil).StatusCode }()
		s.untilWaiting(i)
	}
	first := <-answers
	last := <-answers
	if first != 200 || last != 429 {
		t.Fatalf("the first %d, the sixth %d", first, last)
	}
	for i := 0; i < 4; i++ {
		s.step(time.Second - time.Microsecond)
		if n := s.reached(); n != 1+i {
			t.Fatalf("%d passed before %d s", n, i+1)
		}
		s.step(time.Microsecond)
		if got := <-answers; got != 200 {
			t.Fatalf("held, and answered %d", got)
		}
	}
	must.Equal(t, s.reached(), 5, "passed")
}

// untilWaiting returns when so many requests are held.
func (s *stage) untilWaiting(n int) {
	s.t.Helper()
	for i := 0; i < 10_000; i++ {
		s.mu.Lock()
		waiting := len(s.waits)
		s.mu.Unlock()
		if waiting == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	s.t.Fatalf("there are never %d requests held", n)
}

func (s *stage) reached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.passed
}

func TestAClientThatLeavesIsNotServed(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1s", Algorithm: "leaky_bucket", Burst: "4"}}, "m@file")
	get(h, "192.0.2.1", nil)
	ctx, leave := context.WithCancel(context.Background())
	var answered sync.WaitGroup
	answered.Add(1)
	status := 0
	go func() {
		defer answered.Done()
		r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
		r.RemoteAddr = "192.0.2.1:1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		status = w.Code
	}()
	s.untilWaiting(1)
	leave()
	answered.Wait()
	if status != 499 || s.reached() != 1 {
		t.Errorf("status %d, and %d requests reached the service", status, s.reached())
	}
}

func TestALongerWaitThanMaxDelayIsRejectedAtOnce(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1s", Algorithm: "leaky_bucket", Burst: "4", MaxDelay: "500ms"}}, "m@file")
	must.Equal(t, statuses(h, "192.0.2.1", 2), "200 429")
}

// failing is a store that fails.
type failing struct{ err error }

func (f *failing) Open(*core.Rule) error                        { return nil }
func (f *failing) Release(*core.Rule)                           {}
func (f *failing) Decide(checks []core.Check, peek bool) error  { return f.err }
func (f *failing) Settle(reservations []core.Reservation) error { return f.err }
func (f *failing) Block(rule *core.Rule, key string, duration int64) error {
	return f.err
}

func (f *failing) Carry(from, to *core.Rule, done func()) { done() }

func (f *failing) Now() int64 { return 0 }

func (f *failing) Reset(rule *core.Rule, key string) error { return f.err }

func (f *failing) Credit(rule *core.Rule, key string, units int64) error { return f.err }

func TestWhatHappensWhenTheStoreFails(t *testing.T) {
	for _, test := range []struct {
		onError, want string
	}{
		{"", "200 200 429"},
		{"local", "200 200 429"},
		{"open", "200 200 200"},
		{"closed", "503 503 503"},
	} {
		s := newStage(t)
		s.made(&Config{Rule: Rule{Limit: "2/1m", OnError: test.onError}}, "m@file")
		h := fail(s, errors.New("it broke"))
		must.Equal(t, statuses(h, "192.0.2.1", 3), test.want, "%s", test.onError)
		response := get(h, "192.0.2.1", nil)
		if test.onError == "closed" && (response.Header.Get("Retry-After") != "1" || response.Header.Get("Cache-Control") != "no-store" || bodyOf(response) != "The rate limit cannot be checked. Try again.\n") {
			t.Errorf("%v", response.Header)
		}
		if test.onError == "open" && len(response.Header) != 0 {
			t.Errorf("uncounted, but with the quota fields %v", response.Header)
		}
		must.Equal(t, s.log.count("it broke"), 1, "lines in the log: %s", s.log)
		s.step(time.Second)
		get(h, "192.0.2.1", nil)
		must.Equal(t, s.log.count("it broke"), 2, "lines in the log a second later")
	}
}

// unsettled is a store that decides, and fails where something is given back.
type unsettled struct {
	memory *memory.Store
	err    error
}

func (u *unsettled) Open(rule *core.Rule) error { return u.memory.Open(rule) }
func (u *unsettled) Release(rule *core.Rule)    { u.memory.Release(rule) }
func (u *unsettled) Decide(checks []core.Check, peek bool) error {
	return u.memory.Decide(checks, peek)
}
func (u *unsettled) Settle(reservations []core.Reservation) error { return u.err }
func (u *unsettled) Block(rule *core.Rule, key string, duration int64) error {
	return u.memory.Block(rule, key, duration)
}

func (u *unsettled) Carry(from, to *core.Rule, done func()) { u.memory.Carry(from, to, done) }

func (u *unsettled) Now() int64 { return u.memory.Now() }

func (u *unsettled) Reset(rule *core.Rule, key string) error { return u.memory.Reset(rule, key) }

func (u *unsettled) Credit(rule *core.Rule, key string, units int64) error {
	return u.memory.Credit(rule, key, units)
}

// A request whose reservation cannot be ended is answered as it would be, and the log says that the store has failed.
func TestAReservationThatCannotBeEndedIsSaid(t *testing.T) {
	for name, rule := range map[string]Rule{
		"served": {Concurrency: "2"},
		"left":   {Limit: "1/1s", Algorithm: "token_bucket", OnLimit: "delay", MaxDelay: "1m"},
	} {
		s := newStage(t)
		s.made(&Config{Rule: rule}, "m@file")
		h := over(s, &unsettled{s.memory, errors.New("it broke")})
		must.Equal(t, statuses(h, "192.0.2.1", 1), "200", "%s", name)
		if name == "left" {
			must.Equal(t, s.log.count("it broke"), 0, "lines in the log, though nobody has left")
			answers := make(chan int, 1)
			ctx, leave := context.WithCancel(context.Background())
			go ask(ctx, h, answers)
			s.untilWaiting(1)
			leave()
			must.Equal(t, <-answers, 499, "who has left is answered")
		}
		must.Equal(t, s.log.count("it broke"), 1, "%s: lines in the log: %s", name, s.log)
	}
}

// fail returns a handler of the middleware m@file whose store fails.
func fail(s *stage, err error) http.Handler { return over(s, &failing{err}) }

// over returns a handler of the middleware m@file over a store.
func over(s *stage, store core.Store) http.Handler {
	e := s.newest("m@file")
	e.limiter = core.NewLimiter(store)
	e.limiter.FallBack(s.memory, 1)
	must.Succeed(s.t, openRules(e.limiter, e.ownCore()))
	return &handler{next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK) }), engine: e}
}

func TestAClosedGRPCCallIsUnavailable(t *testing.T) {
	s := newStage(t)
	s.made(&Config{Rule: Rule{Limit: "2/1m", OnError: "closed"}}, "m@file")
	h := fail(s, errors.New("it broke"))
	response := get(h, "192.0.2.1", func(r *http.Request) {
		r.Method = "POST"
		r.ProtoMajor = 2
		r.Header.Set("Content-Type", "application/grpc")
	})
	if response.StatusCode != 200 || response.Header.Get("Grpc-Status") != "14" {
		t.Errorf("%s %v", response.Status, response.Header)
	}
}

func TestTheResponseWriterIsPassedOnAsItIs(t *testing.T) {
	s := newStage(t)
	var got http.ResponseWriter
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = w })
	h, err := s.newHandler(context.Background(), next, &Config{Rule: Rule{Limit: "2/1m"}}, "m@file")
	must.Succeed(t, err)
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil)
	h.ServeHTTP(w, r)
	if recorder, ok := got.(*httptest.ResponseRecorder); !ok || recorder != w {
		t.Errorf("the service got a %T", got)
	}
}
