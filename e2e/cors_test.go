package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/proxyweir/weir/tools/must"
)

// tab is a page in a browser with storage of its own.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// openTab opens a page, whose script then sends requests to other origins.
func openTab(t *testing.T, address string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(sharedBrowser(t), chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancel)
	must.Succeed(t, chromedp.Do(ctx, chromedp.Navigate(address)))
	return &tab{t, ctx}
}

// fetch sends a request as the page's script does, and returns what that can read of the answer, or the kind of the error that it gets.
func (b *tab) fetch(address, init string) string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`fetch(`+strconv.Quote(address)+`, `+init+`).then(async r => r.status + " " + (await r.text()).trim() +
		" " + ["Retry-After", "X-RateLimit-Limit", "RateLimit-Policy", "X-Theirs", "X-Secret"].map(name => r.headers.get(name) ?? "-").join(" ")).catch(e => e.name)`, chromedp.EvalAwaitPromise))
	must.Succeed(b.t, err)
	return text
}

// api is the service behind the proxies: it answers preflights, and pages of any origin.
func api(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "X-Theirs")
	h.Set("X-Theirs", "theirs")
	h.Set("X-Secret", "secret")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "PUT")
		h.Set("Access-Control-Allow-Headers", "X-Key")
		h.Set("Access-Control-Max-Age", "0")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_, _ = w.Write([]byte("ok"))
}

// A script of another origin reads a 429 and its Retry-After, and without cors it cannot.
func TestPagesOfOtherOriginsReadRejections(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>page</title>"))
	}))
	defer page.Close()
	_, port, _ := net.SplitHostPort(page.Listener.Addr().String())
	browser, other := openTab(t, page.URL), openTab(t, "http://localhost:"+port)
	service := httptest.NewServer(http.HandlerFunc(api))
	defer service.Close()
	for _, proxy := range []string{"caddy", "traefik"} {
		for _, cors := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", proxy, cors), func(t *testing.T) {
				address := ""
				if proxy == "caddy" {
					setting := map[bool]string{true: "cors " + page.URL + " {\ncredentials\n}\n"}[cors]
					c := startCaddy(t, "rate_limit {\nzone api {\nmatch {\nnot path /up\n}\nlimit 2/366d\n}\n"+setting+"}\nrespond /up ok\nreverse_proxy "+service.Listener.Addr().String())
					address = "http://" + c.addr + "/"
				} else {
					setting := map[bool]string{true: "cors: {origins: ['" + page.URL + "'], credentials: true}"}[cors]
					s := limited(t, "name: api\nlimit: 2/366d\n"+setting)
					_, port, err := net.SplitHostPort(s.web)
					must.Succeed(t, err)
					upstream.handle(s.host()+":"+port, api)
					defer upstream.handle(s.host()+":"+port, nil)
					address = "http://" + s.host() + ":" + port + "/"
				}
				browser.t, other.t = t, t
				allowed := map[bool]string{true: `200 ok - 2 "api";q=2;w=31622400 theirs -`, false: "200 ok - - - theirs -"}[cors]
				if cors { // preflights are not counted
					for range 2 {
						must.Equal(t, browser.fetch(address, `{method: "PUT", headers: {"X-Key": "a"}}`), allowed, "an allowed request")
					}
				} else {
					must.Equal(t, browser.fetch(address, `{method: "PUT", headers: {"X-Key": "a"}}`), allowed, "an allowed request, and its preflight")
				}
				for _, init := range []string{"{}", `{method: "PUT", headers: {"X-Key": "a"}}`, `{credentials: "include"}`} {
					text := browser.fetch(address, init)
					if !cors {
						must.Equal(t, text, "TypeError", "the page gets no answer to %s", init)
						continue
					}
					status, after := 0, 0
					_, err := fmt.Sscanf(text, "%d Too many requests: you have used up what you may send for now. Try again in %d seconds.", &status, &after)
					must.Succeed(t, err)
					must.Equal(t, text, fmt.Sprintf(`429 Too many requests: you have used up what you may send for now. Try again in %d seconds. %[1]d 2 "api";q=2;w=31622400 - -`, after), "the rejection of %s", init)
				}
				must.Equal(t, other.fetch(address, "{}"), "TypeError", "a page of an origin that is not named")
			})
		}
	}
}

