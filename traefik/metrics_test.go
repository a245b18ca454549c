package traefik

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/tools/must"
)

// withMetrics is a configuration whose metrics are at /metrics of each router.
func withMetrics(c Config) *Config {
	c.Metrics = object{"path": "/metrics"}
	return &c
}

// scrape returns the metrics as a handler has them: the lines without comments, by series.
func scrape(t *testing.T, h http.Handler) map[string]string {
	t.Helper()
	r := httptest.NewRequest("GET", "http://example.com/metrics", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		t.Fatalf("the metrics are answered with %d, %q", w.Code, w.Header())
	}
	return samples(t, w.Body.String())
}

// samples takes a page of metrics apart, and checks what all pages must keep to: each family is there once, in one piece, with its help
// and type in front.
func samples(t *testing.T, page string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	family, described := "", make(map[string]bool)
	for _, line := range strings.Split(strings.TrimSuffix(page, "\n"), "\n") {
		if strings.HasPrefix(line, "# HELP ") {
			family = strings.Fields(line)[2]
			if described[family] {
				t.Errorf("duplicate description of %s", family)
			}
			described[family] = true
			continue
		}
		if strings.HasPrefix(line, "# TYPE ") {
			must.Equal(t, strings.Fields(line)[2], family, "%q does not follow its help", line)
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || !strings.HasPrefix(line, family) {
			t.Fatalf("%q is no series of %s", line, family)
		}
		if _, there := found[line[:at]]; there {
			t.Errorf("duplicate series %s", line[:at])
		}
		found[line[:at]] = line[at+1:]
	}
	return found
}

// requests returns the outcomes of a rule that are not 0, "allowed 3, rejected 1".
func requests(found map[string]string, rule string) string {
	var list []string
	for _, outcome := range front.OutcomeNames {
		n, there := found[`weir_requests_total{rule="`+rule+`",outcome="`+outcome+`"}`]
		if !there {
			return "no " + outcome
		}
		if n != "0" {
			list = append(list, outcome+" "+n)
		}
	}
	return strings.Join(list, ", ")
}

func wantRequests(t *testing.T, h http.Handler, rule, want string) {
	t.Helper()
	must.Equal(t, requests(scrape(t, h), rule), want, "%s", rule)
}

// Whichever way requests go, through a rule that is decided in few steps or among others, each is counted once.
func TestRequestsAreCountedByWhatBecomesOfThem(t *testing.T) {
	header := func(key string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Key", key) }
	}
	for _, c := range []struct {
		name   string
		config Config
		want   string // after 5 requests of 1 client, and 1 of another over IPv6
	}{
		{"token_bucket", Config{Rule: Rule{Name: "r", Limit: "3/1h", Algorithm: "token_bucket"}}, "allowed 4, rejected 2"},
		{"leaky_bucket", Config{Rule: Rule{Name: "r", Limit: "100/1ms", Algorithm: "leaky_bucket"}}, "allowed 2, delayed 4"},
		{"fixed_window", Config{Rule: Rule{Name: "r", Limit: "3/1h", Algorithm: "fixed_window"}}, "allowed 4, rejected 2"},
		{"sliding_window_counter", Config{Rule: Rule{Name: "r", Limit: "3/1h"}}, "allowed 4, rejected 2"},
		{"sliding_window_log", Config{Rule: Rule{Name: "r", Limit: "3/1h", Algorithm: "sliding_window_log"}}, "allowed 4, rejected 2"},
		{"by a header", Config{Rule: Rule{Name: "r", Limit: "3/1h", Key: []string{"header:X-Key"}}}, "allowed 3, rejected 3"},
		{"without a key", Config{Rule: Rule{Name: "r", Limit: "3/1h", Key: []string{"header:X-Other"}, OnMissingKey: "reject"}}, "rejected 6"},
		{"skipped", Config{Rule: Rule{Name: "r", Limit: "3/1h", Key: []string{"header:X-Other"}, OnMissingKey: "skip"}}, ""},
		{"not all fields", Config{Rule: Rule{Name: "r", Limit: "3/1h"}, Headers: []string{"none"}}, "allowed 4, rejected 2"},
		{"behind a match", Config{Rule: Rule{Name: "r", Limit: "3/1h", Match: object{"paths": "/"}}}, "allowed 4, rejected 2"},
		{"not covered", Config{Rule: Rule{Name: "r", Limit: "3/1h", Match: object{"paths": "/other"}}}, ""},
		{"cost", Config{Rule: Rule{Name: "r", Limit: "6/1h", Cost: "2"}}, "allowed 4, rejected 2"},
		{"soft", Config{Rule: Rule{Name: "r", Limit: "3/1h", Enforcement: "soft 34% 1h"}}, "allowed 4, allowed_soft 1, rejected 1"},
		{"shadow", Config{Rule: Rule{Name: "r", Limit: "3/1h", Enforcement: "shadow"}}, "allowed 4, shadow_rejected 2"},
		{"shadow of a delay", Config{Rule: Rule{Name: "r", Limit: "3/1h", Algorithm: "token_bucket", OnLimit: "delay", MaxDelay: "25m", Enforcement: "shadow"}}, "allowed 4, shadow_rejected 1, shadow_delayed 1"},
		{"shadow of a leaky bucket", Config{Rule: Rule{Name: "r", Limit: "3/1m", Burst: "2", Algorithm: "leaky_bucket", MaxDelay: "1m", Enforcement: "shadow"}}, "allowed 2, shadow_rejected 2, shadow_delayed 2"},
		{"concurrency", Config{Rule: Rule{Name: "r", Limit: "3/1h", Concurrency: "9"}}, "allowed 4, rejected 2"},
		{"concurrency alone", Config{Rule: Rule{Name: "r", Concurrency: "9"}}, "allowed 6"},
		{"candidate", Config{Rule: Rule{Name: "r", Limit: "3/1h", Candidate: object{"limit": "4/1h"}}}, "allowed 4, rejected 2"},
		{"tiers", Config{Rule: Rule{Name: "r", Tiers: object{"source": "header:X-Key", "limits": object{"k": "3/1h", "*": "unlimited"}}}}, "allowed 4, rejected 2"},
		{"unlimited tier", Config{Rule: Rule{Name: "r", Tiers: object{"source": "header:X-Key", "limits": object{"k": "unlimited", "*": "9/1h"}}}}, ""},
	} {
		s := newStage(t)
		released := 0
		s.pause = func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
			released++
			ended, letGo := context.WithCancel(ctx)
			letGo()
			return ended, letGo
		}
		h := s.handler(context.Background(), withMetrics(c.config), "m@file")
		for i := 0; i < 5; i++ {
			get(h, "192.0.2.1", header("k"))
		}
		get(h, "2001:db8::1", header("k"))
		must.Equal(t, requests(scrape(t, h), "m.file/r"), c.want, "%s", c.name)
	}
}

