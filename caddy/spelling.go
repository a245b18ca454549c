package ratelimit

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/match"
	"github.com/proxyweir/weir/ruleset"
)

// spelling takes a placeholder that a client can write in several ways, a host, a method or a path, in the one way that limits go by.
// So another spelling is no way to another counter, as it is none with core's own sources.
type spelling struct {
	of      func(r *http.Request) string       // the value that a request has
	written func(value string) (string, error) // a value that a person has written; the error says why no request has it
	form    string                             // of its values: see ruleset.Unmet
}

// spellings are those of placeholders of http.request that have one name.
var spellings = map[string]*spelling{
	"hostport":         {func(r *http.Request) string { return cleanHostPort(r.Host) }, writtenHostPort, ruleset.Pieces},
	"tls.server_name":  {serverName, match.SpellHost, ruleset.Hosts},
	"orig_method":      {func(r *http.Request) string { return match.CleanMethod(original(r).Method) }, match.SpellMethod, ruleset.Methods},
	"uri":              {func(r *http.Request) string { return cleanURL(r.URL) }, spellURI, ruleset.URLs},
	"uri_escaped":      {func(r *http.Request) string { return url.QueryEscape(cleanURL(r.URL)) }, escaped(spellURI), ""},
	"orig_uri":         {func(r *http.Request) string { return cleanURL(original(r).URL) }, spellURI, ruleset.URLs},
	"uri.path_escaped": {func(r *http.Request) string { return url.QueryEscape(match.CleanPath(r.URL.Path)) }, escaped(rawPath), ""},
}

// spellingOf returns the spelling of a placeholder, nil for one that has only one, or that Caddy or another module makes of parts which
// Weir does not know.
func spellingOf(placeholder string) *spelling {
	name, found := strings.CutPrefix(placeholder, "http.request.")
	if !found {
		return nil
	}
	if s := spellings[name]; s != nil {
		return s
	}
	if label, found := strings.CutPrefix(name, "host.labels."); found {
		if n, err := strconv.Atoi(label); err == nil && n >= 0 {
			return &spelling{func(r *http.Request) string { return hostLabel(match.CleanHost(r.Host), n) }, writtenLabel, ruleset.Pieces}
		}
	}
	if piece, found := strings.CutPrefix(name, "uri.path"); found {
		return spellingOfPath(piece, func(r *http.Request) *url.URL { return r.URL })
	}
	if piece, found := strings.CutPrefix(name, "orig_uri.path"); found && piece != ".file.base" && piece != ".file.ext" { // which Caddy does not know
		return spellingOfPath(piece, func(r *http.Request) *url.URL { return original(r).URL })
	}
	return nil
}

// spellingOfPath returns the spelling of a path, or of the piece of it that Caddy has under a name.
func spellingOfPath(name string, of func(r *http.Request) *url.URL) *spelling {
	if name == "" {
		return &spelling{func(r *http.Request) string { return pathOf(of(r)) }, match.SpellPath, ruleset.Paths}
	}
	var piece func(path string) string
	written := writtenPiece
	switch name {
	case ".file":
		piece = func(p string) string { _, file := path.Split(p); return file }
	case ".dir":
		piece = func(p string) string { dir, _ := path.Split(p); return dir }
		written = writtenDir
	case ".file.base":
		piece = func(p string) string { return strings.TrimSuffix(path.Base(p), path.Ext(p)) }
		written = writtenBase
	case ".file.ext":
		piece = path.Ext
		written = writtenExt
	default:
		n, err := strconv.Atoi(strings.TrimPrefix(name, "."))
		if err != nil || n < 0 || !strings.HasPrefix(name, ".") {
			return nil
		}
		piece = func(p string) string { return segment(p, n) }
	}
	return &spelling{func(r *http.Request) string { return piece(pathOf(of(r))) }, written, ruleset.Pieces}
}

// escaped is a spelling of values that are escaped as a whole.
func escaped(spell func(string) (string, error)) func(string) (string, error) {
	return func(value string) (string, error) {
		plain, err := url.QueryUnescape(value)
		if err != nil {
			return "", err
		}
		plain, err = spell(plain)
		return url.QueryEscape(plain), err
	}
}

// original returns the request as it came, before anything was rewritten.
func original(r *http.Request) *http.Request {
	if or, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok && or.URL != nil {
		return &or
	}
	return r
}

func serverName(r *http.Request) string {
	if r.TLS == nil {
		return ""
	}
	return match.CleanHost(r.TLS.ServerName)
}

// cleanHostPort is match.CleanHost with the port that the client has written, if any.
func cleanHostPort(hostport string) string {
	bare := match.HostOf(hostport)
	port := ""
	if i := strings.LastIndexByte(hostport, ':'); i >= 0 && len(bare) <= i && strings.IndexByte(hostport[i:], ']') < 0 {
		port = hostport[i:]
	}
	host := match.CleanHost(bare)
	if port == ":" || port == "" {
		return host
	}
	if strings.IndexByte(host, ':') >= 0 {
		host = "[" + host + "]"
	}
	return host + port
}

