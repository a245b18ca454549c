//go:build gc
// +build gc

package meter

// Yaegi leaves this file out: its writers have no other methods than those of http.ResponseWriter.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// site is a server of net/http whose responses are metered.
type site struct {
	*httptest.Server
	metered chan *Meter // when the response has ended
}

// serve starts a site for one request. The handler must end before the test does.
func serve(t *testing.T, http2 bool, source string, handler http.HandlerFunc) *site {
	s, m := &site{metered: make(chan *Meter, 1)}, meterOf(t, source)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			m.headOnly = true
		}
		handler(NewWriter(w, m), r)
		m.End(w.Header())
		s.metered <- m
	}))
	if http2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// ask sends a request, and returns the response with its body and the cost.
func (s *site) ask(t *testing.T, method string) (*http.Response, string, int64) {
	t.Helper()
	request, _ := http.NewRequest(method, s.URL, nil)
	response, err := s.Client().Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response, string(body), costAt(<-s.metered, 0)
}

// onBoth runs a test with HTTP/1.1 and with HTTP/2.
func onBoth(t *testing.T, test func(t *testing.T, http2 bool)) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(version, func(t *testing.T) { test(t, version == "HTTP/2") })
	}
}

func TestAStreamArrivesWhileItIsWritten(t *testing.T) {
	onBoth(t, func(t *testing.T, http2 bool) {
		arrived := make(chan bool)
		s := serve(t, http2, "json usage.total_tokens", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush() // the header
			<-arrived
			for i := 0; i < 3; i++ {
				io.WriteString(w, chunk("a"))
				must.Equal(t, http.NewResponseController(w).Flush(), nil, "an error")
				<-arrived
			}
			io.WriteString(w, usage)
		})
		response, err := s.Client().Get(s.URL)
		must.Succeed(t, err)
		arrived <- true
		must.Equal(t, response.ProtoMajor, map[bool]int{false: 1, true: 2}[http2], "the version")
		for i := 0; i < 3; i++ {
			event := make([]byte, len(chunk("a")))
			_, err := io.ReadFull(response.Body, event)
			must.Succeed(t, err)
			must.Equal(t, string(event), chunk("a"), "event %d", i)
			arrived <- true
		}
		rest, _ := io.ReadAll(response.Body)
		must.Equal(t, string(rest), usage, "the rest")
		must.Equal(t, costAt(<-s.metered, 0), 320, "the cost")
	})
}

func TestTrailersAndEarlyHintsArrive(t *testing.T) {
	for _, prefix := range []string{"", http.TrailerPrefix} {
		onBoth(t, func(t *testing.T, http2 bool) {
			s := serve(t, http2, "trailer X-Cost", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Link", "</style.css>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
				if prefix == "" {
					w.Header().Set("Trailer", "X-Cost")
				}
				w.WriteHeader(http.StatusAccepted)
				io.WriteString(w, "body")
				w.(http.Flusher).Flush()
				w.Header().Set(prefix+"X-Cost", "7")
			})
			hints := 0
			traced := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil }})
			request, _ := http.NewRequestWithContext(traced, "GET", s.URL, nil)
			response, err := s.Client().Do(request)
			must.Succeed(t, err)
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			must.Equal(t, fmt.Sprintln(hints, response.StatusCode, string(body), response.Trailer.Get("X-Cost")), "1 202 body 7\n", "what arrives")
			must.Equal(t, costAt(<-s.metered, 0), 7, "the cost")
		})
	}
}

func TestTheFinalHeaderIsRead(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"status":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"twice": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Cost", "9")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("X-Cost", "3")
			w.WriteHeader(http.StatusNotFound)
			w.Header().Set("X-Cost", "9")
		},
		"body":  func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "body"); w.Header().Set("X-Cost", "9") },
		"flush": func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.Header().Set("X-Cost", "9") },
		"copy": func(w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, strings.NewReader("body"))
			w.Header().Set("X-Cost", "9")
		},
	} {
		onBoth(t, func(t *testing.T, http2 bool) {
			s := serve(t, http2, "header X-Cost", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Cost", "3")
				handler(w, r)
			})
			response, _, cost := s.ask(t, "GET")
			must.Equal(t, response.Header.Get("X-Cost"), "3", "%s: the field that arrives", name)
			must.Equal(t, cost, 3, "%s: the cost", name)
		})
	}
}

func TestBytesAreCountedHoweverTheyAreWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(file, make([]byte, 100_000), 0o600))
	for name, c := range map[string]struct {
		handler      http.HandlerFunc
		method, want string
	}{
		"file":      {func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }, "GET", "100000 100000"},
		"of HEAD":   {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "body") }, "HEAD", "0 0"},
		"copy":      {func(w http.ResponseWriter, _ *http.Request) { io.Copy(w, strings.NewReader("body")) }, "GET", "4 4"},
		"HEAD file": {func(w http.ResponseWriter, r *http.Request) { io.Copy(w, strings.NewReader("body")) }, "HEAD", "0 0"},
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			io.WriteString(w, "body")
		}, "GET", "0 0"},
	} {
		onBoth(t, func(t *testing.T, http2 bool) {
			_, body, cost := serve(t, http2, "bytes", c.handler).ask(t, c.method)
			must.Equal(t, fmt.Sprint(len(body), cost), c.want, "%s: the bytes that arrive, and those that are counted", name)
		})
	}
}

