package ratelimit_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// startUpstream runs a service that answers /103.401 with these statuses, one after the other, until the test ends. It closes the connection then,
// and has answered nothing if the last status is informational. It returns the address, and the methods of the requests.
func startUpstream(t *testing.T) (addr string, methods <-chan string) {
	t.Helper()
	listening, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { listening.Close() })
	seen := make(chan string, 1000)
	go func() {
		for {
			conn, err := listening.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				seen <- r.Method
				for status := range strings.SplitSeq(strings.TrimPrefix(r.URL.Path, "/"), ".") {
					code, _ := strconv.Atoi(status)
					fields := ""
					if code >= 200 {
						fields = "Content-Length: 0\r\nConnection: close\r\n"
					}
					if _, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\n%s\r\n", code, http.StatusText(code), fields); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listening.Addr().String(), seen
}

// Defect found: an informational status before an error was taken for the status of the response, so that "Expect: 100-continue" made guesses free.
func TestAnInformationalStatusHidesNoFailure(t *testing.T) {
	upstream, _ := startUpstream(t)
	s := startTLS(t, `rate_limit {
		zone failures {
			key {header.X-Client}
			limit 1/366d
			count 401 5xx
		}
	}
	reverse_proxy `+upstream+` {
		@wrong status 401
		handle_response @wrong {
			error 401
		}
	}
	handle_errors 401 {
		respond "wrong password" 401
	}`)
	for version := 1; version <= 3; version++ {
		client := s.clientOf(version)
		for i, c := range []struct {
			path    string
			expects bool
			status  int
			counts  bool
		}{
			{"/401", false, 401, true},
			{"/100.401", true, 401, true},
			{"/103.401", false, 401, true},
			{"/103.103.102.401", false, 401, true},
			{"/103.500", false, 500, true},
			{"/103", false, 502, true},
			{"/103.200", false, 200, false},
			{"/100.200", true, 200, false},
		} {
			send := func() (int, error) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url(c.path), strings.NewReader("pw=x"))
				if err != nil {
					return 0, err
				}
				r.Header.Set("X-Client", fmt.Sprint(version, i))
				if c.expects {
					r.Header.Set("Expect", "100-continue")
				}
				answer, err := client.Do(r)
				if err != nil {
					return 0, err
				}
				answer.Body.Close()
				must.Equal(t, answer.ProtoMajor, version, "%s, want HTTP/%d", answer.Proto, version)
				return answer.StatusCode, nil
			}
			if status, err := send(); status != c.status || err != nil {
				t.Errorf("HTTP/%d %s: status %d, %v, want %d", version, c.path, status, err, c.status)
			}
			if status, err := send(); (status == http.StatusTooManyRequests) != c.counts || err != nil {
				t.Errorf("HTTP/%d %s: status %d, %v for the second; the first counts: %v", version, c.path, status, err, c.counts)
			}
		}
	}
}

// Defect found: the limit of GET, and a key with the method, saw CONNECT for a WebSocket over HTTP/3, which the upstream gets as a GET.
func TestALimitOfAMethodSeesTheOneThatTheUpstreamGets(t *testing.T) {
	upstream, methods := startUpstream(t)
	s := startTLS(t, `rate_limit {
		zone reads {
			key {scheme}
			limit 1/366d
			match {
				method GET
				path /200
			}
		}
		zone each {
			key {method}
			limit 1/366d
			match {
				path /204
			}
		}
	}
	reverse_proxy `+upstream)
	client := s.clientOf(3)
	for _, path := range []string{"/200", "/204"} {
		answer, err := client.Get(s.url(path))
		must.Succeed(t, err)
		answer.Body.Close()
		if answer.StatusCode >= 300 || <-methods != http.MethodGet {
			t.Fatalf("%s: %s", path, answer.Status)
		}
		if status := s.extendedConnect(path, "websocket"); status != http.StatusTooManyRequests {
			t.Errorf("%s: status %d for the WebSocket, want 429", path, status)
		}
	}
	if status := s.extendedConnect("/200", "connect-udp"); status == http.StatusTooManyRequests {
		t.Error("another protocol than WebSocket, which stays a CONNECT, counts as GET")
	}
}
