package ratelimit_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/ruleset/yaml"
	"github.com/proxyweir/weir/replay"
	"github.com/proxyweir/weir/tools/must"
)

// A log has for each request when it ended and how long it took. The decision was a moment after it began. So the log cannot show
// what depends on such moments: whether a request near the end of a window was in it, or which of several simultaneous requests of
// one key came first. The traffic of this test avoids that, or is sent again. The requests of one key come one after the other,
// windows begin while nothing is sent, and other limits recover so slowly that a moment makes no difference.

// replayedRules are Caddy's rules in this test, with which its log is replayed.
const replayedRules = `
rules:
  - {name: window, match: {path_prefixes: [/window]}, limit: 3/2s, algorithm: fixed_window}
  - {name: sliding, match: {path_prefixes: [/window]}, limit: 5/366d}
  - {name: log, key: [client_ip, path], match: {methods: [POST]}, limit: 2/1h, algorithm: sliding_window_log, count_rejected: true}
  - {name: bucket, match: {path_prefixes: [/bucket]}, key: "header:X-Api-Key", limit: 1/1h, algorithm: token_bucket, burst: 4, cost: "query:cost", on_missing_key: reject}
  - {name: networks, match: {path_prefixes: [/bucket]}, ipv4_prefix: 24, limit: 4/1d, algorithm: fixed_window}
  - {name: login, match: {paths: [/login]}, limit: 3/1h, algorithm: sliding_window_log, count: [401], penalty: [1h]}
  - {name: soft, match: {paths: [/soft]}, limit: 2/1h, algorithm: sliding_window_log, enforcement: soft 100% 1h}
  - {name: exports, match: {path_prefixes: [/slow]}, key: host, concurrency: 2}
  - {name: queue, match: {paths: [/queue]}, key: path, limit: 1/1m, algorithm: token_bucket, burst: 1, on_limit: delay, max_delay: 90s}
  - {name: planned, limit: 1/1h, enforcement: shadow}
`

func TestAReplayedLogHasTheVerdictsOfTheLiveRun(t *testing.T) {
	for try := 1; ; try++ {
		clean := false
		t.Run(strconv.Itoa(try), func(t *testing.T) {
			l := newReplayed(t)
			l.send()
			live := l.lines()
			if clean = l.areClear(live); !clean && try < 20 {
				t.Log("a request was delayed into another window: once more")
				return
			}
			l.compare(live)
			clean = true
		})
		if clean || t.Failed() {
			return
		}
	}
}

// replayed is a Caddy whose log is to be replayed.
type replayed struct {
	*server
	decided <-chan *http.Request
	mu      sync.Mutex
	sent    int
	slow    chan struct{} // ends one slow request for each value
	begun   chan struct{} // receives each slow request that has begun
}

func newReplayed(t *testing.T) *replayed {
	l := &replayed{server: newServer(t), slow: make(chan struct{}), begun: make(chan struct{}, 100), decided: watch(t, t.Name())}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/slow":
			l.begun <- struct{}{}
			<-l.slow
		case r.URL.Path == "/login" && r.URL.RawQuery != "good":
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(upstream.Close)
	l.put("limits.yaml", replayedRules)
	l.load(l.json(fmt.Sprintf(`{"http": {"servers": {"srv0": {
		"listen": ["127.0.0.1:PORT"],
		"automatic_https": {"disable": true},
		"trusted_proxies": {"source": "static", "ranges": ["127.0.0.1/32"]},
		"logs": {},
		"routes": [{"handle": [
			{"handler": "weir_test_probe", "name": %q, "decided": true},
			{"handler": "rate_limit", "rules_files": ["DIR/rules/limits.yaml"]},
			{"handler": "reverse_proxy", "upstreams": [{"dial": %q}]}
		]}]
	}}}}`, t.Name(), upstream.Listener.Addr())))
	return l
}

// request makes a request of a client, and returns its status.
func (l *replayed) request(client, request string, fields ...string) int {
	r, err := l.try(l.client, request, append(fields, "X-Forwarded-For", client, "X-Number", l.number())...)
	if err != nil {
		l.t.Error(err)
	}
	return r.status
}

// number returns the number of the next request.
func (l *replayed) number() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	return strconv.Itoa(l.sent)
}

// apart waits until the log can distinguish the next requests from earlier ones.
func (l *replayed) apart() {
	last := time.Now()
	eventually(l.t, "time passes", func() bool { return time.Since(last) > apartOfReplay })
}

// send sends the traffic that the log is to have.
func (l *replayed) send() {
	for window := range 2 {
		l.awaitMiddle()
		var clients sync.WaitGroup
		for i := range 6 {
			clients.Go(func() { l.sendAsClient(i, window) })
		}
		clients.Wait()
	}
	for i := range 5 {
		l.request("192.0.2.1", "/login?good")
		l.request("192.0.2.1", fmt.Sprintf("/login?guess=%d", i))
	}
	l.request("192.0.2.1", "/login?good")
	for range 6 {
		l.request("2001:db8::1:"+strconv.Itoa(l.sent), "/soft") // all in one network
	}
	l.sendSlow()
	l.sendQueue()
}

