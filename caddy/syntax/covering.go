package syntax

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/core/match"
)

// usualMethods are methods that are known to be normalized.
var usualMethods = []string{http.MethodGet, http.MethodPost, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// Covers evaluates a zone's matchers for a request. They are Caddy's. They distinguish spellings of a method, and most of them
// distinguish those of a host; none takes an empty path for "/". So they get the request with method, host and root path
// normalized. Other spellings of a path are left to them: "path" ignores such differences, and whoever writes "path_regexp" may
// want to distinguish them.
func Covers(sets caddyhttp.MatcherSets, r *http.Request) (bool, error) {
	method, host := r.Method, r.Host
	if !slices.Contains(usualMethods, method) {
		method = match.MethodOf(r)
	}
	if !isUsualHost(host) {
		host = matchedHost(host)
	}
	if method == r.Method && host == r.Host && r.URL.Path != "" && (r.TLS == nil || isUsualHost(r.TLS.ServerName)) {
		return sets.AnyMatchWithError(r)
	}
	return coversSpelt(sets, r, method, host)
}

// isUsualHost reports whether a host, with or without a port, is obviously normalized: it has no upper-case letter, no bracket, and
// no dot at its end.
func isUsualHost(hostport string) bool {
	for i := 0; i < len(hostport); i++ {
		switch c := hostport[i]; {
		case 'A' <= c && c <= 'Z' || c == '[':
			return false
		case c == '.' && (i+1 == len(hostport) || hostport[i+1] == ':'):
			return false
		case c >= 0x80: // some of these bytes are parts of letters
			return false
		}
	}
	return true
}

// matchedHost is cleanHostPort that keeps the brackets of an IPv6 address, by which matchers find its end.
func matchedHost(hostport string) string {
	host := cleanHostPort(hostport)
	if strings.HasPrefix(hostport, "[") && !strings.HasPrefix(host, "[") && strings.IndexByte(host, ':') >= 0 && match.HostOf(host) == host {
		return "[" + host + "]"
	}
	return host
}

// mostLabels is how many labels a domain name can have.
const mostLabels = 127

// coversSpelt is Covers for a request with another method, host or path. Later handlers see the originals, since an upstream may
// depend on them.
func coversSpelt(sets caddyhttp.MatcherSets, r *http.Request, method, host string) (bool, error) {
	spelt := *r
	spelt.Method = method
	spelt.Host = host
	repl := ReplacerOf(r) // expressions read their placeholders from it
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
	return sets.AnyMatchWithError(&spelt)
}

// speltPlaceholders returns the placeholders of a request with a normalized method and host.
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