// Traefik's own headers middleware, in front of the plugin or behind it, adds no second value that would spoil the fields.
func TestCORSBesideTraefiksHeaders(t *testing.T) {
	const origin = "https://app.example.com"
	preflight := []string{"Origin", origin, "Access-Control-Request-Method", "PUT"}
	for _, order := range []string{"headers, limit", "limit, headers"} {
		s := newSite(t)
		s.limit("limit", "name: z\nlimit: 3/366d\nstatusPath: /quota\nmetrics: {path: /metrics}\ncors: {origins: ['"+origin+"']}")
		s.middleware("headers", "headers:\n  accessControlAllowOriginList: ['"+origin+"']\n  accessControlAllowMethods: [PUT]\n  addVaryHeader: true")
		if order == "headers, limit" {
			s.route("/", "headers", "limit")
		} else {
			s.route("/", "limit", "headers")
		}
		s.apply()
		for range 5 {
			r := s.do("OPTIONS /", preflight...)
			r.want(t, "Access-Control-Allow-Origin", origin, "Access-Control-Allow-Methods", "PUT", "X-RateLimit-Limit", "-")
		}
		for range 3 {
			r := s.admit(1, "/", "Origin", origin)
			r.want(t, "Access-Control-Allow-Origin", origin, "Vary", "Origin")
			must.Contain(t, r.header.Get("Access-Control-Expose-Headers"), "Retry-After, RateLimit, RateLimit-Policy, X-RateLimit-Limit")
		}
		r := s.reject("/", "Origin", origin)
		r.want(t, "Access-Control-Allow-Origin", origin)
		must.Contain(t, r.header.Get("Vary"), "Origin")
		must.Contain(t, r.header.Get("Access-Control-Expose-Headers"), "Retry-After, RateLimit, RateLimit-Policy, X-RateLimit-Limit")
		s.do("/quota", "Origin", origin).want(t, "Access-Control-Allow-Origin", origin)
		if order == "limit, headers" {
			s.do("/metrics", "Origin", origin).want(t, "Access-Control-Allow-Origin", "-")
			s.reject("/", "Origin", "https://evil.example").want(t, "Access-Control-Allow-Origin", "-", "Vary", "Origin")
		}
	}
}

func TestPreflightsAreNoWayRoundInTraefik(t *testing.T) {
	for _, more := range []string{"", "\nguard: {}", "\nrulesFile: RULES"} {
		if more == "\nrulesFile: RULES" {
			path := filepath.Join(t.TempDir(), "rules.json")
			must.Succeed(t, os.WriteFile(path, []byte(`{"rules": [{"name": "f", "match": {"paths": ["/f"]}, "limit": "1/1h"}]}`), 0o600))
			more = "\nrulesFile: " + path
		}
		s := limited(t, "cors: {origins: ['*']}"+more+"\nrules: [{name: z, limit: 1000/366d}]")
		uncounted := 0
		for range 400 {
			r := s.do("OPTIONS /", "Origin", "https://a.example", "Access-Control-Request-Method", "PUT")
			if r.header.Get("X-RateLimit-Remaining") == "" {
				uncounted++
			}
			r.want(t, "Access-Control-Allow-Origin", "-") // of the service's answer
		}
		if uncounted < 100 || uncounted == 400 {
			t.Errorf("%d of 400 preflights are not counted", uncounted)
		}
		s.do("/").want(t, "X-RateLimit-Remaining", strconv.Itoa(1000-1-(400-uncounted)))
		s.from("127.0.0.9").do("OPTIONS /").want(t, "X-RateLimit-Remaining", "999")
	}
}
