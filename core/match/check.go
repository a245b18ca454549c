package match

import (
	"net/http"
	"net/netip"
	"sort"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// knownMethods are the methods of HTTP and WebDAV, and those of caches.
var knownMethods = []string{
	"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY", "PRI", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "SEARCH",
	"BIND", "UNBIND", "REBIND", "ACL", "REPORT", "MERGE", "CHECKIN", "CHECKOUT", "UNCHECKOUT", "MKACTIVITY", "MKWORKSPACE", "MKCALENDAR", "MKREDIRECTREF", "UPDATEREDIRECTREF",
	"UPDATE", "LABEL", "LINK", "UNLINK", "ORDERPATCH", "BASELINE-CONTROL", "VERSION-CONTROL", "PURGE", "BAN", "REFRESH", "LIST", "SUBSCRIBE", "UNSUBSCRIBE", "NOTIFY", "M-SEARCH",
}

// checkMethod says why no request could have a method. written is the value with its !, if it has one.
func checkMethod(written, method string) error {
	if contains([]string{"*", "ANY", "ALL"}, CleanMethod(method)) {
		return words.Wrong("", strconv.Quote(written), " is not a method; leave methods out for all of them")
	}
	if method == "" || strings.Trim(method, words.NameBytes) != "" {
		return words.Wrong("", strconv.Quote(written), " is not a method; write one such as POST, each for itself, or !POST for all others")
	}
	return nil
}

// checkHost says why no request could be for a host. written is the value with its !, if it has one.
func checkHost(written, host string) error {
	name := strings.TrimPrefix(host, "*.")
	if !isASCII(name) {
		return words.Wrong("", strconv.Quote(written), " must be written as it is sent, in Punycode: xn--…")
	}
	plain := plainHost(name)
	if plain == "" || strings.ContainsAny(plain, "*/ []?#@") || HostOf(plain) != plain || !isHost(plain) || strings.HasPrefix(plain, ".") || strings.ContainsAny(plain, "~^$(){}") {
		return words.Wrong("", strconv.Quote(written), " must be a host name without port, or *. and one%s", hostHint(host))
	}
	if contains(knownMethods, host) {
		return words.Wrong("", strconv.Quote(written), " is a method; write it in methods")
	}
	return nil
}

// hostHint says what to write in place of a text that has a host; "": it has none.
func hostHint(text string) string {
	if strings.HasPrefix(text, ".") && isHost(text[1:]) {
		return "; write *" + text + ", and " + text[1:] + " itself, if it is meant, too"
	}
	if _, behind, found := strings.Cut(text, "://"); found {
		text = behind
	}
	text = text[strings.LastIndexByte(text, '@')+1:]
	if end := strings.IndexAny(text, "/?#"); end >= 0 {
		text = text[:end]
	}
	host := CleanHost(text)
	if !isHost(strings.TrimPrefix(host, "*.")) || strings.ContainsAny(host, "~^$(){}") {
		return ""
	}
	return "; write " + host
}

// checkPath says why no request could have a path, or the beginning of one. written is the value with its !, if it has one.
func checkPath(written, path string) error {
	if _, behind, found := strings.Cut(path, "://"); found {
		own := "/"
		if i := strings.IndexByte(behind, '/'); i >= 0 {
			own = behind[i:]
		}
		return words.Wrong("", strconv.Quote(written), " must begin with /; it is a URL: write %s, and its host in hosts", own)
	}
	if err := checkRegexp(path); err != nil {
		return words.Of(err).Within("", strconv.Quote(written))
	}
	if !strings.HasPrefix(path, "/") {
		return words.Wrong("", strconv.Quote(written), " must begin with /")
	}
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return words.Wrong("", strconv.Quote(written), " must be a path alone, which ends before %s; write %s", path[i:i+1], path[:i])
	}
	if strings.IndexByte(path, '*') >= 0 {
		return words.Wrong("", strconv.Quote(written), " covers all that is below it, without a *; write it as /v1")
	}
	if escape := EscapeIn(path); escape != "" {
		return words.Wrong("", strconv.Quote(written), " must be written decoded, without %s", escape)
	}
	if i := strings.Index(path, "/{"); i >= 0 && strings.IndexByte(path[i:], '}') > 0 {
		return words.Wrong("", strconv.Quote(written), " is a template, and paths have no names in braces; write %q in paths, or %s in `path_prefixes`", path[:i+1]+"*", path[:i+1])
	}
	return nil
}

