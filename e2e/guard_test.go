package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// guardedSite is a site with a guard before a service that does what the path says.
type guardedSite struct {
	*site
	begun    chan string   // the paths of the requests that the service has begun
	released chan struct{} // closed when those that wait are answered
}

// newGuarded returns a site with a middleware that has a guard of these settings, and further settings; others come behind it.
func newGuarded(t *testing.T, settings, more string, behind ...string) *guardedSite {
	t.Helper()
	g := &guardedSite{site: newSite(t), begun: make(chan string, 5000), released: make(chan struct{})}
	g.guard(settings, more)
	names := []string{"limit"}
	for _, config := range behind {
		names = append(names, fmt.Sprintf("behind%d", len(names)))
		g.middleware(names[len(names)-1], config)
	}
	upstream.handle(g.host(), g.serve)
	t.Cleanup(g.release)
	g.route("/", names...)
	g.apply()
	return g
}

func (g *guardedSite) guard(settings, more string) {
	g.limit("limit", "{guard: {"+settings+"}, metrics: {path: /metrics}, headers: none"+more+"}")
}

func (g *guardedSite) release() {
	select {
	case <-g.released:
	default:
		close(g.released)
	}
}

func (g *guardedSite) serve(w http.ResponseWriter, r *http.Request) {
	g.begun <- r.URL.Path
	wait := func() {
		select {
		case <-g.released:
		case <-r.Context().Done():
		}
	}
	switch r.URL.Path {
	case "/waits":
		wait()
	case "/streams":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: first\n\n")
		_ = http.NewResponseController(w).Flush()
		wait()
	case "/hints":
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		wait()
	case "/reads":
		_, _ = io.Copy(io.Discard, r.Body)
		wait()
	case "/breaks-off":
		panic(http.ErrAbortHandler)
	case "/breaks-off-later": // at which Traefik's handler panics
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "/upgrades":
		echoFrames(w, r)
	}
}

// metric returns the value of a metric of the guard.
func (g *guardedSite) metric(name string, labels ...string) float64 {
	g.t.Helper()
	page, err := parseMetrics(g.do("/metrics").body)
	must.Succeed(g.t, err)
	return page.value(name, append([]string{"guard", g.name + "-limit.file"}, labels...)...)
}

// underWay waits until so many requests are under way.
func (g *guardedSite) underWay(n float64) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("%v requests are under way", n), func() bool { return g.metric("weir_guard_under_way") == n })
}

// reached waits until the service has begun a request for a path.
func (g *guardedSite) reached(path string) {
	g.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case begun := <-g.begun:
			if begun == path {
				return
			}
		case <-timer.C:
			g.t.Fatalf("%s never reaches the service", path)
		}
	}
}

// occupy has n requests wait in the service, and returns what waits for their ends.
func (g *guardedSite) occupy(n int) *sync.WaitGroup {
	g.t.Helper()
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			if r, err := g.try("/waits"); err != nil || r.status != http.StatusOK {
				g.t.Errorf("a request that waits: %v, %v", r.status, err)
			}
		})
	}
	for range n {
		g.reached("/waits")
	}
	return &clients
}

// open sends the beginning of a request.
func (g *guardedSite) open(method, path, fields string) (net.Conn, *bufio.Reader) {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.web)
	must.Succeed(g.t, err)
	g.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", method, path, g.host(), fields)
	return conn, bufio.NewReader(conn)
}

func (g *guardedSite) status(answers *bufio.Reader) int {
	g.t.Helper()
	answer, err := http.ReadResponse(answers, nil)
	must.Succeed(g.t, err)
	return answer.StatusCode
}

const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

func TestTheGuardTurnsAwayWhatIsTooMuch(t *testing.T) {
	for name, more := range map[string]string{"a guard alone": "", "a rule too": ", limit: 1000/1h", "several": ", rules: [{name: a, limit: 1000/1h}, {name: b, limit: 1000/1m}]"} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t, "max: 3", more)
			clients := g.occupy(3)
			if n := g.metric("weir_guard_under_way"); n != 3 {
				t.Errorf("%v are under way, want 3", n)
			}
			r := g.do("/quick")
			if r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, "as much to do as it can") {
				t.Errorf("status %d, %q; want 503", r.status, r.body)
			}
			r.want(t, "Retry-After", "1", "Cache-Control", "no-store")
			r = g.do("/quick", "Accept", "application/json")
			if r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, "temporary-reduced-capacity") {
				t.Errorf("status %d, %q; want problem details", r.status, r.body)
			}
			r.want(t, "Retry-After", "1", "Content-Type", "application/problem+json")
			if n := g.metric("weir_guard_rejected_total", "reason", "full"); n != 2 {
				t.Errorf("%v were counted as rejected, want 2", n)
			}
			g.release()
			clients.Wait()
			g.underWay(0)
			g.admit(5, "/quick")
		})
	}
}