// sendAsClient sends the requests of one of several clients in a window, while others send theirs.
func (l *replayed) sendAsClient(i, window int) {
	client := fmt.Sprintf("198.51.%d.1", 100+i)
	for j := range 4 + i%2 {
		l.request(client, fmt.Sprintf("/WINDOW//%d", j))
		l.request(client, "POST /posts//"+strconv.Itoa(j%2))
		neighbour := fmt.Sprintf("198.51.%d.%d", 100+i, 2+j)
		l.request(neighbour, fmt.Sprintf("/bucket?cost=%d", j), "X-Api-Key", fmt.Sprintf("key %d of \"é\" %d", window, i))
	}
	l.request(client, "/bucket")
}

// sendSlow has requests under way together; the third finds no place.
func (l *replayed) sendSlow() {
	var under sync.WaitGroup
	for range 2 {
		under.Go(func() { l.request("192.0.2.3", "/slow") })
		awaitOne(l.t, "a slow request", l.begun)
		l.apart()
	}
	l.request("192.0.2.4", "/slow")
	l.slow <- struct{}{}
	l.slow <- struct{}{}
	under.Wait()
	l.request("192.0.2.4", "/slow/not")
}

// sendQueue makes a request wait, whose client then leaves; another request gets its place in the queue.
func (l *replayed) sendQueue() {
	l.request("192.0.2.5", "/queue")
	for range 2 {
		for len(l.decided) > 0 {
			<-l.decided
		}
		ctx, leave := context.WithCancel(context.Background())
		var waiting sync.WaitGroup
		waiting.Go(func() { l.leaveWhileWaiting(ctx) })
		awaitOne(l.t, "the request that waits", l.decided)
		l.apart()
		l.request("192.0.2.7", "/queue")
		leave()
		waiting.Wait()
		eventually(l.t, "the request that left is in the log", func() bool { return len(l.logs("handled request")) == l.sent })
	}
}

// leaveWhileWaiting makes a request whose client leaves when ctx ends.
func (l *replayed) leaveWhileWaiting(ctx context.Context) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.addr+"/queue", nil)
	if err != nil {
		l.t.Error(err)
		return
	}
	r.Header.Set("X-Number", l.number())
	if answer, err := l.client.Do(r); err == nil {
		_ = answer.Body.Close()
		l.t.Errorf("the request that was to wait was answered %d", answer.StatusCode)
	}
}

// The middle of a window of 2 s.
const (
	windowOfReplay = 2 * time.Second
	marginOfReplay = 300 * time.Millisecond
	apartOfReplay  = 20 * time.Millisecond // distinguishes what is under way from what comes next
)

// awaitMiddle waits until a window has begun, but not long ago.
func (l *replayed) awaitMiddle() {
	begin := time.Now().Truncate(windowOfReplay)
	eventually(l.t, "another window begins", func() bool {
		into := time.Since(time.Now().Truncate(windowOfReplay))
		return time.Now().Truncate(windowOfReplay).After(begin) && into > marginOfReplay && into < windowOfReplay/2
	})
}

// logged is what the log has about a request.
type logged struct {
	Message  string  `json:"msg"`
	At       float64 `json:"ts"`
	Duration float64 `json:"duration"`
	Status   int     `json:"status"`
	Rule     string  `json:"rate_limit_rule"`
	Request  struct {
		URI     string      `json:"uri"`
		Headers http.Header `json:"headers"`
	} `json:"request"`
}

// begin returns when the request began, as far as the log shows.
func (l logged) begin() time.Time {
	return time.UnixMicro(int64(l.At * 1e6)).Add(-time.Duration(l.Duration * 1e9))
}

// lines returns the log's requests, by the number of the line.
func (l *replayed) lines() map[int]logged {
	l.t.Helper()
	eventually(l.t, "all requests are in the log", func() bool { return len(l.logs("handled request")) == l.sent })
	data, err := os.ReadFile(l.logFile)
	must.Succeed(l.t, err)
	live := make(map[int]logged)
	for i, line := range bytes.Split(data, []byte{'\n'}) {
		var one logged
		if json.Unmarshal(line, &one) == nil && one.Message == "handled request" {
			live[i+1] = one
		}
	}
	return live
}

