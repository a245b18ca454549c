package traefik

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/tools/must"
)

func TestMistakesInAGuardAreSaid(t *testing.T) {
	s := newStage(t)
	for _, c := range []struct {
		guard interface{}
		want  string
	}{
		{"yes", `guard "yes": must be an object with some of name, max, min, priority, tighten, warmUp`},
		{object{"most": 5}, `guard: "most" is not a field`},
		{object{"max": 0}, `guard: max "0": must be a whole number from 1 to 100000`},
		{object{"max": 100001}, `guard: max "100001": must be a whole number from 1 to 100000`},
		{object{"min": "few"}, `guard: min "few": must be a whole number from 1 to 100000`},
		{object{"max": 5, "min": 6}, `guard: min 6: must not be above max, which is 5`},
		{object{"max": 128, "min": 129}, `guard: min 129: must not be above max, which is 128`},
		{object{"name": "a b"}, `guard: name: `},
		{object{"tighten": "maybe"}, `guard: tighten "maybe": must be on or off`},
		{object{"shadow": "perhaps"}, `guard: shadow "perhaps": `},
		{object{"pressure": "yes"}, `guard: pressure "yes": must be an object`},
		{object{"pressure": object{}}, `guard: pressure: url "": must be an address such as http://10.0.0.5:9100/health, with`},
		{object{"pressure": object{"url": "http://a/", "high": "much"}}, `guard: pressure: high "much": must be a number above 0, such as 0.9`},
		{object{"pressure": object{"url": "http://a/", "interval": "1h"}}, `guard: pressure: interval "1h": must be a duration from 100ms to 1m`},
		{object{"pressure": object{"url": "http://a/", "query": "up", "field": "load"}}, `guard: pressure: field "load": has no effect with query; write one of them`},
		{object{"warmUp": "1s"}, `guard: warmUp "1s": must be a duration from 10s to 720h`},
		{object{"tighten": "off", "warmUp": "24h"}, `guard: warmUp: has no effect with tighten off`},
		{object{"priority": object{"values": "gold"}}, `guard: priority: source: is missing`},
		{object{"priority": object{"source": "X-Plan", "values": "gold"}}, `guard: priority: source "X-Plan": the source must be one of client_ip`},
		{object{"priority": object{"source": "static:a", "values": "a"}}, `guard: priority "static:a": is the same for all requests; write another source, such as header:X-Plan`},
		{object{"priority": object{"source": "header:X-Plan"}}, `guard: priority "header:X-Plan": has no values`},
		{object{"priority": object{"source": "header:X-Plan", "values": []interface{}{"gold", ""}}}, `guard: priority "header:X-Plan": has an empty value`},
		{object{"priority": object{"source": "host", "values": "a/b"}}, `guard: priority "host": `},
	} {
		if got := s.refused(&Config{Guard: c.guard}, "m@file"); !strings.HasPrefix(got, `middleware "m@file": `+c.want) {
			t.Errorf("%v: %s, want %s", c.guard, got, c.want)
		}
	}
	must.Contain(t, s.refused(&Config{Guard: "false"}, "m@file"), "limit: is missing", "without a guard and a limit")
}

// service is what a guard stands before. It does what the test says, and tells Traefik's client of it as that would hear it.
type service struct {
	serve func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace)
}

// ServeHTTP implements http.Handler.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, httptrace.ContextClientTrace(r.Context()))
}

