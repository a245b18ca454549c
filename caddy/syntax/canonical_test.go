package syntax

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/tools/must"
)

// Values in configurations and in the admin API are normalized to what requests have; the normalized value is unchanged.
func TestAValueIsSpeltAsRequestsHaveItHoweverItIsWritten(t *testing.T) {
	r := httptest.NewRequest("pOsT", "http://Shop.Test.:8443//API/./Items/%C3%84%20B.HTML?Q=A%2f%3F", nil)
	r.TLS = &tls.ConnectionState{ServerName: "Shop.TEST"}
	r.Header.Set("Authorization", "bearer  sK")
	first := &url.URL{Path: "/Old/./X"}
	r = r.WithContext(context.WithValue(r.Context(), caddyhttp.OriginalRequestCtxKey, http.Request{Method: "put", URL: first, RequestURI: "/Old/./X"}))
	for _, c := range []struct {
		placeholder, want string
		written           []string
	}{
		{"host", "shop.test", []string{"shop.test", "SHOP.test", "shop.test.", "shop.test:80"}},
		{"hostport", "shop.test:8443", []string{"shop.test:8443", "Shop.test.:8443"}},
		{"tls.server_name", "shop.test", []string{"Shop.Test"}},
		{"host.labels.0", "test", []string{"TEST"}},
		{"host.labels.1", "shop", []string{"Shop"}},
		{"host.labels.2", "", []string{""}},
		{"method", "POST", []string{"post", "Post"}},
		{"header.authorization", "Bearer sK", []string{"BEARER sK", "Bearer  sK"}},
		{"orig_method", "PUT", []string{"put"}},
		{"uri.path", "/api/items/ä b.html", []string{"/API//Items/Ä b.html"}},
		{"uri.path_escaped", "%2Fapi%2Fitems%2F%C3%A4+b.html", []string{"%2FAPI%2F%2FItems%2F%C3%84%20b.html"}},
		{"uri.path.0", "api", []string{"API"}},
		{"uri.path.2", "ä b.html", []string{"Ä B.html"}},
		{"uri.path.3", "", []string{""}},
		{"uri.path.file", "ä b.html", []string{"Ä B.html"}},
		{"uri.path.dir", "/api/items/", []string{"/API/items/"}},
		{"uri.path.file.base", "ä b", []string{"Ä B"}},
		{"uri.path.file.ext", ".html", []string{".HTML"}},
		{"uri", "/api/items/%C3%A4%20b.html?Q=A%2f%3F", []string{"/API//items/%C3%84%20b.html?Q=A%2f%3F", "/api/items/ä b.html?Q=A%2f%3F"}},
		{"uri_escaped", "%2Fapi%2Fitems%2F%25C3%25A4%2520b.html%3FQ%3DA%252f%253F", []string{"%2FAPI%2Fitems%2F%25C3%25A4%2520b.html%3FQ%3DA%252f%253F"}},
		{"orig_uri", "/old/x", []string{"/OLD//x", "/old/x?"}},
		{"orig_uri.path", "/old/x", []string{"/OLD//x"}},
		{"orig_uri.path.1", "x", []string{"X"}},
		{"orig_uri.path.file", "x", []string{"X"}},
		{"orig_uri.path.dir", "/old/", []string{"/Old/"}},
	} {
		s := sourceOf("http.request." + c.placeholder)
		if !s.Rewrites() {
			t.Errorf("%s: has no spelling", c.placeholder)
			continue
		}
		must.Equal(t, s.Value(r, ""), c.want, "%s", c.placeholder)
		for _, written := range append(c.written, c.want) {
			if written == "" { // an empty value is missing, and is not looked up
				continue
			}
			if got, err := s.Canonicalize(written); err != nil || got != c.want {
				t.Errorf("%s, written as %q: %q, %v; want %q", c.placeholder, written, got, err, c.want)
			}
		}
	}
	for _, placeholder := range []string{
		"http.request.uri.query", "http.request.uri.query.a", "http.request.header.Host", "http.request.cookie.a", "http.request.port", "http.request.scheme",
		"http.request.uri.path.x", "http.request.uri.path.-1", "http.request.uri.paths", "http.request.orig_uri.path.file.base", "http.request.host.labels.x",
		"http.vars.host", "http.auth.user.id",
	} {
		if canonicalFormOf(placeholder) != nil {
			t.Errorf("%s: has a spelling of Weir's", placeholder)
		}
	}
	for host, want := range map[string]string{
		"": "", "[::1]": "::1", "[2001:DB8::1]:80": "[2001:db8::1]:80", "a.test:": "a.test", ".": "", "a:b:c": "a:b:c",
	} {
		must.Equal(t, cleanHostPort(host), want, "host and port %q", host)
	}
	for host, want := range map[string]string{
		"[2001:DB8::1]": "[2001:db8::1]", "[::1]:80": "[::1]:80", "[A.test]": "a.test", "[A.test]:80": "a.test:80", "A.test.": "a.test",
	} {
		if got := matchedHost(host); got != want {
			t.Errorf("matchers are asked about %q for the host %q, want %q", got, host, want)
		}
	}
	must.Equal(t, speltPlaceholders(r, "POST", "shop.test:8443")["tls.server_name"], "shop.test", "expressions see the server's name")
	for host, want := range map[string]bool{"a.test": true, "a.test:80": true, "": true, "A.test": false, "a.Z": false, "a.test.": false, "a.test.:80": false, "[::1]": false, "\u00c4.test": false} {
		must.Equal(t, isUsualHost(host), want, "the host %q is usual", host)
	}
}

