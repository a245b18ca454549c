package convert

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
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
	if strings.Contains(text, "middlewares:") { // whose routers a rule of a file does not have
		must.Contain(t, problems, ": one: rateLimit: a rule of a file covers all requests")
		_, problems, _ = strings.Cut(problems, "\n")
	}
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

// randomServer returns a server with some locations, of which some have limit_req with zone one, and others with zone two; everywhere says that the server has it.
func randomServer(r *rand.Rand) (said string, list []nginxLocation, everywhere bool) {
	pool := []nginxLocation{{text: "/"}, {text: "/a"}, {text: "/a/"}, {text: "/a/b"}, {text: "/b/"}, {modifier: "=", text: "/a"}, {modifier: "=", text: "/a/x.php"}, {modifier: "^~", text: "/a/b/"},
		{modifier: "^~", text: "/b"}, {modifier: "~", text: `\.php$`}, {modifier: "~", text: `^/a/(x|y)`}, {modifier: "~*", text: `\.(?:css|jpe?g)$`}, {modifier: "~", text: `^/b(/|$)`}, {modifier: "~", text: `/x|/y\.php`}}
	if everywhere = r.Intn(3) == 0; everywhere {
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
			said += "limit_req zone=two burst=1000 nodelay; "
		default:
			l.limited = everywhere
		}
		said += "}\n"
		list = append(list, l)
	}
	return said, list, everywhere
}

const zones = "limit_req_zone $host$uri zone=one:1m rate=1r/m;\nlimit_req_zone $host$uri zone=two:1m rate=2r/m;\n"

// paths are those that are tried.
func paths() (list []string) {
	for _, first := range []string{"", "/a", "/ab", "/b", "/c"} {
		for _, second := range []string{"", "/", "/x", "/x.php", "/y.php", "/b/x.jpeg", "/b", "/z.css", "/b/y"} {
			if first+second != "" {
				list = append(list, first+second)
			}
		}
	}
	return list
}

// covered returns a function that says whether the rules of zone one cover a path; nil: something of the server is not carried over.
func covered(t *testing.T, server string) func(path string) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nginx.conf")
	must.Succeed(t, os.WriteFile(file, []byte(zones+"server {\n"+server+"}\n"), 0o600))
	out, problems, err := converted(t, "", file)
	if problems != "" || err != nil {
		return nil
	}
	set, err := ruleset.NewSet([]*ruleset.File{rulesOf(t, out)}, "")
	must.Succeed(t, err)
	return func(path string) (covers bool) {
		request := httptest.NewRequest("GET", "http://shop.example"+path, nil)
		for _, rule := range set.Rules {
			covers = covers || rule.Name == "one" && (rule.Matcher == nil || rule.Matcher.Covers(request, "192.0.2.1"))
		}
		return covers
	}
}

// In random servers, a rule covers the paths that nginx limits, unless what is not carried over says where it does not.
func TestARuleCoversWhatNginxLimits(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	compared, limited := 0, 0
	for range 400 {
		server, list, everywhere := randomServer(r)
		covers := covered(t, server)
		if covers == nil {
			continue
		}
		compared++
		for _, path := range paths() {
			want := everywhere
			if l := chosen(list, path); l != nil {
				want = l.limited
			}
			if got := covers(path); got != want {
				t.Fatalf("%s%s: nginx limits it by one: %v, the rules: %v", server, path, want, got)
			}
			if want {
				limited++
			}
		}
	}
	must.Equal(t, compared > 150 && limited > 1000, true, "%d servers, %d limited paths", compared, limited)
}

// startNginx starts an nginx whose http has some text, in which ADDRESS is where it listens, and returns that.
func startNginx(t *testing.T, text string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	address = listener.Addr().String()
	must.Succeed(t, listener.Close())
	dir := t.TempDir()
	config := "daemon off;\nmaster_process off;\npid " + dir + "/pid;\nevents {}\nhttp {\naccess_log off;\nlimit_req_status 429;\n"
	for _, of := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += of + "_temp_path " + dir + "/" + of + ";\n"
	}
	config += strings.ReplaceAll(text, "ADDRESS", address)
	must.Succeed(t, os.WriteFile(dir+"/nginx.conf", []byte(config+"}\n"), 0o600))
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin")
	nginx := exec.Command("nginx", "-p", dir, "-c", dir+"/nginx.conf", "-e", "stderr")
	var log bytes.Buffer
	nginx.Stderr = &log
	must.Succeed(t, nginx.Start())
	ended := make(chan error, 1)
	go func() { ended <- nginx.Wait() }()
	t.Cleanup(func() {
		_ = nginx.Process.Kill()
		<-ended
	})
	for connected := false; !connected; {
		if connection, err := net.Dial("tcp", address); err == nil {
			connected = connection.Close() == nil
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("nginx: %v\n%s\n%s", err, log.String(), config)
		default:
		}
	}
	return address
}

// answered returns the answer of an nginx to the second of two requests.
func answered(t *testing.T, address, host, path, agent string) (status int) {
	t.Helper()
	for range 2 {
		request, err := http.NewRequest("GET", "http://"+address+path, nil)
		must.Succeed(t, err)
		request.Host = host
		request.Header.Set("User-Agent", agent)
		response, err := http.DefaultTransport.RoundTrip(request)
		must.Succeed(t, err)
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		status = response.StatusCode
	}
	return status
}