func TestARuleCountsNothingOfARequestThatAnotherRejects(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), withMetrics(Config{Rules: []Rule{
		{Name: "few", Limit: "2/1h"}, {Name: "many", Limit: "9/1h"}, {Name: "tried", Limit: "1/1h", Enforcement: "shadow"},
	}}), "m@file")
	statuses(h, "192.0.2.1", 5)
	wantRequests(t, h, "m.file/few", "allowed 2, rejected 3")
	wantRequests(t, h, "m.file/many", "allowed 2")
	wantRequests(t, h, "m.file/tried", "allowed 1, shadow_rejected 4")
}

// Whether the store answers or has failed, a rule counts a request once at most, and the same are rejected: what memory allows then is a
// fallback. Defect found: a limit and its concurrency counted what was rejected twice while Redis failed, and all of it as fallback.
func TestAFailureOfTheStoreChangesWhatIsCountedOfAllowedRequestsAlone(t *testing.T) {
	few := Rule{Name: "few", Limit: "2/1h"}
	for _, c := range []struct {
		name         string
		rules        []Rule
		paths        string
		well, failed string // by rule
	}{
		{"a limit", []Rule{few}, "/ / / /", "allowed 2, rejected 2", "rejected 2, fallback 2"},
		{"with a concurrency that is not reached", []Rule{{Name: "r", Limit: "2/1h", Concurrency: "9"}}, "/ / / /", "allowed 2, rejected 2", "rejected 2, fallback 2"},
		{"with one that is", []Rule{{Name: "r", Limit: "9/1h", Concurrency: "1"}}, "/twice / /twice", "allowed 3, rejected 2", "rejected 2, fallback 3"},
		{"with both reached", []Rule{{Name: "r", Limit: "1/1h", Concurrency: "1"}}, "/twice /", "allowed 1, rejected 2", "rejected 2, fallback 1"},
		{"with a candidate in between", []Rule{{Name: "r", Limit: "9/1h", Concurrency: "1", Candidate: object{"limit": "1/1h"}}}, "/twice /", "allowed 2, rejected 1", "rejected 1, fallback 2"},
		{"a shadow with a concurrency", []Rule{{Name: "r", Limit: "3/1h", Concurrency: "1", Enforcement: "shadow"}}, "/twice /twice /twice", "allowed 2, shadow_rejected 4", "shadow_rejected 4, fallback 2"},
		{"a tolerance", []Rule{{Name: "r", Limit: "2/1h", Enforcement: "soft 50% 1h"}}, "/ / / /", "allowed 2, allowed_soft 1, rejected 1", "rejected 1, fallback 3"},
		{"a delay", []Rule{{Name: "r", Limit: "1/1s", Algorithm: "token_bucket", OnLimit: "delay", MaxDelay: "2s"}}, "/ / / /", "allowed 1, delayed 2, rejected 1", "rejected 1, fallback 3"},
		{"several rules",
			[]Rule{few, {Name: "many", Limit: "9/1h"}, {Name: "tried", Limit: "1/1h", Enforcement: "shadow"}, {Name: "open", Limit: "1/1h", OnError: "open"}}, "/",
			"allowed 1; allowed 1; allowed 1; allowed 1", "fallback 1; fallback 1; fallback 1; error_open 1"},
		{"one of which rejects",
			[]Rule{few, {Name: "many", Limit: "9/1h"}, {Name: "tried", Limit: "1/1h", Enforcement: "shadow"}, {Name: "mild", Limit: "9/1h", Enforcement: "shadow"}}, "/ / /",
			"allowed 2, rejected 1; allowed 2; allowed 1, shadow_rejected 2; allowed 3", "rejected 1, fallback 2; fallback 2; shadow_rejected 2, fallback 1; fallback 3"},
		{"one of which is open, and one a shadow", // which lets nothing pass that another rejects
			[]Rule{few, {Name: "open", Limit: "9/1h", OnError: "open"}, {Name: "tried", Limit: "9/1h", OnError: "open", Enforcement: "shadow"}}, "/ / /",
			"allowed 2, rejected 1; allowed 2; allowed 3", "rejected 1, fallback 2; error_open 2; error_open 3"},
		{"one of which is closed",
			[]Rule{few, {Name: "closed", Limit: "9/1h", OnError: "closed", Concurrency: "1"}, {Name: "open", Limit: "9/1h", OnError: "open"}, {Name: "tried", Limit: "9/1h", Enforcement: "shadow"}}, "/ /",
			"allowed 2; allowed 2; allowed 2; allowed 2", "; error_closed 2; ; "},
	} {
		for _, failed := range []bool{false, true} {
			s := newStage(t)
			s.pause = func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
				ended, letGo := context.WithCancel(ctx)
				letGo()
				return ended, letGo
			}
			config := withMetrics(Config{Rules: c.rules})
			page := s.handler(context.Background(), config, "m@file")
			h := &handler{engine: s.newest("m@file")}
			want := c.well
			if failed {
				h = fail(s, errors.New("it broke")).(*handler)
				want = c.failed
			}
			h.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/twice" { // another comes while this one is in flight
					visitFrom(h, "/")
				}
			})
			for _, path := range strings.Fields(c.paths) {
				visitFrom(h, path)
			}
			var got []string
			found := scrape(t, page)
			for _, rule := range c.rules {
				got = append(got, requests(found, "m.file/"+rule.Name))
			}
			must.Equal(t, strings.Join(got, "; "), want, "%s, failed %v", c.name, failed)
		}
	}
}

