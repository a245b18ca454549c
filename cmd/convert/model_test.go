package convert

import (
	"fmt"
	"math/rand"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/tools/must"
)

// nginxModel is a limit_req on one key, as nginx's documentation and its numbers have it: times in milliseconds, requests in thousandths.
type nginxModel struct {
	rate, burst, delay int64 // thousandths of requests, a second
	excess, last       int64
	known              bool
}

// request returns how long a request at a time waits, in milliseconds, and whether it is allowed.
func (m *nginxModel) request(now int64) (wait int64, allowed bool) {
	excess := int64(0)
	if m.known {
		excess = max(0, m.excess-m.rate*(now-m.last)/1000+1000)
	}
	if excess > m.burst {
		return 0, false
	}
	m.excess, m.last, m.known = excess, now, true
	return max(0, excess-m.delay) * 1000 / m.rate, true
}

// subject is a rule of a converted configuration, with a clock that is stepped.
type subject struct {
	limiter *core.Limiter
	rule    *core.Rule
	now     int64 // microseconds
	waiting map[int64][][]core.Reservation
}

// newSubject converts a configuration in a file of that name, which must become one rule.
func newSubject(t testing.TB, name, text string) *subject {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	out, problems, err := converted(t, "", "--to", "rules", path)
	must.Succeed(t, err)
	must.Equal(t, problems, "", "of %s is not carried over", text)
	file := rulesOf(t, out)
	must.Equal(t, len(file.Rules), 1, "%d rules of %s", len(file.Rules), text)
	rule, wrong := ruleset.Compile(&file.Rules[0].RuleText, ruleset.Context{Prefixes: ruleset.Standard})
	must.Equal(t, len(wrong), 0, "%v", wrong)
	s := &subject{now: 1_700_000_000_000_000, waiting: make(map[int64][][]core.Reservation)}
	s.limiter = core.NewLimiter(memory.New(memory.Config{Clock: func() int64 { return s.now }}))
	s.rule = rule.Limits.Look("", "192.0.2.1")
	must.Succeed(t, s.limiter.Open(s.rule))
	return s
}

// request returns how long a request waits now, in microseconds, and whether it is allowed.
func (s *subject) request(t testing.TB) (wait int64, allowed bool) {
	t.Helper()
	for at, due := range s.waiting {
		if at <= s.now {
			for _, one := range due {
				s.limiter.Depart(one)
			}
			delete(s.waiting, at)
		}
	}
	checks := []core.Check{{Rule: s.rule, Key: "192.0.2.1"}}
	var v core.Verdict
	must.Succeed(t, s.limiter.Decide(checks, false, &v))
	if v.Outcome == core.Delay {
		s.waiting[s.now+v.Delay] = append(s.waiting[s.now+v.Delay], core.AppendReservations(nil, checks))
	}
	return v.Delay, v.Outcome != core.Reject
}

// On random times, a limit_req and the rule that it becomes let the same requests pass, and each after the same wait.
func TestALimitReqAndItsRuleDecideTheSame(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	limits := 0
	for limits < 150 {
		perSecond, burst := 1+r.Int63n(30), r.Int63n(40)
		delay := []int64{0, burst, r.Int63n(burst + 1)}[limits%3]
		how := []string{"", " nodelay", fmt.Sprintf(" delay=%d", delay)}[limits%3]
		said := fmt.Sprintf("limit_req_zone $binary_remote_addr zone=one:1m rate=%dr/s;\nlimit_req zone=one burst=%d%s;\n", perSecond, burst, how)
		if burst == 0 {
			said = fmt.Sprintf("limit_req_zone $binary_remote_addr zone=one:1m rate=%dr/s;\nlimit_req zone=one;\n", perSecond)
			delay = 0
		}
		limits++
		model := &nginxModel{rate: 1000 * perSecond, burst: 1000 * burst, delay: 1000 * delay}
		s := newSubject(t, "nginx.conf", said)
		allowed, rejected := 0, 0
		for i := range 400 {
			if i%50 == 0 { // and now and then after a long pause
				s.now += 1000 * r.Int63n(60_000)
			}
			s.now += 1000 * r.Int63n(1+2000/perSecond*r.Int63n(2))
			wait, pass := model.request(s.now / 1000)
			got, passed := s.request(t)
			if passed != pass || passed && (got/1000 < wait || got/1000 > wait+1) { // nginx rounds down to a millisecond
				t.Fatalf("%srequest %d: nginx %v after %d ms, the rule %v after %d µs", said, i, pass, wait, passed, got)
			}
			if pass {
				allowed++
			} else {
				rejected++
			}
		}
		must.Equal(t, allowed > 0 && rejected > 0 || burst > 20, true, "%sthe times try nothing: %d and %d", said, allowed, rejected)
	}
}

// Rates a minute are exact in Weir; nginx rounds them down to thousandths of a request a second, and so lets through less by that.
func TestARateAMinuteIsNginxsButForItsRounding(t *testing.T) {
	s := newSubject(t, "nginx.conf", "limit_req_zone $binary_remote_addr zone=one:1m rate=10r/m;\nlimit_req zone=one burst=5 nodelay;\n")
	model := &nginxModel{rate: 1000 * 10 / 60, burst: 5000, delay: 5000}
	ours, nginxs := 0, 0
	for range 36_000 { // an hour
		s.now += 100_000
		if _, pass := model.request(s.now / 1000); pass {
			nginxs++
		}
		if _, pass := s.request(t); pass {
			ours++
		}
	}
	must.Equal(t, ours, 605, "of ten a minute and five at once, so many pass in an hour")
	must.Equal(t, nginxs > 590 && nginxs <= ours, true, "nginx lets %d pass", nginxs)
}

