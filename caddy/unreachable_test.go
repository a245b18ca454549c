package ratelimit

import (
	"crypto/tls"
	"fmt"
	"math/rand"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/tools/must"
)

func unreachableIn(t *testing.T, template, value string) string {
	t.Helper()
	k, err := syntax.NewTemplate(template)
	must.Succeed(t, err)
	tries := mostUnreachableTries
	return k.Unreachable(value, &tries)
}

// Defects found: warnings said that no request has certain values, although some have, and recommended spellings that no request
// has.
func TestAWildcardIsWarnedOfWhereItIsSureThatNobodyMeetsIt(t *testing.T) {
	for _, c := range []struct{ template, value, want string }{
		{"{http.request.uri}", "/caf%C3%A9/*", ""},
		{"{http.request.uri}", "/caf%c3%a9/*", `"/caf%c3%a9/*": requests have "/caf%C3%A9/*"`},
		{"{http.request.uri}", "/café/*", `"/café/*": requests have "/caf%C3%A9/*"`},
		{"{http.request.uri}", "/search*Token=1", ""},
		{"{http.request.uri}", "/search?*Token=1", ""},
		{"{http.request.uri}", "/Search?*Token=1", `"/Search?*Token=1": requests have "/search?*Token=1"`},
		{"{http.request.uri}", "/Search*Token=1", `"/Search*Token=1": requests have "/search*Token=1"`},
		{"{http.request.uri}", "*Api=1*", ""},
		{"{http.request.uri_escaped}", "%2Fapi%2F*", ""},
		{"{http.request.uri.path_escaped}", "%2Fapi%2F*", ""},
		{"{http.request.host}", "2001:*:*:*:*:*:*:1", ""},
		{"{http.request.uri.path.1}", "Log*", `"Log*": requests have "log*"`},
		{"{http.request.uri.path.dir}", "/a/*", ""},
		{"at-{http.request.uri.path}", "at-/Logs/*", `"at-/Logs/*": requests have "at-/logs/*"`},
		{"at-{http.request.uri.path}", "At-/Logs/*", ""},
		{"at-{http.request.uri.path}!", "at-/logs/*", ""},
		{"at-{http.request.uri.path}!", "at-//logs/*!", `"at-//logs/*!": requests have no path with //`},
		{"{http.request.host}{http.request.method}", "a*.c*T", ""},
		{"{http.request.uri} {http.request.method}", "/search*Token=1 GET", ""},
	} {
		must.Equal(t, unreachableIn(t, c.template, c.value), c.want, "%s %q", c.template, c.value)
	}
}

func TestAValueThatARequestHasIsNeverWarnedOf(t *testing.T) {
	random := rand.New(rand.NewSource(2))
	pick := func(from []string, n int) string {
		text := ""
		for ; n > 0; n-- {
			text += from[random.Intn(len(from))]
		}
		return text
	}
	var templates []string
	for _, name := range []string{"host", "hostport", "tls.server_name", "method", "uri", "uri_escaped", "uri.path_escaped", "uri.path", "uri.path.0", "uri.path.1", "uri.path.file", "uri.path.dir", "uri.path.file.base",
		"uri.path.file.ext", "orig_uri", "orig_uri.path", "host.labels.0", "host.labels.1"} {
		templates = append(templates, "{http.request."+name+"}", "A-{http.request."+name+"}-b", "{http.request.method} {http.request."+name+"}", "{http.request.header.X}{http.request."+name+"}")
	}
	var makers []*syntax.Template
	for _, text := range templates {
		k, err := syntax.NewTemplate(text)
		must.Succeed(t, err)
		makers = append(makers, k)
	}
	met := 0
	for i := 0; i < 30000; i++ {
		r := httptest.NewRequest(pick([]string{"A", "b", "T"}, 1+random.Intn(3)), "http://x/", nil)
		r.Host = pick([]string{"a", "B", ".x", "-", "1"}, random.Intn(6)) + "z" + pick([]string{"", ":80", "."}, 1)
		if random.Intn(4) == 0 {
			r.Host = "[2001:DB8:1:2::" + pick([]string{"1", "2"}, 1) + "]"
		}
		r.TLS = &tls.ConnectionState{ServerName: "S" + pick([]string{"a", "B"}, 2) + ".test"}
		r.Header.Set("X", pick([]string{"A", "b", "-", "/"}, random.Intn(4)))
		r.URL = &url.URL{Path: "/" + pick([]string{"/", "a", "B", ".", "é", "É", " ", "?", "%", "Api"}, random.Intn(8)), RawQuery: pick([]string{"", "", "Token=1", "Api=1&b=%c3%A9", "a//b/./c"}, 1)}
		if match.EscapeIn(r.URL.Path) != "" || strings.Contains(r.URL.Path, "?") { // escaped twice; sent as %3F, while a ? in a configuration is taken for a query's
			continue
		}
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), &caddyhttp.Server{})
		j := random.Intn(len(makers))
		text := makers[j].Value(r)
		value := []rune(text)
		if text == "" || strings.Contains(text, "*") || string(value) != text {
			continue
		}
		for n := random.Intn(4); n > 0; n-- {
			from := random.Intn(len(value) + 1)
			to := from + random.Intn(len(value)-from+1)
			value = append(append(append([]rune{}, value[:from]...), '*'), value[to:]...)
		}
		met++
		tries := mostUnreachableTries
		must.Equal(t, makers[j].Unreachable(string(value), &tries), "", "%s %q, which %q meets", templates[j], string(value), text)
	}
	if met < 10000 {
		t.Errorf("%d values were looked at", met)
	}
}

// Defect found: a file with thousands of values for a template with several placeholders took seconds to load.
func TestWhatALoadTriesToFindUnmetValuesIsBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString(`{"domain": "d", "descriptors": [`)
	for i := range 10000 {
		fmt.Fprintf(&text, `{"key": "k", "value": "example%d.com/some/quite/long/path/with/segments/%dPOST", "rate_limit": {"unit": "hour", "requests_per_unit": 1}},`, i, i)
	}
	text.WriteString(`{"key": "k"}]}`)
	root, problems := ruleset.ParseJSON("f", []byte(text.String()))
	if problems != nil {
		t.Fatal(problems)
	}
	file, problems := ruleset.Decode("f", root)
	if problems != nil {
		t.Fatal(problems)
	}
	set, err := ruleset.NewSet([]*ruleset.File{file}, "")
	must.Succeed(t, err)
	domain, err := set.Domain("")
	must.Succeed(t, err)
	core, logs := observer.New(zap.WarnLevel)
	h := &Handler{logger: zap.New(core)}
	spelt := 0
	for range 3 {
		k, err := syntax.NewTemplate("{http.request.host}{http.request.uri.path}{http.request.method}")
		must.Succeed(t, err)
		for i, source := range k.Sources {
			written := func(value string) (string, error) {
				spelt++
				return source.Canonicalize(value)
			}
			k.Sources[i] = match.NewSource(&syntax.Placeholder{Canonical: &syntax.CanonicalForm{Canonicalize: written, Form: syntax.FormOf(source)}})
		}
		h.descriptors = append(h.descriptors, []*syntax.Template{k})
		h.described = append(h.described, front.Descriptor{{Key: "k", Source: k.Source()}})
	}
	h.adviseDescriptors(domain)
	if spelt == 0 || spelt > 2*mostUnreachableTries {
		t.Errorf("%d texts were spelt", spelt)
	}
	must.Equal(t, logs.Len(), 0, "values are warned of, and all are met")
}
