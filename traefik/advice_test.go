package traefik

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// advisor is a service that gives advice, as a test says.
type advisor struct {
	*httptest.Server
	s *stage

	mu     sync.Mutex
	serial int64
	rules  string // of the document
	issued time.Time
	lasts  time.Duration
	digest string // that came with the last request
	token  string // the same
	sent   string // all that came
	asked  int
}

func newAdvisor(s *stage) *advisor {
	a := &advisor{s: s}
	a.advises(time.Hour, "")
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.answer(w, r) }))
	s.t.Cleanup(a.Close)
	return a
}

func (a *advisor) answer(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	a.sent += fmt.Sprint(r.URL, r.Header)
	a.digest = r.Header.Get("Weir-Config")
	a.token = r.Header.Get("Authorization")
	at := a.issued.Format(time.RFC3339)
	fmt.Fprintf(w, `{"version":1,"serial":%d,"config":%q,"issued_at":%q,"effective_at":%q,"expires_at":%q,"model":{"name":"test","horizon_seconds":600,"skill_vs_last":0.1},"rules":[%s]}`,
		a.serial, a.digest, at, at, a.issued.Add(a.lasts).Format(time.RFC3339), a.rules)
}

// advises has the advisor give advice from now on that expires after a time.
func (a *advisor) advises(lasts time.Duration, rules string) {
	a.mu.Lock()
	a.serial++
	a.rules = rules
	a.lasts = lasts
	a.issued = time.UnixMicro(a.s.wall()).UTC()
	a.mu.Unlock()
}

// times returns how often the advisor was asked.
func (a *advisor) times() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// polled waits until the poller of a stage's only advised engine waits, and has asked at least so many times.
func (s *stage) polled(a *advisor, times int) {
	s.t.Helper()
	until(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return a.times() >= times && s.waiting() > 0
	})
}

// asks lets the interval of an advisor pass, and waits until it was asked again.
func (s *stage) asks(a *advisor) {
	s.t.Helper()
	times := a.times()
	s.polled(a, times)
	s.step(1500 * time.Millisecond) // an interval of one second, and a fifth at most
	s.polled(a, times+1)
}

// advisedBy is a configuration with an advisor, and one rule that advice may change.
func advisedBy(a *advisor, more object) *Config {
	settings := object{"url": a.URL, "mode": "apply", "gates": "bounds", "interval": "1s"}
	for name, value := range more {
		settings[name] = value
	}
	return &Config{
		Rule:    Rule{Name: "api", Limit: "100/1m", Adapt: object{"floor": "50/1m", "ceiling": "200/1m"}},
		Advisor: settings, Namespace: "n",
	}
}

// limitOf returns the limit that a client is told.
func limitOf(h http.Handler, from string) string {
	return get(h, from, nil).Header.Get("X-RateLimit-Limit")
}

const upTo180 = `{"rule":"n/api","limit":{"requests":180},"reason":"growth"}`

