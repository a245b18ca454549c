package traefik

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/tools/must"
)

// over returns a handler of a middleware m@file in front of that service.
func (s *stage) over(next http.Handler, c *Config) http.Handler {
	s.t.Helper()
	h, err := s.newHandler(context.Background(), next, c, "m@file")
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// held is a service whose requests are under way until the test ends them, each by its path.
type held struct {
	came chan string
	end  map[string]chan string // what is sent there is a panic, or ""
}

func newHeld(paths ...string) *held {
	h := &held{came: make(chan string), end: make(map[string]chan string)}
	for _, path := range paths {
		h.end[path] = make(chan string)
	}
	return h
}

func (h *held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	end := h.end[r.URL.Path]
	if end == nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	h.came <- r.URL.Path
	if text := <-end; text != "" {
		panic(text)
	}
	w.WriteHeader(http.StatusOK)
}

// begin sends a request that stays under way, and returns where it is said when that is over.
func (h *held) begin(over http.Handler, path string) chan string {
	ended := make(chan string, 1)
	go visit(over, path, ended)
	<-h.came
	return ended
}

func visit(h http.Handler, path string, ended chan string) {
	defer func() {
		if p := recover(); p != nil {
			ended <- fmt.Sprint("panic: ", p)
		}
	}()
	r := get(h, "192.0.2.1", func(r *http.Request) { r.URL.Path = path })
	ended <- r.Status[:3]
}

func TestARequestIsUnderWayUntilItsServiceHasEnded(t *testing.T) {
	for _, c := range []*Config{
		{Rule: Rule{Concurrency: "2"}},
		{Rule: Rule{Limit: "1000/1m", Concurrency: "2", Candidate: object{"limit": "2000/1m"}}},
		{Rules: []Rule{{Name: "other", Limit: "1000/1m"}, {Name: "few", Concurrency: "2"}}},
		{Rule: Rule{Concurrency: "2", Overrides: []interface{}{object{"key": []interface{}{"192.0.2.1"}, "limit": "500/1m"}}, Limit: "1000/1m"}},
	} {
		s := newStage(t)
		service := newHeld("/a", "/b")
		h := s.over(service, c)
		a := service.begin(h, "/a")
		b := service.begin(h, "/b")
		response := get(h, "192.0.2.1", nil)
		if response.StatusCode != 429 || response.Header.Get("Retry-After") != "1" {
			t.Fatalf("%+v: %s with two under way, Retry-After %s", *c, response.Status, response.Header.Get("Retry-After"))
		}
		must.Equal(t, statuses(h, "192.0.2.2", 1), "200", "%+v: for another client", *c)
		service.end["/a"] <- ""
		must.Equal(t, <-a, "200")
		if got := statuses(h, "192.0.2.1", 3); got != "200 200 200" { // one after the other
			t.Errorf("%+v: %s with one under way", *c, got)
		}
		// A service that panics has ended, too: Traefik sees to the panic.
		service.end["/b"] <- "broken"
		must.Equal(t, <-b, "panic: broken")
		a = service.begin(h, "/a")
		b = service.begin(h, "/b")
		must.Equal(t, statuses(h, "192.0.2.1", 1), "429", "%+v", *c)
		service.end["/a"] <- ""
		service.end["/b"] <- ""
		<-a
		<-b
	}
}

func TestRequestsWaitAndClientsThatLeaveReleaseTheirReservation(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1s", Algorithm: "token_bucket", OnLimit: "delay", MaxDelay: "2s"}}, "m@file")
	answers := make(chan int, 10)
	leave := make([]context.CancelFunc, 0, 4)
	wait := func() { // adds one that waits
		ctx, cancel := context.WithCancel(context.Background())
		leave = append(leave, cancel)
		go ask(ctx, h, answers)
		s.untilWaiting(len(leave))
	}
	if got := statuses(h, "192.0.2.1", 1); got != "200" {
		t.Fatal(got)
	}
	wait()
	wait()
	if got := get(h, "192.0.2.1", nil); got.StatusCode != 429 || got.Header.Get("Retry-After") != "1" { // by then the third's turn is in 2 s
		t.Fatalf("%s, Retry-After %s for one that would wait 3 s", got.Status, got.Header.Get("Retry-After"))
	}
	leave[1]()
	must.Equal(t, <-answers, 499, "who has left is answered")
	wait() // in its place
	if got := statuses(h, "192.0.2.1", 1); got != "429" {
		t.Errorf("%s, though two wait again", got)
	}
	for i := 0; i < 2; i++ {
		s.step(time.Second - time.Microsecond)
		if n := s.reached(); n != 1+i {
			t.Fatalf("%d passed before %d s", n, i+1)
		}
		s.step(time.Microsecond)
		must.Equal(t, <-answers, 200, "who has waited is answered")
	}
	must.Equal(t, s.reached(), 3, "passed")
}

func ask(ctx context.Context, h http.Handler, answers chan int) {
	r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
	r.RemoteAddr = "192.0.2.1:1"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	answers <- w.Code
}

func TestNoMoreThanMaxWaitingWait(t *testing.T) {
	s := newStage(t)
	service := newHeld()
	h := s.over(service, &Config{Rule: Rule{Limit: "1/1s", Algorithm: "token_bucket", OnLimit: "delay", MaxDelay: "1h", MaxWaiting: "2", MaxWaitingPerKey: "2", Concurrency: "9"}})
	get(h, "192.0.2.1", nil)
	answers := make(chan int, 10)
	ctx, leave := context.WithCancel(context.Background())
	for i := 1; i <= 2; i++ {
		go ask(ctx, h, answers)
		s.untilWaiting(i)
	}
	must.Equal(t, statuses(h, "192.0.2.1", 2), "429 429", "with two that wait")
	s.step(time.Second)
	must.Equal(t, <-answers, 200)
	go ask(ctx, h, answers) // there is room for one again
	s.untilWaiting(2)
	must.Equal(t, statuses(h, "192.0.2.1", 1), "429")
	leave()
	first := <-answers
	second := <-answers
	if first != 499 || second != 499 {
		t.Errorf("%d and %d", first, second)
	}
	// Nothing that they had reserved is left: neither the turns nor the places among those under way.
	rules := s.newest("m@file").inForce().rules[0].Ruled.Limits.Own()
	if rules.Patience("192.0.2.1") == 0 {
		t.Error("as many still wait as may")
	}
	checks := []core.Check{{Rule: rules.Linked()[0], Key: "192.0.2.1", Cost: 1}}
	if err := s.memory.Decide(checks, true); err != nil || checks[0].Decision.Remaining != 8 {
		t.Errorf("%+v, %v: want all places but the one asked for", checks[0].Decision, err)
	}
}

func TestAPenaltyBlocksAClient(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "2/1s", Algorithm: "fixed_window", Penalty: []string{"10s", "1m"}}}, "m@file")
	if got := statuses(h, "192.0.2.1", 2); got != "200 200" {
		t.Fatal(got)
	}
	for _, wait := range []int{10, 60, 60} {
		if got := get(h, "192.0.2.1", nil); got.StatusCode != 429 || got.Header.Get("Retry-After") != strconv.Itoa(wait) {
			t.Errorf("%s, Retry-After %s, want %d", got.Status, got.Header.Get("Retry-After"), wait)
		}
		s.leap(time.Duration(wait)*time.Second - time.Microsecond)
		must.Equal(t, statuses(h, "192.0.2.1", 1)+" "+statuses(h, "192.0.2.2", 1), "429 200", "just before %d s, and for another client", wait)
		s.leap(time.Microsecond)
		must.Equal(t, statuses(h, "192.0.2.1", 2), "200 200", "after %d s", wait)
	}
}

