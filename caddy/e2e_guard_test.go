package ratelimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	ratelimit "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/tools/must"
)

// guardedSite is a site with a guard before a service, whose behaviour is that of a path's last part.
type guardedSite struct {
	*server
	begun    chan string   // the paths of the requests that the service has begun
	released chan struct{} // closed when those that wait are answered
	config   []byte
}

// startGuarded runs a Caddy with a guard of those settings before a service.
func startGuarded(t *testing.T, settings, more string) *guardedSite {
	t.Helper()
	g := &guardedSite{begun: make(chan string, 2000), released: make(chan struct{})}
	service := httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(service.Close)
	t.Cleanup(g.release)
	g.server = newServer(t)
	g.config = g.caddyfile("metrics", ":PORT {\n"+g.directives(service.URL, settings)+more+"\n}")
	g.load(g.config)
	return g
}

func (g *guardedSite) directives(service, settings string) string {
	return `
		metrics /metrics
		rate_limit /svc/* {
			guard {
				` + settings + `
			}
		}
		reverse_proxy /svc/* ` + strings.TrimPrefix(service, "http://") + "\n"
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
	switch strings.TrimPrefix(r.URL.Path, "/svc/") {
	case "quick":
	case "waits":
		select {
		case <-g.released:
		case <-r.Context().Done():
		}
	case "streams":
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-g.released:
		case <-r.Context().Done():
		}
	case "reads":
		_, _ = io.Copy(io.Discard, r.Body)
		<-g.released
	case "answers before it has read":
		w.Header().Set("Connection", "close") // else net/http waits for the rest of the body
		w.WriteHeader(http.StatusTeapot)
		_ = http.NewResponseController(w).Flush()
	case "upgrades":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	case "breaks off":
		panic(http.ErrAbortHandler)
	}
}

// metric returns the value of a series of the only guard.
func (g *guardedSite) metric(name string) float64 {
	g.t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + `(?:\{guard=""\}|\{guard="",(.*?)\}) (\S+)$`).FindStringSubmatch(g.do("/metrics").body)
	if found == nil {
		g.t.Fatalf("there is no %s", name)
	}
	value, err := strconv.ParseFloat(found[2], 64)
	must.Succeed(g.t, err)
	return value
}

// underWay waits until so many requests are under way.
func (g *guardedSite) underWay(n int) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("%d requests are under way", n), func() bool { return g.metric("weir_guard_under_way") == float64(n) })
}

// occupy has n requests wait in the service, and returns what waits for their ends.
func (g *guardedSite) occupy(n int) *sync.WaitGroup {
	g.t.Helper()
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			if r, err := g.try(g.client, "/svc/waits"); err != nil || r.status != http.StatusOK {
				g.t.Errorf("a request that waits: %v, %v", r.status, err)
			}
		})
	}
	for range n {
		awaitOne(g.t, "a request in the service", g.begun)
	}
	return &clients
}

// socketsClosed waits until Caddy has noticed that the WebSockets are closed. A proxy that ends before writes to those that it takes to be open,
// beside what copies them, which is a race of Caddy's own.
func (g *guardedSite) socketsClosed() {
	g.t.Helper()
	eventually(g.t, "Caddy has closed the WebSockets", func() bool { return !strings.Contains(stacks(), "handleUpgradeResponse") })
}

func TestTheGuardTurnsAwayWhatIsTooMuch(t *testing.T) {
	g := startGuarded(t, "max 3", "")
	clients := g.occupy(3)
	if n := g.metric("weir_guard_under_way"); n != 3 {
		t.Errorf("%v are under way, want 3", n)
	}
	r := g.do("/svc/quick")
	if r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, "as much to do as it can") {
		t.Errorf("status %d, %q; want 503", r.status, r.body)
	}
	r.want(t, "Retry-After", "1", "Cache-Control", "no-store", "Content-Type", "text/plain; charset=utf-8")
	r = g.do("/svc/quick", "Accept", "application/json")
	if r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, `"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"`) {
		t.Errorf("status %d, %q; want problem details", r.status, r.body)
	}
	r.want(t, "Retry-After", "1", "Content-Type", "application/problem+json")
	if n := g.metric(`weir_guard_rejected_total`); n != 2 { // the first is that with the reason full
		t.Errorf("%v were counted as rejected, want 2", n)
	}
	must.Equal(t, len(g.begun), 0, "the service has seen what was turned away")
	g.release()
	clients.Wait()
	g.underWay(0)
	g.admit(5, "/svc/quick")
}