// guardedBy returns the handler of a router with a guard before a service.
func guardedBy(t *testing.T, s *stage, ctx context.Context, c *Config, middleware string, next *service) http.Handler {
	t.Helper()
	h, err := s.newHandler(ctx, next, c, middleware)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// underWay checks how many requests are under way to the only guard.
func (s *stage) underWay(t *testing.T, when string, want int64) {
	t.Helper()
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	for _, g := range s.guards {
		if got := guard.Look(g.guard).UnderWay; got != want {
			t.Errorf("%s: %d requests are under way, want %d", when, got, want)
		}
		if got := guard.Lingering(g.guard); when == inTheEnd && got != 0 {
			t.Errorf("%s: %d requests wait on their clients", when, got)
		}
	}
	must.Equal(t, len(s.guards), 1, "%s: there are %d guards", when, len(s.guards))
}

const inTheEnd = "in the end"

// configurations with a guard whose requests go the ways that there are: a guard alone, fast paths, the general path.
func guardedConfigs(settings object) map[string]*Config {
	return map[string]*Config{
		"a guard alone":  {Guard: settings},
		"by address":     {Guard: settings, Rule: Rule{Limit: "1000000/1h"}},
		"by a header":    {Guard: settings, Rule: Rule{Limit: "1000000/1h", Key: []string{"header:X-Key"}}},
		"not covered":    {Guard: settings, Rule: Rule{Limit: "1000000/1h", Match: object{"paths": "/other"}}},
		"several rules":  {Guard: settings, Rules: []Rule{{Name: "a", Limit: "1000000/1h"}, {Name: "b", Limit: "1000000/1m"}}},
		"a reservation":  {Guard: settings, Rule: Rule{Concurrency: "1000"}},
		"with a page":    {Guard: settings, Rule: Rule{Limit: "1000000/1h"}, StatusPath: "/quota"},
		"alone, counted": {Guard: settings, Metrics: object{"path": "/metrics"}},
	}
}

func TestTheGuardCountsWhatIsUnderWay(t *testing.T) {
	for name, c := range guardedConfigs(object{"max": 1}) {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			next := &service{}
			h := guardedBy(t, s, context.Background(), c, "m@file", next)
			rejected := 0
			again := func() {
				inner := get(h, "192.0.2.2", nil)
				if inner.StatusCode == http.StatusServiceUnavailable && inner.Header.Get("Retry-After") == "1" {
					rejected++
				}
			}
			ask := func(change func(r *http.Request), serve func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace)) {
				depth := 0
				next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
					depth++
					if depth == 1 {
						serve(w, r, heard)
					}
				}
				get(h, "192.0.2.1", change)
				s.underWay(t, inTheEnd, 0)
			}
			post := func(r *http.Request) {
				r.Method = "POST"
				r.ContentLength = 5
				r.Body = io.NopCloser(strings.NewReader("hello"))
			}

			ask(nil, func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
				s.underWay(t, "before the first byte", 1)
				again()
				heard.GotFirstResponseByte()
				s.underWay(t, "after it", 0)
				heard.GotFirstResponseByte()
				s.underWay(t, "after it has come twice", 0)
			})
			must.Equal(t, rejected, 1, "%d requests were turned away, want 1", rejected)
			ask(nil, func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) { // another middleware answers
				s.underWay(t, "without a service", 1)
			})
			ask(nil, func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
				heard.GotFirstResponseByte()
				_ = heard.Got1xxResponse(http.StatusEarlyHints, textproto.MIMEHeader{})
				s.underWay(t, "after an informational answer", 1)
			})
			ask(post, func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
				s.underWay(t, "while the body comes", 0)
				heard.GotFirstResponseByte()
				_ = heard.Got1xxResponse(http.StatusContinue, textproto.MIMEHeader{})
				s.underWay(t, "after 100", 0)
				heard.WroteRequest(httptrace.WroteRequestInfo{})
				s.underWay(t, "when the body has come", 1)
				again()
			})
			must.Equal(t, rejected, 2, "%d requests were turned away, want 2", rejected)
			ask(post, func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
				heard.GotFirstResponseByte()
				heard.WroteRequest(httptrace.WroteRequestInfo{})
				s.underWay(t, "when the body has come after the answer", 0)
			})
			ask(post, func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
				heard.WroteRequest(httptrace.WroteRequestInfo{})
				heard.GotFirstResponseByte()
				s.underWay(t, "after the answer to an upload", 0)
			})
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic does not come through")
					}
				}()
				ask(nil, func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) { panic("a middleware") })
			}()
			s.underWay(t, inTheEnd, 0)
		})
	}
}

