package ratelimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// advisedSite is a Caddy with an advisor that a test speaks for. Time is the test's.
type advisedSite struct {
	*admin
	advisor *httptest.Server
	clock   atomic.Int64 // microseconds since the epoch
	ticks   chan time.Time
	polls   chan struct{}
	serial  int64

	mu       sync.Mutex
	answer   func(w http.ResponseWriter, r *http.Request) // nil: 503
	digest   string
	requests int
}

func startAdvised(t *testing.T) *advisedSite {
	t.Helper()
	s := &advisedSite{ticks: make(chan time.Time), polls: make(chan struct{})}
	s.clock.Store(1_800_000_000_000_000)
	restore := []func(){ratelimit.SetGuardClock(s.clock.Load), ratelimit.SetAdviceClock(s.clock.Load, s.ticks, func(ctx context.Context, _ time.Duration) {
		select {
		case <-ctx.Done():
		case <-s.polls:
		}
	})}
	s.advisor = httptest.NewServer(s)
	t.Cleanup(func() { // when Caddy has stopped
		s.advisor.Close()
		for _, f := range restore {
			f()
		}
	})
	s.admin = &admin{newServer(t), freeAddr(t)}
	return s
}

func (s *advisedSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	answer := s.answer
	s.digest = r.Header.Get("Weir-Config")
	s.requests++
	s.mu.Unlock()
	if answer == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	answer(w, r)
}

// site loads a site with the advisor's settings and the lines of a rate_limit.
func (s *advisedSite) site(settings, lines string) {
	s.t.Helper()
	s.reloadWith("metrics\nrate_limit {\nadvisor "+s.advisor.URL+" {\n"+settings+"\n}\n}", ":PORT {\nrate_limit {\n"+lines+"\n}\nrespond ok\n}")
	eventually(s.t, "Caddy has asked its advisor", func() bool { return s.number("poll.polls") > 0 })
}

// second lets seconds pass, in each of which advice is carried out.
func (s *advisedSite) second(n int) {
	s.t.Helper()
	for range n {
		s.clock.Add(1_000_000)
		s.ticks <- time.Time{}
		s.ticks <- time.Time{} // it is taken when the one before has been carried out
	}
}