func TestAGuardInShadowTurnsNobodyAway(t *testing.T) {
	g := startGuarded(t, "max 3\nshadow", "")
	clients := g.occupy(3)
	g.admit(4, "/svc/quick")
	if n := g.metric("weir_guard_shadow_rejected_total"); n != 4 { // the first is that with the reason full
		t.Errorf("%v would have been rejected, want 4", n)
	}
	if n := g.metric("weir_guard_rejected_total"); n != 0 {
		t.Errorf("%v were rejected", n)
	}
	eventually(t, "the log says so", func() bool {
		g.admit(1, "/svc/quick") // by which the guard sees that the second is over
		return len(g.logs("the guard begins to limit requests")) == 1
	})
	line := g.logs("the guard begins to limit requests")[0]
	if why := fmt.Sprint(line["why"]); line["shadow"] != true || line["level"] != "warn" || !strings.HasPrefix(why, "the guard would turn away what is beyond 3 requests under way: that is its max, and ") {
		t.Errorf("the log has %v", line)
	}
	g.release()
	clients.Wait()
	g.underWay(0)
}

// TestKeysThatAskForMoreThanEverAreTightened follows a guard from the first seconds of its warm-up to the end of an attack.
func TestKeysThatAskForMoreThanEverAreTightened(t *testing.T) {
	var clock atomic.Int64
	clock.Store(1_700_000_000_000_000)
	restore := ratelimit.SetGuardClock(clock.Load)
	t.Cleanup(func() { restore() })
	g := startGuarded(t, "max 4\nmin 4\nwarm_up 10s\n}\nzone api {\nkey {header.X-Who}\nlimit 1000/1h\n}\nzone api_again {\nkey {header.X-Who}\nlimit 1000/1h", "")
	ask := func(who string, want int) response {
		t.Helper()
		r := g.do("/svc/quick", "X-Who", who)
		if r.status != want {
			t.Fatalf("%s got %d, want %d", who, r.status, want)
		}
		if want == http.StatusOK {
			<-g.begun
		}
		return r
	}
	for range 4 {
		for key := range 10 {
			ask(fmt.Sprint("k", key), 200)
		}
		clock.Add(10_000_000)
	}
	ask("k0", 200) // ends the fourth window
	of := `guard="",rule="api"`
	g.has(map[string]string{
		`weir_key_demand_usual{guard="",rule="api",share="0.99"}`: "1", `weir_guard_tightened_limit{` + of + `}`: "0",
		`weir_active_keys{` + of + `}`: "10", `weir_rejected_keys{` + of + `}`: "0", `weir_top_keys_share{guard="",keys="1",rule="api"}`: "0.1",
		`weir_key_demand_bucket{` + of + `,le="1"}`: "40", `weir_key_demand_count{` + of + `}`: "40", `weir_key_demand_sum{` + of + `}`: "40",
		`weir_time_to_first_byte_seconds_count{` + of + `}`: "41",
	})

	g.load(g.config) // what was learnt survives a reload
	g.has(map[string]string{`weir_key_demand_usual{guard="",rule="api",share="0.99"}`: "1", `weir_key_demand_count{` + of + `}`: "40"})

	for range 20 {
		ask("greedy", 200)
	}
	clients := g.occupy(4)
	for range 600 {
		ask("greedy", 503)
	}
	ask("k1", 503)
	clock.Add(1_000_000)
	ask("k1", 503) // ends the second in which the guard turned requests away
	g.release()
	clients.Wait()
	ask("k2", 200)
	tightened := 0
	for range 20 {
		if r := g.do("/svc/quick", "X-Who", "greedy"); r.status == http.StatusServiceUnavailable {
			tightened++
			r.want(t, "Retry-After", "10")
		} else {
			<-g.begun
		}
	}
	if tightened < 12 || tightened > 18 { // the greedy key gets 0.8 of 210 requests of the 600 that it asks for
		t.Errorf("%d of 20 requests were turned away", tightened)
	}
	g.has(map[string]string{`weir_guard_rejected_total{guard="",reason="tightened"}`: fmt.Sprint(tightened)})

	for _, later := range []int64{1, 31, 10} { // of calm
		clock.Add(later * 1_000_000)
		ask("k3", 200)
	}
	ask("greedy", 200)
	g.has(map[string]string{
		`weir_guard_tightened_limit{` + of + `}`: "0", `weir_key_demand_usual{guard="",rule="api",share="0.99"}`: "1",
	})
}

// has checks lines of the metrics.
func (g *guardedSite) has(want map[string]string) {
	g.t.Helper()
	body := g.do("/metrics").body
	for series, value := range want {
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(body)
		if found == nil || found[1] != value {
			g.t.Errorf("%s: %v, want %s", series, found, value)
		}
	}
}