func TestAClientThatLeavesPaysForWhatWasSent(t *testing.T) {
	onBoth(t, func(t *testing.T, http2 bool) {
		for source, want := range map[string]string{"bytes": "what was sent", "json cost": "5"} {
			written := int64(0)
			s := serve(t, http2, source, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				n, err := io.WriteString(w, `{"cost":5,"list":[0`)
				for ; err == nil; n, err = io.WriteString(w, strings.Repeat(",1", 500)) {
					written += int64(n)
					w.(http.Flusher).Flush()
				}
				written += int64(n)
				io.WriteString(w, strings.Repeat("2", 1000)) // is not sent
			})
			response, err := s.Client().Get(s.URL)
			must.Succeed(t, err)
			_, err = io.ReadFull(response.Body, make([]byte, 3000))
			must.Succeed(t, err)
			response.Body.Close() // and with it the connection or the stream
			m := <-s.metered
			if want != "5" {
				want = fmt.Sprint(written)
			}
			must.Equal(t, costAt(m, 0), want, "%s", source)
		}
	})
}

func TestAHandlerMayTakeTheConnectionOver(t *testing.T) {
	s := serve(t, false, "bytes", func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		must.Equal(t, err, nil, "an error")
		defer conn.Close()
		buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\n")
		buffered.Flush()
		line, _ := buffered.ReadString('\n')
		io.WriteString(conn, "echo "+line)
	})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	must.Succeed(t, err)
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, nil)
	must.Succeed(t, err)
	must.Equal(t, response.StatusCode, 101, "the status")
	io.WriteString(conn, "hello\n")
	echo, _ := io.ReadAll(from)
	must.Equal(t, string(echo), "echo hello\n", "over the connection")
	must.Equal(t, costAt(<-s.metered, 0), unknown, "the cost")

	_, body, cost := serve(t, true, "bytes", func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := w.(http.Hijacker).Hijack()
		must.Equal(t, errors.Is(err, http.ErrNotSupported), true, "a connection of HTTP/2 cannot be taken over: %v", err)
		io.WriteString(w, "body")
	}).ask(t, "GET")
	must.Equal(t, fmt.Sprintln(body, cost), "body 4\n", "the response, then")
}

// bare is a writer that can do nothing but write, and notes what.
type bare struct {
	header http.Header
	wrote  []string
}

func (b *bare) Header() http.Header         { return b.header }
func (b *bare) WriteHeader(status int)      { b.wrote = append(b.wrote, fmt.Sprint(status)) }
func (b *bare) Write(p []byte) (int, error) { b.wrote = append(b.wrote, string(p)); return len(p), nil }

// able is a writer that can do more.
type able struct {
	bare
	pushed   string
	deadline time.Time
}

func (a *able) ReadFrom(r io.Reader) (int64, error) {
	a.wrote = append(a.wrote, fmt.Sprintf("%T", r))
	return io.Copy(io.Discard, r)
}
func (a *able) Push(target string, _ *http.PushOptions) error { a.pushed = target; return nil }
func (a *able) SetWriteDeadline(at time.Time) error           { a.deadline = at; return nil }

func TestTheWriterCanDoWhatTheOneInsideCan(t *testing.T) {
	w := NewWriter(&bare{header: http.Header{}}, meterOf(t, "bytes"))
	controller := http.NewResponseController(w)
	_, _, hijack := controller.Hijack()
	for _, err := range []error{controller.Flush(), hijack, controller.SetWriteDeadline(time.Now()), controller.EnableFullDuplex(), w.(http.Pusher).Push("/", nil)} {
		must.Equal(t, errors.Is(err, http.ErrNotSupported), true, "not supported: %v", err)
	}
	w.(http.Flusher).Flush()

	inner := &able{bare: bare{header: http.Header{}}}
	w = NewWriter(inner, meterOf(t, "bytes"))
	must.Succeed(t, w.(http.Pusher).Push("/style.css", nil))
	must.Succeed(t, http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)))
	must.Equal(t, fmt.Sprint(inner.pushed, inner.deadline.Unix()), "/style.css1", "what the inner one was asked")
}

func TestOnlyABodyThatIsReadIsCopiedInParts(t *testing.T) {
	for _, c := range []struct {
		source, mediaType, want string
		cost                    int64
	}{
		{"bytes", "application/json", "[*io.LimitedReader]", 10},
		{"header X-Cost", "application/json", "[*io.LimitedReader]", unknown},
		{"json cost", "text/html", "[*io.LimitedReader]", unknown},
		{"json cost", "application/json", `[{"cost":5}]`, 5},
		{"json cost", "", `[{"cost":5}]`, 5},
	} {
		inner := &able{bare: bare{header: headerOf("Content-Type", c.mediaType)}}
		m := meterOf(t, c.source)
		n, err := io.Copy(NewWriter(inner, m), io.LimitReader(strings.NewReader(`{"cost":5} and more`), 10))
		must.Succeed(t, err)
		must.Equal(t, n, 10, "%v: bytes", c)
		must.Equal(t, fmt.Sprint(inner.wrote), c.want, "%v: the inner writer gets", c)
		m.End(inner.header)
		must.Equal(t, costAt(m, 0), c.cost, "%v: the cost", c)
	}
}