// advise has the advisor give advice on the rules until it expires after so many seconds, and has Caddy fetch it.
func (s *advisedSite) advise(expires int, rules string) {
	s.t.Helper()
	s.serial++
	now := time.UnixMicro(s.clock.Load()).UTC()
	serial := s.serial
	s.fetch(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"version":1,"serial":%d,"config":%q,"issued_at":%q,"effective_at":%q,"expires_at":%q,"model":{"name":"test","horizon_seconds":600,"skill_vs_last":0.1},"rules":[%s]}`,
			serial, r.Header.Get("Weir-Config"), now.Format(time.RFC3339), now.Format(time.RFC3339), now.Add(time.Duration(expires)*time.Second).Format(time.RFC3339), rules)
	})
}

// fetch has Caddy fetch that answer.
func (s *advisedSite) fetch(answer func(w http.ResponseWriter, r *http.Request)) {
	s.t.Helper()
	s.mu.Lock()
	s.answer = answer
	s.mu.Unlock()
	before := s.number("poll.polls")
	s.polls <- struct{}{}
	eventually(s.t, "Caddy has asked its advisor", func() bool { return s.number("poll.polls") > before })
}

// advice returns the answer of /rate_limit/advice.
func (s *advisedSite) advice() map[string]any {
	s.t.Helper()
	status, answer := s.call("advice", "")
	if status != http.StatusOK {
		s.t.Fatalf("status %d: %v", status, answer)
	}
	return answer
}

// number returns a number in it, 0 where there is none.
func (s *advisedSite) number(path string) float64 {
	s.t.Helper()
	var value any = s.advice()
	for _, name := range strings.Split(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	n, _ := value.(float64)
	return n
}

// rule returns what it says of a rule.
func (s *advisedSite) rule(label string) map[string]any {
	s.t.Helper()
	for _, r := range s.advice()["rules"].([]any) {
		if r := r.(map[string]any); r["rule"] == label {
			return r
		}
	}
	s.t.Fatalf("there is no rule %s", label)
	return nil
}

// limit checks the limit that clients are told, and that /rate_limit/advice tells.
func (s *advisedSite) limit(want int, why string) {
	s.t.Helper()
	if got := s.do("/").header.Get("X-RateLimit-Limit"); got != strconv.Itoa(want) {
		s.t.Errorf("clients are told a limit of %s, want %d", got, want)
	}
	r := s.rule("api")
	if got := r["in_force"].(map[string]any)["requests"]; got != float64(want) || why != "" && r["why"] != why {
		s.t.Errorf("in force are %v requests, because: %v; want %d, because: %s", got, r["why"], want, why)
	}
}

const adaptable = `zone api {
	limit 100/1m
	adapt {
		floor 50/1m
		ceiling 200/1m
	}
}
`

func TestAdviceMovesALimitByStepsAndWalksBack(t *testing.T) {
	s := startAdvised(t)
	audit := filepath.Join(s.dir, "advice.jsonl")
	s.site("mode apply\ngates bounds\naudit "+audit, adaptable)
	s.limit(100, "configured")
	s.advise(600, `{"rule":"api","limit":{"requests":180},"reason":"growth"}`)
	s.second(1)
	s.limit(125, "")
	s.second(29)
	s.limit(125, "step")
	s.second(1)
	s.limit(156, "")
	s.second(30)
	s.limit(180, "advice")

	// A reload keeps it, and what has been used.
	used := s.do("/").header.Get("X-RateLimit-Remaining")
	s.site("mode apply\ngates bounds\naudit "+audit, adaptable+"headers x_ratelimit\n")
	left, _ := strconv.Atoi(used)
	must.Equal(t, s.do("/").header.Get("X-RateLimit-Remaining"), strconv.Itoa(left-1), "after a reload requests remain, before there were %s", used)
	s.limit(180, "advice")

	// The advisor is gone: the limit holds until the advice expires, and then walks back.
	s.advisor.Close()
	s.second(500)
	s.limit(180, "advice")
	s.second(40)
	s.limit(135, "expired")
	s.second(60)
	s.limit(100, "configured")

	lines, err := os.ReadFile(audit)
	must.Succeed(t, err)
	var last struct {
		Rule, Why, Actor string
		Applied          bool
		Before, After    struct{ Requests int }
	}
	all := bytes.Split(bytes.TrimSpace(lines), []byte("\n"))
	if err := json.Unmarshal(all[len(all)-1], &last); err != nil || len(all) != 6 {
		t.Fatalf("%d lines, %v:\n%s", len(all), err, lines)
	}
	if last.Rule != "api" || !last.Applied || last.Before.Requests != 102 || last.After.Requests != 100 || last.Actor != "time" {
		t.Errorf("the last line is %s", all[len(all)-1])
	}
	if len(s.logs("the limit has changed")) != 6 {
		t.Errorf("the log has %d changes", len(s.logs("the limit has changed")))
	}
}

func TestAnObservedAdvisorChangesNothing(t *testing.T) {
	s := startAdvised(t)
	s.site("gates bounds", adaptable)
	s.advise(600, `{"rule":"api","limit":{"requests":180},"reason":"growth"}`)
	s.second(100)
	s.limit(100, "advice")
	if would := s.rule("api")["would_be"].(map[string]any)["requests"]; would != 180.0 {
		t.Errorf("the limit would be %v", would)
	}
	must.Equal(t, len(s.logs("advice would change the limit; mode apply lets it")), 3, "lines say what would change")
}

func TestOperatorsFreezeAndRevertALimit(t *testing.T) {
	s := startAdvised(t)
	s.site("mode apply\ngates bounds", adaptable)
	s.advise(3000, `{"rule":"api","limit":{"requests":180},"reason":"growth"}`)
	s.second(1)
	if status, answer := s.call("freeze", `{"rule":"api","for":"10m"}`); status != http.StatusOK || answer["why"] != "frozen" {
		t.Fatalf("status %d: %v", status, answer)
	}
	s.second(300)
	s.limit(125, "frozen")
	s.site("mode apply\ngates bounds", adaptable+"headers x_ratelimit\n")
	s.limit(125, "frozen")
	s.second(300)
	s.limit(156, "")
	if status, answer := s.call("revert", `{"rule":"api"}`); status != http.StatusOK || answer["why"] != "reverted" {
		t.Fatalf("status %d: %v", status, answer)
	}
	s.limit(100, "reverted")
	s.second(100)
	s.limit(100, "reverted")
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"freeze", `{"rule":"apis","for":"10m"}`, 404, `rule "apis": there is none of that name (did you mean api?)`},
		{"freeze", `{"rule":"api","for":"x"}`, 400, `for "x": must be a duration up to 30d, such as 10m; 0s ends a freeze`},
		{"revert", `{"rule":"api","for":"x"}`, 400, `for`},
	} {
		if status, answer := s.call(c.path, c.body); status != c.status || !strings.Contains(fmt.Sprint(answer["error"]), c.want) {
			t.Errorf("%s %s: status %d: %v", c.path, c.body, status, answer)
		}
	}
}

// The full gates let advice loosen alone, and only where a guard sees a healthy service whose demand it has learnt.
func TestTheFullGatesGoByWhatCaddySees(t *testing.T) {
	s := startAdvised(t)
	s.site("mode apply\nwarm_up 20s", adaptable)
	loosen := `{"rule":"api","limit":{"requests":200},"reason":"growth","forecast":{"mean":100,"lower":90,"upper":160,"quantile":0.99}}`
	s.advise(3000, loosen)
	s.second(2)
	s.limit(100, "unknown") // nobody watches the service

	guarded := "guard\n" + adaptable
	s.site("mode apply\nwarm_up 20s", guarded)
	s.advise(3000, loosen)
	s.second(2)
	s.limit(100, "warm_up")
	for range 18 { // traffic, as even as before: else what is usual would have to be learnt anew
		s.do("/")
		s.second(5)
	}
	s.limit(192, "advice") // 1.2 times the forecast's upper bound

	s.advise(3000, `{"rule":"api","limit":{"requests":60},"reason":"schedule","forecast":{"mean":100,"lower":90,"upper":160,"quantile":0.99}}`)
	s.second(120)
	s.limit(100, "")
	if n := s.rule("api")["clamped"].(map[string]any)["lowering"]; n != 1.0 {
		t.Errorf("advice that would lower the limit was clamped %v times", n)
	}
}

func TestAdviceThatIsRefusedChangesNothing(t *testing.T) {
	s := startAdvised(t)
	s.site("mode apply\ngates bounds\ntimeout 1s", adaptable) // in which a busy machine reads a mebibyte
	for reason, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"unavailable": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"malformed":   func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "garbage") },
		"too_large":   func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(bytes.Repeat([]byte(" "), 2<<20)) },
	} {
		before := s.number("refused." + reason)
		s.fetch(answer)
		if n := s.number("refused."+reason) - before; n != 1 {
			t.Errorf("%s: counted %v times: %v", reason, n, s.advice())
		}
	}
	for _, reason := range []string{"unavailable", "malformed", "too_large"} {
		if !slices.ContainsFunc(s.logs("advice is refused"), func(line map[string]any) bool { return line["reason"] == reason }) {
			t.Errorf("the log does not say that advice is refused as %s", reason)
		}
	}
	s.advise(600, `{"rule":"others","limit":{"requests":180},"reason":"growth"}`)
	s.second(60)
	s.limit(100, "configured")
	if n := s.number("refused.rule"); n != 1 {
		t.Errorf("advice on a rule that is not adaptable: %v", s.advice())
	}
	s.fetch(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }) // it hangs, until the timeout
	s.reloadWith("", ":PORT {\nrate_limit 100/1m\nrespond ok\n}")
	eventually(t, "nothing of the advisor is left", func() bool {
		all := stacks()
		return !strings.Contains(all, "core/advice.") && !strings.Contains(all, "adapting).tick")
	})
}

func TestRulesInFilesFollowAdviceToo(t *testing.T) {
	s := startAdvised(t)
	file := filepath.Join(s.dir, "rules.yaml")
	write := func(more string) {
		t.Helper()
		must.Succeed(t, os.WriteFile(file, []byte("rules:\n- name: api\n  limit: 100/1m\n  adapt: {ceiling: 200/1m, step: 100% 1s}\n"+more), 0o600))
	}
	write("")
	s.site("mode apply\ngates bounds", "rules_file "+file)
	s.advise(600, `{"rule":"api","limit":{"requests":180},"reason":"growth"}`)
	s.second(1)
	s.limit(180, "advice")
	write("- name: other\n  limit: 5/1h\n  match: {paths: /other}\n")
	// No second passes here: what brings the limit back is that the new rules go on with it, from their first request on.
	eventually(t, "the file has been read", func() bool {
		read := s.do("/other").header.Get("X-RateLimit-Limit") == "5"
		must.Equal(t, s.do("/").header.Get("X-RateLimit-Limit"), "180", "while the file is read, the limit")
		return read
	})
	s.limit(180, "advice")
}

// The builtin advisor learns from Caddy's guards what is asked for at which time of the day, and has a limit rise with it.
func TestTheBuiltinAdvisorLearnsADay(t *testing.T) {
	underrace.OneGoroutine(t)
	s := startAdvised(t)
	config := func(more string) {
		s.reloadWith("rate_limit {\nadvisor builtin {\nmode apply\ngates bounds\n}\n}", ":PORT {\nrate_limit {\nguard\n"+adaptable+more+"\n}\nrespond ok\n}")
	}
	config("")
	most := make(map[int]float64) // the greatest limit in force, by day
	const day = 24 * 12           // in steps of 5 minutes
	for step := range 3 * day {
		if step == 2*day+day/8 {
			config("headers x_ratelimit")
		}
		asked := 3
		if at := step % day; at >= day/2 && at < day/2+day/8 { // three hours at noon
			asked = 15
		}
		for range asked {
			s.do("/")
		}
		s.clock.Add(300_000_000)
		s.ticks <- time.Time{}
		s.ticks <- time.Time{}
		if step%6 == 0 {
			most[step/day] = max(most[step/day], s.rule("api")["in_force"].(map[string]any)["requests"].(float64))
		}
	}
	// 15 requests in 10 seconds are 90 in a minute, and with headroom 108 or more: what is known of a key's demand is a power of two.
	if most[0] != 100 || most[1] != 100 || most[2] < 108 {
		t.Errorf("the greatest limits of the three days are %v", most)
	}
}

// An advisor whose certificate is by nobody that Caddy trusts says nothing, and one whose signature is wrong neither.
func TestAnAdvisorMustBeWhoItSays(t *testing.T) {
	s := startAdvised(t)
	plain := s.advisor
	s.advisor = httptest.NewTLSServer(s)
	t.Cleanup(plain.Close)
	s.site("mode apply\ngates bounds", adaptable)
	s.advise(600, `{"rule":"api","limit":{"requests":180},"reason":"growth"}`)
	s.second(60)
	s.limit(100, "configured")
	if n := s.number("refused.unavailable"); n == 0 {
		t.Errorf("a certificate that nobody vouches for: %v", s.advice())
	}
	s.advisor.Close()
	s.advisor = httptest.NewServer(s)
	s.site("mode apply\ngates bounds\npublic_key testdata/advisor/key.pub", adaptable)
	s.advise(600, `{"rule":"api","limit":{"requests":180},"reason":"growth"}`)
	s.second(60)
	s.limit(100, "configured")
	if n := s.number("refused.signature"); n == 0 {
		t.Errorf("without a signature: %v", s.advice())
	}
}

// Whatever tells a limit tells the one in force; where an operator looks, it says besides what is configured, and why that is not in force.
func TestWhatTellsALimitTellsTheOneInForce(t *testing.T) {
	s := startAdvised(t)
	const tiers = `zone api {
	limit 100/1m
	tiers {header.X-Plan} {
		gold 1000/1m
	}
	adapt {
		ceiling 200/1m
		step 100% 1s
		algorithms token_bucket
	}
}
zone other {
	match path /other
	limit 7/1m
}
`
	const moved, configured = "150/1m token_bucket", "100/1m sliding_window_counter"
	s.site("mode apply\ngates bounds", tiers)
	explain := func(fields string) any {
		t.Helper()
		return at(t, s.ask("explain", `{"url":"http://localhost:`+s.addr[strings.LastIndex(s.addr, ":")+1:]+`/","client_ip":"192.0.2.7"`+fields+`}`), "handlers", 0, "rules")
	}
	differs := func(answer any, want bool) {
		t.Helper()
		if text, _ := json.Marshal(answer); bytes.Contains(text, []byte(`"configured"`)) != want || bytes.Contains(text, []byte(`"advice"`)) != want {
			t.Errorf("whether it tells of another limit: %t, want %t: %s", !want, want, text)
		}
	}
	differs(s.ask("rules", ""), false)
	differs(explain(""), false)
	wantAt(t, explain(""), configured, 0, "limit")

	s.advise(600, `{"rule":"api","limit":{"requests":150,"algorithm":"token_bucket"},"reason":"growth"}`)
	s.second(1)
	s.limit(150, "advice")
	for name, rule := range map[string]any{"rules": at(t, s.ask("rules", ""), "rules", 0), "explain": at(t, explain(""), 0)} {
		wantAt(t, rule, configured, "configured")
		wantAt(t, rule, "1", "advice", "serial")
		wantAt(t, rule, "growth", "advice", "reason")
		wantAt(t, rule, "advice", "advice", "why")
		wantAt(t, rule, "advice 1, growth", "advice", "text")
		want := map[string]string{"rules": "150/1m", "explain": moved}[name]
		wantAt(t, rule, want, "limit")
	}
	wantAt(t, s.ask("key?rule=api&key=192.0.2.7", ""), moved, "rules", 0, "limit_text")
	differs(at(t, s.ask("rules", ""), "rules", 1), false)
	differs(explain(`,"headers":{"X-Plan":"gold"}`), false) // advice moves the rule's own limit alone
	must.Equal(t, s.do("/", "X-Plan", "gold").header.Get("X-RateLimit-Limit"), "1000", "clients with a tier are told a limit of")

	s.ask("revert", `{"rule":"api"}`)
	s.limit(100, "reverted")
	differs(s.ask("rules", ""), false)
}

func TestItIsToldWhyTheAdvisorAbstains(t *testing.T) {
	s := startAdvised(t)
	s.site("mode apply\ngates bounds", "zone api {\nlimit 100/1m\nadapt {\nceiling 200/1m\nstep 100% 1s\n}\n}")
	abstains := func(reason string) {
		t.Helper()
		s.advise(600, `],"abstained":[{"rule":"api","reason":"`+reason+`"}`)
		s.second(2)
		text := fmt.Sprintf("advice %d has nothing for this rule (%s", s.serial, reason)
		for name, of := range map[string]any{
			"advice": s.rule("api"), "rules": at(t, s.ask("rules", ""), "rules", 0, "advice"),
			"explain": at(t, s.ask("explain", `{"url":"http://localhost:`+s.addr[strings.LastIndex(s.addr, ":")+1:]+`/","client_ip":"192.0.2.7"}`), "handlers", 0, "rules", 0, "advice"),
		} {
			wantAt(t, of, "abstains", "why")
			wantAt(t, of, reason, "reason")
			if got := fmt.Sprint(at(t, of, "text")); !strings.HasPrefix(got, text) {
				t.Errorf("%s: %s, want %s", name, got, text)
			}
		}
	}
	lines := func() int {
		log, err := os.ReadFile(s.logFile)
		must.Succeed(t, err)
		return bytes.Count(log, []byte("has nothing for this rule ("))
	}
	abstains("history")
	abstains("history") // is not logged again
	abstains("skill")
	if n := lines(); n != 2 {
		t.Errorf("there are %d lines in the log, want 2: one for each change of the reason", n)
	}
	s.advise(600, `{"rule":"api","limit":{"requests":150},"reason":"growth"}`)
	s.second(2)
	s.limit(150, "advice")
	abstains("skill")
	if n := lines(); n != 3 {
		t.Errorf("there are %d lines in the log, want 3, the last of which says that the limit changes", n)
	}
}

func TestHealthTellsOfTheAdvisor(t *testing.T) {
	s := startAdvised(t)
	s.site("", adaptable)
	health := s.ask("health", "")
	wantAt(t, health, "observe", "advisor", "mode")
	wantAt(t, health, "unavailable", "advisor", "reason")
	s.advise(600, "")
	health = s.ask("health", "")
	wantAt(t, health, "0", "advisor", "failures")
	wantAt(t, health, "2027-01-15T08:00:00Z", "advisor", "last_success")
	s.reloadWith("", ":PORT {\nrate_limit {\n"+adaptable+"}\nrespond ok\n}")
	if health := s.ask("health", ""); health["advisor"] != nil {
		t.Errorf("without an advisor: %v", health["advisor"])
	}
	if status, _ := s.call("advice", ""); status != http.StatusNotFound {
		t.Errorf("without an advisor advice has status %d", status)
	}
}

// What guards do by advice ends with the advice, though guards outlive reloads.
func TestAThresholdEndsWithItsAdvisor(t *testing.T) {
	s := startAdvised(t)
	strict := `{"rule":"api","reason":"abuse","above":{"requests_per_second":0.1,"limit":"1/1h","for":"1h"}}`
	for name, next := range map[string]func(){
		"observe":    func() { s.site("gates bounds", "guard\n"+adaptable) },
		"no advisor": func() { s.reloadWith("", ":PORT {\nrate_limit {\nguard\n"+adaptable+"\n}\nrespond ok\n}") },
	} {
		s.site("mode apply\ngates bounds", "guard\n"+strings.Replace(adaptable, "floor 50/1m", "floor 1/1m", 1))
		s.advise(3600, strict)
		s.second(1)
		rejected := 0
		for range 20 {
			if s.do("/").status == http.StatusServiceUnavailable {
				rejected++
			}
		}
		if rejected == 0 {
			t.Fatalf("%s: the threshold does not hold", name)
		}
		next()
		for range 5 {
			must.Equal(t, s.do("/").status, http.StatusOK, "%s: status after the advice has ended", name)
		}
		s.clock.Add(3600_000_000)
	}
}

// A defect: neither a threshold nor a reload that moved a limit had a line in the audit file.
func TestAnAuditFileTellsOfReloadsAndThresholds(t *testing.T) {
	s := startAdvised(t)
	audit := filepath.Join(s.dir, "advice.jsonl")
	apply, observe := "mode apply\ngates bounds\naudit "+audit, "gates bounds\naudit "+audit
	s.site(apply, "guard\n"+adaptable)
	s.advise(3600, `{"rule":"api","limit":{"requests":180},"reason":"growth","above":{"requests_per_second":3,"limit":"120/1m","for":"20s"}}`)
	s.second(1)
	s.site(observe, "guard\n"+adaptable)
	s.limit(100, "")
	s.second(30)
	s.limit(100, "")
	s.site(apply, "guard\n"+adaptable)
	s.second(1)
	s.site(apply, "guard\n"+strings.Replace(adaptable, "limit 100/1m", "limit 110/1m", 1))
	s.limit(110, "configured")
	text, err := os.ReadFile(audit)
	must.Succeed(t, err)
	var got []string
	for line := range strings.Lines(string(text)) {
		var a struct {
			Before, After struct {
				Requests int
				Above    string
			}
			Applied    bool
			Why, Actor string
		}
		must.Succeed(t, json.Unmarshal([]byte(line), &a))
		got = append(got, fmt.Sprintf("%d %q to %d %q, applied %v, %s by %s", a.Before.Requests, a.Before.Above, a.After.Requests, a.After.Above, a.Applied, a.Why, a.Actor))
	}
	const above = `"keys above 30 requests in 10s get 20"`
	want := []string{
		`100 "" to 125 ` + above + `, applied true, advice by advisor`,
		`125 ` + above + ` to 100 "", applied true, reloaded by operator`,
		`100 "" to 100 ` + above + `, applied false, step by advisor`,
		`100 ` + above + ` to 100 "", applied false, step by advisor`,
		`100 "" to 125 "", applied false, advice by advisor`,
		`100 "" to 110 "", applied true, reloaded by operator`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit file has\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAnAuditFileMustBeAFile(t *testing.T) {
	s := newServer(t)
	config := s.caddyfile("rate_limit {\nadvisor builtin {\naudit "+s.dir+"\n}\n}", ":PORT {\nrate_limit 5/1m\n}")
	must.Contain(t, s.refused(config), "advisor: audit "+s.dir+": must be a file")
}