// TestTheAdminAPITellsOfGuards, in its answers about health and about a request.
func TestTheAdminAPITellsOfGuards(t *testing.T) {
	service := &guardedSite{begun: make(chan string, 10), released: make(chan struct{})}
	behind := httptest.NewServer(http.HandlerFunc(service.serve))
	t.Cleanup(behind.Close)
	t.Cleanup(service.release)
	a := startAdmin(t, "", ":PORT {\n"+service.directives(behind.URL, "max 2\nmin 1")+"\n}")
	service.server = a.server
	guards := func() map[string]any {
		t.Helper()
		list, _ := a.ask("health", "")["guards"].([]any)
		if len(list) != 1 {
			t.Fatalf("there are %d guards: %v", len(list), list)
		}
		return list[0].(map[string]any)
	}
	clients := service.occupy(2)
	if g := guards(); g["name"] != "" || g["under_way"] != 2.0 || g["limit"] != 2.0 || g["max"] != 2.0 || g["min"] != 1.0 || g["learning"] != true {
		t.Errorf("%v; want 2 under way of 2", g)
	}
	question := `{"url": "http://` + a.addr + `/svc/quick", "client_ip": "192.0.2.1"}`
	answer := a.ask("explain", question)
	handlers, _ := answer["handlers"].([]any)
	if len(handlers) != 1 || handlers[0].(map[string]any)["guard"].(map[string]any)["under_way"] != 2.0 || !strings.Contains(fmt.Sprint(answer["notes"]), "status 503") {
		t.Errorf("explain: %v", answer)
	}
	a.do("/svc/quick")
	must.Equal(t, fmt.Sprint(guards()["rejected"]), "map[full:1 tightened:0 unfair:0]", "rejected")
	service.release()
	clients.Wait()
	if answer = a.ask("explain", question); strings.Contains(fmt.Sprint(answer["notes"]), "503") {
		t.Errorf("with room: %v", answer)
	}
}

func TestErrorRoutesAnswerWhatTheGuardTurnsAway(t *testing.T) {
	g := startGuarded(t, "max 1", `
		handle_errors 503 {
			header X-Retry {http.rate_limit.guard.retry_after}
			respond "come back later"
		}`)
	clients := g.occupy(1)
	r := g.do("/svc/quick")
	if r.status != http.StatusServiceUnavailable || r.body != "come back later" {
		t.Errorf("status %d, %q; want the site's page", r.status, r.body)
	}
	r.want(t, "Retry-After", "1", "X-Retry", "1")
	g.release()
	clients.Wait()
}

