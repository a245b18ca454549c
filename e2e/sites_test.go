package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// step is a number of equal requests, and the statuses of their answers: all have the first one but the last, if there are two.
type step struct {
	times    int
	statuses [2]int
	request  string // as of send; a path is one of example.com
	fields   []string
}

// ok are requests of which none is limited.
func ok(times int, request string, fields ...string) step {
	return step{times, [2]int{200, 200}, request, fields}
}

// limitedTo are requests of which so many are admitted, and one more that is not.
func limitedTo(times int, request string, fields ...string) step {
	return step{times + 1, [2]int{200, 429}, request, fields}
}

// The folder sites has sites as their owners write them first. On each the limit holds, or Caddy says at load with file and line why it does not. None is
// told anything else.
func TestOrdinarySitesHaveTheLimitsThatTheirOwnersWrote(t *testing.T) {
	alice := "Basic " + base64.StdEncoding.EncodeToString([]byte("alice:hiccup"))
	mallory := "Basic " + base64.StdEncoding.EncodeToString([]byte("alice:password"))
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	for name, c := range map[string]struct {
		steps []step
		told  string // the warning; "": there is none
	}{
		"spa": {[]step{ok(5, "/"), limitedTo(3, "/login"), {1, [2]int{429, 429}, "/LOGIN/x", nil}, ok(5, "/orders/7")}, ""},
		"php": {[]step{ok(5, "/"), limitedTo(3, "POST /login"), ok(5, "/articles/7")}, ""},
		"wordpress": {[]step{
			limitedTo(3, "POST /wp-login.php", "Cf-Connecting-Ip", "203.0.113.7"), {1, [2]int{429, 429}, "POST /xmlrpc.php", []string{"Cf-Connecting-Ip", "203.0.113.7"}},
			limitedTo(3, "POST /wp-login.php", "Cf-Connecting-Ip", "203.0.113.8"), ok(5, "/wp-login.php", "Cf-Connecting-Ip", "203.0.113.7"),
		}, ""},
		"api": {[]step{limitedTo(3, "POST /api/login"), ok(5, "/api/orders"), ok(5, "/login")}, ""},
		"forward-auth": {[]step{
			limitedTo(3, "/", "X-Session", "ann"), limitedTo(3, "/x", "X-Session", "bob"), {5, [2]int{401, 401}, "/", nil},
			{1, [2]int{429, 429}, "/", []string{"X-Session", "ann", "Remote-User", "carl"}},
		}, ""},
		"snippets": {[]step{
			limitedTo(3, "http://shop.example.com/login"), {1, [2]int{429, 429}, "http://forum.example.com/login", nil}, limitedTo(2, "http://forum.example.com/search"),
			ok(5, "http://shop.example.com/search"),
		}, ""},
		"hosts": {[]step{
			limitedTo(3, "http://shop.example.com/"), limitedTo(2, "http://api.example.com/", "X-Api-Key", "a"), limitedTo(2, "http://api.example.com/", "X-Api-Key", "b"),
			{1, [2]int{404, 404}, "http://other.example.com/", nil},
		}, ""},
		"static-login": {[]step{
			ok(5, "/"), ok(4, "/private/secret.txt", "Authorization", alice), {4, [2]int{401, 429}, "/private/secret.txt", []string{"Authorization", mallory}},
			{1, [2]int{429, 429}, "/private/secret.txt", []string{"Authorization", alice}},
		}, ""},
		"websocket": {[]step{ok(5, "/"), {3, [2]int{101, 429}, "/chat", upgrade}}, ""},
		"grpc": {[]step{
			{4, [2]int{200, 0}, "POST /shop.Orders/List", []string{"Content-Type", "application/grpc", "Te", "trailers"}},
			ok(4, "POST /shop.Pictures/List", "Content-Type", "application/grpc", "Te", "trailers"),
		}, ""},
		"moved": {[]step{ok(5, "/login")}, "no request reaches this rate_limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, told := startOrdinary(t, name)
			for _, s := range c.steps {
				request := s.request
				if !strings.Contains(request, "http://") {
					request = request[:strings.IndexByte(request, '/')] + "http://example.com" + request[strings.IndexByte(request, '/'):]
				}
				for i := range s.times {
					want := s.statuses[0]
					if i == s.times-1 {
						want = s.statuses[1]
					}
					got, err := host.try(request, s.fields...)
					if grpc := got.header.Get("Grpc-Status") + got.trailer.Get("Grpc-Status"); grpc == "8" || grpc == "14" {
						got.status = 0
					}
					if err != nil || got.status != want {
						t.Fatalf("%s %v, for the %d. time: status %d, %v; want %d", s.request, s.fields, i+1, got.status, err, want)
					}
				}
			}
			warnings := told()
			switch {
			case c.told == "" && len(warnings) > 0:
				t.Errorf("Caddy warns of the site: %s", warnings)
			case c.told != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], c.told) || !strings.Contains(warnings[0], "Caddyfile:")):
				t.Errorf("Caddy says %s; want %q with file and line", warnings, c.told)
			}
		})
	}
}

