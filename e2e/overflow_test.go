package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// Overflow policies of rules in a real Traefik. The tests of the stores check the arithmetic.

var (
	shadowLine    = regexp.MustCompile(`rule "([^"]+)", a shadow, would have rejected (\d+) requests in the last minute`)
	candidateLine = regexp.MustCompile(`rule "([^"]+)", of (\d+) requests in the last minute: the candidate would have rejected (\d+) that the limit allowed, and allowed (\d+) that it rejected`)
)

// said returns what the log reports about the site's rules, summed over all minutes, in the order of names.
func (s *site) said(names ...string) string {
	sums := make([][3]int, len(names))
	add := func(pattern *regexp.Regexp, line string) {
		found := pattern.FindStringSubmatch(line)
		for i, name := range names {
			if found == nil || found[1] != s.name+"-"+name {
				continue
			}
			for j, number := range found[2:] {
				n, _ := strconv.Atoi(number)
				sums[i][j] += n
			}
		}
	}
	for _, e := range s.log("in the last minute") {
		add(shadowLine, e.Message)
		add(candidateLine, e.Message)
	}
	return fmt.Sprint(sums)
}

// Shadow rules and candidates do not affect clients and are invisible to them. The log reports on them once a minute, and on rejections at the level that is
// configured.
func TestShadowsAndCandidatesAreReportedInTheLog(t *testing.T) {
	t.Parallel() // it waits for a minute
	s := newSite(t)
	s.limit("shadow", "{limit: 2/366d, enforcement: shadow}")
	s.limit("laxer", "{limit: 3/366d, candidate: {limit: 5/366d}}")
	s.limit("stricter", "{limit: 3/366d, candidate: {limit: 2/366d}, store: "+inRedis(redistest.Start(t).Addr())+"}")
	s.limit("logged", "{limit: 1/366d, logLevel: debug, logInterval: 5s}")
	for _, m := range s.middlewares {
		s.route("/"+m.name, m.name)
	}
	s.apply()
	s.admit(1, "/logged")
	for range 3 {
		s.reject("/logged?a=secret")
	}
	if r := s.admit(5, "/shadow"); r.header.Get("RateLimit") != "" {
		t.Errorf("the shadow shows: %v", r.header)
	}
	for _, path := range []string{"/laxer", "/stricter"} {
		s.admit(3, path)
		for range 5 {
			if got := s.reject(path).header.Get("RateLimit-Policy"); !strings.HasSuffix(got, `;q=3;w=31622400`) {
				t.Errorf("%s: a client sees %s", path, got)
			}
		}
	}
	const want = "[[3 0 0] [8 0 2] [8 1 0]]"
	got := ""
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline) && got != want; time.Sleep(time.Second) {
		got = s.said("shadow", "laxer", "stricter")
	}
	must.Equal(t, got, want, "the log says")
	first, others := s.log("rate limit exceeded: rule"), s.log("more requests exceeded the rate limit")
	if len(first) != 1 || first[0].Level != "debug" || !strings.HasSuffix(strings.TrimSpace(first[0].Message), `"GET" "`+s.host()+`/logged"`) || len(others) != 1 || !strings.Contains(others[0].Message, ", 2 in 5s;") {
		t.Errorf("rejections: %+v, %+v", first, others)
	}
	for _, e := range s.log() {
		if candidateLine.MatchString(e.Message) && e.Level != "debug" || shadowLine.MatchString(e.Message) && e.Level != "error" {
			t.Errorf("level %s: %s", e.Level, e.Message)
		}
	}
}

// A minute after its last use, the plugin releases what it has for a Redis, and closes the connection. (That once crashed Traefik.)
func TestAnUnusedStoreInRedisIsReleased(t *testing.T) {
	t.Parallel() // it waits for a minute
	redis := redistest.Start(t)
	s := newSite(t)
	s.limit("limit", "{limit: 9/366d, concurrency: 3, store: "+inRedis(redis.Addr())+"}")
	s.route("/", "limit")
	s.apply()
	s.admit(2, "/")
	clients := func() int { return strings.Count(redis.MustDo(t, "CLIENT", "LIST").Text, " laddr=") }
	if clients() < 2 {
		t.Fatal("Traefik is not connected")
	}
	s.limit("limit", "limit: 9/366d")
	s.apply()
	for deadline := time.Now().Add(3 * time.Minute); clients() > 1; time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			t.Fatal("the connection is still there")
		}
	}
	s.admit(1, "/")
}