// visitFrom makes a request of one client.
func visitFrom(h http.Handler, path string) {
	r := httptest.NewRequest("GET", "http://example.com"+path, nil)
	r.RemoteAddr = "192.0.2.1:1234"
	h.ServeHTTP(httptest.NewRecorder(), r)
}

func TestCandidatesAreComparedInTheMetrics(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), withMetrics(Config{Rule: Rule{Name: "r", Limit: "2/1h", Algorithm: "fixed_window", Candidate: object{"limit": "1/1h"}}}), "m@file")
	statuses(h, "192.0.2.1", 4)
	found := scrape(t, h)
	for series, want := range map[string]string{
		`limit="allowed",candidate="allowed"`: "1", `limit="allowed",candidate="rejected"`: "1",
		`limit="rejected",candidate="rejected"`: "2", `limit="rejected",candidate="allowed"`: "0",
	} {
		must.Equal(t, found[`weir_candidate_decisions_total{rule="m.file/r",`+series+"}"], want, "%s", series)
	}
}

func TestPenaltiesAreInTheMetrics(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), withMetrics(Config{Rule: Rule{Name: "r", Limit: "1/1h", Algorithm: "fixed_window", Penalty: []string{"2h"}}}), "m@file")
	const series = `weir_penalties_total{rule="m.file/r"}`
	must.Equal(t, scrape(t, h)[series], "0", "before any")
	statuses(h, "192.0.2.1", 5) // blocked once, and then still blocked
	statuses(h, "192.0.2.2", 2)
	statuses(h, "192.0.2.3", 1)
	if got := scrape(t, h)[series]; got != "2" {
		t.Errorf("%q keys were blocked, want 2", got)
	}
}

