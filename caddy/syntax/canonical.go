package syntax

import (
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// CanonicalForm normalizes a placeholder that a client can write in several ways: a host, a method or a path. So another spelling does
// not reach another counter. The sources of package match do the same.
type CanonicalForm struct {
	of           func(r *http.Request) string       // the normalized value of a request
	Canonicalize func(value string) (string, error) // normalizes a value that a person has written; the error says why no request has it
	Form         string                             // the form of its values; see ruleset.Unreachable
}

// canonicalForms has the placeholders of http.request by their names.
var canonicalForms = map[string]*CanonicalForm{
	"hostport":         {func(r *http.Request) string { return cleanHostPort(r.Host) }, writtenHostPort, ruleset.Pieces},
	"tls.server_name":  {serverName, match.SpellHost, ruleset.Hosts},
	"orig_method":      {func(r *http.Request) string { return match.MethodOf(original(r)) }, match.SpellMethod, ruleset.Methods},
	"uri":              {func(r *http.Request) string { return cleanURL(r.URL) }, spellURI, ruleset.URLs},
	"uri_escaped":      {func(r *http.Request) string { return url.QueryEscape(cleanURL(r.URL)) }, escaped(spellURI), ""},
	"orig_uri":         {func(r *http.Request) string { return cleanURL(original(r).URL) }, spellURI, ruleset.URLs},
	"uri.path_escaped": {func(r *http.Request) string { return url.QueryEscape(match.CleanPath(r.URL.Path)) }, escaped(rawPath), ""},
}

// canonicalFormOf returns the spelling of a placeholder. It is nil for a placeholder that has only one spelling, or whose parts Weir
// does not know, since Caddy or another module makes it.
func canonicalFormOf(placeholder string) *CanonicalForm {
	name, found := strings.CutPrefix(placeholder, "http.request.")
	if !found {
		return nil
	}
	if s := canonicalForms[name]; s != nil {
		return s
	}
	if label, found := strings.CutPrefix(name, "host.labels."); found {
		if n, err := strconv.Atoi(label); err == nil && n >= 0 {
			return &CanonicalForm{func(r *http.Request) string { return hostLabel(match.CleanHost(r.Host), n) }, writtenLabel, ruleset.Pieces}
		}
	}
	if piece, found := strings.CutPrefix(name, "uri.path"); found {
		return canonicalFormOfPath(piece, func(r *http.Request) *url.URL { return r.URL })
	}
	if piece, found := strings.CutPrefix(name, "orig_uri.path"); found && piece != ".file.base" && piece != ".file.ext" { // Caddy has no such placeholder
		return canonicalFormOfPath(piece, func(r *http.Request) *url.URL { return original(r).URL })
	}
	return nil
}

// canonicalFormOfPath returns the spelling of a path, or of the piece of it that Caddy gives that name.
func canonicalFormOfPath(name string, of func(r *http.Request) *url.URL) *CanonicalForm {
	if name == "" {
		return &CanonicalForm{func(r *http.Request) string { return pathOf(of(r)) }, match.CanonicalizePath, ruleset.Paths}
	}
	var piece func(path string) string
	written := match.SpellSegment
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
		piece = func(p string) string { return match.Segment(p, n) }
	}
	return &CanonicalForm{func(r *http.Request) string { return piece(pathOf(of(r))) }, written, ruleset.Pieces}
}

// escaped returns a spelling of values that are escaped as a whole.
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

// original returns the request as it came, before any rewrite.
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

// cleanHostPort is match.CleanHost that keeps the port, if the client has written one.
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

// hostLabel returns the label of a host with number n, where the last label is 0; "" if there is none.
func hostLabel(host string, n int) string {
	labels := strings.Split(host, ".")
	if n >= len(labels) {
		return ""
	}
	return labels[len(labels)-1-n]
}

func pathOf(u *url.URL) string {
	if u == nil {
		return ""
	}
	return match.CleanPath(u.Path)
}

// cleanURL returns a URL as in a request's first line, with its path normalized; the query is unchanged.
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

// spellURI returns a URI that a person has written in the form of cleanURL.
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

// What follows normalizes values that a person has written for a placeholder, in a configuration or for the admin API, to the spelling that
// requests have. The errors begin with the value in quotation marks, and say why no request has it and what would be right.

// writtenHostPort normalizes a host, with the port if clients write one.
func writtenHostPort(value string) (string, error) {
	if _, err := match.SpellHost(value); err != nil {
		return "", err
	}
	return cleanHostPort(value), nil
}

// writtenLabel normalizes one label of a host.
func writtenLabel(value string) (string, error) {
	label, err := match.SpellHost(value)
	if err != nil || strings.Contains(value, ".") {
		return "", words.Wrong("", strconv.Quote(value), "must be one label of a host, such as the shop of shop.example, and has no dot")
	}
	return label, nil
}

// writtenBase normalizes a file name without its extension; it is / for a path without a file name.
func writtenBase(value string) (string, error) {
	if value == "/" {
		return value, nil
	}
	return match.SpellSegment(value)
}

// writtenExt normalizes the extension of a file name.
func writtenExt(value string) (string, error) {
	if !strings.HasPrefix(value, ".") || strings.ContainsAny(value[1:], "./") {
		return "", words.Wrong("", strconv.Quote(value), "must be the last extension of a file with its dot, such as .html")
	}
	return match.SpellDecoded(value)
}

// writtenDir normalizes a path up to its last slash.
func writtenDir(value string) (string, error) {
	if !strings.HasPrefix(value, "/") || !strings.HasSuffix(value, "/") {
		return "", words.Wrong("", strconv.Quote(value), "must be a directory of a path, which begins and ends with /")
	}
	return match.CanonicalizePath(value)
}

// rawPath normalizes a path that has been decoded: what looks escaped in it was escaped twice.
func rawPath(value string) (string, error) {
	if !strings.HasPrefix(value, "/") && value != "*" {
		return match.CanonicalizePath(value) // its error says what is wrong
	}
	return match.CleanPath(value), nil
}

// checkWritten says why no request has a value for a placeholder without spellings, if all its values are known.
func checkWritten(placeholder, value string) error {
	switch placeholder {
	case "http.request.remote.port":
		port, err := strconv.Atoi(value)
		if err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != value {
			return words.Wrong("", strconv.Quote(value), "must be a port, 1 to 65535")
		}
	case "http.request.scheme":
		if value != "http" && value != "https" {
			return words.Wrong("", strconv.Quote(value), "must be http or https")
		}
	}
	return nil
}