func TestToleranceIsInTheQuotaFields(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "4/1h", Algorithm: "fixed_window", Enforcement: "soft 50% 30s"}}, "m@file")
	told := ""
	for i := 0; i < 7; i++ {
		r := get(h, "192.0.2.1", nil)
		told += r.Status[:3] + r.Header.Get("X-RateLimit-Soft") + r.Header.Get("X-RateLimit-Remaining") + " "
	}
	must.Equal(t, told, "2003 2002 2001 2000 200exceeded0 200exceeded0 4290 ")
}

// counted returns how a candidate has decided, since that was last said.
func counted(s *stage, name string) string {
	c := s.newest("m@file").inForce().tallies[name]
	if c == nil {
		return "nothing"
	}
	requests := int64(0)
	for _, n := range c.Compared {
		requests += n
	}
	return fmt.Sprint(requests, " requests, ", c.Compared[front.Stricter], " stricter, ", c.Compared[front.Laxer], " laxer")
}

func TestACandidateIsComparedAndChangesNothing(t *testing.T) {
	for _, test := range []struct {
		limit, want string
	}{
		{"5/1h", "8 requests, 0 stricter, 2 laxer"},
		{"2/1h", "8 requests, 1 stricter, 0 laxer"},
		{"3/2h", "8 requests, 0 stricter, 0 laxer"},
	} {
		s := newStage(t)
		h := s.handler(context.Background(), &Config{Rules: []Rule{
			{Name: "before", Limit: "100/1h"},
			{Name: "tried", Limit: "3/1h", Candidate: object{"limit": test.limit}, Concurrency: "5"},
			{Name: "behind", Limit: "100/1h"},
		}}, "m@file")
		must.Equal(t, statuses(h, "192.0.2.1", 8), "200 200 200 429 429 429 429 429", "%s", test.limit)
		if got := get(h, "192.0.2.2", nil).Header.Get("Ratelimit-Policy"); strings.Count(got, `"tried"`) != 1 || !strings.Contains(got, `"tried";q=3;`) {
			t.Errorf("%s: a client gets %s", test.limit, got)
		}
		if got := counted(s, "tried"); got != strings.Replace(test.want, "8", "9", 1) {
			t.Errorf("%s: %s, want %s", test.limit, got, test.want)
		}
		must.Equal(t, counted(s, "before")+counted(s, "behind"), "nothingnothing")
		s.step(time.Minute) // now it is said
		must.Equal(t, counted(s, "tried"), "0 requests, 0 stricter, 0 laxer")
	}
}

