package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// post begins a request with that head and body, on its own connection.
func (s *site) post(rest string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.web)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "POST /queued HTTP/1.1\r\nHost: %s\r\n%s", s.host(), rest)
	return conn
}

// Defect found: over HTTP/1, net/http does not notice that a client leaves while its request has an unread body.
func TestAClientThatSentABodyAndLeavesIsNoticed(t *testing.T) {
	for name, config := range map[string]string{
		// With room for more: a client that has left is counted no more a moment before its place is free.
		"on_limit delay": "{limit: 10/1h, burst: 1, algorithm: token_bucket, onLimit: delay, maxDelay: 1h}",
		"a leaky bucket": "{limit: 100/10h, algorithm: leaky_bucket, maxDelay: 1h}",
	} {
		t.Run(name, func(t *testing.T) {
			s := limited(t, config)
			s.admit(1, "/")
			for _, request := range []string{
				"Content-Length: 2\r\n\r\nab",
				"Content-Length: 4\r\n\r\nab",
				"Content-Length: 4000000\r\n\r\nab",
				"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n",
				"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
				"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nab\r\n0\r\nX-Sum: 1\r\n\r\n",
			} {
				conn := s.post(request)
				s.eventuallyWaiting(1)
				_ = conn.Close()
				eventually(t, fmt.Sprintf("%q is let go of", request), func() bool { return s.waiting(t) == 0 })
			}
		})
	}
}

// The service gets the whole body of a request that has waited, including what arrives later.
func TestTheServiceGetsTheBodyOfARequestThatHasWaited(t *testing.T) {
	s := limited(t, "{limit: 1/300ms, algorithm: leaky_bucket, burst: 5}")
	got := make(chan string, 2)
	upstream.handle(s.host(), func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got <- fmt.Sprintf("%d %v %d %v", len(body), err, r.ContentLength, r.TransferEncoding)
	})
	for _, c := range []struct{ head, before, after, want string }{
		{"Content-Length: 2\r\n", "ab", "", "2 <nil> 2 []"},
		{"Content-Length: 4\r\n", "ab", "cd", "4 <nil> 4 []"},
		{"Content-Length: 300000\r\n", strings.Repeat("a", 100000), strings.Repeat("b", 200000), "300000 <nil> 300000 []"},
		{"Transfer-Encoding: chunked\r\n", "2\r\nab\r\n", "2\r\ncd\r\n0\r\n\r\n", "4 <nil> -1 [chunked]"},
		{"Content-Length: 4\r\nExpect: 100-continue\r\n", "", "abcd", "4 <nil> 4 []"},
	} {
		s.post("Content-Length: 0\r\n\r\n") // its place in the queue is before
		<-got
		conn := s.post(c.head + "\r\n" + c.before)
		fmt.Fprint(conn, c.after)
		if what := <-got; what != c.want {
			t.Errorf("%q: %s; want %s", c.head, what, c.want)
		}
		answers := bufio.NewReader(conn)
		answer, err := http.ReadResponse(answers, nil)
		for err == nil && answer.StatusCode == http.StatusContinue {
			answer, err = http.ReadResponse(answers, nil)
		}
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%q: %v, %v", c.head, answer, err)
		}
	}
}
