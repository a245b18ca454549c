package ratelimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/tools/must"
)

// These tests run a real Caddy in this process and speak HTTP with it. Tests that count requests have limits with periods of hours,
// or of the longest kind, so that no window ends during a test. Windows of 366d that are aligned to the epoch, and those of the
// calendar, have one moment in a month or a year at which a test could see two of them.

// server is a running Caddy that listens on its own port.
type server struct {
	t       testing.TB
	addr    string
	logFile string
	dir     string
	client  *http.Client
}

// Global options with which every configuration begins. PORT, LOG and DIR are replaced in configurations.
const globalOptions = `
	admin off
	auto_https off
	persist_config off
	grace_period 10s
	default_bind 127.0.0.1
	storage file_system DIR
	log {
		output file LOG
		format json
	}
`

// start runs Caddy on a Caddyfile with these global options and sites, until the test ends.
func start(t testing.TB, global, sites string) *server {
	t.Helper()
	s := newServer(t)
	s.load(s.caddyfile(global, sites))
	return s
}

// startSite runs Caddy on one site with the given directives.
func startSite(t testing.TB, directives string) *server {
	t.Helper()
	return start(t, "", ":PORT {\n"+directives+"\n}")
}

// startJSON runs Caddy on a configuration in JSON: the given apps.
func startJSON(t testing.TB, apps string) *server {
	t.Helper()
	s := newServer(t)
	s.load(s.json(apps))
	return s
}

// newServer returns a server that is not running yet.
func newServer(t testing.TB) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, addr: freeAddr(t), dir: dir, logFile: filepath.Join(dir, "caddy.log")}
	s.client = s.newClient(nil)
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		if err := caddy.Stop(); err != nil {
			t.Errorf("stopping Caddy: %v", err)
		}
		if log, _ := os.ReadFile(s.logFile); bytes.Contains(log, []byte("panic")) {
			t.Errorf("something panicked:\n%s", log)
		}
	})
	return s
}

// newClient returns a client that connects to the server, whatever host the URL names.
func (s *server) newClient(protocols *http.Protocols) *http.Client {
	return &http.Client{
		Timeout: patience,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", s.addr)
			},
			Protocols:           protocols,
			MaxIdleConnsPerHost: 64,
			DisableCompression:  true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (s *server) fill(config string) string {
	_, port, _ := net.SplitHostPort(s.addr)
	return strings.NewReplacer("PORT", port, "LOG", s.logFile, "DIR", s.dir).Replace(config)
}

// caddyfile returns the JSON of a Caddyfile.
func (s *server) caddyfile(global, sites string) []byte {
	s.t.Helper()
	config, err := s.adapt(global, sites)
	if err != nil {
		s.t.Fatalf("adapting: %v", err)
	}
	return config
}

func (s *server) adapt(global, sites string) ([]byte, error) {
	adapter := caddyconfig.GetAdapter("caddyfile")
	config, _, err := adapter.Adapt([]byte(s.fill("{\n"+globalOptions+global+"\n}\n"+sites)), map[string]any{"filename": "Caddyfile"})
	return config, err
}

// json returns a whole configuration with the given apps.
func (s *server) json(apps string) []byte {
	return []byte(s.fill(`{
		"admin": {"disabled": true, "config": {"persist": false}},
		"storage": {"module": "file_system", "root": "DIR"},
		"logging": {"logs": {"default": {"writer": {"output": "file", "filename": "LOG"}, "encoder": {"format": "json"}}}},
		"apps": ` + apps + `}`))
}

// load replaces the running configuration.
func (s *server) load(config []byte) {
	s.t.Helper()
	if err := caddy.Load(config, true); err != nil {
		s.t.Fatalf("loading: %v\n%s", err, config)
	}
}

// reload replaces the running site.
func (s *server) reload(directives string) {
	s.t.Helper()
	s.load(s.caddyfile("", ":PORT {\n"+directives+"\n}"))
	s.settle()
}

// settle waits until the servers of the previous configuration have shut down. A reload does not wait for that, and until then they
// may still accept a request.
func (s *server) settle() {
	s.t.Helper()
	s.client.CloseIdleConnections()
	eventually(s.t, "the servers before have shut down", func() bool { return !strings.Contains(stacks(), "caddyhttp.(*App).stop") })
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	stackText.Lock()
	defer stackText.Unlock()
	return string(stackText.buffer[:runtime.Stack(stackText.buffer[:], true)])
}

// stackText is made once, since tests wait by looking at stacks, and the race detector makes a large buffer dear.
var stackText struct {
	sync.Mutex
	buffer [4 << 20]byte
}

// refused loads a configuration that must be refused, and returns the error.
func (s *server) refused(config []byte) string {
	s.t.Helper()
	err := caddy.Load(config, true)
	if err == nil {
		s.t.Fatalf("loaded, though it must be refused:\n%s", config)
	}
	return err.Error()
}

// response is the answer to a request, completely read.
type response struct {
	status  int
	header  http.Header
	body    string
	trailer http.Header
	proto   string
}

// do makes a request of "[METHOD ]path" with header fields in pairs. A path that begins with http:// names its host.
func (s *server) do(request string, fields ...string) response {
	s.t.Helper()
	r, err := s.try(s.client, request, fields...)
	must.Succeed(s.t, err)
	return r
}

// try is do for any client and goroutine. A connection that is made while a configuration takes over may reach the socket that is
// being closed. Then the kernel resets it, or net/http's server closes it before it has read a request (see Server.Shutdown). This
// happens in any Caddy. Such a request has reached no handler, so try sends it again, as net/http's client does on a reused
// connection. It tries for a certain time and not a certain number of times, since many tries may fail on a busy machine while
// configurations take over one after the other.
func (s *server) try(client *http.Client, request string, fields ...string) (response, error) {
	for end := time.Now().Add(patience); ; {
		r, err := s.once(client, request, fields...)
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) || time.Now().After(end) {
			return r, err
		}
	}
}

