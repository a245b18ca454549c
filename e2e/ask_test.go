package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/tools/must"
)

// readAsk returns a file of examples/ask with other addresses, each of which it must have.
func readAsk(t *testing.T, name string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "examples", "ask", name))
	must.Succeed(t, err)
	for i := 0; i < len(replace); i += 2 {
		must.Contain(t, string(text), replace[i], "%s", name)
	}
	return strings.NewReplacer(replace...).Replace(string(text))
}

// askedWeir is the Weir of the example, which others ask, and a service behind those.
type askedWeir struct {
	fields  string // where what is asked about is in header fields
	itself  string // where it is the request
	service string
	asked   atomic.Int64 // what the service gets, also of what it does not understand
	weir    *caddy
}

func startAsked(t *testing.T) *askedWeir {
	a := &askedWeir{fields: freeAddr(), itself: freeAddr()}
	_, fields, _ := net.SplitHostPort(a.fields)
	_, itself, _ := net.SplitHostPort(a.itself)
	text := readAsk(t, "Caddyfile", ":8080", ":"+fields, ":8081", ":"+itself, "100/1m", "3/366d\nmatch {\nnot path /free\n}", "5/1m", "1/366d")
	_, text, _ = strings.Cut(text, "\n{\n")
	global, sites, _ := strings.Cut(text, "\n}\n")
	a.weir = runCaddy(t, a.itself, "/", "admin off\nauto_https off\n"+global, sites)
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte("served"))
	}))
	service.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateActive {
			a.asked.Add(1)
		}
	}
	service.Start()
	t.Cleanup(service.Close)
	a.service = strings.TrimPrefix(service.URL, "http://")
	return a
}

// run runs a program in a folder until the test ends, and waits until it listens.
func run(t *testing.T, addr, dir, name string, args ...string) {
	t.Helper()
	log := spawn(t, dir, endWithParent(), name, args...)
	if !await(func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}) {
		text, _ := os.ReadFile(log)
		t.Fatalf("%s does not come up:\n%s", name, text)
	}
}

// spawn runs a program in a folder until the test ends, and returns the file that has what it writes.
func spawn(t *testing.T, dir string, how *syscall.SysProcAttr, name string, args ...string) (log string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name) // where Debian has it, and not everybody's PATH
	}
	if err != nil {
		t.Fatalf("%s is not installed: scripts/test servers says what is needed", name)
	}
	output, err := os.Create(filepath.Join(dir, name+".log"))
	must.Succeed(t, err)
	defer output.Close()
	program := exec.Command(path, args...)
	program.Dir, program.Stdout, program.Stderr, program.SysProcAttr = dir, output, output, how
	must.Succeed(t, program.Start())
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	})
	return output.Name()
}