func TestAdviceMovesALimitByStepsAndWalksBack(t *testing.T) {
	others := runtimeOf("advice.run") // of earlier tests
	s := newStage(t)
	a := newAdvisor(s)
	audit := filepath.Join(t.TempDir(), "advice.jsonl")
	config := advisedBy(a, object{"audit": audit, "token": "env:WEIR_TEST_ADVISOR"})
	setenv(t, "WEIR_TEST_ADVISOR", "secret")
	h, ctx, cancel := generationOf(s, config, "m@file", 2)
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "100", "the configured limit")
	a.advises(10*time.Minute, upTo180)
	s.asks(a)
	must.Equal(t, a.token, "Bearer secret", "the advisor is sent")
	s.step(time.Second)
	for i := 0; i < 2; i++ { // the middleware of two routers
		must.Equal(t, limitOf(h[i], "192.0.2.1"), "125", "after a step, router %d tells", i)
	}
	s.step(30 * time.Second)
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "156", "after two steps")
	s.step(30 * time.Second)
	r := get(h[0], "192.0.2.1", nil)
	if r.Header.Get("X-RateLimit-Limit") != "180" || r.Header.Get("X-RateLimit-Remaining") != "176" {
		t.Errorf("after three steps: %v", r.Header)
	}

	// Another configuration goes on with it, and with what was used.
	s.end(ctx, cancel)
	config.Message = "Too many."
	h, ctx, cancel = generationOf(s, config, "m@file", 1)
	r = get(h[0], "192.0.2.1", nil)
	if r.Header.Get("X-RateLimit-Limit") != "180" || r.Header.Get("X-RateLimit-Remaining") != "175" {
		t.Errorf("after a reload: %v", r.Header)
	}

	// The advisor is gone: the limit holds until the advice expires, and then walks back.
	a.Close()
	s.step(8 * time.Minute)
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "180", "before the advice expires")
	s.step(time.Minute)
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "135", "when the advice has expired")
	s.step(time.Minute)
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "100", "a minute later")
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var last struct {
		Rule, Actor   string
		Applied       bool
		Before, After struct{ Requests int }
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || len(lines) != 6 {
		t.Fatalf("%d lines, %v: %s", len(lines), err, text)
	}
	if last.Rule != "n/api" || !last.Applied || last.Before.Requests != 102 || last.After.Requests != 100 || last.Actor != "time" {
		t.Errorf("the last line is %s", lines[len(lines)-1])
	}

	// No router has the middleware any more: nothing of it is left.
	s.end(ctx, cancel)
	s.step(3 * time.Second)
	until(t, func() bool { return runtimeOf("advice.run") <= others })
	s.step(2 * lingering)
	if len(s.engines) != 0 || s.memory != nil || s.pending() != 0 {
		t.Errorf("%d engines and %d timers are left", len(s.engines), s.pending())
	}
}

// runtimeOf returns how many goroutines are in a function. (Interpreted functions have no names: there it is 0.)
func runtimeOf(function string) int {
	text := make([]byte, 1<<20)
	return strings.Count(string(text[:runtime.Stack(text, true)]), function+"(")
}

func TestAnObservedAdvisorChangesNothing(t *testing.T) {
	s := newStage(t)
	a := newAdvisor(s)
	h, _, cancel := generationOf(s, advisedBy(a, object{"mode": "observe"}), "m@file", 1)
	defer cancel()
	a.advises(10*time.Minute, upTo180)
	s.asks(a)
	s.step(90 * time.Second)
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "100", "the limit")
	board := s.newest("m@file").adaptation.state
	if of, _ := board.LookAt("n/api"); of.Outcome.Requests != 180 {
		t.Errorf("the limit would be %d", of.Outcome.Requests)
	}
}

// Advice may change the algorithm, too: for a while a request must pass both, and then the handlers have a fast path again.
func TestAdviceSwitchesTheAlgorithm(t *testing.T) {
	for _, key := range []string{"client_ip", "header:X-Key"} {
		s := newStage(t)
		a := newAdvisor(s)
		config := advisedBy(a, nil)
		config.Rule = Rule{Name: "api", Limit: "3/1m", Key: []string{key}, Adapt: object{"ceiling": "6/1m", "step": "100% 1s", "algorithms": []interface{}{"token_bucket"}}}
		h, _, cancel := generationOf(s, config, "m@file", 1)
		if got := statuses(h[0], "192.0.2.1", 3); got != "200 200 200" {
			t.Fatal(got)
		}
		a.advises(time.Hour, `{"rule":"n/api","limit":{"requests":6,"algorithm":"token_bucket"},"reason":"algorithm"}`)
		s.asks(a)
		s.step(2 * time.Second)
		must.Equal(t, statuses(h[0], "192.0.2.1", 1), "429", "%s: in the transition", key)
		s.step(5 * time.Minute)
		must.Equal(t, statuses(h[0], "192.0.2.1", 7)+" "+limitOf(h[0], "192.0.2.1"), "200 200 200 200 200 200 429 6", "%s: when it is over", key)
		must.Contain(t, get(h[0], "192.0.2.1", nil).Header.Get("RateLimit-Policy"), "q=6", "%s: the policy", key)
		cancel()
	}
}