func (s *server) once(client *http.Client, request string, fields ...string) (response, error) {
	method, path, found := strings.Cut(request, " ")
	if !found {
		method, path = http.MethodGet, request
	}
	if strings.HasPrefix(path, "/") {
		path = "http://" + s.addr + path
	}
	r, err := http.NewRequest(method, path, nil)
	if err != nil {
		return response{}, err
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return send(client, r)
}

func send(client *http.Client, r *http.Request) (response, error) {
	answer, err := client.Do(r)
	if err != nil {
		return response{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return response{answer.StatusCode, answer.Header, string(body), answer.Trailer, answer.Proto}, err
}

// admit makes n requests that must be admitted.
func (s *server) admit(n int, request string, fields ...string) {
	s.t.Helper()
	for i := range n {
		if r := s.do(request, fields...); r.status != http.StatusOK {
			s.t.Fatalf("%s %q, request %d of %d: status %d, want 200 (%s)", request, fields, i+1, n, r.status, strings.TrimSpace(r.body))
		}
	}
}

// reject makes a request that must be rejected.
func (s *server) reject(request string, fields ...string) response {
	s.t.Helper()
	r := s.do(request, fields...)
	if r.status != http.StatusTooManyRequests {
		s.t.Fatalf("%s %q: status %d, want 429 (X-RateLimit-Remaining %q)", request, fields, r.status, r.header.Get("X-RateLimit-Remaining"))
	}
	return r
}

// remaining returns the remaining quota that an answer states.
func (r response) remaining(t testing.TB) int {
	t.Helper()
	n, err := strconv.Atoi(r.header.Get("X-RateLimit-Remaining"))
	if err != nil {
		t.Fatalf("X-RateLimit-Remaining %q: %v", r.header["X-Ratelimit-Remaining"], err)
	}
	return n
}

// seconds reads a header field that is a whole number, and checks that it is from least to most.
func (r response) seconds(t testing.TB, field string, least, most int) int {
	t.Helper()
	values := r.header.Values(field)
	if len(values) != 1 {
		t.Fatalf("%s: %q, want one value", field, values)
	}
	n, err := strconv.Atoi(values[0])
	if err != nil || n < least || n > most {
		t.Fatalf("%s: %q, want a number from %d to %d", field, values[0], least, most)
	}
	return n
}

// want checks header fields, given in pairs; a field that must be absent has the value "-".
func (r response) want(t testing.TB, fields ...string) {
	t.Helper()
	for i := 0; i < len(fields); i += 2 {
		got := strings.Join(r.header.Values(fields[i]), " & ")
		if len(r.header.Values(fields[i])) == 0 {
			got = "-"
		}
		must.Equal(t, got, fields[i+1], "%s", fields[i])
	}
}

// logs returns the lines of the log that have this message.
func (s *server) logs(message string) []map[string]any {
	s.t.Helper()
	data, err := os.ReadFile(s.logFile)
	must.Succeed(s.t, err)
	// Most lines need no decoding. What JSON may escape is not looked for.
	begins := []byte(message)
	if i := strings.IndexFunc(message, func(c rune) bool { return c < ' ' || c > '~' || strings.ContainsRune(`"\<>&`, c) }); i >= 0 {
		begins = begins[:i]
	}
	var lines []map[string]any
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, begins) {
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			continue // the line is still being written
		}
		if fields["msg"] == message {
			lines = append(lines, fields)
		}
	}
	return lines
}

// patience is how long tests wait for what must happen: long enough for any busy machine.
const patience = time.Minute

// eventually waits until a condition holds. It looks less often the longer it has waited, since some conditions take long to look at.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for began := time.Now(); !condition(); {
		waited := time.Since(began)
		if waited > patience {
			t.Fatalf("it never happened that %s", what)
		}
		time.Sleep(min(max(waited/20, 2*time.Millisecond), 50*time.Millisecond))
	}
}

