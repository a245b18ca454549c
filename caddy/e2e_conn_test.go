package ratelimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/tools/must"
)

func TestAConnectionIsKeptThroughRejections(t *testing.T) {
	s := startSite(t, "rate_limit 1/366d\nrespond ok")
	connections := 0
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if !info.Reused {
			connections++
		}
	}}
	for i := range 5 {
		ctx := httptrace.WithClientTrace(context.Background(), trace)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.addr+"/", strings.NewReader(strings.Repeat("x", 1000)))
		must.Succeed(t, err)
		answer, err := s.client.Do(r)
		must.Succeed(t, err)
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		must.Equal(t, (answer.StatusCode == http.StatusOK), i == 0, "request %d: status %d", i+1, answer.StatusCode)
	}
	must.Equal(t, connections, 1, "%d connections, want 1", connections)
}

// The peer of a Unix socket has no address. All such clients share one counter, unless a trusted proxy states their addresses.
func TestPeersOnAUnixSocketAreOneClient(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir") // a socket's path must be short
	must.Succeed(t, err)
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	s := start(t, "", "http:// {\nbind unix/"+socket+"\nrate_limit {\nzone peers {\nkey {remote_host}\nlimit 1/366d\non_missing_key skip\n}\n}\nrespond ok\n}")
	s.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}
	s.admit(1, "/")
	s.reject("/")
}

func TestClientsOnAUnixSocket(t *testing.T) {
	for _, test := range []struct {
		name    string
		trusted string
		client  string // in the log
	}{
		{"that is not trusted", "", "@"},
		{"that is trusted", "servers {\ntrusted_proxies_unix\n}\n", "192.0.2.2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "weir") // a socket's path must be short
			must.Succeed(t, err)
			defer os.RemoveAll(dir)
			socket := filepath.Join(dir, "s")
			s := start(t, test.trusted, "http:// {\nbind unix/"+socket+"\nrate_limit 1/366d\nrespond ok\n}")
			s.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
				return net.Dial("unix", socket)
			}
			s.admit(1, "/", "X-Forwarded-For", "192.0.2.1")
			if test.trusted != "" {
				s.admit(1, "/", "X-Forwarded-For", "192.0.2.2")
				s.admit(1, "/") // the address is @
			}
			s.reject("/", "X-Forwarded-For", "192.0.2.2")
			s.reject("/")
			if got := s.logs("rate limit exceeded")[0]["client_ip"]; got != test.client {
				t.Errorf("client_ip in the log: %v, want %s", got, test.client)
			}
		})
	}
}

// The upstream sends an event only after the client has read the one before, so a buffered response would never end.
func TestAStreamIsFlushedEventByEvent(t *testing.T) {
	read := make(chan int)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-read:
			case <-r.Context().Done():
				return
			}
		}
	}))
	defer upstream.Close()
	s := startSite(t, "rate_limit {\nzone all {\nlimit 10/366d\n}\nzone queue {\nalgorithm leaky_bucket\nlimit 1000/1s\n}\n}\nreverse_proxy "+upstream.URL)
	answer, err := s.client.Get("http://" + s.addr + "/")
	must.Succeed(t, err)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for i := range 5 {
		if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", i) || !lines.Scan() {
			t.Fatalf("event %d: %q, %v", i, lines.Text(), lines.Err())
		}
		read <- i
	}
}

// queue is a leaky bucket between two probes: "decided" receives the requests that were admitted, "served" those whose reservations
// are due.
func queue(zone string) string {
	return httpApp(`[{"handler":"weir_test_probe","name":"decided","decided":true},
		{"handler":"rate_limit","rate_limits":{"queue":{"key":"everyone","algorithm":"leaky_bucket",` + zone + `}}},
		{"handler":"weir_test_probe","name":"served"},
		{"handler":"static_response","body":"ok"}]`)
}

// An hour between two departures: a queued request waits longer than any test.
const hourly = `"requests":1,"period":"1h","burst":5,"max_delay":"1h"`