// from returns a client with an address, whose requests go to a proxy, whatever host they name.
func from(t *testing.T, to, address string) *http.Client {
	own := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return own.DialContext(ctx, "tcp", to) }}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestOtherProxiesAskAWeir(t *testing.T) {
	t.Parallel()
	a := startAsked(t)
	asking := []struct {
		name     string
		start    func(t *testing.T, a *askedWeir) string // returns its address
		toldLess bool                                    // an admitted client is not told its quota
		without  int                                     // the status without Weir
	}{
		{"nginx", askingNginx, false, 200},
		{"haproxy", askingHAProxy, false, 200},
		{"caddy", askingCaddy, false, 502},
		{"traefik", askingTraefik, true, 500},
		{"envoy", askingEnvoy, false, 200},
	}
	proxies := make(map[string]*http.Client)
	for number, proxy := range asking {
		at := proxy.start(t, a) // it stays for the end of the test
		t.Run(proxy.name, func(t *testing.T) {
			own := from(t, at, fmt.Sprintf("127.0.%d.1", number+1))
			get := func(request string, fields ...string) response {
				t.Helper()
				r, err := send(own, "asks.test", request, fields...)
				must.Succeed(t, err)
				return r
			}
			for left := 2; left >= 0; left-- {
				r := get("/a?b=c", "X-Forwarded-For", fmt.Sprint("198.51.100.", left)) // nobody gets another quota by that
				must.Equal(t, fmt.Sprint(r.status, " ", r.body), "200 served")
				if proxy.toldLess {
					r.want(t, "X-RateLimit-Limit", "-")
				} else {
					r.want(t, "X-RateLimit-Limit", "3", "X-RateLimit-Remaining", fmt.Sprint(left))
					r.number(t, "X-RateLimit-Reset", 1, 366*24*3600)
				}
			}
			for _, field := range []string{"X-Forwarded-For: 198.51.100.9", "X-Forwarded-Method: OPTIONS", "X-Forwarded-Uri: /b", "X-Forwarded-Host: b.test", "Forwarded: for=198.51.100.9"} {
				name, value, _ := strings.Cut(field, ": ")
				r := get("/a", name, value)
				must.Equal(t, r.status, http.StatusTooManyRequests, "%s", field)
				r.want(t, "X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0")
				r.number(t, "Retry-After", 1, 366*24*3600)
			}
			must.Equal(t, get("HEAD /a").status, http.StatusTooManyRequests)
			asked := a.asked.Load()
			get("/a", "Expect", "the unexpected") // Weir would answer 417, and count nothing
			odd, err := http.NewRequest(http.MethodGet, "http://asks.test/a", nil)
			must.Succeed(t, err)
			odd.Host = "{a}"
			_, err = exchange(own, odd)
			must.Succeed(t, err)
			must.Equal(t, a.asked.Load(), asked, "requests that the service gets, of those that Weir does not take")
			free := get("/free", "X-Weir-Limit", "5")
			must.Equal(t, free.body, "served")
			must.Equal(t, len(free.header["X-Ratelimit-Limit"]), 0, "fields where nothing limits the request")
			own = from(t, at, fmt.Sprintf("127.0.%d.2", number+1))
			must.Equal(t, get("POST /login").status, http.StatusOK)
			get("POST /login").want(t, "X-RateLimit-Limit", "1") // the limit for method and path
			must.Equal(t, get("GET /login").status, http.StatusOK)
			must.Equal(t, get("/forbidden").status, http.StatusForbidden, "the service's own status")
		})
		proxies[proxy.name] = from(t, at, "127.0.0.1")
	}
	_ = a.weir.process.Kill()
	for _, proxy := range asking {
		eventually(t, proxy.name+" to answer without Weir", func() bool {
			r, err := send(proxies[proxy.name], "asks.test", "/a")
			return err == nil && r.status == proxy.without
		})
	}
}

func askingNginx(t *testing.T, a *askedWeir) string {
	at, dir := freeAddr(), t.TempDir()
	temporary := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} { // its own are root's
		temporary += kind + "_temp_path " + filepath.Join(dir, kind) + ";\n"
	}
	config := readAsk(t, "nginx.conf", "weir:8080", a.fields, "service:8000", a.service, "listen 80", "listen "+at, "http {", "http {\naccess_log off;\n"+temporary)
	file := filepath.Join(dir, "nginx.conf")
	must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
	run(t, at, dir, "nginx", "-p", dir, "-c", file, "-e", "stderr", "-g", "daemon off; master_process off; pid "+filepath.Join(dir, "pid")+";")
	return at
}

func askingHAProxy(t *testing.T, a *askedWeir) string {
	at, dir := freeAddr(), t.TempDir()
	config := readAsk(t, "haproxy.cfg", "service:8000", a.service, "bind :80", "bind "+at)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "haproxy.cfg"), []byte(config), 0o600))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "weir.lua"), []byte(readAsk(t, "weir.lua", "weir:8080", a.fields)), 0o600))
	run(t, at, dir, "haproxy", "-db", "-f", "haproxy.cfg")
	return at
}

func askingCaddy(t *testing.T, a *askedWeir) string {
	at := freeAddr()
	_, port, _ := net.SplitHostPort(at)
	config := readAsk(t, "asks.Caddyfile", "weir:8080", a.fields, "service:8000", a.service, ":80 ", ":"+port+" ")
	// Caddy is up when it answers; that is asked from an address that no test has.
	return runCaddy(t, at, "/", "admin off\nauto_https off", config).addr
}