// A request that both the limit and the concurrency of a shadow would have rejected is one request.
func TestAShadowCountsRequests(t *testing.T) {
	s := newStage(t)
	service := newHeld("/a")
	h := s.over(service, &Config{Rules: []Rule{
		{Name: "both", Limit: "1/1m", Concurrency: "1", Enforcement: "shadow", Candidate: object{"limit": "2/1m"}},
		{Name: "alone", Concurrency: "1", Enforcement: "shadow"},
	}})
	a := service.begin(h, "/a")
	must.Equal(t, statuses(h, "192.0.2.1", 3), "200 200 200")
	service.end["/a"] <- ""
	must.Equal(t, <-a, "200")
	s.step(time.Minute)
	for _, name := range []string{"both", "alone"} {
		must.Equal(t, s.log.count(fmt.Sprintf("rule %q, a shadow, would have rejected 3 requests in the last minute", name)), 1, "%s: %s", name, s.log)
	}
}

// Where the store has failed there is nothing to be compared, and what was not decided was not rejected.
func TestAFailureIsNoRejectionOfAShadow(t *testing.T) {
	for _, onError := range []string{"open", "closed", "local"} {
		s := newStage(t)
		s.made(&Config{Rules: []Rule{
			{Name: "enforced", Limit: "9/1m", OnError: onError, Candidate: object{"limit": "8/1m"}},
			{Name: "shadow", Limit: "9/1m", OnError: onError, Enforcement: "shadow", Concurrency: "5"},
		}}, "m@file")
		h := fail(s, errors.New("it broke"))
		statuses(h, "192.0.2.1", 5)
		must.Equal(t, counted(s, "enforced"), "0 requests, 0 stricter, 0 laxer", "%s", onError)
		s.step(time.Minute)
		must.Equal(t, s.log.count("a shadow"), 0, "%s: %s", onError, s.log)
	}
}