// The ways that a request may go, by what Traefik's client is asked to tell of it.
func wayOf(heard *httptrace.ClientTrace) string {
	if heard == nil {
		return "a ticket"
	}
	if heard.Got1xxResponse == nil {
		return "a pass"
	}
	return "admitted"
}

// frequent has so many requests come in a second that from then on most pass by the guard.
func (s *stage) frequent(h http.Handler) {
	for i := 0; i < 250; i++ {
		get(h, "192.0.2.1", nil)
	}
	s.leap(time.Second)
	get(h, "192.0.2.1", nil)
}

func TestMostRequestsPassByTheGuardWhileThereIsRoom(t *testing.T) {
	for _, name := range []string{"a guard alone", "by address", "by a header", "with a page", "several rules"} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			next := &service{}
			ways := make(map[string]int)
			h := guardedBy(t, s, context.Background(), guardedConfigs(object{"max": 40})[name], "m@file", next)
			next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) { ways[wayOf(heard)]++ }
			s.frequent(h)
			must.Equal(t, ways["admitted"], 251, "%v; want all of the first second to be admitted one by one", ways)

			// Fill the limit by requests of which each begins within the last. Each way counts it, and ends that whatever happens.
			for _, end := range []string{"return", "first byte", "panic"} {
				depth, rejected := 0, 0
				next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
					depth++
					ways[end+": "+wayOf(heard)]++
					s.underWay(t, "within", int64(depth))
					if get(h, "192.0.2.1", nil).StatusCode == http.StatusServiceUnavailable {
						rejected++
					}
					if end == "first byte" && heard != nil {
						heard.GotFirstResponseByte()
						s.underWay(t, "after the first byte", int64(depth-1))
						heard.GotFirstResponseByte()
					}
					depth--
					if end == "panic" {
						panic("a middleware")
					}
				}
				func() {
					defer func() { _ = recover() }()
					get(h, "192.0.2.1", nil)
				}()
				must.Equal(t, rejected, 1, "%s: %d were turned away where 40 were under way, want 1", end, rejected)
				s.underWay(t, "after "+end, 0)
				if ways[end+": a ticket"] == 0 || ways[end+": a ticket"] > 10 || ways[end+": a pass"] == 0 {
					t.Errorf("%s: %v; want up to 10 by tickets, and others by passes", end, ways)
				}
				next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {}
				s.frequent(h)
			}

			// These are not known to end soon.
			ways = make(map[string]int)
			next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) { ways[wayOf(heard)]++ }
			for i := 0; i < 50; i++ {
				get(h, "192.0.2.1", func(r *http.Request) { r.Header.Set("Upgrade", "websocket") })
				get(h, "192.0.2.1", func(r *http.Request) { r.ContentLength = -1 })
			}
			if ways["a ticket"] > 0 {
				t.Errorf("%v; want no ticket for upgrades and endless bodies", ways)
			}

			// From an informational answer on none passes by.
			next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
				if heard != nil && heard.Got1xxResponse != nil {
					heard.GotFirstResponseByte()
					_ = heard.Got1xxResponse(http.StatusEarlyHints, textproto.MIMEHeader{})
				}
			}
			s.frequent(h)
			ways = make(map[string]int)
			next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) { ways[wayOf(heard)]++ }
			s.frequent(h)
			if len(ways) != 1 || ways["admitted"] == 0 {
				t.Errorf("%v; want all to be admitted one by one", ways)
			}
		})
	}
}

