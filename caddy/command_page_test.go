package ratelimit_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/tools/must"
)

func init() {
	caddy.RegisterModule(echo{})
}

// echo is an endpoint of Caddy's admin API that answers with the request as it arrived.
type echo struct{}

func (echo) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.rate_limit_echo", New: func() caddy.Module { return echo{} }}
}

func (echo) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: "/rate_limit/echo_for_tests", Handler: caddy.AdminHandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			w.Header().Set("Set-Cookie", "a=b")
			w.Header().Set("Content-Type", "application/json")
			return json.NewEncoder(w).Encode(echoed{r.Method, r.Host, r.RequestURI, r.Header, string(body)})
		})},
		{Pattern: "/rate_limit/elsewhere_for_tests", Handler: caddy.AdminHandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			http.Redirect(w, r, "http://evil.example/", http.StatusFound)
			return nil
		})},
	}
}

// echoed is a request as it arrived at the admin endpoint.
type echoed struct {
	Method, Host, URI string
	Header            http.Header
	Body              string
}

// withAdmin runs a real Caddy whose admin endpoint is at an address.
func withAdmin(t *testing.T, listen string) {
	t.Helper()
	s := newServer(t)
	t.Cleanup(func() { s.load(s.json("{}")) }) // it has no admin endpoint; Caddy does not close the old one when it stops
	s.load([]byte(strings.Replace(string(s.json("{}")), `"disabled": true`, fmt.Sprintf(`"listen": %q`, listen), 1)))
}

// pageAt runs `caddy rate-limit page` in front of an admin endpoint, and returns the host and port of the URL that it prints.
func pageAt(t *testing.T, admin ...string) string {
	t.Helper()
	host, problems := pageWith(t, admin...)
	if strings.Contains(problems, "warning") {
		t.Fatal(problems)
	}
	return host
}

// pageWith does the same, and also returns the warnings that were printed before the URL.
func pageWith(t *testing.T, admin ...string) (host, warnings string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], append([]string{"rate-limit", "page", "--listen", "localhost:0"}, admin...)...)
	cmd.Env = append(os.Environ(), asCaddy+"=1", "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	problems, err := os.Create(filepath.Join(dir, "problems"))
	must.Succeed(t, err)
	defer problems.Close()
	cmd.Stderr = problems
	stdin, err := cmd.StdinPipe() // the command ends when it is closed
	must.Succeed(t, err)
	stdout, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = stdin.Close()
	})
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	host, found := strings.CutPrefix(line, "http://")
	host, ends := strings.CutSuffix(host, "/rate_limit/\n")
	text, err := os.ReadFile(problems.Name())
	if !found || !ends || err != nil {
		t.Fatalf("it prints %q, and as problems: %s (%v)", line, text, err)
	}
	return host, string(text)
}

// browse makes a request of "METHOD path" and header fields in pairs; Host is one of them. It follows no redirections.
func browse(t *testing.T, host, request, body string, fields ...string) response {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequest(method, "http://"+host+path, strings.NewReader(body))
	must.Succeed(t, err)
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
		} else {
			r.Header.Add(fields[i], fields[i+1])
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	must.Succeed(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must.Succeed(t, err)
	return response{status: answer.StatusCode, header: answer.Header, body: string(text)}
}

const echoPath = "/rate_limit/echo_for_tests"

// The fields that a browser sends by itself: for an address that was typed, and for a fetch by the page.
var (
	typed   = []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	fetched = []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}
)

