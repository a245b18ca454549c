package ratelimit_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// bodied is a site with a handler before, a zone, and a service behind it.
func bodied(server, before, zone, service string) string {
	return `{"http":{"servers":{"s":{` + server + `"listen":["127.0.0.1:PORT"],"automatic_https":{"disable":true},"routes":[{"handle":[` + before + `
		{"handler":"rate_limit","rate_limits":{"queue":{"key":"everyone",` + zone + `}}},
		` + service + `]}]}}}}`
}

// Defect found: over HTTP/1, net/http does not notice that a client leaves while its request has an unread body. So a client that
// sent small bodies could have any number of requests wait, without as many connections.
func TestAClientThatSentABodyAndLeavesIsNoticed(t *testing.T) {
	sites := map[string]string{
		"a leaky bucket":   bodied("", "", `"algorithm":"leaky_bucket","requests":100,"period":"10h","burst":10,"max_delay":"1h"`, `{"handler":"static_response","body":"ok"}`),
		"an access log":    bodied(`"logs":{},`, "", `"on_limit":"delay",`+hourlyDelay, `{"handler":"static_response","body":"ok"}`),
		"request_body":     bodied("", `{"handler":"request_body","max_size":5000000},`, `"on_limit":"delay",`+hourlyDelay, `{"handler":"static_response","body":"ok"}`),
		"the whole duplex": bodied(`"enable_full_duplex":true,`, "", `"on_limit":"delay",`+hourlyDelay, `{"handler":"static_response","body":"ok"}`),
	}
	for name, site := range sites {
		t.Run(name, func(t *testing.T) {
			s := startJSON(t, site)
			s.admit(1, "/")
			for _, request := range []string{
				"Content-Length: 2\r\n\r\nab",
				"Content-Length: 4000000\r\n\r\nab",
				"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n",
				"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
			} {
				if name == "request_body" && strings.Contains(request, "chunked") {
					continue // its reader may act on the response
				}
				conn, err := net.Dial("tcp", s.addr)
				must.Succeed(t, err)
				fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+request)
				eventually(t, "it waits", func() bool { return waitingNow() == 1 })
				conn.Close()
				eventually(t, fmt.Sprintf("%q is let go of", request), func() bool { return waitingNow() == 0 })
			}
		})
	}
}

// The service gets the whole body of a request that has waited, with its length, encoding and trailers, whenever its parts arrive.
func TestTheServiceGetsTheBodyOfARequestThatHasWaited(t *testing.T) {
	got := map[string]chan string{"GET": make(chan string, 1), "POST": make(chan string, 1)} // one may overtake the other on its way to the service
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got[r.Method] <- fmt.Sprintf("%d %v %d %v", len(body), err, r.ContentLength, r.TransferEncoding)
	}))
	defer service.Close()
	for server, settings := range map[string]string{"plain": "", "the whole duplex": `"enable_full_duplex":true,`} {
		t.Run(server, func(t *testing.T) {
			decided, served := watch(t, "decided"), watch(t, "served")
			s := startJSON(t, bodied(settings, `{"handler":"weir_test_probe","name":"decided","decided":true},`, `"algorithm":"leaky_bucket","requests":1,"period":"50ms","burst":5`,
				`{"handler":"weir_test_probe","name":"served"},
				{"handler":"reverse_proxy","upstreams":[{"dial":"`+service.Listener.Addr().String()+`"}]}`))
			for _, c := range []struct {
				name, head    string
				before, after string
				want          string
			}{
				{"little, late", "Content-Length: 4\r\n", "ab", "cd", "4 <nil> 4 []"},
				{"chunks, late", "Transfer-Encoding: chunked\r\n", "2\r\nab\r\n", "2\r\ncd\r\n0\r\n\r\n", "4 <nil> -1 [chunked]"},
				{"a late trailer", "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n", "2\r\nab\r\n", "0\r\nX-Sum: 1\r\n\r\n", "2 <nil> -1 [chunked]"},
				{"with Expect: 100-continue", "Content-Length: 4\r\nExpect: 100-continue\r\n", "", "abcd", "4 <nil> 4 []"},
			} {
				ahead, err := net.Dial("tcp", s.addr) // its place in the queue is before
				must.Succeed(t, err)
				fmt.Fprint(ahead, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				awaitOne(t, "a decision", decided)
				conn, err := net.Dial("tcp", s.addr)
				must.Succeed(t, err)
				fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+c.head+"\r\n"+c.before)
				awaitOne(t, "a decision", decided)
				awaitOne(t, "the one before", served)
				<-got["GET"]
				awaitOne(t, "its departure", served)
				answers := bufio.NewReader(conn)
				if strings.Contains(c.head, "Expect") {
					if answer, err := http.ReadResponse(answers, nil); err != nil || answer.StatusCode != http.StatusContinue {
						t.Errorf("%s: %v, %v", c.name, answer, err)
					}
				}
				fmt.Fprint(conn, c.after)
				must.Equal(t, <-got["POST"], c.want, "%s", c.name)
				for range 2 { // the connection goes on, however much was read of the body
					answer, err := http.ReadResponse(answers, nil)
					for err == nil && answer.StatusCode == http.StatusContinue { // also that of the service
						answer, err = http.ReadResponse(answers, nil)
					}
					if err != nil || answer.StatusCode != http.StatusOK {
						t.Fatalf("%s: %v, %v", c.name, answer, err)
					}
					fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
					awaitOne(t, "a decision", decided)
					awaitOne(t, "its departure", served)
					<-got["GET"]
				}
				conn.Close()
				ahead.Close()
			}
		})
	}
}