// The same with an nginx: of two requests to a path it rejects the second, or neither.
func TestARuleCoversWhatARealNginxLimits(t *testing.T) {
	config := zones
	r := rand.New(rand.NewSource(4))
	var all []func(string) bool
	for len(all) < 15 {
		server, _, _ := randomServer(r)
		if covers := covered(t, server); covers != nil {
			config += fmt.Sprintf("server {\nlisten ADDRESS;\nserver_name s%d;\nroot /none;\n%s}\n", len(all), server)
			all = append(all, covers)
		}
	}
	address := startNginx(t, config)
	limited := 0
	for i, covers := range all {
		for _, path := range paths() {
			status := answered(t, address, fmt.Sprintf("s%d", i), path, "x")
			if status == 429 {
				limited++
			}
			if covers(path) != (status == 429) {
				t.Errorf("server s%d, %s: nginx answers %d to the second request, and the rules cover it: %v\n%s", i, path, status, covers(path), config)
			}
		}
	}
	must.Equal(t, limited > 50, true, "%d limited paths", limited)
}

// Maps that become a rule limit the same requests in an nginx, also in upper and lower case; and a geo with ranges the same addresses.
func TestARuleOfAMapLimitsWhatARealNginxLimits(t *testing.T) {
	maps := []string{`default ""; "~Bytespider" $uri;`, `default $uri; "~^curl" "";`, `default $uri; "" "";`, `default ""; "" $uri;`, `default ""; "~*^1.0$" $uri;`, `default ""; 1.0 $uri;`, `default ""; ~/7 $uri;`}
	agents := []string{"", "Bytespider", "bytespider", "a Bytespider/2", "curl/7.88", "Curl/7.88", "1.0", "1.01"}
	config := ""
	for i, lines := range maps {
		config += fmt.Sprintf("map $http_user_agent $m%d { %s }\nlimit_req_zone $m%d zone=z%d:1m rate=1r/m;\nserver {\nlisten ADDRESS;\nserver_name m%d;\nroot /none;\nlimit_req zone=z%d;\n}\n", i, lines, i, i, i, i)
	}
	for i, lines := range []string{"ranges; default $uri; 127.0.0.0-127.0.0.255 \"\";", "ranges; default $uri; 127.0.0.2-127.0.0.3 \"\";"} {
		maps = append(maps, lines)
		config += fmt.Sprintf("geo $g%d { %s }\nmap $g%d $k%d { default $uri; \"\" \"\"; }\nlimit_req_zone $k%d zone=g%d:1m rate=1r/m;\nserver {\nlisten ADDRESS;\nserver_name m%d;\nroot /none;\nlimit_req zone=g%d;\n}\n", i, lines, i, i, i, i, len(maps)-1, i)
	}
	address := startNginx(t, config)
	file := filepath.Join(t.TempDir(), "nginx.conf")
	must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
	out, problems, err := converted(t, "", file)
	must.Equal(t, problems, "", "what is not carried over is")
	must.Succeed(t, err)
	set, err := ruleset.NewSet([]*ruleset.File{rulesOf(t, out)}, "")
	must.Succeed(t, err)
	limited := 0
	for i, lines := range maps {
		for j, agent := range agents {
			host, path, covers := fmt.Sprintf("m%d", i), fmt.Sprintf("/%d", j), false
			request := httptest.NewRequest("GET", "http://"+host+path, nil)
			if agent != "" {
				request.Header.Set("User-Agent", agent)
			}
			for _, rule := range set.Rules {
				covers = covers || rule.Matcher.Covers(request, "127.0.0.1")
			}
			rejects := answered(t, address, host, path, agent) == 429
			must.Equal(t, covers, rejects, "%s: a rule covers %q", lines, agent)
			if rejects {
				limited++
			}
		}
	}
	must.Equal(t, limited > 20 && limited < 60, true, "%d limited", limited)
}

// A map of hosts with hostnames limits the same hosts in an nginx, as far as its names have one label in place of a *.
func TestARuleOfAMapOfHostsLimitsWhatARealNginxLimits(t *testing.T) {
	maps := []string{`default ""; .a.example $uri;`, `default $uri; .a.example "";`, `default ""; *.a.example $uri; b.a.example "";`, `default ""; a.example $uri;`, `default $uri; *.a.example ""; a.example $request_uri;`}
	hosts := []string{"a.example", "A.example", "b.a.example", "c.a.example", "xa.example", "b.example"}
	for i, lines := range maps {
		config := fmt.Sprintf("map $host $h { hostnames; %s }\nlimit_req_zone $h zone=h:1m rate=1r/m;\nserver {\nlisten ADDRESS;\nroot /none;\nlimit_req zone=h;\n}\n", lines)
		address := startNginx(t, config)
		file := filepath.Join(t.TempDir(), "nginx.conf")
		must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
		out, _, err := converted(t, "", file)
		must.Succeed(t, err)
		set, err := ruleset.NewSet([]*ruleset.File{rulesOf(t, out)}, "")
		must.Succeed(t, err)
		for j, host := range hosts {
			path, covers := fmt.Sprintf("/%d", j), false
			for _, rule := range set.Rules {
				covers = covers || rule.Matcher.Covers(httptest.NewRequest("GET", "http://"+host+path, nil), "127.0.0.1")
			}
			must.Equal(t, covers, answered(t, address, host, path, "x") == 429, "map %d, %s: a rule covers %s", i, lines, host)
		}
	}
}
