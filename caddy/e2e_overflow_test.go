package ratelimit_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/tools/must"
)

// Overflow policies of rules in a real Caddy. The tests of the stores check the arithmetic.

// withMetrics adds the metrics to a site.
func withMetrics(directives string) string {
	return "handle /metrics {\nmetrics\n}\nhandle {\nroute {\n" + directives + "\n}\n}"
}

// grown returns how much a series grows while f runs. The series of a process outlive its tests.
func (s *server) grown(series string, f func()) int {
	s.t.Helper()
	read := func() (n int) {
		_, _ = fmt.Sscan(s.metric(series), &n)
		return n
	}
	before := read()
	f()
	return read() - before
}

func TestToleranceIsReportedAndCountedSeparately(t *testing.T) {
	s := startSite(t, withMetrics("rate_limit {\nzone tolerant {\nkey everyone\nlimit 4/366d\nenforcement soft 50% 1h\n}\n}\nrespond ok"))
	var last response
	soft := s.grown(`weir_requests_total{outcome="allowed_soft",rule="tolerant"}`, func() {
		for i := range 6 {
			r := s.do("/")
			want := "-"
			if i >= 4 {
				want = "exceeded"
			}
			if r.status != http.StatusOK {
				t.Fatalf("request %d: status %d, want 200", i+1, r.status)
			}
			r.want(t, "X-RateLimit-Soft", want, "X-RateLimit-Limit", "4", "X-RateLimit-Remaining", fmt.Sprint(max(0, 3-i)))
		}
		last = s.reject("/")
	})
	last.want(t, "X-RateLimit-Soft", "-", "X-RateLimit-Limit", "4")
	must.Equal(t, soft, 2, "%d requests are counted as let through on tolerance, want 2", soft)
}

// A dry run of a rule that delays: nobody waits, and who would is counted, and logged with the time.
func TestWhatAShadowWouldHaveDelayedIsCounted(t *testing.T) {
	s := startSite(t, withMetrics("rate_limit {\nzone shadow {\nkey everyone\nlimit 2/1h\nalgorithm token_bucket\non_limit delay\nmax_delay 45m\nenforcement shadow\n}\n}\nrespond ok"))
	s.admit(5, "/") // two at once, one after half an hour, and then two after more than three quarters
	for outcome, want := range map[string]string{"allowed": "2", "shadow_delayed": "1", "shadow_rejected": "2", "delayed": "0"} {
		if got := s.metric(`weir_requests_total{outcome="` + outcome + `",rule="shadow"}`); got != want {
			t.Errorf("%s: %s requests are counted, want %s", outcome, got, want)
		}
	}
	lines := s.logs("request delayed in shadow")
	if len(lines) != 1 || lines[0]["zone"] != "shadow" {
		t.Fatalf("the log has %v", lines)
	}
	if wait, _ := lines[0]["wait"].(float64); wait < 1700 || wait > 1800 {
		t.Errorf("the wait is %v s, want half an hour", lines[0]["wait"])
	}
}

// A limit of 3 with a candidate of 5, and with one of 2: the four combinations of their decisions.
func TestACandidateIsComparedOnRealRequests(t *testing.T) {
	for name, test := range map[string]struct {
		candidate string
		want      map[string]int // by the limit's decision and the candidate's
	}{
		"laxer":    {"5/366d", map[string]int{"allowed allowed": 3, "rejected allowed": 2, "rejected rejected": 3}},
		"stricter": {"2/366d", map[string]int{"allowed allowed": 2, "allowed rejected": 1, "rejected rejected": 5}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSite(t, withMetrics("rate_limit {\nzone "+name+" {\nkey everyone\nlimit 3/366d\ncandidate {\nlimit "+test.candidate+"\n}\n}\n}\nrespond ok"))
			s.admit(3, "/")
			for range 5 {
				s.reject("/").want(t, "RateLimit-Policy", `"`+name+`";q=3;w=31622400`)
			}
			for _, limit := range []string{"allowed", "rejected"} {
				for _, candidate := range []string{"allowed", "rejected"} {
					got := s.metric(fmt.Sprintf(`weir_candidate_decisions_total{candidate="%s",limit="%s",rule="%s"}`, candidate, limit, name))
					want := test.want[limit+" "+candidate]
					if got != fmt.Sprint(want) && (got != "" || want != 0) {
						t.Errorf("limit %s, candidate %s: %q, want %d", limit, candidate, got, want)
					}
				}
			}
			if lines := s.logs("rate limit exceeded in shadow"); len(lines) != 0 {
				t.Errorf("the log has lines of the candidate: %v", lines)
			}
		})
	}
}