func TestTheGuardLearnsFromAnswersThatSaySomething(t *testing.T) {
	for _, c := range []struct {
		name  string
		serve func(s *stage, w http.ResponseWriter, heard *httptrace.ClientTrace)
		want  time.Duration
	}{
		{"the time to the first byte", func(s *stage, w http.ResponseWriter, heard *httptrace.ClientTrace) {
			s.leap(100 * time.Millisecond)
			heard.GotFirstResponseByte()
			s.leap(5 * time.Second)
		}, 100 * time.Millisecond},
		{"the time of an answer by a middleware", func(s *stage, w http.ResponseWriter, heard *httptrace.ClientTrace) { s.leap(200 * time.Millisecond) }, 200 * time.Millisecond},
		{"the time from the end of a body", func(s *stage, w http.ResponseWriter, heard *httptrace.ClientTrace) {
			s.leap(5 * time.Second)
			heard.WroteRequest(httptrace.WroteRequestInfo{})
			s.leap(300 * time.Millisecond)
			heard.GotFirstResponseByte()
		}, 300 * time.Millisecond},
		{"the time to the end, after an informational answer", func(s *stage, w http.ResponseWriter, heard *httptrace.ClientTrace) {
			heard.WroteRequest(httptrace.WroteRequestInfo{})
			heard.GotFirstResponseByte()
			_ = heard.Got1xxResponse(http.StatusEarlyHints, textproto.MIMEHeader{})
			s.leap(400 * time.Millisecond)
		}, 400 * time.Millisecond},
		{"nothing of a client that leaves", nil, 0},
		{"nothing of a status 500", func(s *stage, w http.ResponseWriter, heard *httptrace.ClientTrace) {
			heard.GotFirstResponseByte()
			w.WriteHeader(http.StatusInternalServerError)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			next := &service{serve: func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
				if c.serve != nil {
					c.serve(s, w, heard)
					return
				}
				cancel()
				s.leap(time.Second)
			}}
			h := guardedBy(t, s, context.Background(), withMetrics(Config{Guard: "true"}), "m@file", next)
			for i := 0; i < 5; i++ {
				r := httptest.NewRequest("GET", "http://example.com/", nil)
				if strings.Contains(c.name, "body") || strings.Contains(c.name, "informational") {
					r = httptest.NewRequest("POST", "http://example.com/", strings.NewReader("hello"))
				}
				h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
				s.leap(time.Second)
			}
			if got := scrape(t, h)[`weir_guard_baseline_seconds{guard="m.file"}`]; got != fmt.Sprint(c.want.Seconds()) {
				t.Errorf("a baseline of %s, want %v", got, c.want)
			}
		})
	}
}

// TestClientsThatLeaveShowThatTheServiceIsSlow: 80 of them wait for a second, and none for its answer.
func TestClientsThatLeaveShowThatTheServiceIsSlow(t *testing.T) {
	s := newStage(t)
	gone, leave := context.WithCancel(context.Background())
	var h http.Handler
	waiting, slow := 0, false
	next := &service{serve: func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
		if !slow {
			s.leap(100 * time.Millisecond)
			heard.GotFirstResponseByte()
			return
		}
		waiting++
		if waiting < 80 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(gone))
			return
		}
		s.leap(time.Second)
		leave()
	}}
	h = guardedBy(t, s, context.Background(), withMetrics(Config{Guard: "true"}), "m@file", next)
	for i := 0; i < 3; i++ {
		get(h, "192.0.2.1", nil)
		s.leap(time.Second)
	}
	slow = true
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(gone))
	slow = false
	s.underWay(t, "after all have left", 0)
	s.leap(time.Second)
	get(h, "192.0.2.1", nil)
	if got := scrape(t, h)[`weir_guard_limit{guard="m.file"}`]; waiting != 80 || got == "128" || got == "" {
		t.Errorf("after %d clients have left: a limit of %s, want less than 128", waiting, got)
	}
}

func TestPriorityGoesLastInTheGuard(t *testing.T) {
	s := newStage(t)
	next := &service{}
	h := guardedBy(t, s, context.Background(), &Config{Guard: object{"max": 10, "priority": object{"source": "header:X-Plan", "values": "gold, platinum"}}}, "m@file", next)
	plan := func(plan string) func(r *http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Plan", plan) }
	}
	next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {}
	get(h, "192.0.2.1", plan("platinum"))
	s.step(time.Second)
	get(h, "192.0.2.1", plan("gold")) // from here on a tenth is kept for such as this
	depth, statuses := 0, ""
	next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
		depth++
		if depth < 9 {
			get(h, "192.0.2.1", plan("silver"))
			return
		}
		if depth == 9 {
			statuses = get(h, "192.0.2.1", plan("silver")).Status[:3] + " " + get(h, "192.0.2.1", plan("gold")).Status[:3]
		}
	}
	get(h, "192.0.2.1", plan("silver"))
	must.Equal(t, statuses, "503 200", "beside nine of ten, without priority and with it")
}