// On random times, a rateLimit of Traefik, which is a golang.org/x/time/rate, and the rule that it becomes let the same requests pass: those that need not wait.
func TestARateLimitAndItsRuleDecideTheSame(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	for range 60 {
		average, burst, period := 1+r.Int63n(50), 1+r.Int63n(30), []time.Duration{time.Second, 10 * time.Second, time.Minute}[r.Intn(3)]
		said := fmt.Sprintf("http:\n  middlewares:\n    one:\n      rateLimit: {average: %d, period: %s, burst: %d}\n", average, period, burst)
		s := newSubject(t, "dynamic.yml", said)
		model := rate.NewLimiter(rate.Limit(float64(average)/period.Seconds()), int(burst))
		compared := 0
		for i := range 300 {
			s.now += r.Int63n(1+3*period.Microseconds()/average) * r.Int63n(2)
			at := time.UnixMicro(s.now)
			tokens := model.TokensAt(at)
			if tokens != float64(burst) && tokens > 0.999999 && tokens < 1.000001 { // the model counts in fractions
				s.now += 10
				continue
			}
			compared++
			pass := model.AllowN(at, 1)
			if _, passed := s.request(t); passed != pass {
				t.Fatalf("%srequest %d, at %f tokens: Traefik %v, the rule %v", said, i, tokens, pass, passed)
			}
		}
		must.Equal(t, compared > 200, true, "%d compared", compared)
	}
}

// nginxLocation is a location of a random server.
type nginxLocation struct {
	modifier, text string
	limited        bool
}

// chosen returns the location that nginx takes for a path, as its documentation has it; nil: none.
func chosen(list []nginxLocation, path string) *nginxLocation {
	var longest *nginxLocation
	for i := range list {
		l := &list[i]
		if l.modifier == "=" && l.text == path {
			return l
		}
		if (l.modifier == "" || l.modifier == "^~") && strings.HasPrefix(path, l.text) && (longest == nil || len(l.text) > len(longest.text)) {
			longest = l
		}
	}
	if longest != nil && longest.modifier == "^~" {
		return longest
	}
	for i := range list {
		if strings.HasPrefix(list[i].modifier, "~") && regexp.MustCompile(list[i].text).MatchString(path) {
			return &list[i]
		}
	}
	return longest
}

// In random servers, a rule covers the paths that nginx limits, unless what is not carried over says where it does not.
func TestARuleCoversWhatNginxLimits(t *testing.T) {
	pool := []nginxLocation{{text: "/"}, {text: "/a"}, {text: "/a/"}, {text: "/a/b"}, {text: "/b/"}, {modifier: "=", text: "/a"}, {modifier: "=", text: "/a/x.php"}, {modifier: "^~", text: "/a/b/"},
		{modifier: "^~", text: "/b"}, {modifier: "~", text: `\.php$`}, {modifier: "~", text: `^/a/(x|y)`}, {modifier: "~*", text: `\.(?:css|jpe?g)$`}, {modifier: "~", text: `^/b(/|$)`}, {modifier: "~", text: `/x|/y\.php`}}
	r := rand.New(rand.NewSource(3))
	compared, limited := 0, 0
	for range 400 {
		var list []nginxLocation
		everywhere := r.Intn(3) == 0
		said := "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;\nlimit_req_zone $binary_remote_addr zone=two:1m rate=2r/s;\nserver {\n"
		if everywhere {
			said += "limit_req zone=one;\n"
		}
		for _, i := range r.Perm(len(pool))[:1+r.Intn(5)] {
			l := pool[i]
			said += "location " + l.modifier + " " + l.text + " { "
			switch r.Intn(3) {
			case 0:
				said += "limit_req zone=one; "
				l.limited = true
			case 1:
				said += "limit_req zone=two; "
			default:
				l.limited = everywhere
			}
			said += "}\n"
			list = append(list, l)
		}
		path := filepath.Join(t.TempDir(), "nginx.conf")
		must.Succeed(t, os.WriteFile(path, []byte(said+"}\n"), 0o600))
		out, problems, err := converted(t, "", path)
		if problems != "" || err != nil {
			continue
		}
		set, err := ruleset.NewSet([]*ruleset.File{rulesOf(t, out)}, "")
		must.Succeed(t, err)
		compared++
		for _, first := range []string{"", "/a", "/ab", "/b", "/c"} {
			for _, second := range []string{"", "/", "/x", "/x.php", "/y.php", "/b/x.jpeg", "/b", "/z.css", "/b/y"} {
				request := httptest.NewRequest("GET", "http://shop.example/", nil)
				if request.URL.Path = first + second; request.URL.Path == "" {
					continue
				}
				want := everywhere
				if l := chosen(list, request.URL.Path); l != nil {
					want = l.limited
				}
				got := false
				for _, rule := range set.Rules {
					got = got || rule.Name == "one" && (rule.Matcher == nil || rule.Matcher.Covers(request, "192.0.2.1"))
				}
				if got != want {
					t.Fatalf("%s}\n%s\n%s: nginx limits it by one: %v, the rules: %v", said, out, request.URL.Path, want, got)
				}
				if want {
					limited++
				}
			}
		}
	}
	must.Equal(t, compared > 150 && limited > 1000, true, "%d servers, %d limited paths", compared, limited)
}