// password returns the header field of a user with that password.
func password(word string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("alice:"+word))
}

func TestAPersonWithTheRightPasswordIsNeverStopped(t *testing.T) {
	// Behind basic authentication failures are counted, and too many block the client. The hash is always the same: one in some thousand has a word in it that start
	// replaces.
	s := startSite(t, "route {\nrate_limit {\nzone login {\nkey {header.X-Client}\nlimit 3/1h\ncount 401\npenalty 10m 1h\n}\n}\n"+
		"basic_auth {\nalice $2a$04$B4P9eo5IBmCarQyRSYibVeFwaB9omHRocBRElHxPcZELKEWskFGCq\n}\nrespond welcome\n}")
	s.admit(300, "/", "Authorization", password("right"), "X-Client", "alice")
	for range 3 {
		if r := s.do("/", "Authorization", password("wrong"), "X-Client", "mallory"); r.status != http.StatusUnauthorized {
			t.Fatalf("status %d, want 401", r.status)
		}
	}
	r := s.reject("/", "Authorization", password("right"), "X-Client", "mallory")
	r.seconds(t, "Retry-After", 600, 2*3600) // that of the limit, if it is longer than the first penalty
	s.admit(1, "/", "Authorization", password("right"), "X-Client", "alice")
}

// broken is a handler that ends in the way that the request's path names.
type broken struct{}

func (broken) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.weir_test_broken", New: func() caddy.Module { return new(broken) }}
}

func (*broken) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	switch r.URL.Path {
	case "/writes":
		w.WriteHeader(http.StatusForbidden)
	case "/returns":
		return caddyhttp.Error(http.StatusForbidden, errors.New("forbidden"))
	case "/hints": // an informational response is not final
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusForbidden)
	case "/hints-and-returns":
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		return caddyhttp.Error(http.StatusForbidden, errors.New("forbidden"))
	case "/hints-only":
		w.WriteHeader(http.StatusEarlyHints)
	case "/hints-and-writes":
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "200")
	case "/hints-and-aborts":
		w.WriteHeader(http.StatusEarlyHints)
		panic(http.ErrAbortHandler)
	case "/flushes-and-returns": // too late: it has sent 200
		_ = http.NewResponseController(w).Flush()
		return caddyhttp.Error(http.StatusForbidden, errors.New("forbidden"))
	case "/copies-and-returns":
		_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("200"))
		return caddyhttp.Error(http.StatusForbidden, errors.New("forbidden"))
	case "/switches": // nothing can follow 101
		w.WriteHeader(http.StatusSwitchingProtocols)
		return caddyhttp.Error(http.StatusForbidden, errors.New("forbidden"))
	case "/hijacks": // and writes 101 itself
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			conn.Close()
		}
		return caddyhttp.Error(http.StatusForbidden, errors.New("forbidden"))
	case "/writes-and-returns": // the written status counts
		w.WriteHeader(http.StatusForbidden)
		return caddyhttp.Error(http.StatusInternalServerError, errors.New("too late"))
	case "/streams":
		w.WriteHeader(http.StatusForbidden)
		for range 3 {
			_, _ = io.WriteString(w, "part\n")
			_ = http.NewResponseController(w).Flush()
		}
	case "/aborts":
		w.WriteHeader(http.StatusForbidden)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "/flushes": // it sends 200
		_ = http.NewResponseController(w).Flush()
	case "/fails":
		return errors.New("a plain error is a 500")
	case "/aborts-first":
		panic(http.ErrAbortHandler)
	}
	return nil
}

func init() {
	caddy.RegisterModule(broken{})
}