func TestRuleFilesAndDescriptorsAreCounted(t *testing.T) {
	s := newStage(t)
	file := writeFile(t, t.TempDir()+"/rules.json", `{
		"rules": [{"name": "a", "limit": "2/1h"}, {"name": "gone", "match": {"paths": ["/x"]}, "limit": "2/1h"}],
		"domain": "d", "descriptors": [{"key": "path", "value": "/", "rate_limit": {"unit": "hour", "requests_per_unit": 9}}]
	}`)
	config := withMetrics(Config{RulesFile: []string{file}, Descriptors: []interface{}{object{"entries": []interface{}{object{"key": "path", "source": "path"}}}}})
	h := s.handler(context.Background(), config, "m@file")
	statuses(h, "192.0.2.1", 3)
	wantRequests(t, h, "m.file/a", "allowed 2, rejected 1")
	found := scrape(t, h)
	descriptor := ""
	for name := range found {
		if strings.HasPrefix(name, `weir_requests_total{rule="m.file/d.path`) && strings.HasSuffix(name, `outcome="allowed"}`) {
			descriptor = name
		}
	}
	if descriptor == "" || found[descriptor] != "2" {
		t.Errorf("of the descriptor: %q %q", descriptor, found[descriptor])
	}
	// What a changed file does not have any more is not shown, and the rest counts on.
	writeFile(t, file, `{"rules": [{"name": "a", "limit": "9/1h"}], "domain": "d", "descriptors": [{"key": "path", "value": "/", "rate_limit": {"unit": "hour", "requests_per_unit": 9}}]}`)
	s.step(2 * standardInterval)
	statuses(h, "192.0.2.1", 1)
	wantRequests(t, h, "m.file/a", "allowed 3, rejected 1")
	found = scrape(t, h)
	must.Equal(t, requests(found, "m.file/gone"), "no allowed", "of the rule that is gone")
	must.Equal(t, found[`weir_limit{rule="m.file/a"}`], "9", "the limit in force")
	s.step(2 * lingering)
	must.Equal(t, len(s.meters), 2, "%d meters are kept for 2 rules", len(s.meters))
}

func TestLimitsInForceAreInTheMetrics(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), withMetrics(Config{Rules: []Rule{
		{Name: "a", Limit: "300/1m", Algorithm: "token_bucket", Burst: "50"},
		{Name: "fast", Limit: "5/250ms"},
		{Name: "daily", Limit: "1000/day"},
		{Name: "tiers", Tiers: object{"source": "header:X-Plan", "limits": object{"free": "10/1m", "*": "unlimited"}}},
		{Name: "places", Concurrency: "7"},
		{Name: "none", Limit: "unlimited", Overrides: []interface{}{object{"key": "192.0.2.9", "limit": "3/1m"}}},
	}}), "m@file")
	found := scrape(t, h)
	for name, want := range map[string]string{"a": "300 60", "fast": "5 0.25", "daily": "1000 86400", "tiers": "", "places": "7", "none": ""} {
		got := strings.TrimSpace(found[`weir_limit{rule="m.file/`+name+`"}`] + " " + found[`weir_limit_period_seconds{rule="m.file/`+name+`"}`])
		must.Equal(t, got, want, "%s", name)
	}
	must.Equal(t, requests(found, "m.file/none"), "", "a rule with an override alone")
}

