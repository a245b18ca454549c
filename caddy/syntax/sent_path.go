package syntax

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(MatchSentPath{})
}

// MatchSentPath matches requests by the path that the client has sent, in the same forms as the matcher `path`. That matcher sees
// what `try_files`, `rewrite`, `uri` and the like have made of the path, if they come first. Where a prefix was taken off the path,
// as `handle_path` does, the rest of the path matches, too.
type MatchSentPath caddyhttp.MatchPath

// CaddyModule returns the Caddy module information.
func (MatchSentPath) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.matchers.sent_path",
		New: func() caddy.Module { return new(MatchSentPath) },
	}
}

// UnmarshalCaddyfile reads the patterns. Syntax: sent_path <pattern...>
func (m *MatchSentPath) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return (*caddyhttp.MatchPath)(m).UnmarshalCaddyfile(d)
}

// Provision prepares the patterns.
func (m MatchSentPath) Provision(ctx caddy.Context) error {
	return caddyhttp.MatchPath(m).Provision(ctx)
}

// Match reports whether a request matches.
func (m MatchSentPath) Match(r *http.Request) bool {
	matches, _ := m.MatchWithError(r)
	return matches
}

// MatchWithError reports whether a request matches.
func (m MatchSentPath) MatchWithError(r *http.Request) (bool, error) {
	return sentMatcher{caddyhttp.MatchPath(m)}.MatchWithError(r)
}

// sentMatcher is a matcher that sees the path which the client has sent, and where a prefix was taken off it, also the rest.
type sentMatcher struct {
	caddyhttp.RequestMatcherWithError
}

// MatchWithError reports whether a request matches.
func (m sentMatcher) MatchWithError(r *http.Request) (bool, error) {
	sent, stripped := Readings(r)
	matches, err := m.RequestMatcherWithError.MatchWithError(sent)
	if matches || err != nil || !stripped {
		return matches, err
	}
	return m.RequestMatcherWithError.MatchWithError(r)
}

// Readings returns the request as the client has sent it, as far as the path goes; that is r itself if nothing has changed the path.
// stripped says that r's path is the end of that path: a prefix was taken off. Then a limit's path means either of the two.
func Readings(r *http.Request) (sent *http.Request, stripped bool) {
	was := r.URL
	if before, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && before.URL != nil {
		was = before.URL
	}
	path := cmp.Or(was.Path, "/") // a request line without a path asks for the root
	if path == r.URL.Path {
		return r, false
	}
	first := *r
	u := *r.URL
	u.Path, u.RawPath = path, was.RawPath
	first.URL = &u
	return &first, was.Path != "" && isRest(r.URL, was)
}

// isRest reports whether a URL's path is the end of another's, from a slash on.
func isRest(u, of *url.URL) bool {
	rest := strings.TrimPrefix(u.Path, "/")
	return strings.HasSuffix(of.Path, "/"+rest)
}

// SeeSent has the path matchers of some sets see the path that the client has sent: path, path_regexp and expression, alone and in a not.
func SeeSent(sets caddyhttp.MatcherSets) {
	for _, set := range sets {
		for i, one := range set {
			switch m := one.(type) {
			case caddyhttp.MatchPath:
				set[i] = sentMatcher{m}
			case *caddyhttp.MatchPath:
				set[i] = sentMatcher{*m}
			case *caddyhttp.MatchPathRE:
				set[i] = sentMatcher{m}
			case caddyhttp.MatchPathRE:
				set[i] = sentMatcher{m}
			case *caddyhttp.MatchExpression:
				set[i] = sentMatcher{m}
			case *caddyhttp.MatchNot:
				SeeSent(inNot(m.MatcherSets))
			case caddyhttp.MatchNot:
				SeeSent(inNot(m.MatcherSets))
			}
		}
	}
}

func inNot(sets []caddyhttp.MatcherSet) caddyhttp.MatcherSets {
	return slices.Clip(caddyhttp.MatcherSets(sets))
}

// Interface guards
var (
	_ caddy.Module                      = (*MatchSentPath)(nil)
	_ caddy.Provisioner                 = (*MatchSentPath)(nil)
	_ caddyfile.Unmarshaler             = (*MatchSentPath)(nil)
	_ caddyhttp.RequestMatcherWithError = (*MatchSentPath)(nil)
	_ caddyhttp.RequestMatcherWithError = sentMatcher{}
)