// startOrdinary starts a Caddy on a site of the folder sites, with what the site needs behind it. told returns what Weir has warned of.
func startOrdinary(t *testing.T, name string) (c *caddy, told func() []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("sites", name, "Caddyfile"))
	must.Succeed(t, err)
	root := t.TempDir()
	for file, content := range map[string]string{"index.html": "the app", "index.php": "", "wp-login.php": "", "xmlrpc.php": "", "private/secret.txt": "a secret"} {
		path := filepath.Join(root, file)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(content), 0o644))
	}
	addr := freeAddr()
	_, port, _ := net.SplitHostPort(addr)
	config := string(text)
	global := ""
	if i := strings.Index(config, "\n{\n"); i >= 0 && i < strings.Index(config, "example.com") {
		end := i + strings.Index(config[i:], "\n}\n")
		global, config = config[i+3:end], config[:i+1]+config[end+3:]
	}
	for written, ours := range map[string]string{"localhost:3000": ordinaryService(t, false), "localhost:9091": ordinaryService(t, false), "h2c://localhost:50051": "h2c://" + ordinaryService(t, false),
		"localhost:9000": ordinaryService(t, true), "root /srv": "root " + root} {
		config = strings.ReplaceAll(config, written, ours)
	}
	config = regexp.MustCompile(`(?m)^(\S*example\.com) \{`).ReplaceAllString(config, "http://$1:"+port+" {")
	c = runCaddy(t, addr, "/up", "admin off\nauto_https off\nlog {\nformat json\n}\n"+global, ":"+port+" {\nrespond /up ok\n}\n"+config)
	dialer := new(net.Dialer)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!strings.HasPrefix(name, "grpc"))
	transport.Protocols.SetUnencryptedHTTP2(strings.HasPrefix(name, "grpc"))
	c.client.Transport = transport
	return c, func() []string {
		log, err := os.ReadFile(c.log)
		must.Succeed(t, err)
		var list []string
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, `"level":"warn"`) && strings.Contains(line, "rate_limit") {
				list = append(list, line)
			}
		}
		return list
	}
}

// ordinaryService starts a service until the test ends, over HTTP or over FastCGI. At /verify it knows the users by X-Session, it speaks gRPC, and
// it answers upgrades. It returns its address.
func ordinaryService(t *testing.T, fast bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = l.Close() })
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get("X-Session")
		switch {
		case r.URL.Path == "/verify" && user == "":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/verify":
			w.Header().Set("Remote-User", user)
		case r.Header.Get("Upgrade") != "":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				_ = conn.Close()
			}
		case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "0")
		default:
			fmt.Fprintln(w, r.Method, r.URL.Path)
		}
	})
	if fast {
		go func() { _ = fcgi.Serve(l, serve) }()
		return l.Addr().String()
	}
	server := &http.Server{Handler: serve, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

// The labels of the folder sites, through Traefik's own decoder. The load balancer writes another port into X-Forwarded-For for each connection.
func TestAnOrdinarySiteOfLabelsHasTheLimitThatItsOwnerWrote(t *testing.T) {
	docker := startDockerd(t)
	tr := startTraefik(t, settings{providers: "docker: {endpoint: '" + docker.endpoint + "', exposedByDefault: false}"})
	s := tr.newSite(t)
	file, err := os.Open(filepath.Join("sites", "traefik-labels", "labels"))
	must.Succeed(t, err)
	defer file.Close()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(upstream.url, "http://"))
	labels := make(map[string]string)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, found := strings.Cut(lines.Text(), "="); found && !strings.HasPrefix(name, "#") {
			labels[name] = strings.NewReplacer("example.com", s.host(), "3000", port).Replace(value)
		}
	}
	docker.heard()
	docker.run("shop", labels)
	eventually(t, "Traefik has the container's router", func() bool {
		r, err := s.try("/up")
		return err == nil && r.status != http.StatusNotFound
	})
	for i := range 3 {
		s.admit(1, "/login", "X-Forwarded-For", fmt.Sprint("203.0.113.9:", 50000+i))
	}
	s.reject("/login/x", "X-Forwarded-For", "203.0.113.9:50123")
	s.reject("/login", "X-Forwarded-For", "203.0.113.9")
	s.admit(3, "/login", "X-Forwarded-For", "203.0.113.10:50123")
	s.admit(5, "/", "X-Forwarded-For", "203.0.113.9:50124")
}