func askingTraefik(t *testing.T, a *askedWeir) string {
	tr := sharedTraefik(t)
	config := readAsk(t, "traefik.yml", "weir:8080", a.fields, "service:8000", a.service, "PathPrefix(`/`)", "Host(`asks.test`)", " weir:", " asks:", "[weir]", "[asks]", " site:", " asks:", "service: site", "service: asks")
	file := filepath.Join(tr.dynamic, "asks.yml")
	must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
	t.Cleanup(func() { _ = os.Remove(file) })
	client := from(t, tr.web, "127.0.0.9")
	eventually(t, "the router to be there", func() bool {
		r, err := send(client, "asks.test", "/forbidden")
		return err == nil && r.status == http.StatusForbidden
	})
	return tr.web
}

// extAuthz has what the example says of Envoy's filter.
type extAuthz struct {
	UseRemoteAddress bool `yaml:"use_remote_address"`
	HTTPFilters      []struct {
		TypedConfig struct {
			FailureModeAllow bool `yaml:"failure_mode_allow"`
			HTTPService      struct {
				ServerURI struct {
					URI string
				} `yaml:"server_uri"`
				AuthorizationRequest struct {
					AllowedHeaders patterns `yaml:"allowed_headers"`
				} `yaml:"authorization_request"`
				AuthorizationResponse struct {
					AllowedClientHeaders          patterns `yaml:"allowed_client_headers"`
					AllowedClientHeadersOnSuccess patterns `yaml:"allowed_client_headers_on_success"`
				} `yaml:"authorization_response"`
			} `yaml:"http_service"`
		} `yaml:"typed_config"`
	} `yaml:"http_filters"`
}

// patterns is Envoy's ListStringMatcher, as far as the example uses it.
type patterns struct {
	Patterns []struct{ Exact, Prefix string }
}

// copy copies the fields that match.
func (p patterns) copy(to, from http.Header) {
	for name, values := range from {
		for _, one := range p.Patterns {
			if strings.EqualFold(name, one.Exact) || one.Prefix != "" && strings.HasPrefix(strings.ToLower(name), one.Prefix) {
				to[name] = values
			}
		}
	}
}

// askingEnvoy plays what Envoy's documentation says of the filter ext_authz with an HTTP service, by the example's settings: the request has the method, path and
// host of the client's, no body, and of its fields those that are allowed; 200 allows it, and any other status is the client's answer.
func askingEnvoy(t *testing.T, a *askedWeir) string {
	var config struct {
		StaticResources struct {
			Listeners []struct {
				FilterChains []struct {
					Filters []struct {
						TypedConfig extAuthz `yaml:"typed_config"`
					}
				} `yaml:"filter_chains"`
			}
		} `yaml:"static_resources"`
	}
	must.Succeed(t, yaml.Unmarshal([]byte(readAsk(t, "envoy.yaml", "http://weir:8081", "http://"+a.itself)), &config))
	connections := config.StaticResources.Listeners[0].FilterChains[0].Filters[0].TypedConfig
	filter := connections.HTTPFilters[0].TypedConfig
	service, err := url.Parse("http://" + a.service)
	must.Succeed(t, err)
	envoy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, _, _ := net.SplitHostPort(r.RemoteAddr)
		if connections.UseRemoteAddress {
			r.Header.Set("X-Forwarded-For", strings.TrimPrefix(r.Header.Get("X-Forwarded-For")+","+peer, ","))
		}
		ask, _ := http.NewRequest(r.Method, filter.HTTPService.ServerURI.URI+r.RequestURI, http.NoBody)
		ask.Host = r.Host
		filter.HTTPService.AuthorizationRequest.AllowedHeaders.copy(ask.Header, r.Header)
		told, err := http.DefaultTransport.RoundTrip(ask)
		if err == nil {
			defer told.Body.Close()
		}
		switch {
		case err != nil || told.StatusCode >= 500:
			if !filter.FailureModeAllow {
				w.WriteHeader(http.StatusForbidden)
				return
			}
		case told.StatusCode == http.StatusOK:
			filter.HTTPService.AuthorizationResponse.AllowedClientHeadersOnSuccess.copy(w.Header(), told.Header)
		default:
			filter.HTTPService.AuthorizationResponse.AllowedClientHeaders.copy(w.Header(), told.Header)
			w.WriteHeader(told.StatusCode)
			_, _ = io.Copy(w, told.Body)
			return
		}
		httputil.NewSingleHostReverseProxy(service).ServeHTTP(w, r)
	}))
	t.Cleanup(envoy.Close)
	return envoy.Listener.Addr().String()
}
