package ratelimit

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/tools/must"
)

// A segment of the path is one for rule files, too, which count from 1: a replay makes the same of it as Caddy. Placeholders that only Caddy has are told.
func TestASegmentOfThePathIsReplayedAsCaddyHasIt(t *testing.T) {
	for text, want := range map[string]string{
		"{http.request.uri.path.0}":                         "path_segment:1",
		"{http.request.uri.path.1}-{http.request.host}":     "path_segment:2 host",
		"{http.request.uri.path.99}":                        "path_segment:100",
		"{http.request.uri.path.100}":                       "a replay does not know {http.request.uri.path.100}", // rule files go to 100
		"{http.request.uri.path.-1}":                        "a replay does not know {http.request.uri.path.-1}",
		"{http.request.uri.path.file}":                      "a replay does not know {http.request.uri.path.file}",
		"{http.request.orig_uri.path.0}":                    "a replay does not know {http.request.orig_uri.path.0}",
		"{http.request.uri.path.0}{http.auth.user.id}":      "a replay does not know {http.auth.user.id}",
		"{http.request.uri.path}/{http.request.uri.path.2}": "path path_segment:3",
	} {
		sources, err := loggedSources(text)
		got := strings.Join(sources, " ")
		if err != nil {
			got = err.Error()
		}
		must.Equal(t, got, want, text)
		if err != nil {
			continue
		}
		for _, path := range []string{"/", "/Acme", "/acme/Orders/7", "/acme//x/"} {
			r := httptest.NewRequest("GET", "http://example.com"+path, nil)
			of, err := syntax.NewTemplate(text)
			must.Succeed(t, err)
			for i, source := range sources {
				logged, err := match.ParseSource(source)
				must.Succeed(t, err)
				must.Equal(t, logged.Value(r, ""), of.Sources[i].Value(r, ""), source, path)
			}
		}
	}
}