func TestKeysAndEvictionsAreInTheMetrics(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), withMetrics(Config{
		Rules: []Rule{{Name: "a", Limit: "9/1h"}, {Name: "b", Limit: "999/1h", Key: []string{"static:x"}}}, Store: object{"memory": object{"maxKeys": 40}},
	}), "m@file")
	for i := 0; i < 10; i++ {
		get(h, fmt.Sprintf("192.0.2.%d", i), nil)
	}
	found := scrape(t, h)
	if a, b, most, evicted := found[`weir_keys{rule="m.file/a"}`], found[`weir_keys{rule="m.file/b"}`], found["weir_max_keys"], found["weir_evictions_total"]; a != "10" || b != "1" || most != "40" || evicted != "0" {
		t.Errorf("%s and %s keys of at most %s, %s evicted", a, b, most, evicted)
	}
	for i := 0; i < 200; i++ {
		get(h, fmt.Sprintf("198.51.100.%d", i), nil)
	}
	if n, err := strconv.Atoi(scrape(t, h)["weir_evictions_total"]); err != nil || n < 150 {
		t.Errorf("%d evicted, %v", n, err)
	}
}

// The memory ends with the last middleware, and what it has counted does not.
func TestEvictionsAreCountedOnInANewMemory(t *testing.T) {
	s := newStage(t)
	config := withMetrics(Config{Rule: Rule{Limit: "9/1h"}, Store: object{"memory": object{"maxKeys": 1}}})
	h, ctx, cancel := generationOf(s, config, "m@file", 1)
	for i := 0; i < 20; i++ {
		get(h[0], fmt.Sprintf("192.0.2.%d", i), nil)
	}
	before := scrape(t, h[0])["weir_evictions_total"]
	s.end(ctx, cancel)
	s.step(2 * lingering)
	again, ctx, cancel := generationOf(s, config, "m@file", 1)
	if after := scrape(t, again[0])["weir_evictions_total"]; after != before || after == "0" {
		t.Errorf("%s evicted, before %s", after, before)
	}
	s.end(ctx, cancel)
}

// However many clients there are, and whatever they send, the series are as many as the rules make.
func TestClientsAddNoSeries(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), withMetrics(Config{Rule: Rule{Name: "r", Limit: "1/1h", Key: []string{"header:X-Key"}}}), "m@file")
	get(h, "192.0.2.1", nil)
	before := len(scrape(t, h))
	keys := 20_000
	if interpreted {
		keys = 500
	}
	for i := 0; i < keys; i++ {
		get(h, "192.0.2.1", func(r *http.Request) { r.Header.Set("X-Key", fmt.Sprintf("client\"\n{%d", i)) })
	}
	found := scrape(t, h)
	if len(found) != before {
		t.Errorf("%d series, before %d", len(found), before)
	}
	must.Equal(t, requests(found, "m.file/r"), fmt.Sprintf("allowed %d", keys+1))
}

func TestDecisionsAreTimedOneInSoMany(t *testing.T) {
	for _, config := range []Config{
		{Rule: Rule{Name: "r", Limit: "1000000/1h"}},
		{Rule: Rule{Name: "r", Limit: "1000000/1h", Key: []string{"header:X-Key"}, OnMissingKey: "share"}},
		{Rules: []Rule{{Name: "r", Limit: "1000000/1h"}, {Name: "s", Limit: "1000000/1h"}}},
	} {
		s := newStage(t)
		h := s.handler(context.Background(), withMetrics(config), "m@file")
		for i := 0; i < 10*memory.TimedShare; i++ {
			statuses(h, "192.0.2.1", 1)
			s.step(time.Microsecond)
		}
		found := scrape(t, h)
		n, err := strconv.Atoi(found[`weir_decision_duration_seconds_count{store="memory"}`])
		if err != nil || n < 9 || n > 11 {
			t.Errorf("%d were timed, %v", n, err)
		}
		must.Equal(t, found[`weir_decision_duration_seconds_bucket{store="memory",le="+Inf"}`], strconv.Itoa(n), "in all buckets")
		if got := found[`weir_decision_duration_seconds_sum{store="memory"}`]; got == "0" || got == "" {
			t.Errorf("together they took %q", got)
		}
	}
}

func TestWaitingRequestsAreInTheMetrics(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), withMetrics(Config{Rules: []Rule{{Name: "r", Limit: "1/1s", OnLimit: "delay", Algorithm: "token_bucket"}, {Name: "s", Limit: "99/1s"}}}), "m@file")
	get(h, "192.0.2.1", nil)
	ended := make(chan string, 2)
	for i := 0; i < 2; i++ {
		go visit(h, "/", ended)
	}
	wait := func(rule, want string) {
		t.Helper()
		until(t, func() bool { return scrape(t, h)[`weir_waiting{rule="m.file/`+rule+`"}`] == want })
	}
	wait("r", "2")
	wait("s", "0")
	s.untilWaiting(2) // they are counted before their turns are set
	s.step(2 * time.Second)
	<-ended
	<-ended
	wait("r", "0")
	wantRequests(t, h, "m.file/r", "allowed 1, delayed 2")
}