// What a rule does with requests beyond its limit is left to the general path.
func TestWhichRulesHaveAFastPath(t *testing.T) {
	for _, test := range []struct {
		rule Rule
		fast bool
	}{
		{Rule{Limit: "5/1m"}, true},
		{Rule{Limit: "5/1m", Algorithm: "token_bucket"}, true},
		{Rule{Limit: "5/1m", Algorithm: "token_bucket", OnLimit: "reject"}, true},
		{Rule{Limit: "5/1m", Enforcement: "shadow"}, true},
		{Rule{Limit: "5/1m", Enforcement: "soft 20% 30s"}, true},
		{Rule{Limit: "5/1m", Algorithm: "token_bucket", OnLimit: "delay"}, true},
		{Rule{Limit: "5/1m", Penalty: []string{"1m"}}, true},
		{Rule{Limit: "5/1m", Concurrency: "5"}, true},
		{Rule{Concurrency: "5"}, true},
		{Rule{Limit: "5/1m", Candidate: object{"limit": "6/1m"}}, true},
		{Rule{Limit: "5/1m", Match: object{"methods": []interface{}{"GET"}}}, true},
		{Rule{Limit: "5/1m", Match: object{"methods": []interface{}{"GET"}}, Penalty: []string{"1m"}}, true},
		{Rule{Limit: "5/1m", Algorithm: "token_bucket", Cost: "header:X-Cost"}, false},
	} {
		for _, store := range []object{{"memory": object{}}, {"redis": object{"address": "127.0.0.1:1", "nodes": 1}}} {
			s := newStage(t)
			_, slow := s.handler(context.Background(), &Config{Rule: test.rule, Store: store}, "m@file").(*handler)
			if slow == test.fast {
				t.Errorf("%+v in %v: fast path %v", test.rule, store, !slow)
			}
			for _, shared := range s.redis {
				shared.ended.Store(true) // so that it is not said in other tests that nobody answers there
			}
		}
	}
}

func TestRulesOfOneNamespaceThatDifferPastTheirLimitAreNamed(t *testing.T) {
	for _, test := range []struct {
		other Rule
		what  string
	}{
		{Rule{Name: "r", Limit: "5/1m"}, ""},
		{Rule{Name: "r", Limit: "5/1m", Penalty: []string{"1m"}}, "another enforcement, bound of waiting requests, count or penalty"},
		{Rule{Name: "r", Limit: "5/1m", Enforcement: "soft 20% 30s"}, "another enforcement, bound of waiting requests, count or penalty"},
		{Rule{Name: "r", Limit: "5/1m", Concurrency: "5"}, "another candidate or concurrency"},
		{Rule{Name: "r", Limit: "5/1m", Candidate: object{"limit": "6/1m"}}, "another candidate or concurrency"},
	} {
		s := newStage(t)
		s.handler(context.Background(), &Config{Rule: Rule{Name: "r", Limit: "5/1m"}, Namespace: "shop"}, "one@file")
		s.handler(context.Background(), &Config{Rule: test.other, Namespace: "shop"}, "two@file")
		want := `middleware two@file: rule "r" of namespace "shop" has ` + test.what + ` in middleware one@file; make them alike, or rename one`
		if test.what == "" {
			want = ""
		}
		if got := strings.TrimSpace(s.log.String()); got != want && got != "weir: "+want {
			t.Errorf("%+v: %s", test.other, got)
		}
	}
}

// It ended Traefik in the interpreter, where the type of the store was not what the store was.
func TestAStoreInRedisIsClosedWhenNobodyUsesIt(t *testing.T) {
	s := newStage(t)
	c := &Config{Rule: Rule{Limit: "5/1m", Concurrency: "5"}, Store: object{"redis": object{"address": "127.0.0.1:1", "nodes": 1}}}
	h, ctx, cancel := generationOf(s, c, "m@file", 1)
	get(h[0], "192.0.2.1", nil)
	var shared *sharedRedis
	for _, other := range s.redis {
		shared = other
	}
	s.end(ctx, cancel)
	s.step(lingering)
	if len(s.redis) != 0 || !shared.ended.Load() {
		t.Error("it is not closed")
	}
}

// asking is a service that answers with a status and a Retry-After.
type asking struct {
	status int
	after  string
	asked  int
	during func() // while it works on a request; nil: nothing
}