func TestAdvisedRulesInFilesGoOnWhenTheFilesChange(t *testing.T) {
	s := newStage(t)
	a := newAdvisor(s)
	config := advisedBy(a, nil)
	config.Rule = Rule{}
	config.Namespace = "n"
	file := func(more string) string {
		return `{"rules": [{"name": "api", "limit": "100/1m", "adapt": {"ceiling": "200/1m", "step": "100% 1s"}}` + more + `]}`
	}
	path := writeFile(t, filepath.Join(t.TempDir(), "rules.json"), file(""))
	config.RulesFile = []string{path}
	h, ctx, cancel := generationOf(s, config, "m@file", 1)
	a.advises(time.Hour, upTo180)
	s.asks(a)
	s.step(time.Second)
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "180", "the limit")
	writeFile(t, path, file(`, {"name": "other", "limit": "5/1h", "match": {"paths": "/other"}}`))
	s.step(30 * time.Second)
	if got := len(s.newest("m@file").inForce().rules); got != 2 {
		t.Fatalf("%d rules are in force: %s", got, s.log)
	}
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "180", "when the files have changed, the limit")
	s.step(2 * lingering) // the rules before are released
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "180", "two minutes later the limit")
	writeFile(t, path, `{"rules": [{"name": "api", "limit": "100/1m"}]}`)
	s.step(30 * time.Second)
	if got := len(s.newest("m@file").inForce().rules); got != 1 {
		t.Fatalf("%d rules are in force: %s", got, s.log)
	}
	s.polled(a, 0) // what was under way meanwhile is over
	times := a.times()
	s.step(time.Minute)
	if got := a.times(); got != times {
		t.Errorf("without an adaptable rule the advisor is asked %d times", got-times)
	}
	s.end(ctx, cancel)
	s.step(2 * lingering)
	must.Equal(t, s.pending(), 0, "%d timers are left", s.pending())
}

// Traefik makes all handlers anew when anything changes.
func TestAConfigurationThatComesBackIsAdvisedAgain(t *testing.T) {
	s := newStage(t)
	a := newAdvisor(s)
	first := advisedBy(a, object{"timeout": "59s"})
	_, ctx, cancel := generationOf(s, first, "m@file", 1)
	a.advises(time.Hour, `{"rule":"n/api","limit":{"requests":125},"reason":"growth"}`)
	s.asks(a)
	s.step(time.Second)
	s.end(ctx, cancel)
	s.step(5 * time.Second)
	times := a.times()
	s.step(10 * time.Second)
	if got := a.times(); got != times {
		t.Errorf("while no router has the middleware the advisor is asked %d times", got-times)
	}
	h, ctx, cancel := generationOf(s, first, "m@file", 1)
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "125", "the limit of the same configuration")
	s.end(ctx, cancel)
	h, ctx, cancel = generationOf(s, advisedBy(a, object{"timeout": "58s"}), "m@file", 1)
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "125", "the limit of the next")
	a.advises(time.Hour, `{"rule":"n/api","limit":{"requests":150},"reason":"growth"}`)
	s.asks(a)
	s.step(40 * time.Second)
	s.end(ctx, cancel)
	h, ctx, cancel = generationOf(s, first, "m@file", 1)
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "150", "the limit of the first again")
	s.asks(a)
	s.end(ctx, cancel)
	h, _, cancel = generationOf(s, advisedBy(newAdvisor(s), nil), "m@file", 1)
	defer cancel()
	must.Equal(t, limitOf(h[0], "192.0.2.1"), "100", "with another advisor the limit")
}

// What a proxy asks an advisor for depends on its rules alone: a Caddy with the same rules asks for the same.
func TestTheDigestIsThatOfTheRules(t *testing.T) {
	s := newStage(t)
	a := newAdvisor(s)
	config := advisedBy(a, nil)
	_, _, cancel := generationOf(s, config, "m@file", 1)
	defer cancel()
	s.polled(a, 1)
	const want = "sha256:"
	if a.digest[:len(want)] != want || a.digest != s.newest("m@file").adaptation.state.Digest() {
		t.Errorf("the digest is %s", a.digest)
	}
}