// A client that offends at one proxy is blocked at all, and all know how often it has offended.
func TestAPenaltyHoldsForAWholeFleet(t *testing.T) {
	redis := redistest.Start(t)
	first, second := startPair(t)
	s := first.newSite(t)
	handlers := "respond /up ok\n"
	for i := range 3 {
		name := fmt.Sprintf("logins%d", i)
		s.limit(name, "{namespace: fleet, rules: [{name: "+name+", limit: 2/2s, algorithm: token_bucket, penalty: [1ms, 1h, 2h]}], store: "+inRedis(redis.Addr())+"}")
		s.route("/"+name, name)
		handlers += "route /" + name + " {\nrate_limit {\nzone " + name + " {\nlimit 2/2s\nalgorithm token_bucket\npenalty 1ms 1h 2h\nipv6_prefix 64\n}\nnamespace fleet\n" +
			"store redis " + redis.Addr() + " {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 1\n}\n}\nrespond ok\n}\n"
	}
	s.apply()
	twin := s.at(second)
	c := startCaddy(t, handlers)
	proxies := []func(string, ...string) (response, error){s.try, twin.try, c.try}
	for i := range proxies { // each proxy is the first once
		guess := func(who int) (status, retry int) {
			r, err := proxies[(i+who)%3](fmt.Sprintf("/logins%d", i))
			must.Succeed(t, err)
			retry, _ = strconv.Atoi(r.header.Get("Retry-After"))
			return r.status, retry
		}
		eventually(t, "the limit is exceeded for the first time", func() bool { status, _ := guess(0); return status == http.StatusTooManyRequests })
		eventually(t, "it is exceeded again, at another", func() bool { _, retry := guess(1); return retry > 3500 })
		if status, retry := guess(2); status != http.StatusTooManyRequests || retry < 3400 || retry > 3600 {
			t.Errorf("first proxy %d: status %d, Retry-After %d at the third", i, status, retry)
		}
		eventually(t, "the first hears of it", func() bool { _, retry := guess(0); return retry > 3400 }) // it remembers its own answer for a moment
	}
}

// ways is a service that handles requests in several ways. It reports each request that arrives.
type ways struct {
	came chan string
	end  chan struct{} // ends the requests that wait
}

func (b *ways) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/quick":
		return
	case "/upgraded":
		b.came <- r.URL.Path
		echoFrames(w, r)
		return
	case "/streaming":
		_, _ = io.WriteString(w, "part\n")
		_ = http.NewResponseController(w).Flush()
	}
	b.came <- r.URL.Path
	select {
	case <-b.end:
	case <-r.Context().Done():
		return
	}
	switch r.URL.Path {
	case "/dies": // before any response
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	case "/breaks": // after a part of its response
		conn, stream, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = stream.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
			_ = stream.Flush()
			conn.Close()
		}
	}
}

// served makes the service handle the site's host.
func (s *site) served() *ways {
	b := &ways{came: make(chan string, 16), end: make(chan struct{})}
	upstream.handle(s.host(), b.ServeHTTP)
	return b
}

// begin makes a request that stays under way until the service ends it, or its client leaves.
func (b *ways) begin(s *site, path string) (leave context.CancelFunc) {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.host()+path, nil) // a method for which nobody tries again after a failure
	must.Succeed(s.t, err)
	go func() { _, _ = exchange(s.client, r) }()
	b.has(s.t)
	return leave
}

// has waits until a request has arrived.
func (b *ways) has(t testing.TB) {
	t.Helper()
	select {
	case <-b.came:
	case <-time.After(patience):
		t.Fatal("the request does not come to the service")
	}
}

func TestAPlaceIsFreeAgainHoweverARequestEnds(t *testing.T) {
	stores(t, func(t *testing.T, store string) {
		for _, way := range []string{"/ends", "/streaming", "/dies", "/breaks", "/leaves"} {
			t.Run(way[1:], func(t *testing.T) {
				s := limited(t, "{limit: 1000/366d, concurrency: 2, store: "+store+"}")
				b := s.served()
				s.admit(3, "/quick") // one after the other
				roomForAnother := func() {
					t.Helper()
					eventually(t, "there is room for another", func() bool { return s.do("/quick").status == http.StatusOK })
				}
				for range 2 {
					var leave []context.CancelFunc
					for range 2 {
						roomForAnother() // the last case may still be freeing its last place
						leave = append(leave, b.begin(s, way))
					}
					s.reject("/quick").want(t, "Retry-After", "1", "X-RateLimit-Limit", "2")
					for i := range 2 {
						if way == "/leaves" {
							leave[i]()
						} else {
							b.end <- struct{}{}
						}
						roomForAnother()
					}
				}
				for range 2 { // and room for two
					roomForAnother()
					defer b.begin(s, "/ends")()
				}
				s.reject("/quick")
			})
		}
	})
}

// upgrade opens a WebSocket, and returns its connection and the status of the answer.
func (s *site) upgrade() (net.Conn, *bufio.Reader, int) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.web)
	must.Succeed(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "GET /upgraded HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", s.host())
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, nil)
	must.Succeed(s.t, err)
	return conn, in, answer.StatusCode
}