// Who has no metrics is not counted, and who has goes on over reloads, alone or together with others of the namespace.
func TestCountsOutliveReloadsAndMiddlewaresOfOneNamespaceShareThem(t *testing.T) {
	s := newStage(t)
	config := withMetrics(Config{Rule: Rule{Name: "r", Limit: "100/1h"}, Namespace: "shop"})
	plain := &Config{Rule: Rule{Name: "other", Limit: "100/1h"}}
	h, ctx, cancel := generationOf(s, config, "one@file", 2)
	two := s.handler(ctx, config, "two@file")
	three := s.handler(ctx, plain, "three@file")
	for i := 0; i < 3; i++ {
		statuses(h[i%2], "192.0.2.1", 1)
		statuses(two, "192.0.2.1", 1)
		statuses(three, "192.0.2.1", 1)
	}
	wantRequests(t, h[0], "shop/r", "allowed 6")
	must.Equal(t, requests(scrape(t, two), "three.file/other"), "no allowed", "who has no metrics")
	s.end(ctx, cancel)
	wantRequests(t, h[0], "shop/r", "allowed 6") // before the new handlers are there
	changed := *config
	changed.Rule.Limit = "7/1h"
	again, ctx, cancel := generationOf(s, &changed, "one@file", 1)
	statuses(again[0], "192.0.2.1", 2)
	wantRequests(t, again[0], "shop/r", "allowed 7, rejected 1")
	must.Equal(t, scrape(t, again[0])[`weir_limit{rule="shop/r"}`], "7", "the limit in force")
	s.step(3 * lingering)
	wantRequests(t, again[0], "shop/r", "allowed 7, rejected 1")
	s.end(ctx, cancel)
	other, ctx, cancel := generationOf(s, withMetrics(Config{Rule: Rule{Name: "new", Limit: "1/1h"}}), "one@file", 1)
	must.Equal(t, requests(scrape(t, other[0]), "shop/r"), "no allowed", "a rule that its middleware has no more")
	s.step(2 * lingering)
	must.Equal(t, len(s.meters), 1, "%d meters are kept for one rule", len(s.meters))
	s.end(ctx, cancel)
	s.step(shownFor - time.Second)
	wantRequests(t, other[0], "one.file/new", "")
	s.step(2 * time.Second)
	must.Equal(t, requests(scrape(t, other[0]), "one.file/new"), "no allowed", "of a middleware that is gone")
	s.step(2 * lingering)
	if len(s.meters) != 0 || s.pending() != 0 {
		t.Errorf("%d meters and %d timers are left of nothing", len(s.meters), s.pending())
	}
}

func TestOnlyThePathItselfHasTheMetricsAndOnlyForReading(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), withMetrics(Config{Rule: Rule{Name: "r", Limit: "2/1h", Match: object{"methods": "GET"}}}), "m@file")
	visit := func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "http://example.com"+path, nil)
		r.RemoteAddr = "192.0.2.1:1234"
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for i := 0; i < 5; i++ {
		if code, body := visit("GET", "/metrics?x=y"); code != 200 || !strings.Contains(body, "weir_requests_total") {
			t.Fatalf("%d %s", code, body)
		}
	}
	must.Equal(t, s.passed, 0, "%d of them reached the service", s.passed)
	if code, body := visit("HEAD", "/metrics"); code != 200 || body != "" {
		t.Errorf("HEAD: %d %s", code, body)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		if code, _ := visit(method, "/metrics"); code != 405 {
			t.Errorf("%s: %d", method, code)
		}
	}
	for _, path := range []string{"/metrics/", "/Metrics", "//metrics", "/metrics/x"} {
		if _, body := visit("POST", path); strings.Contains(body, "weir_") {
			t.Errorf("%s has the metrics", path)
		}
	}
	wantRequests(t, h, "m.file/r", "")
}