func (a *asking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked++
	if a.during != nil {
		a.during()
	}
	if a.after != "" {
		w.Header().Set("Retry-After", a.after)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write([]byte("the service's"))
}

// A key waits for as long as the service asks for with its answer to that key's request, up to respectUpstream. All other answers change nothing.
func TestAServiceThatAsksToWaitPausesAKey(t *testing.T) {
	file := writeFile(t, t.TempDir()+"/rules.json", `{"rules": [{"name": "api", "limit": "100/1m", "respect_upstream": "1m", "cost_response": "header X-Cost"}]}`)
	for name, c := range map[string]*Config{
		"alone":  {LogLevel: "error", Rule: Rule{Limit: "100/1m", RespectUpstream: "1m"}},
		"with":   {LogLevel: "error", Guard: object{"max": 9}, Rules: []Rule{{Name: "other", Limit: "100/1m"}, {Name: "api", Limit: "100/1m", Count: []string{"200", "429"}, RespectUpstream: "1m"}}},
		"a file": {LogLevel: "error", RulesFile: []string{file}},
	} {
		s := newStage(t)
		service := &asking{status: 200}
		h := s.over(service, c)
		for i, answer := range []struct {
			status int
			after  string
			pause  time.Duration // 0: none
		}{
			{429, "30", 30 * time.Second}, {404, "30", 0}, {503, " 7 ", 7 * time.Second}, {429, "", 0}, {200, "30", 0}, {429, "0", 0}, {503, "-5", 0}, {429, "1.5", 0},
			{429, "soon", 0}, {503, "Wed, 21 Oct 2015 07:28:00 GMT", 0}, {429, "99999999999999999999", time.Minute}, {503, "Wed, 21 Oct 2115 07:28:00 GMT", time.Minute},
		} {
			if i > 1 && name != "alone" {
				break
			}
			service.status, service.after = answer.status, answer.after
			must.Equal(t, get(h, "192.0.2.1", nil).StatusCode, answer.status, "%s: the service's own answer", name)
			service.status, service.after = 200, ""
			must.Equal(t, get(h, "192.0.2.2", nil).StatusCode, 200, "%s: another key", name)
			if answer.pause > 0 {
				r := get(h, "192.0.2.1", nil)
				must.Equal(t, fmt.Sprint(r.StatusCode, " ", r.Header.Get("Retry-After")), fmt.Sprintf("429 %d", answer.pause/time.Second), "%s: after %+v", name, answer)
				s.step(answer.pause)
			}
			must.Equal(t, get(h, "192.0.2.1", nil).StatusCode, 200, "%s: at the end, after %+v", name, answer)
		}
		if s.log.count("the service asks to wait") == 0 {
			t.Errorf("%s: the log has %s", name, s.log)
		}
	}
}

// What the guard answers is not the service's.
func TestAGuardPausesNoKey(t *testing.T) {
	s := newStage(t)
	service := &asking{status: 200}
	h := s.over(service, &Config{Guard: object{"max": 1}, Rule: Rule{Limit: "100/1m", RespectUpstream: "1m"}})
	beside := 0
	service.during = func() {
		service.during = nil
		beside = get(h, "192.0.2.1", nil).StatusCode
	}
	must.Equal(t, get(h, "192.0.2.1", nil).StatusCode, 200)
	must.Equal(t, beside, 503, "beside one of one")
	must.Equal(t, get(h, "192.0.2.1", nil).StatusCode, 200, "afterwards")
}

// What waits in the queue when the service asks to be left alone is told so at its turn.
func TestWhatWaitsWhileItsKeyIsPausedIsTurnedAway(t *testing.T) {
	one := Rule{Name: "one", Limit: "1/10s", Algorithm: "leaky_bucket", Burst: "3", MaxDelay: "1m", RespectUpstream: "1h"}
	for _, rules := range [][]Rule{{one}, {one, {Name: "beside", Limit: "1000/1m", Algorithm: "fixed_window", RespectUpstream: "1h"}}} {
		s := newStage(t)
		service := &asking{status: 429, after: "600"}
		h := s.over(service, &Config{Rules: rules})
		answers := make(chan int, 1)
		service.during = func() {
			go ask(context.Background(), h, answers)
			s.untilWaiting(1)
		}
		must.Equal(t, get(h, "192.0.2.1", nil).StatusCode, 429)
		s.step(10 * time.Second)
		must.Equal(t, <-answers, 503, "who has waited")
		must.Equal(t, service.asked, 1, "requests that the service got")
		must.Equal(t, get(h, "192.0.2.1", nil).Header.Get("Retry-After"), "590")
	}
}