// areClear reports whether the log shows in which window each request was, and the order of those that were under way together.
func (l *replayed) areClear(live map[int]logged) bool {
	var inOrder []logged
	for _, one := range live {
		begin, end := one.begin().Add(-apartOfReplay), time.UnixMicro(int64(one.At*1e6)).Add(apartOfReplay)
		if strings.HasPrefix(one.Request.URI, "/WINDOW") && !begin.Truncate(windowOfReplay).Equal(end.Truncate(windowOfReplay)) {
			return false
		}
		if strings.HasPrefix(one.Request.URI, "/slow") || one.Request.URI == "/queue" {
			inOrder = append(inOrder, one)
		}
	}
	number := func(one logged) int {
		n, _ := strconv.Atoi(one.Request.Headers.Get("X-Number"))
		return n
	}
	slices.SortFunc(inOrder, func(a, b logged) int { return number(a) - number(b) })
	return slices.IsSortedFunc(inOrder, func(a, b logged) int { return a.begin().Compare(b.begin()) })
}

// The log names the rule of a limit's rejection if the status does not show it. What Caddy itself refuses reached no limit.
func TestAReplayKnowsWhatTheLogsLimitsRejectedAndWhatCaddyRefused(t *testing.T) {
	s := start(t, "servers {\nprotocols h1 h2c\n}\n",
		":PORT {\nlog {\noutput file DIR/access.log\nformat json\n}\nrate_limit {\nzone all {\nkey static\nlimit 1/366d\n}\n}\nhandle_errors 429 {\nrespond busy 420\n}\nrespond ok\n}")
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	grpc := s.newClient(protocols)
	defer grpc.CloseIdleConnections()
	s.logFile = s.dir + "/access.log"
	c, err := net.Dial("tcp", s.addr)
	must.Succeed(t, err)
	defer func() { _ = c.Close() }()
	_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n"))
	if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || answer.StatusCode != http.StatusBadRequest {
		t.Fatalf("without a host: %v, %v", answer, err)
	}
	logged := 1
	for _, request := range []struct {
		client *http.Client
		status int
	}{{s.client, 200}, {s.client, 420}, {grpc, 200}} {
		eventually(t, "the request before is in the log", func() bool { return len(s.logs("handled request")) == logged })
		if r, err := s.try(request.client, "POST /", "Content-Type", "application/grpc"); err != nil || r.status != request.status {
			t.Fatalf("status %d, %v, want %d", r.status, err, request.status)
		}
		logged++
	}
	eventually(t, "all requests are in the log", func() bool { return len(s.logs("handled request")) == logged })
	s.put("limits.yaml", rulesOf("{name: all, key: 'static:all', limit: 1/366d}"))
	r, err := replay.Run(context.Background(), replay.Config{Rules: parsed(t, s.dir), Logs: []string{s.logFile}})
	must.Succeed(t, err)
	if r.Requests != 3 || r.Rejected != 2 || r.Logged429 != 0 || r.LoggedByRule != 2 || r.Other != 1 {
		t.Errorf("%d requests, %d rejected; logged: %d with 429, %d by rules; %d other lines", r.Requests, r.Rejected, r.Logged429, r.LoggedByRule, r.Other)
	}
}

// parsed returns the rule file in a server's folder.
func parsed(t testing.TB, dir string) []*ruleset.File {
	t.Helper()
	contents, problems := ruleset.Read([]string{filepath.Join(dir, "rules", "limits.yaml")})
	if problems != nil {
		t.Fatal(problems)
	}
	files, problems := ruleset.Parse(contents, yaml.Parse)
	if problems != nil {
		t.Fatal(problems)
	}
	return files
}

// compare replays the log and compares it with the live run, request by request.
func (l *replayed) compare(live map[int]logged) {
	l.t.Helper()
	rejected := make(map[string]int)
	compared := 0
	report, err := replay.Run(context.Background(), replay.Config{Rules: parsed(l.t, l.dir), Logs: []string{l.logFile}, OnDecided: func(d replay.Decided) {
		one, there := live[d.Line]
		if !there {
			l.t.Errorf("line %d is replayed, which is no request", d.Line)
			return
		}
		compared++
		rule := ""
		if d.Outcome == core.Reject {
			rule = d.Rule
			rejected[rule]++
		}
		if (one.Status == http.StatusTooManyRequests) != (d.Outcome == core.Reject) || one.Rule != rule {
			l.t.Errorf("line %d, %s: live status %d by rule %q, replayed: %s by rule %q", d.Line, one.Request.URI, one.Status, one.Rule, d.Outcome, rule)
		}
	}})
	must.Succeed(l.t, err)
	if compared != l.sent || len(live) != l.sent {
		l.t.Errorf("%d requests were sent, %d logged, %d compared", l.sent, len(live), compared)
	}
	for _, rule := range []string{"window", "sliding", "log", "bucket", "networks", "login", "soft", "exports", "queue"} {
		if rejected[rule] == 0 {
			l.t.Errorf("rule %q has rejected nothing, so that nothing is said of it: %v", rule, rejected)
		}
	}
	if report.Other == 0 || report.Unreadable != 0 || report.Logged429 != report.Rejected {
		l.t.Errorf("other lines %d, unreadable %d, logged 429 %d, rejected %d", report.Other, report.Unreadable, report.Logged429, report.Rejected)
	}
	l.t.Logf("%d requests compared; rejected: %v", compared, rejected)
}