// Each way of ending is tried with a limit of one that counts 403: what ended with 403 has used the limit up, and everything else
// was refunded. A place among the requests in flight is always freed.
func TestARequestIsCountedByHowItEnds(t *testing.T) {
	for path, counted := range map[string]bool{
		"/writes": true, "/returns": true, "/hints": true, "/hints-and-returns": true, "/writes-and-returns": true, "/streams": true, "/aborts": true,
		"/hints-only": false, "/hints-and-writes": false, "/hints-and-aborts": false, "/flushes-and-returns": false, "/copies-and-returns": false,
		"/switches": false, "/hijacks": false, "/flushes": false, "/fails": false, "/aborts-first": false, "/": false,
	} {
		t.Run(path, func(t *testing.T) {
			s := startJSON(t, httpApp(`[{"handler":"rate_limit","rate_limits":{
				"forbidden":{"key":"{http.request.header.X-Client}","requests":1,"period":"366d","count":["403"]},
				"few":{"key":"everyone","concurrency":1}}},
				{"handler":"weir_test_broken"}]`))
			for _, client := range []string{"a", "b", "c"} { // one after the other: none stays in flight
				_, _ = s.once(s.client, path, "X-Client", client)
			}
			if counted {
				s.reject("/", "X-Client", "a")
			} else { // who hijacks a connection may be answered before the reservation has come back
				eventually(t, "the request is not counted", func() bool { return s.do("/", "X-Client", "a").status != http.StatusTooManyRequests })
			}
			if lines := s.logs("Redis fails to decide; such requests go by their zones' on_error"); len(lines) != 0 {
				t.Errorf("log: %v", lines)
			}
		})
	}
}

// A client leaves while the upstream handles its request: its reservation is cancelled, and the status is Caddy's 499.
func TestAClientThatLeavesCancelsItsReservation(t *testing.T) {
	came := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		<-r.Context().Done()
	}))
	defer upstream.Close()
	for name, test := range map[string]struct {
		zone    string
		admits2 bool
	}{
		"concurrency":       {"concurrency 1", true},
		"count 401":         {"limit 1/366d\ncount 401", true},
		"count 401,499,4xx": {"limit 1/366d\ncount 401,499,4xx", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := startSite(t, "handle /slow {\nrate_limit {\nzone z {\nkey everyone\n"+test.zone+"\n}\n}\nreverse_proxy "+upstream.URL+"\n}\nhandle {\nrate_limit {\nzone z {\nkey everyone\n"+test.zone+"\n}\n}\nrespond ok\n}")
			ctx, leave := context.WithCancel(context.Background())
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/slow", nil)
			gone := make(chan error, 1)
			go func() {
				answer, err := s.client.Do(r)
				if err == nil {
					answer.Body.Close()
				}
				gone <- err
			}()
			awaitOne(t, "the request at the upstream", came)
			s.reject("/").seconds(t, "Retry-After", 1, 1)
			leave()
			if err := awaitOne(t, "the client to have gone", gone); err == nil {
				t.Fatal("the client got an answer")
			}
			if test.admits2 {
				eventually(t, "the reservation comes back", func() bool { return s.do("/").status == http.StatusOK })
			} else {
				eventually(t, "the reservation is charged", func() bool {
					return s.reject("/").header.Get("Retry-After") != "1"
				})
			}
		})
	}
}

// An upgraded connection is in flight until it is closed, from either side.
func TestAnUpgradedConnectionIsInFlightUntilItIsClosed(t *testing.T) {
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer upstream.Close()
	go func() {
		for {
			conn, err := upstream.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
				_, _ = io.Copy(conn, in)
			}()
		}
	}()
	s := startSite(t, "rate_limit {\nzone z {\nkey everyone\nlimit 4/366d\ncount 101\nconcurrency 2\n}\n}\nreverse_proxy "+upstream.Addr().String())
	open := func() (net.Conn, int) {
		conn, err := net.Dial("tcp", s.addr)
		must.Succeed(t, err)
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must.Succeed(t, err)
		return conn, answer.StatusCode
	}
	var conns []net.Conn
	for i, want := range []int{101, 101, 429, 429} {
		conn, status := open()
		defer conn.Close()
		if status != want {
			t.Fatalf("connection %d: status %d, want %d", i+1, status, want)
		}
		conns = append(conns, conn)
		if status == http.StatusSwitchingProtocols { // bytes pass both ways untouched
			_, _ = io.WriteString(conn, "\x81\x00\xff")
			echo := make([]byte, 3)
			if _, err := io.ReadFull(conn, echo); err != nil || string(echo) != "\x81\x00\xff" {
				t.Errorf("%q came back, %v", echo, err)
			}
		}
	}
	for round := range 2 {
		conns[round].Close()
		eventually(t, "the place of a closed connection is free", func() bool {
			conn, status := open()
			if status != 101 {
				conn.Close()
				return false
			}
			t.Cleanup(func() { conn.Close() })
			return true
		})
	}
	// Four connections were opened, and 101 counts: the limit is used up, although there is a free place. (The first two are
	// closed.)
	if conn, status := open(); status != 429 {
		t.Errorf("status %d for the fifth, want 429", status)
	} else {
		conn.Close()
	}
}