// headerPatternOf reads the value of a header field.
func headerPatternOf(name, value string) (pattern, error) {
	if value == "" {
		return pattern{operator: present, not: true}, nil
	}
	p, err := parsePattern(value)
	if err != nil {
		return p, err
	}
	if p.operator == exactly && p.text != strings.TrimSpace(p.text) {
		return p, words.Wrong("", strconv.Quote(value), " has blanks around it, which a request has not")
	}
	for i := 0; i < len(p.text); i++ {
		if c := p.text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return p, words.Wrong("", strconv.Quote(value), " has a control character, which a request has not")
		}
	}
	if p.operator == within && strings.Trim(p.text, "/+=, ") == "" {
		return p, words.Wrong("", strconv.Quote(value), " would be every value that has %q; write \"=%s\" for the text as it is, or \"*\" for any value", p.text, value)
	}
	if name == "Content-Type" && p.operator == exactly && strings.IndexByte(p.text, ';') < 0 && !strings.HasPrefix(strings.TrimPrefix(value, "!"), "=") {
		p.operator = mediaType
	}
	return p, nil
}

// listFields are header fields whose values usually are lists, or have more in front or behind, with an example of what is meant.
var listFields = map[string]string{
	"Accept": "*text/html*", "Accept-Language": "de*", "Accept-Encoding": "*gzip*", "Cookie": "*session=*", "Forwarded": "*for=*", "Via": "*proxy*", "X-Forwarded-For": "203.0.113.*",
	"Cache-Control": "*no-cache*", "Connection": "*Upgrade*",
}

// Advice returns what is valid in a Match that compiles, but most likely covers no request, or other requests than are meant.
func (m Match) Advice() []*words.Mistake {
	var list []*words.Mistake
	for _, method := range m.Methods {
		plain := CleanMethod(strings.TrimPrefix(method, "!"))
		if near := words.Nearest(plain, knownMethods); !contains(knownMethods, plain) && near != "" && len(near)-len(plain) < 2 && len(plain)-len(near) < 2 {
			list = append(list, in("methods", words.Wrong("", strconv.Quote(method), " is no method that HTTP knows").Guess(near)))
		}
	}
	for _, path := range append(append([]string(nil), m.Paths...), m.PathPrefixes...) {
		if strings.Contains(path, "/:") {
			list = append(list, words.Wrong("match", "", "%q has a colon behind a slash, and is compared as it is; for any text in that place write %q in paths", path, path[:strings.Index(path, "/:")+1]+"*"))
		}
	}
	names := make([]string, 0, len(m.Headers))
	for name := range m.Headers {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if advice := headerAdvice(http.CanonicalHeaderKey(name), m.Headers[name]); advice != nil {
			list = append(list, in("headers", advice.Within("", name)))
		}
	}
	return list
}

// headerAdvice says why the value of a header field most likely fits no request; nil: it may.
func headerAdvice(name, value string) *words.Mistake {
	var none *words.Mistake
	p, err := headerPatternOf(name, value)
	if err != nil || p.operator != exactly || strings.HasPrefix(strings.TrimPrefix(value, "!"), "=") {
		return none
	}
	part := words.Wrong("", strconv.Quote(value), " is compared with the whole value; for a part of it write \"*%s*\"", p.text)
	switch {
	case name == "User-Agent" && !strings.ContainsAny(p.text, "/ "):
		return part
	case listFields[name] != "" && strings.IndexByte(p.text, ',') < 0:
		return part.And(", such as %q", listFields[name])
	case name == "Authorization" && strings.IndexByte(p.text, ' ') < 0 && contains([]string{"bearer", "basic", "digest", "negotiate"}, strings.ToLower(p.text)):
		return words.Wrong("", strconv.Quote(value), " is compared with the whole value; write \"%s *\" for all of that scheme", p.text)
	case (name == "Origin" || name == "Referer") && p.text != "null" && !strings.Contains(p.text, ":"):
		return words.Wrong("", strconv.Quote(value), " is compared with the whole value, which begins with https:// or another scheme; write \"*%s\" or \"*%s*\"", p.text, p.text)
	}
	if network, err := netip.ParsePrefix(p.text); err == nil && network.Bits() > 0 {
		return words.Wrong("", strconv.Quote(value), " is compared as a text, and not as a network; clients are exempted by address in `except_ips`")
	}
	return none
}