func TestThePageCommandServesThePageAndForwardsWhatItAsks(t *testing.T) {
	admin := freeAddr(t)
	withAdmin(t, admin)
	if r := browse(t, admin, "GET "+echoPath, "", typed...); r.status != http.StatusForbidden {
		t.Errorf("the admin endpoint itself answers a browser with %d %s; this command is not needed any more", r.status, r.body)
	}
	host := pageAt(t, "--address", admin)

	r := browse(t, host, "GET /rate_limit/", "", typed...)
	if r.status != http.StatusOK || !strings.HasPrefix(r.body, "<!doctype html>") || !strings.Contains(r.header.Get("Content-Security-Policy"), "script-src 'sha256-") {
		t.Errorf("the page: %d %v %.80q", r.status, r.header, r.body)
	}
	for _, path := range []string{"/", "/rate_limit"} {
		if r = browse(t, host, "GET "+path, "", typed...); r.status != http.StatusFound || r.header.Get("Location") != "/rate_limit/" {
			t.Errorf("%s: %d %v", path, r.status, r.header)
		}
	}

	for _, test := range []struct{ request, body string }{
		{"GET " + echoPath + "?rule=api%2Flogin&key=%00%e2%80%ae", ""},
		{"POST " + echoPath, `{"rule":"api/login"}`},
	} {
		method, uri, _ := strings.Cut(test.request, " ")
		fields := append([]string{"Cookie", "secret=1", "Authorization", "Basic c2VjcmV0", "Referer", "http://" + host + "/rate_limit/",
			"X-Forwarded-For", "192.0.2.1", "Accept", "application/json"}, fetched...)
		if method == http.MethodPost {
			fields = append(fields, "Content-Type", "application/json", "Origin", "http://"+host)
		}
		r = browse(t, host, test.request, test.body, fields...)
		var got echoed
		if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status != http.StatusOK {
			t.Fatalf("%s: %d %s: %v", test.request, r.status, r.body, err)
		}
		if got.Method != method || got.URI != uri || got.Body != test.body || got.Host != admin || got.Header.Get("Origin") != "http://"+admin {
			t.Errorf("%s: Caddy has got %+v", test.request, got)
		}
		for _, name := range []string{"Cookie", "Authorization", "Referer", "X-Forwarded-For", "Sec-Fetch-Mode", "Sec-Fetch-Site"} {
			must.Equal(t, got.Header.Get(name), "", "%s: Caddy has got %s", test.request, name)
		}
		for _, name := range []string{"Access-Control-Allow-Origin", "Set-Cookie"} {
			must.Equal(t, r.header.Get(name), "", "%s: the browser has got %s", test.request, name)
		}
		if r.header.Get("X-Content-Type-Options") != "nosniff" || r.header.Get("Cache-Control") != "no-store" ||
			r.header.Get("Cross-Origin-Resource-Policy") != "same-origin" || r.header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: the browser has got %v", test.request, r.header)
		}
	}

	if r = browse(t, host, "GET /rate_limit/elsewhere_for_tests", "", fetched...); r.status != http.StatusBadGateway || r.header.Get("Location") != "" {
		t.Errorf("a redirection: %d %v %s", r.status, r.header, r.body)
	}
	if r = browse(t, host, "GET /rate_limit/no_such_path", "", fetched...); r.status != http.StatusNotFound {
		t.Errorf("what Caddy does not have: %d %s", r.status, r.body)
	}
}