func TestAnAdvisorThatIsWronglyConfiguredIsRefused(t *testing.T) {
	for _, c := range []struct {
		advisor interface{}
		want    string
	}{
		{object{"mode": "apply"}, "advisor: url: is missing; write one such as https://advisor.internal:8787/v1/advice"},
		{object{"url": "builtin"}, "advisor: url builtin: the Traefik plugin has no advisor in it; run caddy rate-limit advisor, and write its address, such as https://advisor.internal:8787/v1/advice"},
		{object{"url": "ftp://a"}, `advisor: url "ftp://a": must be an address of HTTP; write one such as https://advisor.internal:8787/v1/advice`},
		{object{"url": "http://a", "modes": "apply"}, `advisor: "modes" is not a field (did you mean mode?)`},
		{object{"url": "http://a", "mode": "aply"}, `advisor: mode "aply"`},
		{object{"url": "http://a", "interval": "10ms"}, "advisor: interval"},
		{object{"url": "http://a", "warmUp": "1h", "gates": "bounds"}, "advisor: warmUp: has no effect with gates bounds; remove it"},
		{object{"url": "http://a", "token": "env:WEIR_TEST_NO_SUCH"}, `advisor: token "env:WEIR_TEST_NO_SUCH": there is no environment variable of that name`},
		{object{"url": "http://a", "publicKey": "/nonexistent.pub"}, "advisor: publicKey: open /nonexistent.pub: no such file or directory"},
		{object{"url": "http://a", "audit": "/nonexistent/a.jsonl"}, "advisor: audit /nonexistent/a.jsonl: its folder does not exist; make it, or write another file"},
		{object{"url": "http://a", "tls": object{}}, "advisor: tls: has no effect with an address of http; write https, or remove it"},
		{object{"url": "https://a", "tls": object{"ca": "/nonexistent.pem"}}, "advisor: tls: ca: open /nonexistent.pem"},
		{object{"url": "https://a", "tls": object{"certificate": "x"}}, `advisor: tls: "certificate" is not a field`},
	} {
		s := newStage(t)
		got := s.refused(&Config{Rule: Rule{Limit: "5/1m", Adapt: object{"ceiling": "9/1m"}}, Advisor: c.advisor}, "m")
		if !strings.HasPrefix(got, `middleware "m": `+c.want) {
			t.Errorf("%v: the error is %s, want %s", c.advisor, got, c.want)
		}
	}
}

func TestAnAdvisorWithoutAnAdaptableRuleIsSaid(t *testing.T) {
	s := newStage(t)
	a := newAdvisor(s)
	config := advisedBy(a, nil)
	config.Rule.Adapt = nil
	_, ctx, cancel := generationOf(s, config, "m@file", 1)
	must.Equal(t, s.log.count("advisor: has no effect, since no rule has adapt"), 1, "said times: %s", s.log)
	s.step(time.Minute)
	if a.times() != 0 {
		t.Error("the advisor is asked " + strconv.Itoa(a.times()) + " times")
	}
	s.end(ctx, cancel)
}

func TestMetricsTellWhatBecameOfAdvice(t *testing.T) {
	s := newStage(t)
	a := newAdvisor(s)
	h, ctx, cancel := generationOf(s, withMetrics(*advisedBy(a, nil)), "m@file", 1)
	const refused = `weir_advice_refused_total{reason="rule"}`
	const clamped = `weir_advice_clamped_total{rule="n/api",kind="ceiling"}`
	s.polled(a, 1)
	s.step(time.Second)
	for series, want := range map[string]string{refused: "0", clamped: "0", `weir_advice_applied{rule="n/api"}`: "0", `weir_limit{rule="n/api"}`: "100"} {
		must.Equal(t, scrape(t, h[0])[series], want, "at first, %s", series)
	}
	a.advises(time.Hour, `{"rule":"others","limit":{"requests":9},"reason":"growth"}`)
	s.asks(a)
	a.advises(time.Hour, `{"rule":"n/api","limit":{"requests":1800},"reason":"growth"}`)
	s.polled(a, 0)
	s.step(3 * time.Second) // after a refusal it waits for longer
	s.polled(a, 3)
	s.step(time.Second)
	for series, want := range map[string]string{
		refused: "1", clamped: "1", `weir_advice_applied{rule="n/api"}`: "1", `weir_limit{rule="n/api"}`: "125", `weir_limit_configured{rule="n/api"}`: "100",
		"weir_advice_serial": strconv.FormatInt(a.serial, 10),
	} {
		must.Equal(t, scrape(t, h[0])[series], want, "%s", series)
	}
	until(t, func() bool { return scrape(t, h[0])["weir_advice_polls_total"] == strconv.Itoa(a.times()) }) // one may be under way
	if age := scrape(t, h[0])["weir_advice_age_seconds"]; age != "4" && age != "4.5" {
		t.Errorf("the age is %s", age)
	}
	s.end(ctx, cancel)
}