// TestAPlaceEndsWithTheFirstByte of the answer, whatever comes after it, and before the body of the request has come it does not begin.
func TestAPlaceEndsWithTheFirstByte(t *testing.T) {
	g := newGuarded(t, "max: 1", "", "compress: {}")

	stream, events := g.open("GET", "/streams", "")
	if got := g.status(events); got != http.StatusOK {
		t.Fatalf("a stream: status %d", got)
	}
	g.underWay(0)
	g.admit(1, "/quick") // beside the stream

	socket, frames := g.open("GET", "/upgrades", upgrade)
	if got := g.status(frames); got != http.StatusSwitchingProtocols {
		t.Fatalf("a WebSocket: status %d", got)
	}
	g.underWay(0)
	writeFrame(t, socket, "hello")
	must.Equal(t, readFrame(t, frames), "hello", "came back")

	upload, answers := g.open("POST", "/reads", "Content-Length: 2\r\n")
	fmt.Fprint(upload, "a")
	g.reached("/reads")
	g.underWay(0)
	g.admit(1, "/quick") // beside the upload
	fmt.Fprint(upload, "b")
	g.underWay(1)
	if r := g.do("/quick"); r.status != http.StatusServiceUnavailable {
		t.Errorf("beside an upload that has come: status %d, want 503", r.status)
	}
	g.release()
	must.Equal(t, g.status(answers), http.StatusOK, "the upload: status")
	g.underWay(0)
	for _, c := range []net.Conn{stream, socket, upload} {
		c.Close()
	}
	g.admit(3, "/quick")
	g.underWay(0)
}

// TestAFailureSaysNothingOfTheTime: a service that fails at once is not taken for a quick one.
func TestAFailureSaysNothingOfTheTime(t *testing.T) {
	g := newGuarded(t, "", "", "compress: {}")
	clients := g.occupy(1)
	begun := time.Now()
	upstream.handle(g.host(), func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	http2 := g.overHTTP2()
	for range 30 {
		g.do("/fails")
		http2.do("/fails")
	}
	least := time.Since(begun)
	g.release()
	clients.Wait()
	eventually(t, "a second is over", func() bool {
		g.do("/fails")
		return g.metric("weir_guard_baseline_seconds") > 0
	})
	if got := g.metric("weir_guard_baseline_seconds"); got < least.Seconds()/2 {
		t.Errorf("a baseline of %v s, and the only answer that was none of a failure took %v", got, least)
	}
}

func TestAnInformationalAnswerEndsNoPlace(t *testing.T) {
	g := newGuarded(t, "max: 1", "")
	_, answers := g.open("GET", "/hints", "")
	if got := g.status(answers); got != http.StatusEarlyHints {
		t.Fatalf("status %d, want 103", got)
	}
	g.underWay(1)
	g.release()
	must.Equal(t, g.status(answers), http.StatusOK, "after that: status")
	g.underWay(0)
}

func TestAPlaceEndsWhateverBecomesOfTheRequest(t *testing.T) {
	g := newGuarded(t, "max: 1", "")
	for range 3 {
		if r := g.do("/breaks-off"); r.status != http.StatusBadGateway {
			t.Errorf("a service that breaks off: status %d, want 502", r.status)
		}
		g.underWay(0)
		if r, err := g.try("/breaks-off-later"); err == nil {
			t.Errorf("a service that breaks off later: status %d, %q; want half an answer", r.status, r.body)
		}
		g.underWay(0)
		conn, _ := g.open("GET", "/waits", "")
		g.reached("/waits")
		g.underWay(1)
		conn.Close() // the client leaves
		g.underWay(0)
	}
}

// TestNothingStaysUnderWayAfterLoadAndReloads, with most requests passing by the guard.
func TestNothingStaysUnderWayAfterLoadAndReloads(t *testing.T) {
	g := newGuarded(t, "max: 1000, name: shared", ", limit: 1000000/1h")
	upstream.handle(g.host(), func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/breaks-off-later" { // at which Traefik's handler panics
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write(make([]byte, 50_000))
			panic(http.ErrAbortHandler)
		}
	})
	value := func(name string) float64 {
		page, err := parseMetrics(g.do("/metrics").body)
		must.Succeed(t, err)
		return page.value(name, "guard", "shared")
	}
	var clients sync.WaitGroup
	var over atomic.Bool
	for range 8 {
		clients.Go(func() {
			for n := 0; !over.Load(); n++ {
				request := "/quick"
				switch n % 10 {
				case 0:
					request = "POST /quick"
				case 1:
					request = "/breaks-off-later"
				}
				if r, err := g.try(request); n%10 != 1 && (err != nil || r.status != http.StatusOK) {
					g.t.Errorf("%v, %v", r.status, err)
					return
				}
			}
		})
	}
	for n := range 4 {
		g.guard(fmt.Sprintf("max: %d, name: shared", 1000+n), ", limit: 1000000/1h")
		g.apply()
	}
	eventually(t, "a second is over", func() bool { return value("weir_guard_baseline_seconds") > 0 })
	g.guard("max: 1100, name: shared", ", limit: 1000000/1h")
	g.apply()
	over.Store(true)
	clients.Wait()
	if n := value("weir_guard_under_way"); n != 0 {
		t.Errorf("%v stay under way", n)
	}
	if n := value("weir_guard_limit"); n < 128 || n > 1100 { // it is no smaller than what no queue is believed below
		t.Errorf("the limit is %v, want from 128 to 1100", n)
	}
}