func TestThePageCommandRefusesOtherSitesAndAllThatIsNotThePages(t *testing.T) {
	admin := freeAddr(t)
	withAdmin(t, admin)
	host := pageAt(t, "--address", admin)
	_, port, _ := net.SplitHostPort(host)
	json := []string{"Content-Type", "application/json"}
	for _, test := range []struct {
		name    string
		request string
		fields  []string
		status  int
		says    string
	}{
		{"as the page asks", "GET " + echoPath, fetched, 200, ""},
		{"as the page acts", "POST " + echoPath, append([]string{"Origin", "http://" + host, "Content-Type", "application/json"}, fetched...), 200, ""},
		{"a program's, with no word of a browser", "GET " + echoPath, nil, 200, ""},
		{"another name of loopback", "GET " + echoPath, []string{"Host", "127.0.0.1:" + port, "Origin", "http://127.0.0.1:" + port}, 200, ""},
		{"a media type with parameters", "POST " + echoPath, []string{"Content-Type", "application/json; charset=utf-8"}, 200, ""},
		{"a deferred request", "GET /rate_limit/deferred/job?id=x", fetched, 404, "the configuration in force has no rate_limit"},

		{"a name that leads here", "GET " + echoPath, []string{"Host", "evil.example:" + port}, 403, "is not what this server goes by: localhost:" + port},
		{"a name that leads here, with the origin that goes with it", "GET " + echoPath, []string{"Host", "evil.example:" + port, "Origin", "http://evil.example:" + port}, 403, "goes by"},
		{"that name, for the page itself", "GET /rate_limit/", []string{"Host", "evil.example:" + port}, 403, "goes by"},
		{"another port", "GET " + echoPath, []string{"Host", "localhost:1"}, 403, "goes by"},
		{"another origin", "GET " + echoPath, []string{"Origin", "http://evil.example"}, 403, `the origin is \"http://evil.example\"`},
		{"another origin that acts", "POST " + echoPath, append([]string{"Origin", "http://evil.example"}, json...), 403, "other sites"},
		{"another name of loopback as the origin", "GET " + echoPath, []string{"Origin", "http://127.0.0.1:" + port}, 403, "other sites"},
		{"another port as the origin", "GET " + echoPath, []string{"Origin", "http://localhost:3000"}, 403, "other sites"},
		{"the origin with TLS", "GET " + echoPath, []string{"Origin", "https://" + host}, 403, "other sites"},
		{"the origin null", "GET " + echoPath, []string{"Origin", "null"}, 403, "other sites"},
		{"an origin without a value", "GET " + echoPath, []string{"Origin", ""}, 403, "other sites"},
		{"two origins", "GET " + echoPath, []string{"Origin", "http://" + host, "Origin", "http://evil.example"}, 403, "other sites"},
		{"another site's picture", "GET " + echoPath, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403, "other sites"},
		{"another site's link to the page", "GET /rate_limit/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 403, "address bar"},
		{"another port of this machine", "GET " + echoPath, []string{"Sec-Fetch-Site", "same-site"}, 403, "other sites"},
		{"two words of where it is from", "GET " + echoPath, []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Site", "cross-site"}, 403, "other sites"},

		{"the configuration", "GET /config/", fetched, 404, "there is nothing at this path"},
		{"a new configuration", "POST /load", json, 404, "there is nothing"},
		{"the end of Caddy", "POST /stop", json, 404, "there is nothing"},
		{"a way round by dots", "GET /rate_limit/../config/", fetched, 404, "there is nothing"},
		{"a way round by escapes", "GET /rate_limit/%2e%2e%2fconfig%2f", fetched, 404, "there is nothing"},
		{"what clients have sent", "POST /rate_limit/deferred/export", json, 404, "there is nothing"},
		{"another method", "DELETE " + echoPath, json, 405, "GET and POST are taken alone, not DELETE"},
		{"HEAD", "HEAD " + echoPath, nil, 405, ""},
		{"a preflight", "OPTIONS " + echoPath, []string{"Origin", "http://evil.example", "Access-Control-Request-Method", "POST"}, 403, "other sites"},
		{"a preflight of this origin", "OPTIONS " + echoPath, []string{"Origin", "http://" + host}, 405, "not OPTIONS"},
		{"a form", "POST " + echoPath, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "application/json is wanted"},
		{"a form's text", "POST " + echoPath, []string{"Content-Type", "text/plain;application/json"}, 415, "application/json is wanted"},
		{"a body of no type", "POST " + echoPath, nil, 415, "application/json is wanted"},
		{"the page, by POST", "POST /rate_limit/", json, 405, "GET and HEAD alone"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := browse(t, host, test.request, "", test.fields...)
			if r.status != test.status || !strings.Contains(r.body, test.says) {
				t.Errorf("%d %s, want %d and %q", r.status, r.body, test.status, test.says)
			}
			if allowed := r.header.Get("Access-Control-Allow-Origin"); allowed != "" {
				t.Errorf("the answer is for %s, too", allowed)
			}
			if test.status != 200 && r.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("header %v", r.header)
			}
		})
	}
	t.Run("a body without an end", func(t *testing.T) {
		r := browse(t, host, "POST "+echoPath, strings.Repeat(" ", 1<<20+1), json...)
		if r.status != http.StatusRequestEntityTooLarge || !strings.Contains(r.body, "more than 1048576 bytes") {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
}

func TestThePageCommandFindsTheAdminEndpoint(t *testing.T) {
	t.Run("at a socket", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "weir") // a socket's path must be short
		must.Succeed(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		socket := "unix/" + filepath.Join(dir, "admin.sock")
		withAdmin(t, socket)
		if r := browse(t, pageAt(t, "--address", socket), "GET "+echoPath, "", fetched...); r.status != http.StatusOK {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("as the configuration has it", func(t *testing.T) {
		admin := freeAddr(t)
		withAdmin(t, admin)
		dir := folder(t, "Caddyfile", "{\n\tadmin "+admin+"\n}\n")
		if r := browse(t, pageAt(t, "--config", filepath.Join(dir, "Caddyfile")), "GET "+echoPath, "", fetched...); r.status != http.StatusOK {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("as the environment has it", func(t *testing.T) {
		admin := freeAddr(t)
		withAdmin(t, admin)
		t.Setenv("CADDY_ADMIN", admin)
		if r := browse(t, pageAt(t), "GET "+echoPath, "", fetched...); r.status != http.StatusOK {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("or says that it does not answer", func(t *testing.T) {
		admin := freeAddr(t)
		host, problems := pageWith(t, "--address", admin)
		if !strings.Contains(problems, "warning: the admin endpoint at "+admin+" does not answer: ") || !strings.Contains(problems, "--address says where it is") {
			t.Errorf("problems: %s", problems)
		}
		if r := browse(t, host, "GET /rate_limit/rules", "", fetched...); r.status != http.StatusBadGateway || !strings.Contains(r.body, "the admin endpoint at "+admin+" does not answer") {
			t.Errorf("%d %s", r.status, r.body)
		}
		if r := browse(t, host, "GET /rate_limit/", "", typed...); r.status != http.StatusOK {
			t.Errorf("the page itself: %d %s", r.status, r.body)
		}
	})
	t.Run("or says what is wrong with the address", func(t *testing.T) {
		for _, args := range [][]string{{"--address", "localhost"}, {"--address", "http://localhost:2019"}, {"--listen", "2020"}, {"--listen", "localhost:port"}, {"--config", "nosuch"}, {"more"}} {
			out, problems, code := weir(t, t.TempDir(), append([]string{"page"}, args...)...)
			if code != 1 || out != "" || !strings.Contains(problems, args[len(args)-1]) {
				t.Errorf("%v: exit code %d, output %q, problems %q", args, code, out, problems)
			}
		}
	})
}