// The access log counts the bytes that the service has read of a body, and none that were read ahead. Its reader has no lock, and
// it may write its line while the body is still read ahead, so this test is for the race detector too.
func TestTheAccessLogCountsWhatTheServiceReads(t *testing.T) {
	for name, c := range map[string]struct {
		service           string
		sent, afterLogged string
		want              float64
	}{
		"all of it":                  {`{"handler":"static_response","body":"{http.request.body}"}`, "Content-Length: 4\r\n\r\nabcd", "", 4},
		"none of it":                 {`{"handler":"static_response","body":"ok"}`, "Content-Length: 4\r\n\r\nabcd", "", 0},
		"none, and it still arrives": {`{"handler":"static_response","body":"ok"}`, "Content-Length: 4\r\n\r\nab", "cd", 0},
		"none, behind request_body":  {`{"handler":"request_body","max_size":100},{"handler":"static_response","body":"ok"}`, "Content-Length: 4\r\n\r\nab", "cd", 0},
	} {
		t.Run(name, func(t *testing.T) {
			before, service := "", c.service
			if behind, last, ok := strings.Cut(service, "},{"); ok {
				before, service = behind+"},", "{"+last
			}
			decided := watch(t, "decided")
			s := startJSON(t, bodied(`"logs":{},`, `{"handler":"weir_test_probe","name":"decided","decided":true},`+before,
				`"algorithm":"leaky_bucket","requests":1,"period":"50ms","burst":5`, service))
			first, err := net.Dial("tcp", s.addr)
			must.Succeed(t, err)
			defer first.Close()
			fmt.Fprint(first, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			awaitOne(t, "a decision", decided)
			conn, err := net.Dial("tcp", s.addr)
			must.Succeed(t, err)
			fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+c.sent)
			eventually(t, "both requests are logged", func() bool { return len(s.logs("handled request")) == 2 })
			fmt.Fprint(conn, c.afterLogged)
			if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || answer.StatusCode != http.StatusOK {
				t.Errorf("%v, %v", answer, err)
			}
			conn.Close()
			eventually(t, "all readers are gone", func() bool { return !strings.Contains(stacks(), "keepReading") })
			if got := s.logs("handled request")[1]["bytes_read"]; got != c.want {
				t.Errorf("bytes_read: %v, want %v", got, c.want)
			}
		})
	}
}

// Defect found: a request that had waited went on as another object, which Caddy's placeholders did not know. So handlers behind
// the limit saw no body, nor the method and host that other handlers had set.
func TestARequestThatHasWaitedIsTheSameForPlaceholders(t *testing.T) {
	for name, settings := range map[string]string{"plain": "", "with an access log": `"logs":{},`} {
		t.Run(name, func(t *testing.T) {
			decided := watch(t, "decided")
			s := startJSON(t, bodied(settings, `{"handler":"weir_test_probe","name":"decided","decided":true},`,
				`"algorithm":"leaky_bucket","requests":1,"period":"50ms","burst":5`,
				`{"handler":"rewrite","method":"PUT"},{"handler":"headers","request":{"set":{"Host":["acme"]}}},
				{"handler":"static_response","body":"{http.request.method} {http.request.host} {http.request.body}"}`))
			for i := range 2 { // the second waits
				conn, err := net.Dial("tcp", s.addr)
				must.Succeed(t, err)
				defer conn.Close()
				fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd")
				awaitOne(t, "a decision", decided)
				answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
				must.Succeed(t, err)
				if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "PUT acme abcd" {
					t.Errorf("request %d: %q, %v", i, body, err)
				}
			}
		})
	}
}

// A client that sends its body slowly delays only itself: its request departs when its reservation is due, and delays no others.
func TestABodyThatDoesNotArriveDelaysNobodyElse(t *testing.T) {
	served := watch(t, "served")
	s := startJSON(t, bodied("", "", `"algorithm":"leaky_bucket","requests":1,"period":"50ms","burst":5`,
		`{"handler":"weir_test_probe","name":"served"},{"handler":"static_response","body":"ok"}`))
	for _, head := range []string{"Content-Length: 4\r\n", "Content-Length: 4000000\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 4\r\nExpect: 100-continue\r\n"} {
		s.admit(1, "/")
		awaitOne(t, "the first", served)
		conn, err := net.Dial("tcp", s.addr)
		must.Succeed(t, err)
		fmt.Fprint(conn, "POST /slow HTTP/1.1\r\nHost: x\r\n"+head+"\r\n")
		must.Equal(t, awaitOne(t, "a departure", served).URL.Path, "/slow")
		s.admit(1, "/")
		awaitOne(t, "the next", served)
		conn.Close()
	}
	eventually(t, "all readers are gone", func() bool { return !bytes.Contains([]byte(stacks()), []byte("keepReading")) })
}