// hostLabel returns a label of a host, of which the last is 0; "" where it has not so many.
func hostLabel(host string, n int) string {
	labels := strings.Split(host, ".")
	if n >= len(labels) {
		return ""
	}
	return labels[len(labels)-1-n]
}

// segment returns a segment of a path, of which the first is 0; "" where it has not so many.
func segment(path string, n int) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if n >= len(segments) {
		return ""
	}
	return segments[n]
}

func pathOf(u *url.URL) string {
	if u == nil {
		return ""
	}
	return match.CleanPath(u.Path)
}

// cleanURL returns a URL as a request's first line has it, with its path in the one spelling; the query is as it was sent.
func cleanURL(u *url.URL) string {
	if u == nil {
		return ""
	}
	if u.Opaque != "" {
		return u.RequestURI()
	}
	uri := (&url.URL{Path: match.CleanPath(u.Path)}).EscapedPath()
	if uri == "" {
		uri = "/"
	}
	if u.RawQuery != "" {
		uri += "?" + u.RawQuery
	}
	return uri
}

// spellURI returns what a person has written for a URI as cleanURL has it.
func spellURI(value string) (string, error) {
	written, query, _ := strings.Cut(value, "?")
	plain, err := url.PathUnescape(written)
	if err != nil {
		plain = written
	}
	if plain, err = rawPath(plain); err != nil {
		return "", err
	}
	return cleanURL(&url.URL{Path: plain, RawQuery: query}), nil
}

// usualMethods are those whose letters need no look.
var usualMethods = []string{http.MethodGet, http.MethodPost, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// covers asks the zone's matchers whether they cover a request. They are Caddy's, and tell the spellings of a method apart, most those of
// a host, and no path from "/": they are asked about the request in the spelling that limits go by. Other spellings of a path are left to
// them: "path" takes them for the same, and who writes "path_regexp" may want to tell them apart.
func (z *Zone) covers(r *http.Request) (bool, error) {
	method, host := r.Method, r.Host
	if !slices.Contains(usualMethods, method) {
		method = match.CleanMethod(method)
	}
	if !isUsualHost(host) {
		host = matchedHost(host)
	}
	if method == r.Method && host == r.Host && r.URL.Path != "" && (r.TLS == nil || isUsualHost(r.TLS.ServerName)) {
		return z.matcherSets.AnyMatchWithError(r)
	}
	return z.coversSpelt(r, method, host)
}

// isUsualHost reports whether a host, with its port or without, is in the one spelling by a look: no letter is in upper case, no bracket
// is there, and no dot is at the end.
func isUsualHost(hostport string) bool {
	for i := 0; i < len(hostport); i++ {
		switch c := hostport[i]; {
		case 'A' <= c && c <= 'Z' || c == '[':
			return false
		case c == '.' && (i+1 == len(hostport) || hostport[i+1] == ':'):
			return false
		case c >= 0x80: // of which some are letters
			return false
		}
	}
	return true
}

// matchedHost is cleanHostPort with an IPv6 address in brackets, where it came so: there matchers look for its end.
func matchedHost(hostport string) string {
	host := cleanHostPort(hostport)
	if strings.HasPrefix(hostport, "[") && !strings.HasPrefix(host, "[") && strings.IndexByte(host, ':') >= 0 && match.HostOf(host) == host {
		return "[" + host + "]"
	}
	return host
}

// mostLabels is how many labels a name can have.
const mostLabels = 127

// coversSpelt is covers for a request with another method, host or path. What follows sees those that it has: an upstream may go by them.
func (z *Zone) coversSpelt(r *http.Request, method, host string) (bool, error) {
	spelt := *r
	spelt.Method = method
	spelt.Host = host
	repl := replacerOf(r) // of which expressions have theirs
	for name, value := range speltPlaceholders(r, method, host) {
		repl.Set("http.request."+name, value)
		defer repl.Delete("http.request." + name)
	}
	if r.URL.Path == "" {
		root := *r.URL
		root.Path = "/"
		root.RawPath = ""
		spelt.URL = &root
	}
	if r.TLS != nil && !isUsualHost(r.TLS.ServerName) {
		state := *r.TLS
		state.ServerName = match.CleanHost(state.ServerName)
		spelt.TLS = &state
	}
	return z.matcherSets.AnyMatchWithError(&spelt)
}

// speltPlaceholders returns what placeholders have for a request in another spelling.
func speltPlaceholders(r *http.Request, method, host string) map[string]string {
	values := map[string]string{"method": method, "host": match.CleanHost(host), "hostport": host}
	if host != r.Host {
		labels := strings.Split(match.CleanHost(host), ".")
		for i := 0; i < len(labels) && i < mostLabels; i++ {
			values["host.labels."+strconv.Itoa(i)] = labels[len(labels)-1-i]
		}
	}
	if r.TLS != nil && !isUsualHost(r.TLS.ServerName) {
		values["tls.server_name"] = match.CleanHost(r.TLS.ServerName)
	}
	if r.URL.Path == "" {
		values["uri.path"] = "/"
		values["uri.path_escaped"] = "%2F"
		values["uri.path.dir"] = "/"
	}
	if or := original(r); or.URL.Path == "" {
		values["orig_uri.path"] = "/"
		values["orig_uri.path.dir"] = "/"
	}
	return values
}
