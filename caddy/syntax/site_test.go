package syntax

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"testing"

	_ "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func TestWarningsOfHandlersInJSONThatAreProvisionedAlready(t *testing.T) {
	a, _ := json.Marshal(map[string]string{"handler": "static_response"})
	b, _ := json.Marshal(map[string]any{"handler": "rate_limit", "at": "x:1"})
	warned := 0
	s := site{warn: func(at, _, _ string) { warned++ }, refuse: func(err error) { t.Error(err) },
		read: func(object map[string]any) (string, map[string]*Zone, error) { return object["at"].(string), nil, nil }}
	s.through(jsonRoutes(caddyhttp.RouteList{{Handlers: []caddyhttp.MiddlewareHandler{new(caddyhttp.StaticResponse)}}, {HandlersRaw: []json.RawMessage{b}}}))
	s.through(jsonRoutes(caddyhttp.RouteList{{HandlersRaw: []json.RawMessage{a}, Terminal: true}, {HandlersRaw: []json.RawMessage{b}}}))
	s.through(jsonRoutes(caddyhttp.RouteList{{Group: "g", HandlersRaw: []json.RawMessage{a}}, {Group: "g", HandlersRaw: []json.RawMessage{b}}}))
	if warned != 3 {
		t.Errorf("warned %d times, want 3", warned)
	}
}

func TestReadingsOfAPath(t *testing.T) {
	for _, c := range []struct {
		sent, now string
		want      string // the path that the client has sent
		stripped  bool
	}{
		{"/login", "/login", "/login", false},
		{"/login", "/index.html", "/login", false},
		{"/api/login", "/login", "/api/login", true},
		{"/api/v1/login", "/v1/login", "/api/v1/login", true},
		{"/apilogin", "login", "/apilogin", false},
		{"/api/xlogin", "/login", "/api/xlogin", false},
		{"", "/", "/", false},
		{"/api/", "/", "/api/", true},
		{"/api", "", "/api", false},
	} {
		r := httptest.NewRequest("GET", "http://example.com/", nil)
		r.URL = &url.URL{Path: c.now}
		before := *r
		before.URL = &url.URL{Path: c.sent}
		r = r.WithContext(context.WithValue(r.Context(), caddyhttp.OriginalRequestCtxKey, before))
		sent, stripped := Readings(r)
		got := sent.URL.Path
		if got == "" {
			got = "/"
		}
		if got != c.want || stripped != c.stripped {
			t.Errorf("%s that became %s: %s, %v; want %s, %v", c.sent, c.now, got, stripped, c.want, c.stripped)
		}
		if sent != r && r.URL.Path != c.now {
			t.Errorf("the request itself was changed to %s", r.URL.Path)
		}
	}
}

func TestDisjointPatterns(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/a", "/a", false}, {"/a", "/A", false}, {"/a", "/b", true}, {"/a*", "/ab", false}, {"/a*", "/b", true}, {"/a*", "/b*", true},
		{"/a*", "/*", false}, {"*.php", "/a", false}, {"/{x}", "/a", false}, {"/a/*/c", "/a/b/c", false}, {"/a/*/c", "/b", true},
	} {
		if disjoint(c.a, c.b) != c.want || disjoint(c.b, c.a) != c.want {
			t.Errorf("%s and %s: want %v", c.a, c.b, c.want)
		}
	}
}