// settledGoroutines waits until no more goroutines run than before.
func settledGoroutines(t testing.TB, before int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, stacks())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func init() {
	caddy.RegisterModule(listener{})
	caddy.RegisterModule(probe{})
}

// listener is an event handler, such as a user would write, that keeps the events it gets.
type listener struct{}

var heard struct {
	sync.Mutex
	events []map[string]any
}

func (listener) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.weir_test", New: func() caddy.Module { return new(listener) }}
}

func (*listener) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return nil
}

func (*listener) Handle(_ context.Context, e caddy.Event) error {
	heard.Lock()
	defer heard.Unlock()
	heard.events = append(heard.events, e.Data)
	return nil
}

// probe is a handler that passes each request that it gets to a test. In front of rate_limit it does so when the request has been
// decided: when header fields are first written.
type probe struct {
	Name    string `json:"name,omitempty"`
	Decided bool   `json:"decided,omitempty"`
}

var probes sync.Map // of chan *http.Request, by name

// watch returns the channel of a probe's requests.
func watch(t testing.TB, name string) <-chan *http.Request {
	t.Helper()
	seen := make(chan *http.Request, 1000)
	probes.Store(name, seen)
	t.Cleanup(func() { probes.Delete(name) })
	return seen
}

func (probe) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.weir_test_probe", New: func() caddy.Module { return new(probe) }}
}

func (p *probe) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	report := sync.OnceFunc(func() {
		if seen, ok := probes.Load(p.Name); ok {
			seen.(chan *http.Request) <- r
		}
	})
	if p.Decided {
		w = &decidedWriter{&caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, report}
	} else {
		report()
	}
	return next.ServeHTTP(w, r)
}

type decidedWriter struct {
	*caddyhttp.ResponseWriterWrapper
	report func()
}

func (w *decidedWriter) Header() http.Header {
	w.report()
	return w.ResponseWriterWrapper.Header()
}

// awaitOne receives from a channel, but fails the test after some time.
func awaitOne[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("not reached")
	}
}

// httpApp returns the JSON of an http app with one server, whose single route has the given handlers.
func httpApp(handlers string) string {
	return fmt.Sprintf(`{"http": {"servers": {"srv0": {
		"listen": ["127.0.0.1:PORT"],
		"automatic_https": {"disable": true},
		"routes": [{"handle": %s}]
	}}}}`, handlers)
}