// A key that tells a client apart must be in nothing that many can read: metrics, the audit file, the log, and what the advisor is sent.
func TestNothingOfAdviceIdentifiesAClient(t *testing.T) {
	s := newStage(t)
	a := newAdvisor(s)
	audit := filepath.Join(t.TempDir(), "advice.jsonl")
	config := withMetrics(*advisedBy(a, object{"audit": audit, "gates": "full", "warmUp": "10s"}))
	config.Rule.Key = []string{"header:X-Key"}
	config.Guard = object{"warmUp": "10s"}
	h, ctx, cancel := generationOf(s, config, "m@file", 1)
	const planted = "planted-key-of-a-client"
	sent := func(n int) {
		for i := 0; i < n; i++ {
			get(h[0], "192.0.2.77", func(r *http.Request) { r.Header.Set("X-Key", planted) })
		}
	}
	for i := 0; i < 8; i++ {
		sent(40)
		s.step(5 * time.Second)
	}
	a.advises(time.Hour, `{"rule":"n/api","limit":{"requests":180},"reason":"growth","forecast":{"mean":100,"lower":90,"upper":160,"quantile":0.99},"above":{"requests_per_second":1,"limit":"2/1s","for":"5m"}}`)
	s.asks(a)
	s.step(time.Minute)
	sent(300)
	s.step(time.Minute)
	text, err := os.ReadFile(audit)
	if err != nil || len(text) == 0 {
		t.Errorf("the audit file is empty: %v", err)
	}
	a.mu.Lock()
	all := string(s.writeMetrics()) + string(text) + s.log.String() + a.sent
	a.mu.Unlock()
	if !strings.Contains(all, "weir_advice_serial") || !strings.Contains(all, "weir_key_demand") {
		t.Error("the metrics lack what is looked at")
	}
	for _, key := range []string{planted, "192.0.2.77"} {
		if at := strings.Index(all, key); at >= 0 {
			t.Errorf("%s is in %q", key, all[at-20:at+len(key)])
		}
	}
	s.end(ctx, cancel)
}

// With the full gates, advice is followed only where the middleware's guard sees a healthy service whose demand it has learnt.
func TestTheFullGatesGoByWhatTheGuardSees(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		s := newStage(t)
		a := newAdvisor(s)
		config := advisedBy(a, object{"gates": "full", "warmUp": "20s"})
		if guarded {
			config.Guard = object{"warmUp": "10s"}
		}
		h, ctx, cancel := generationOf(s, config, "m@file", 1)
		a.advises(time.Hour, `{"rule":"n/api","limit":{"requests":200},"reason":"growth","forecast":{"mean":100,"lower":90,"upper":160,"quantile":0.99}}`)
		s.asks(a)
		s.step(2 * time.Second)
		why := map[bool]string{false: "unknown", true: "warm_up"}
		of, _ := s.newest("m@file").adaptation.state.LookAt("n/api")
		must.Equal(t, of.Outcome.Why, why[guarded], "guarded %t: why", guarded)
		for i := 0; i < 30; i++ { // traffic, as even as before
			get(h[0], "192.0.2.1", nil)
			s.step(5 * time.Second)
		}
		want := map[bool]string{false: "100", true: "192"} // 1.2 times the forecast's upper bound
		must.Equal(t, limitOf(h[0], "192.0.2.1"), want[guarded], "guarded %t: the limit", guarded)
		s.end(ctx, cancel)
	}
}
