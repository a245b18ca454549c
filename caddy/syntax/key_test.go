package syntax

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/tools/must"
)

// newKeyRequest is a request as a handler gets it from Caddy.
func newKeyRequest(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	repl := caddyhttp.NewTestReplacer(r)
	ctx := context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl)
	ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, map[string]any{})
	r = r.WithContext(ctx)
	for i, value := range headers {
		r.Header["X-"+string(rune('A'+i))] = []string{value}
	}
	return r
}

func TestMeantGuessesAtMisspeltPlaceholders(t *testing.T) {
	for name, want := range map[string]string{
		"headr.X-Api-Key": "header.X-Api-Key", "headers.X-Api-Key": "header.X-Api-Key", "Cookie.session": "cookie.session", "quey.user.name": "query.user.name",
		"http.request.headers.X-A": "http.request.header.X-A", "htpp.vars.plan": "http.vars.plan", "http.request.url.path": "http.request.uri.path", "http.requset.tls.version": "http.request.tls.version",
		// These are right, or may be another module's.
		"http.request.header.X-A": "", "http.vars.headr.x": "", "http.auth.user.id": "", "http.geo.country": "", "env.HOME": "", "geoip2.country_code": "", "maxmind.x": "", "plan": "", "clientip": "", "": "", "a.": "",
		"http.request.method": "", "http.regexp.hedaer.1": "", "user.id": "",
	} {
		must.Equal(t, Meant(name), want, "of %q", name)
	}
}

// FuzzKeyTemplate: a template finds the same placeholders as Caddy's replacer, and the text around them.
func FuzzKeyTemplate(f *testing.F) {
	for _, template := range []string{
		"{http.vars.client_ip}", "{a}{b}", "user-{a}.{b}", `\{a}`, `{a\}b}`, `\\{a}`, "{", "}", "{}", "{{a}}", "{a", `{a\}`, `{a}\`, `\}{a}`, `{a}\}`, `{a}\{`, "{client_ip}", "",
	} {
		f.Add(template)
	}
	f.Fuzz(func(t *testing.T, template string) {
		var names []string
		texts, err := splitPlaceholders(template, func(name string) error {
			names = append(names, name)
			return nil
		})
		zone := Zone{Key: template, Requests: 5, Period: "1s"}
		if _, zoneErr := zone.Compile("z", ""); zoneErr != nil {
			if !strings.HasPrefix(zoneErr.Error(), fmt.Sprintf("zone \"z\": key %q: ", template)) {
				t.Errorf("does not say which key: %v", zoneErr)
			}
		} else if err != nil {
			t.Errorf("%q: is accepted, though %v", template, err)
		}
		if err != nil || strings.Contains(template, ownPrefix) { // in which braces are closed first
			return
		}
		var asked []string
		repl := caddy.NewEmptyReplacer()
		repl.Map(func(name string) (any, bool) {
			asked = append(asked, name)
			return "", true
		})
		must.Equal(t, len(texts), len(names)+1, "%q: has %d texts around %d placeholders", template, len(texts), len(names))
		text := strings.Join(texts, "")
		must.Equal(t, repl.ReplaceAll(template, ""), text, "%q: the text around is %q, for Caddy", template, text)
		if strings.Join(names, "\x00") != strings.Join(asked, "\x00") || len(names) != len(asked) {
			t.Errorf("%q: has the placeholders %q, for Caddy %q", template, names, asked)
		}
	})
}

// TestABraceThatEndsATemplateClosesAlsoWhereItIsEscaped: Caddy's replacer does the same. An escaped brace before the last character
// closes nothing.
func TestABraceThatEndsATemplateClosesAlsoWhereItIsEscaped(t *testing.T) {
	for _, c := range []struct {
		template string
		names    []string // nil: one of its placeholders is never closed
	}{
		{`{a\}`, []string{`a\`}},
		{`{a}-{b\}`, []string{"a", `b\`}},
		{`{a\}b\}`, []string{`a\}b\`}},
		{`{a\}b}`, []string{`a\}b`}},
		{`{a\}b`, nil},
		{`{a\}bc`, nil},
	} {
		var names, asked []string
		_, err := splitPlaceholders(c.template, func(name string) error {
			names = append(names, name)
			return nil
		})
		if !slices.Equal(names, c.names) || (err == nil) != (c.names != nil) {
			t.Errorf("%s: has the placeholders %q, %v; want %q", c.template, names, err, c.names)
		}
		repl := caddy.NewEmptyReplacer()
		repl.Map(func(name string) (any, bool) {
			asked = append(asked, name)
			return "", true
		})
		repl.ReplaceAll(c.template, "")
		if !slices.Equal(asked, c.names) {
			t.Errorf("%s: Caddy has the placeholders %q; want %q", c.template, asked, c.names)
		}
	}
}

// FuzzKeysOfDifferentValuesDiffer: no client can make the key of another, whatever its header fields are.
func FuzzKeysOfDifferentValuesDiffer(f *testing.F) {
	f.Add("a", "bc", "", "ab", "c", "")
	f.Add("1:a", "b", "c", "a", "1:b", "c")
	f.Add("", "1:x", "", "1:x", "", "")
	f.Add("2:ab1", "c", "d", "ab", "1:c", "d")
	f.Add("::ffff:192.0.2.1", "", "", "192.0.2.1", "", "")
	f.Add("0::ffff:192.0.2.1", "", "", "192.0.2.1", "", "")
	f.Add("2001:DB8:0::1", "", "", "2001:db8::1", "", "")
	f.Add("[2001:db8::1]:443", "192.0.2.1:80", "", "2001:db8::1", "192.0.2.1", "")
	zones := make([]*CompiledZone, 4)
	for n := 1; n < len(zones); n++ {
		template := "user"
		for i := range n {
			template += "-{http.request.header.X-" + string(rune('A'+i)) + "}"
		}
		var err error
		if zones[n], err = (&Zone{Key: template, Requests: 5, Period: "1s"}).Compile("z", ""); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, a1, a2, a3, b1, b2, b3 string) {
		a, b := []string{a1, a2, a3}, []string{b1, b2, b3}
		for i := range a { // as they are of header fields
			a[i], b[i] = strings.TrimSpace(a[i]), strings.TrimSpace(b[i])
		}
		for n := 1; n < len(zones); n++ {
			keyA, missingA := ruleset.KeyOf(zones[n].Rule, newKeyRequest(a[:n]...), "", nil)
			keyB, _ := ruleset.KeyOf(zones[n].Rule, newKeyRequest(b[:n]...), "", nil)
			if same := sameValues(a[:n], b[:n]); (keyA == keyB) != same {
				t.Errorf("%q and %q have the keys %q and %q", a[:n], b[:n], keyA, keyB)
			}
			empty := false
			for _, value := range a[:n] {
				empty = empty || value == ""
			}
			must.Equal(t, missingA, empty, "%q: missing", a[:n])
		}
	})
}

// sameValues compares values as keys do: all spellings of an address are the same.
func sameValues(a, b []string) bool {
	for i := range a {
		if plainAddress(a[i]) != plainAddress(b[i]) {
			return false
		}
	}
	return true
}

func plainAddress(s string) string {
	if ip := match.ReadAddress(s); ip.IsValid() {
		return ip.String()
	}
	return s
}