func TestClientsOfAGuardAreToldApartByTheKeyOfTheFirstRule(t *testing.T) {
	for name, c := range guardedConfigs(object{}) {
		s := newStage(t)
		h := newHandler(s.made(c, "m@file"), http.NotFoundHandler())
		r := httptest.NewRequest("GET", "http://example.com/", nil)
		r.RemoteAddr = "192.0.2.1:1234"
		r.Header.Set("X-Key", "someone")
		want := "192.0.2.1"
		if name == "by a header" {
			want = "someone"
		}
		if _, got := guardKey(h.guarded, r); got != want {
			t.Errorf("%s: the key is %q, want %q", name, got, want)
		}
		r.RemoteAddr = "[2001:db8::1]:1234"
		if want != "someone" {
			want = "2001:db8::/64"
		}
		if _, got := guardKey(h.guarded, r); got != want {
			t.Errorf("%s: the key is %q, want %q", name, got, want)
		}
	}
}

// TestTheGreedyClientIsTurnedAwayFirst, whose requests are those of one key, which is the first rule's.
func TestTheGreedyClientIsTurnedAwayFirst(t *testing.T) {
	byHeader := Rule{Name: "a", Limit: "1000000/1h", Key: []string{"header:X-Key"}}
	for name, c := range map[string]*Config{
		"by a header":                 {Rule: byHeader},
		"by a header, several rules":  {Rules: []Rule{byHeader, {Name: "b", Limit: "1000000/1m"}}},
		"by address":                  {},
		"by address, rules elsewhere": {Rules: []Rule{{Name: "a", Limit: "1/1m", Match: object{"paths": "/a"}}, {Name: "b", Limit: "1/1m", Match: object{"paths": "/b"}}}},
	} {
		c.Guard = object{"max": 10}
		s := newStage(t)
		next := &service{}
		h := guardedBy(t, s, context.Background(), c, "m@file", next)
		ask := func(who string) string {
			from := "192.0.2.1"
			if strings.HasPrefix(name, "by address") {
				from = map[string]string{"greedy": "192.0.2.2", "modest": "192.0.2.3"}[who]
			}
			answer := get(h, from, func(r *http.Request) { r.Header.Set("X-Key", who) })
			return answer.Status[:3] + " " + answer.Header.Get("Retry-After")
		}
		// nest has so many requests under way, of which each begins within the last, and then calls a function.
		nest := func(who string, depth int, then func()) {
			next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
				depth--
				if depth > 0 {
					ask(who)
					return
				}
				next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {}
				then()
			}
			ask(who)
		}
		nest("greedy", 10, func() {
			for i := 0; i < 400; i++ {
				ask("greedy")
			}
		})
		s.leap(time.Second)
		ask("modest")
		greedy, modest := "", ""
		nest("modest", 6, func() { greedy, modest = ask("greedy"), ask("modest") })
		if greedy != "503 10" || !strings.HasPrefix(modest, "200") {
			t.Errorf("%s: beside six of ten, the greedy client gets %q, the modest one %q; want 503 10, and 200", name, greedy, modest)
		}
	}
}

func TestWhatAGuardHasLearntSurvivesReloads(t *testing.T) {
	s := newStage(t)
	next := &service{serve: func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
		s.step(100 * time.Millisecond)
	}}
	config := func(most int) *Config {
		return withMetrics(Config{Guard: object{"name": "shop", "max": most}})
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := guardedBy(t, s, ctx, config(20), "m@file", next)
	for i := 0; i < 3; i++ {
		get(h, "192.0.2.1", nil)
		s.step(time.Second)
	}
	limits := func() string {
		page := scrape(t, h)
		return page[`weir_guard_limit{guard="shop"}`] + " " + page[`weir_guard_baseline_seconds{guard="shop"}`]
	}
	for i, most := range []int{20, 15, 20, 15} { // an engine that has lingered comes back, too
		s.end(ctx, cancel)
		ctx, cancel = context.WithCancel(context.Background())
		h = guardedBy(t, s, ctx, config(most), "m@file", next)
		want := fmt.Sprint(most) + " 0.1"
		if i == 2 {
			want = "15 0.1" // the limit grows by its own rules
		}
		must.Equal(t, limits(), want, "reload %d: limit and baseline", i)
	}
	s.end(ctx, cancel)
	s.step(lingering)
	must.Equal(t, len(s.guards), 0, "a guard is kept that no configuration has")
}