// Who asks at the same time gets one text, and none gets one that was begun before it asked.
func TestManyWhoAskAtOnceAreServedTogether(t *testing.T) {
	proceed := make(chan bool)
	began := make(chan bool, 100)
	written := 0
	p := &page{write: func() []byte {
		written++
		text := []byte(strconv.Itoa(written))
		began <- true
		<-proceed
		return text
	}}
	got := make(chan string, 100)
	ask := func() { got <- string(p.get()) }
	go ask()
	<-began
	for i := 0; i < 20; i++ {
		go ask()
	}
	until(t, func() bool { return atomic.LoadInt64(&p.asked) == 21 })
	proceed <- true
	proceed <- true
	texts := make(map[string]int)
	for i := 0; i < 21; i++ {
		texts[<-got]++
	}
	if written != 2 || texts["1"] != 1 || texts["2"] != 20 {
		t.Errorf("written %d times: %v", written, texts)
	}
}

// free returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// served returns what an address answers; "" if it does not.
func served(address, request string) string {
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequest(method, "http://"+address+path, nil)
	if err != nil {
		return err.Error()
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil {
		return ""
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	return response.Status[:3] + " " + string(body)
}

func onAddress(address string) *Config {
	return &Config{Rule: Rule{Name: "r", Limit: "100/1h"}, Metrics: object{"address": address}}
}

func TestOneListenerServesAllMiddlewaresThatNameItsAddress(t *testing.T) {
	s := newStage(t)
	address, another := freeAddress(t), freeAddress(t)
	h, ctx, cancel := generationOf(s, onAddress(address), "one@file", 3)
	two := s.handler(ctx, onAddress(address), "two@file")
	three := s.handler(ctx, onAddress(another), "three@file")
	bare := s.handler(ctx, &Config{Rule: Rule{Name: "r", Limit: "100/1h"}, Metrics: ""}, "bare@file") // {} as files bring it
	statuses(h[0], "192.0.2.1", 2)
	statuses(two, "192.0.2.1", 3)
	statuses(three, "192.0.2.1", 4)
	statuses(bare, "192.0.2.1", 5)
	for _, at := range []string{address, another} {
		until(t, func() bool { return served(at, "GET /metrics") != "" })
		found := samples(t, strings.TrimPrefix(served(at, "GET /metrics"), "200 "))
		for rule, want := range map[string]string{"one.file/r": "allowed 2", "two.file/r": "allowed 3", "three.file/r": "allowed 4", "bare.file/r": "allowed 5"} {
			must.Equal(t, requests(found, rule), want, "%s", rule)
		}
	}
	for request, want := range map[string]string{"GET /": "404", "POST /metrics": "405", "DELETE /metrics": "405", "HEAD /metrics": "200 "} {
		if got := served(address, request); !strings.HasPrefix(got, want) || request == "HEAD /metrics" && got != want {
			t.Errorf("%s: %s", request, got)
		}
	}
	s.registry.mu.Lock()
	first := s.listeners[address]
	s.registry.mu.Unlock()
	// A reload keeps it, even if the new handlers are made a moment later; and another address closes the old one.
	s.end(ctx, cancel)
	s.step(shownFor / 2)
	_, ctx, cancel = generationOf(s, onAddress(address), "one@file", 1)
	s.step(2 * lingering)
	if s.listeners[address] != first || !strings.HasPrefix(served(address, "GET /metrics"), "200 ") {
		t.Error("the reload has closed the listener")
	}
	if len(s.listeners) != 1 || served(another, "GET /metrics") != "" {
		t.Error("the listener that no configuration names any more is open")
	}
	s.end(ctx, cancel)
	s.step(shownFor)
	if len(s.listeners) != 0 || served(address, "GET /metrics") != "" {
		t.Error("the listener is open after the last configuration that named it")
	}
	// The same configuration may come again while its counters are still kept.
	_, ctx, cancel = generationOf(s, onAddress(address), "one@file", 1)
	until(t, func() bool {
		return strings.Contains(served(address, "GET /metrics"), `{rule="one.file/r",outcome="allowed"} 2`)
	})
	s.end(ctx, cancel)
	s.step(2 * lingering)
	must.Equal(t, s.log.String(), "", "the log: %s", s.log)
}

func TestAnAddressThatIsTakenIsSaidOnceAndTriedAgain(t *testing.T) {
	s := newStage(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	address := taken.Addr().String()
	h, ctx, cancel := generationOf(s, onAddress(address), "m@file", 2)
	until(t, func() bool { return s.log.count("metrics cannot be served at "+address) == 1 })
	must.Equal(t, statuses(h[0], "192.0.2.1", 2), "200 200", "the site")
	tries := func() int { return s.pending() }
	for i := 0; i < 3; i++ {
		until(t, func() bool { return tries() == 2 }) // the sweep's, and the next try
		s.step(listenAgainAfter)
	}
	_ = taken.Close()
	until(t, func() bool {
		s.step(listenAgainAfter)
		return served(address, "GET /metrics") != ""
	})
	if s.log.count("metrics cannot be served") != 1 || s.log.count("metrics are served at "+address+" now") != 1 {
		t.Errorf("the log: %s", s.log)
	}
	s.end(ctx, cancel)
	s.step(2 * lingering)
	if served(address, "GET /metrics") != "" || s.pending() != 0 {
		t.Errorf("something is left: %d timers", s.pending())
	}
}

// A client that sends its request byte by byte, or many that send nothing, do not keep others from the metrics for good.
func TestSlowClientsAreBoundedInNumber(t *testing.T) {
	s := newStage(t)
	address := freeAddress(t)
	_, ctx, cancel := generationOf(s, onAddress(address), "m@file", 1)
	until(t, func() bool { return served(address, "GET /metrics") != "" })
	until(t, func() bool { return atomic.LoadInt64(&s.listeners[address].connections) == 0 }) // its end is noted a moment later
	var idle []net.Conn
	for i := 0; i < 3*mostConnections; i++ {
		c, err := net.Dial("tcp", address)
		must.Succeed(t, err)
		_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
		idle = append(idle, c)
	}
	closed := 0
	for _, c := range idle[mostConnections:] {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := bufio.NewReader(c).ReadByte(); err != nil {
			closed++
		}
	}
	must.Equal(t, closed, 2*mostConnections, "%d of %d connections too many were closed", closed, 2*mostConnections)
	// Those that came in time are served, if they ask in time, and then make room.
	_, _ = io.WriteString(idle[0], "y\r\n\r\n")
	_ = idle[0].SetReadDeadline(time.Now().Add(time.Minute))
	if answer, err := io.ReadAll(idle[0]); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK") || !strings.Contains(string(answer), "\r\nConnection: close\r\n") {
		t.Errorf("a connection that came in time: %v, %s", err, answer)
	}
	for _, c := range idle {
		_ = c.Close()
	}
	until(t, func() bool { return served(address, "GET /metrics") != "" })
	huge, err := http.NewRequest("GET", "http://"+address+"/metrics", nil)
	must.Succeed(t, err)
	huge.Header.Set("X-Huge", strings.Repeat("x", 64<<10))
	if response, err := http.DefaultTransport.RoundTrip(huge); err == nil {
		_ = response.Body.Close()
		must.Equal(t, response.StatusCode, http.StatusRequestHeaderFieldsTooLarge, "huge header fields: %s", response.Status)
	}
	s.end(ctx, cancel)
	s.step(2 * lingering)
}

func TestManyScrapesDuringReloadsSeeEveryRule(t *testing.T) {
	s := newStage(t)
	config := withMetrics(Config{Rules: []Rule{{Name: "A-Z_a.9", Limit: "100/1h"}, {Name: "_", Limit: "100/1h"}}})
	name := `odd "name"\ {}@file`
	h, ctx, cancel := generationOf(s, config, name, 1)
	label := labelOf(s.newest(name).own[0].Ruled.Limits.Own())
	var scrapers sync.WaitGroup
	end := new(int64)
	missing := make(chan string, 4)
	for i := 0; i < 4; i++ {
		scrapers.Add(1)
		go scrapeUntil(t, end, h[0], label, missing, &scrapers)
	}
	for i := 0; i < 20; i++ {
		s.end(ctx, cancel)
		h, ctx, cancel = generationOf(s, config, name, 1)
		statuses(h[0], "192.0.2.1", 1)
	}
	atomic.StoreInt64(end, 1)
	scrapers.Wait()
	close(missing)
	for text := range missing {
		t.Error(text)
	}
	wantRequests(t, h[0], label, "allowed 20")
	s.end(ctx, cancel)
}

// scrapeUntil scrapes until end is not 0, and reports what was missing in between.
func scrapeUntil(t *testing.T, end *int64, h http.Handler, label string, missing chan string, scrapers *sync.WaitGroup) {
	defer scrapers.Done()
	last := 0
	for atomic.LoadInt64(end) == 0 {
		found := scrape(t, h)
		n, err := strconv.Atoi(found[`weir_requests_total{rule="`+label+`",outcome="allowed"}`])
		if err != nil || n < last {
			missing <- fmt.Sprintf("after %d there are %d: %v", last, n, err)
			return
		}
		last = n
	}
}