// A text with placeholders may be written in any spelling of their values; the text around them must be as it is.
func TestATextRoundPlaceholdersIsSpeltWhereThePlaceholdersStand(t *testing.T) {
	for _, c := range []struct{ template, written, want string }{
		{"m-{http.request.uri.path}", "m-/t//Login", "m-/t/login"},
		{"M {http.request.uri.path}!", "M /T!!", "M /t!!"},
		{"{http.request.host}:{http.request.port}", "Shop.test:8080", "shop.test:8080"},
		{"{http.request.host}:{http.request.port}", "::1:8080", "::1:8080"}, // a request has this value
		{"{http.request.method} {http.request.uri.path}", "post /A b", "POST /a b"},
		{"{http.request.method}{http.request.uri.path}", "post/A", "POST/a"},
		{"{http.auth.user.id}@{http.request.host}", "Ann@B@Shop.Test", "Ann@B@shop.test"}, // no host has an @
		{"x{http.auth.user.id}", "xAnn", "xAnn"},
		{"{http.request.uri.query.a}-{http.request.method}", "A-b-get", "A-B-GET"},
		{`\{{http.request.host}\}`, "{A.test}", "{a.test}"},
	} {
		k, err := NewTemplate(c.template)
		must.Succeed(t, err)
		for _, written := range []string{c.written, c.want} {
			if got, err := k.Canonicalize(written); err != nil || got != c.want {
				t.Errorf("%s, written as %q: %q, %v; want %q", c.template, written, got, err, c.want)
			}
		}
	}
	for _, c := range []struct{ template, written, why string }{
		{"m-{http.request.uri.path}", "n-/t", "is no text of m-{"},
		{"{http.request.uri.path}-m", "/t-n", "is no text of {"},
		{"{http.request.method} {http.request.uri.path}", "GET login", `"login"`},
	} {
		k, err := NewTemplate(c.template)
		must.Succeed(t, err)
		if got, err := k.Canonicalize(c.written); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %q is taken for %q, with the error %v; want one with %q", c.template, c.written, got, err, c.why)
		}
	}
	k, err := NewTemplate(strings.Repeat("{http.request.host}", 20))
	must.Succeed(t, err)
	if got, err := k.Canonicalize(strings.Repeat("A", 200)); err != nil || got != strings.Repeat("a", 200) { // there are more ways than there is time for
		t.Errorf("%q, %v", got, err)
	}
}