func TestMiddlewaresShareTheGuardOfAName(t *testing.T) {
	s := newStage(t)
	next := &service{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	one := guardedBy(t, s, ctx, &Config{Guard: object{"name": "shop", "max": 1}}, "one@file", next)
	alike := guardedBy(t, s, ctx, &Config{Guard: object{"name": "shop", "max": 1, "priority": object{"source": "path", "values": "/vip"}}}, "alike@file", next)
	other := guardedBy(t, s, ctx, &Config{Guard: object{"max": 1}}, "other@file", next)
	must.Equal(t, s.log.count("guard"), 0, "the log has: %s", s.log)
	inner := ""
	next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
		next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {}
		inner = get(alike, "192.0.2.1", nil).Status[:3] + " " + get(other, "192.0.2.1", nil).Status[:3]
	}
	get(one, "192.0.2.1", nil)
	must.Equal(t, inner, "503 200", "beside one of one, of the same name and of none")
	guardedBy(t, s, ctx, &Config{Guard: object{"name": "shop", "max": 2}}, "another@file", next)
	if s.log.count(`weir: middleware another@file: guard "shop" is defined in another way by middleware `) == 0 {
		t.Errorf("the log has: %s", s.log)
	}
}

func TestAGuardInShadowTurnsNobodyAway(t *testing.T) {
	s := newStage(t)
	next := &service{}
	h := guardedBy(t, s, context.Background(), &Config{Guard: object{"max": 1, "shadow": true}, Metrics: object{"path": "/metrics"}}, "m@file", next)
	inner := ""
	next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
		next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {}
		inner = get(h, "192.0.2.1", nil).Status[:3] + " " + get(h, "192.0.2.2", nil).Status[:3]
	}
	get(h, "192.0.2.1", nil)
	must.Equal(t, inner, "200 200", "beside one of one")
	body, _ := io.ReadAll(get(h, "192.0.2.1", func(r *http.Request) { r.URL.Path = "/metrics" }).Body)
	for _, want := range []string{`weir_guard_shadow_rejected_total{guard="m.file",reason="full"} 2`, `weir_guard_rejected_total{guard="m.file",reason="full"} 0`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("the metrics have no %s:\n%s", want, body)
		}
	}
	s.step(2 * time.Second)
	get(h, "192.0.2.1", nil)
	must.Equal(t, s.log.count("weir: middleware m@file: the guard would turn away what is beyond 1 requests under way: that is its max, and"), 1, "the log has: %s", s.log)
}