func TestAQueuedClientThatLeavesIsNotServed(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, s *server) (left func()){
		"by closing its connection": func(t *testing.T, s *server) func() {
			conn, err := net.Dial("tcp", s.addr)
			must.Succeed(t, err)
			fmt.Fprint(conn, "GET /gone HTTP/1.1\r\nHost: x\r\n\r\n")
			return func() { conn.Close() }
		},
		"by resetting its stream": func(t *testing.T, s *server) func() {
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			client := s.newClient(protocols)
			t.Cleanup(client.CloseIdleConnections)
			ctx, cancel := context.WithCancel(context.Background())
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/gone", nil)
			must.Succeed(t, err)
			go func() {
				if answer, err := client.Do(r); err == nil {
					answer.Body.Close()
				}
			}()
			return cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			decided, served := watch(t, "decided"), watch(t, "served")
			s := startJSON(t, strings.Replace(queue(hourly), `"listen"`, `"protocols": ["h1", "h2c"], "listen"`, 1))
			s.admit(1, "/first")
			awaitOne(t, "a decision", decided)
			awaitOne(t, "the first request", served)
			left := leave(t, s)
			awaitOne(t, "a decision", decided)
			eventually(t, "the request is held", func() bool { return waitingNow() == 1 })
			left()
			eventually(t, "no goroutine holds it", func() bool { return waitingNow() == 0 })
			select {
			case r := <-served:
				t.Errorf("%s was served, though its client had left", r.URL.Path)
			default:
			}
			if r := s.do("/late"); r.status != http.StatusTooManyRequests {
				t.Errorf("status %d, want 429: the slot stays used, and the next is past max_delay", r.status)
			}
		})
	}
}

// waitingNow returns how many requests are waiting.
func waitingNow() int { return strings.Count(stacks(), "weir/caddy.(*Handler).wait(") }

func TestQueuedRequestsAreReleased(t *testing.T) {
	for name, end := range map[string]func(s *server){
		"at a reload":                     func(s *server) { s.load(s.json(queue(`"requests":2,"period":"1h","burst":5,"max_delay":"1h"`))) },
		"at a reload that removes it":     func(s *server) { s.load(s.json(httpApp(`[{"handler":"static_response","body":"ok"}]`))) },
		"at a reload that changes none":   func(s *server) { s.load(s.json(queue(hourly))) },
		"at a reload without an HTTP app": func(s *server) { s.load(s.json(`{}`)) },
		"at shutdown": func(s *server) {
			if err := caddy.Stop(); err != nil {
				s.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			decided, served := watch(t, "decided"), watch(t, "served")
			s := startJSON(t, queue(hourly))
			s.admit(1, "/")
			awaitOne(t, "a decision", decided)
			awaitOne(t, "the first request", served)
			answers := make(chan response, 1)
			go func() {
				r, err := s.try(s.client, "/queued")
				if err != nil {
					t.Errorf("the queued request: %v", err)
				}
				answers <- r
			}()
			awaitOne(t, "a decision", decided)
			end(s)
			r := awaitOne(t, "the answer to the queued request", answers)
			must.Equal(t, r.status, http.StatusServiceUnavailable, "status %d, want 503", r.status)
			r.seconds(t, "Retry-After", 3500, 3600)
			r.want(t, "Cache-Control", "no-store")
			select {
			case r := <-served:
				t.Errorf("%s was served", r.URL.Path)
			default:
			}
		})
	}
}

// A refused configuration does not affect the queue.
func TestARefusedConfigurationLeavesTheQueueAlone(t *testing.T) {
	decided, served := watch(t, "decided"), watch(t, "served")
	s := startJSON(t, queue(`"requests":1,"period":"1s","burst":5`))
	s.admit(1, "/")
	awaitOne(t, "a decision", decided)
	awaitOne(t, "the first request", served)
	answers := make(chan response, 1)
	go func() {
		r, _ := s.try(s.client, "/queued")
		answers <- r
	}()
	awaitOne(t, "a decision", decided)
	s.refused(s.json(queue(`"requests":0,"period":"1s"`)))
	if r := awaitOne(t, "the answer to the queued request", answers); r.status != http.StatusOK {
		t.Errorf("status %d, want 200", r.status)
	}
}