// A WebSocket is under way until either side closes it, also over changes of the configuration.
func TestAWebSocketIsUnderWayUntilItIsClosed(t *testing.T) {
	stores(t, func(t *testing.T, store string) {
		s := newSite(t)
		set := func(concurrency int) {
			s.limit("limit", fmt.Sprintf("{concurrency: %d, store: %s}", concurrency, store))
			s.apply()
		}
		s.route("/", "limit")
		set(2)
		b := s.served()
		var conns []net.Conn
		var last io.Reader
		for range 2 {
			conn, in, status := s.upgrade()
			if status != http.StatusSwitchingProtocols {
				t.Fatalf("status %d, want 101", status)
			}
			b.has(t)
			writeFrame(t, conn, "hello")
			must.Equal(t, readFrame(t, in), "hello", "came back")
			conns, last = append(conns, conn), in
		}
		if _, _, status := s.upgrade(); status != http.StatusTooManyRequests {
			t.Errorf("status %d for a third, want 429", status)
		}
		set(3) // those under way still count
		s.admit(2, "/quick")
		leave := b.begin(s, "/ends")
		s.reject("/quick")
		set(2)
		leave()
		s.reject("/quick")
		_ = conns[0].Close() // the client
		eventually(t, "the place of a closed one is free", func() bool { return s.do("/quick").status == http.StatusOK })
		fmt.Fprint(conns[1], "no frame") // the service closes it, and the client when it hears of that
		if rest, err := io.ReadAll(last); err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		_ = conns[1].Close()
		leave = b.begin(s, "/ends")
		defer leave()
		eventually(t, "the place of the other is free", func() bool { return s.do("/quick").status == http.StatusOK })
	})
}

// Places that are taken at one proxy are taken for all.
func TestAFleetSharesThePlaces(t *testing.T) {
	redis := redistest.Start(t)
	first, second := startPair(t)
	s := first.newSite(t)
	s.limit("limit", "{namespace: fleet, rules: [{name: few, concurrency: 3}], store: "+inRedis(redis.Addr())+"}")
	s.route("/", "limit")
	s.apply()
	twin := s.at(second)
	b := s.served()
	c := startCaddy(t, "handle /up {\nrespond ok\n}\nhandle {\nrate_limit {\nzone few {\nconcurrency 3\nipv6_prefix 64\n}\nnamespace fleet\n"+
		"store redis "+redis.Addr()+" {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 1\n}\n}\nreverse_proxy "+upstream.url+" {\nheader_up Host "+s.host()+"\n}\n}\n")
	quick := []func(string, ...string) (response, error){s.try, twin.try, c.try}
	statuses := func() (got string) {
		for _, try := range quick {
			r, err := try("/quick")
			must.Succeed(t, err)
			got += fmt.Sprint(r.status, " ")
		}
		return got
	}
	b.begin(s, "/ends")
	b.begin(twin, "/ends")
	must.Equal(t, statuses(), "200 200 200 ", "with two under way")
	go func() { _, _ = c.try("/ends") }()
	b.has(t)
	for range 3 {
		must.Equal(t, statuses(), "429 429 429 ", "with three under way")
		b.end <- struct{}{} // whichever it belongs to
		eventually(t, "there is room for all", func() bool { return statuses() == "200 200 200 " })
		b.begin(twin, "/ends")
	}
}

// The places of a Traefik that is killed are free when its leases run out. While it lives they stay taken.
func TestTheLeasesOfAKilledTraefikRunOut(t *testing.T) {
	t.Parallel() // leases are renewed every five seconds
	redis := redistest.Start(t, redistest.WithClock())
	clock := &storetest.Clock{}
	clock.Set(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC).UnixMicro())
	clock.Follow(redis.SetTime)
	first, second := startPair(t)
	s := first.newSite(t)
	s.limit("limit", "{concurrency: 2, store: "+inRedis(redis.Addr())+"}")
	s.route("/", "limit")
	s.apply()
	twin := s.at(second)
	b := s.served()
	for range 2 {
		b.begin(twin, "/ends")
	}
	keys := redis.MustDo(t, "KEYS", "*:h").List
	if len(keys) != 1 {
		t.Fatalf("%v: want one key with leases", keys)
	}
	until := func() string {
		if list := redis.MustDo(t, "ZRANGE", keys[0].Text, "0", "0", "WITHSCORES").List; len(list) == 2 {
			return list[1].Text
		}
		return ""
	}
	for range 2 { // in total, longer than a lease
		before := until()
		clock.Add(10 * time.Second.Microseconds())
		eventually(t, "the leases are renewed", func() bool { now := until(); return now != "" && now != before })
		s.reject("/quick")
	}
	_ = second.program.Process.Kill()
	<-second.done
	clock.Add(14 * time.Second.Microseconds())
	s.reject("/quick")
	clock.Add(2 * time.Second.Microseconds())
	s.admit(2, "/quick")
}