// TestAGuardAsksForThePressure by a Prometheus, once for all middlewares that share the guard, over a reload, and until none has it any more.
func TestAGuardAsksForThePressure(t *testing.T) {
	s := newStage(t)
	var mu sync.Mutex
	asked, value := 0, "0.95"
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		if r.URL.Path != "/api/v1/query" || r.URL.Query().Get("query") != "max(cpu)" {
			t.Errorf("%s was asked", r.URL)
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"`+value+`"]}]}}`)
	}))
	defer prometheus.Close()
	config := withMetrics(Config{Guard: object{"name": "shop", "pressure": object{"url": prometheus.URL, "query": "max(cpu)", "high": 0.9, "interval": "2s"}}})
	times := func(n int) {
		t.Helper()
		until(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			return asked == n && s.waiting() == 1
		})
	}
	page := func(h http.Handler, want string) {
		t.Helper()
		found := scrape(t, h)
		must.Equal(t, found[`weir_guard_pressure{guard="shop"}`]+" "+found[`weir_guard_pressure_high{guard="shop"}`]+" "+found[`weir_guard_pressure_failures_total{guard="shop",reason="invalid"}`], want, "value, high and failures")
	}
	ctx, cancel := context.WithCancel(context.Background())
	next := &service{serve: func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {}}
	h := guardedBy(t, s, ctx, config, "m@file", next)
	guardedBy(t, s, ctx, config, "n@file", next)
	times(1)
	page(h, "0.95 1 0")
	mu.Lock()
	value = "NaN"
	mu.Unlock()
	s.step(2 * time.Second)
	times(2)
	page(h, "0.95 1 1")
	must.Equal(t, s.log.count(`weir: middleware m@file: the pressure on the service cannot be read from `+prometheus.URL+`, and what was read has an effect for 6s at most: "NaN" is no finite number`), 1, "the log has: %s", s.log)
	s.step(2 * time.Second)
	times(3)
	s.step(2 * time.Second)
	times(4)
	page(h, " 0 3")

	s.end(ctx, cancel)
	ctx, cancel = context.WithCancel(context.Background())
	h = guardedBy(t, s, ctx, config, "m@file", next)
	page(h, " 0 3")
	s.end(ctx, cancel)
	ctx, cancel = context.WithCancel(context.Background())
	h = guardedBy(t, s, ctx, withMetrics(Config{Guard: object{"name": "shop"}}), "m@file", next)
	page(h, "  ")
	s.end(ctx, cancel)
	s.step(lingering)
	until(t, func() bool { return runtimeOf("pressure.run") == 0 })
}

// TestPassagesAtOnceLeaveNothingUnderWay, however what ends them falls together.
func TestPassagesAtOnceLeaveNothingUnderWay(t *testing.T) {
	s := newStage(t)
	next := &service{}
	var turn int64
	next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
		n := atomic.AddInt64(&turn, 1)
		ended := make(chan bool, 2)
		go hear(heard, n, ended)
		go hear(heard, n+1, ended)
		if n%3 > 0 {
			<-ended
		}
	}
	h := guardedBy(t, s, context.Background(), &Config{Guard: object{"max": 100}}, "m@file", next)
	rounds := 100
	if interpreted {
		rounds = 20
	}
	done := make(chan bool)
	for i := 0; i < 4; i++ {
		go askMany(h, rounds, done)
	}
	for i := 0; i < 4; i++ {
		<-done
	}
	until(t, func() bool { return atomic.LoadInt64(&turn) > 0 })
	s.registry.mu.Lock()
	of := s.guards["m.file"].guard
	s.registry.mu.Unlock()
	until(t, func() bool { return guard.Look(of).UnderWay == 0 && guard.Lingering(of) == 0 })
}

// hear calls one of the functions of a trace.
func hear(heard *httptrace.ClientTrace, n int64, ended chan bool) {
	if n%2 == 0 && heard.WroteRequest != nil {
		heard.WroteRequest(httptrace.WroteRequestInfo{})
	} else {
		heard.GotFirstResponseByte()
		if n%5 == 0 {
			_ = heard.Got1xxResponse(http.StatusContinue, textproto.MIMEHeader{})
		}
	}
	ended <- true
}

func askMany(h http.Handler, rounds int, done chan bool) {
	for i := 0; i < rounds; i++ {
		get(h, "192.0.2.1", func(r *http.Request) {
			r.ContentLength = 5
			r.Body = io.NopCloser(strings.NewReader("hello"))
		})
	}
	done <- true
}

// TestUnusualKeysAreTightened follows a guard from the first seconds of its warm-up to the end of an attack.
func TestUnusualKeysAreTightened(t *testing.T) {
	for _, name := range []string{"a guard alone", "by address", "several rules"} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			next := &service{}
			h := guardedBy(t, s, context.Background(), guardedConfigs(object{"max": 1, "warmUp": "10s"})[name], "m@file", next)
			quick := func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
				heard.GotFirstResponseByte()
			}
			next.serve = quick
			ask := func(address string, want int) {
				t.Helper()
				if got := get(h, address, nil).StatusCode; got != want {
					t.Fatalf("%s got %d, want %d", address, got, want)
				}
			}
			for i := 0; i < 4; i++ {
				for key := 1; key <= 10; key++ {
					ask("192.0.2."+strconv.Itoa(key), 200)
				}
				s.leap(10 * time.Second)
			}
			for i := 0; i < 20; i++ {
				ask("192.0.2.99", 200)
			}
			next.serve = func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
				for i := 0; i < 600; i++ {
					ask("192.0.2.99", 503)
				}
			}
			ask("192.0.2.5", 200)
			next.serve = quick
			s.leap(time.Second)
			ask("192.0.2.6", 200)
			tightened := 0
			for i := 0; i < 20; i++ {
				got := get(h, "192.0.2.99", nil)
				if got.StatusCode == http.StatusServiceUnavailable && got.Header.Get("Retry-After") == "10" {
					tightened++
				}
			}
			if tightened < 10 || tightened > 19 {
				t.Errorf("%d of 20 requests of an unusual key were turned away", tightened)
			}
			s.registry.mu.Lock()
			for name, of := range s.guards {
				if got := guard.Look(of.guard).Tightened; got != int64(tightened) {
					t.Errorf("guard %q says that %d were, want %d", name, got, tightened)
				}
			}
			s.registry.mu.Unlock()
			for _, later := range []time.Duration{1, 31, 10} { // of calm
				s.leap(later * time.Second)
				ask("192.0.2.7", 200)
			}
			ask("192.0.2.99", 200)
			s.underWay(t, "in the end", 0)
		})
	}
}

// TestRejectedRequestsAreInTheDemand of their rule, and of a flood of them some, which count for all.
func TestRejectedRequestsAreInTheDemand(t *testing.T) {
	s := newStage(t)
	next := &service{serve: func(w http.ResponseWriter, r *http.Request, heard *httptrace.ClientTrace) {
		heard.GotFirstResponseByte()
	}}
	h := guardedBy(t, s, context.Background(), &Config{Guard: object{}, Rule: Rule{Limit: "5/1h"}}, "m@file", next)
	look := func() guard.RuleState {
		s.registry.mu.Lock()
		defer s.registry.mu.Unlock()
		of := s.guards["m.file"]
		if len(of.rules) != 1 {
			t.Fatalf("%d rules are tracked, want 1", len(of.rules))
		}
		return guard.LookAt(of.rules["m.file/m"], guardNow(s.host))
	}
	for i := 0; i < 60; i++ {
		get(h, "192.0.2.1", nil)
	}
	get(h, "192.0.2.2", nil)
	s.leap(10 * time.Second)
	get(h, "192.0.2.3", nil)
	got := look()
	if got.Requests != 61 || got.Keys != 2 || got.Refused != 1 || got.Answers != 7 {
		t.Errorf("%+v; want 61 requests of two keys, of which one was rejected", got)
	}
	for i := 0; i < allRefusals+100*sampledRefusals; i++ {
		get(h, "192.0.2."+strconv.Itoa(1+i%2), nil)
	}
	s.leap(10 * time.Second)
	get(h, "192.0.2.3", nil)
	flood := look()
	if all := flood.Requests - got.Requests; all < 500 || all > 1300 {
		t.Errorf("%d requests of a flood of 900 are in the demand", all)
	}
	if flood.Top > 0.75 {
		t.Errorf("of two clients that take turns one made %v of the demand", flood.Top)
	}
}

func TestRulesThatAFileHasNoMoreAreNotLearnt(t *testing.T) {
	f := newFiled(t, oneRule("before", "3/1h"), &Config{Guard: object{}})
	f.edit(oneRule("after", "3/1h"))
	f.step(lingering)
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	if of := f.guards["m.file"]; len(of.rules) != 1 || of.rules["m.file/after"] == nil {
		t.Errorf("%v are learnt, want the rule after alone", of.rules)
	}
}