// TestAPlaceEndsWithTheFirstByte, whatever comes after it, and before the body of the request has come it does not begin.
func TestAPlaceEndsWithTheFirstByte(t *testing.T) {
	g := startGuarded(t, "max 1", "")
	open := func(request string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", g.addr)
		must.Succeed(t, err)
		t.Cleanup(func() { conn.Close() })
		if _, err = io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	status := func(conn net.Conn) int {
		t.Helper()
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must.Succeed(t, err)
		return r.StatusCode
	}

	stream := open("GET /svc/streams HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := status(stream); got != http.StatusOK {
		t.Fatalf("a stream: status %d", got)
	}
	g.underWay(0)
	g.admit(1, "/svc/quick") // beside the stream

	socket := open("GET /svc/upgrades HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if got := status(socket); got != http.StatusSwitchingProtocols {
		t.Fatalf("a WebSocket: status %d", got)
	}
	g.underWay(0)

	upload := open("POST /svc/reads HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na")
	for path := ""; path != "/svc/reads"; {
		path = awaitOne(t, "the upload", g.begun)
	}
	g.underWay(0)
	g.admit(1, "/svc/quick") // beside the upload
	if _, err := io.WriteString(upload, "b"); err != nil {
		t.Fatal(err)
	}
	g.underWay(1)
	if r := g.do("/svc/quick"); r.status != http.StatusServiceUnavailable {
		t.Errorf("beside an upload that has come: status %d, want 503", r.status)
	}
	g.release()
	must.Equal(t, status(upload), http.StatusOK, "the upload: status")
	g.underWay(0)

	early := open("POST /svc/answers%20before%20it%20has%20read HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\na")
	must.Equal(t, status(early), http.StatusTeapot, "who is answered before its body has come: status")
	early.Close()
	for _, c := range []net.Conn{stream, socket, upload} {
		c.Close()
	}
	g.socketsClosed()
	g.underWay(0)
	g.admit(3, "/svc/quick")
}

func TestAPlaceEndsWhateverBecomesOfTheRequest(t *testing.T) {
	g := startGuarded(t, "max 1", "")
	for range 3 {
		if r := g.do("/svc/breaks%20off"); r.status != http.StatusBadGateway {
			t.Errorf("a service that breaks off: status %d, want 502", r.status)
		}
		conn, err := net.Dial("tcp", g.addr)
		must.Succeed(t, err)
		_, _ = io.WriteString(conn, "GET /svc/waits HTTP/1.1\r\nHost: a\r\n\r\n")
		for path := ""; path != "/svc/waits"; {
			path = awaitOne(t, "the request", g.begun)
		}
		conn.Close() // the client leaves
		g.underWay(0)
	}
}

// TestClientsThatLeaveShowThatTheServiceIsSlow: if none waits for its answer, that is all that is known of it.
func TestClientsThatLeaveShowThatTheServiceIsSlow(t *testing.T) {
	var clock atomic.Int64
	clock.Store(1_700_000_000_000_000)
	t.Cleanup(ratelimit.SetGuardClock(clock.Load))
	g := startGuarded(t, "max 100", "")
	g.do("/svc/quick")
	clock.Add(1_000_000)
	eventually(t, "the guard knows how quick the service is", func() bool {
		g.do("/svc/breaks%20off") // so that the guard looks at the last second, and learns nothing more
		return g.metric("weir_guard_baseline_seconds") > 0
	})
	var clients []net.Conn
	for range 60 {
		conn, err := net.Dial("tcp", g.addr)
		must.Succeed(t, err)
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET /svc/waits HTTP/1.1\r\nHost: a\r\n\r\n")
		clients = append(clients, conn)
	}
	g.underWay(60)
	clock.Add(500_000)
	for _, conn := range clients {
		conn.Close()
	}
	g.underWay(0)
	clock.Add(1_000_000)
	eventually(t, "the limit falls", func() bool {
		g.do("/svc/breaks%20off")
		return g.metric("weir_guard_limit") < 100
	})
}

func TestWhatIsUnderWaySurvivesReloads(t *testing.T) {
	g := startGuarded(t, "max 2", "")
	clients := g.occupy(2)
	reload := func(settings string) {
		t.Helper()
		service := httptest.NewServer(http.HandlerFunc(g.serve))
		t.Cleanup(service.Close)
		g.load(g.caddyfile("metrics", ":PORT {\n"+g.directives(service.URL, settings)+"\n}"))
	}
	reload("max 2\nmin 1")
	if r := g.do("/svc/quick"); r.status != http.StatusServiceUnavailable {
		t.Errorf("after a reload, with two of two under way: status %d, want 503", r.status)
	}
	bad := g.caddyfile("metrics", ":PORT {\n"+g.directives("http://127.0.0.1:1", "max 9")+"\nrate_limit /x {\nguard other {\nmax 5\n}\n}\nrate_limit /y {\nguard other {\nmax 6\n}\n}\n}")
	g.refused(bad)
	if r := g.do("/svc/quick"); r.status != http.StatusServiceUnavailable {
		t.Errorf("after a configuration that was refused, with two of two under way: status %d, want 503", r.status)
	}
	reload("max 3")
	g.admit(1, "/svc/quick")
	g.release()
	clients.Wait()
	g.underWay(0)
}

func TestMistakesInAGuardAreSaid(t *testing.T) {
	s := newServer(t)
	for _, c := range []struct{ guard, want string }{
		{"guard a b {\n}", `guard: takes one name, not ["a" "b"]`},
		{"guard /a {\n}", `guard: name: `},
		{"guard {\n max 0\n}", `guard: max "0": must be from 1 to 100000`},
		{"guard {\n priority gold\n}", `guard: priority: takes a placeholder and the values of it that have priority`},
		{"guard {\n priority gold silver\n}", `guard: priority "gold": is the same for all requests`},
		{"guard {\n priority {header.X-Plan} \"\"\n}", `has an empty value`},
		{"guard {\n most 5\n}", `guard: `},
		{"guard {\n max 5\n max 6\n}", `guard: duplicate subdirective max`},
		{"guard\nguard", `guard`},
	} {
		_, err := s.adapt("", ":PORT {\nrate_limit {\n"+c.guard+"\n}\n}")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.guard, err, c.want)
		}
	}
	for _, c := range []struct{ guard, want string }{
		{`{"min": 7, "max": 6}`, `guard: min 7: must not be above max, which is 6`},
		{`{"most": 7}`, `most`},
		{`{"priority": {"source": "{http.request.header.X-Plan}"}}`, `has no values`},
	} {
		got := s.refused(s.json(httpApp(`[{"handler": "rate_limit", "guard": ` + c.guard + `}]`)))
		must.Contain(t, got, c.want, "%s", c.guard)
	}
	got := s.refused(s.caddyfile("", ":PORT {\nrate_limit /a {\nguard {\nmax 5\n}\n}\nrate_limit /b {\nguard {\nmax 6\n}\n}\n}"))
	must.Contain(t, got, `guard "": two handlers define it differently`, "two guards of one name")
}
