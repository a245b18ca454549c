package match

import (
	"net/http"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// Match says which requests a rule covers, independent of a proxy's own matchers. A request must meet every field that is set: one of the
// values in each, and none of those with a ! in front. The zero Match covers every request.
type Match struct {
	Methods      []string          // "GET", in upper or lower case, as requests may have it: see CleanMethod
	Hosts        []string          // without port; "*.example.com" is every name one level below
	Paths        []string          // whole, in any of the spellings that CleanPath takes for the same; or with a *, as values of Headers
	PathPrefixes []string          // as Paths, in whole segments: "/v1" covers /v1 and /v1/users, not /v10
	Headers      map[string]string // each must have that value; or one that begins ("a*") or ends with it ("*a") or has it ("*a*"); "*" is any value, and "!*" or "" none
	Query        map[string]string // parameters of the URL, as Headers
	Cookies      map[string]string // as Headers
	ExceptIPs    []string          // addresses and networks of clients that are exempt
}

// Matcher is a compiled Match: immutable, safe for concurrent use.
type Matcher struct {
	methods, hosts, suffixes, paths, prefixes []string
	patterns                                  []pattern // of paths
	ofHost, ofPath                            bool      // there are hosts or suffixes; paths, prefixes or patterns
	headers                                   []headerMatch
	operators                                 bool           // there are not, texts, query or cookies
	not                                       *Matcher       // methods, hosts and paths that have a ! in front; nil: none
	texts                                     []namedPattern // besides headers
	query, cookies                            []namedPattern
	except                                    Networks
	exceptsPrivate                            bool // see ExceptsPrivate
}

type headerMatch struct {
	name, value string
}

// Compile checks m and returns its Matcher. The error is a words.Mistake, in the names of rule files.
func (m Match) Compile() (*Matcher, error) {
	c := &Matcher{}
	not := &Matcher{}
	for _, method := range m.Methods {
		plain, into := side(c, not, method)
		if err := checkMethod(method, plain); err != nil {
			return nil, in("methods", words.Of(err))
		}
		into.methods = append(into.methods, CleanMethod(plain))
	}
	for _, host := range m.Hosts {
		plain, into := side(c, not, host)
		if err := checkHost(host, plain); err != nil {
			return nil, in("hosts", words.Of(err))
		}
		plain = plainHost(plain)
		if strings.HasPrefix(plain, "*.") {
			into.suffixes = append(into.suffixes, plain[1:])
		} else {
			into.hosts = append(into.hosts, plain)
		}
	}
	for _, path := range m.Paths {
		plain, into := side(c, not, path)
		if err := into.addPath(path, plain); err != nil {
			return nil, in("paths", words.Of(err))
		}
	}
	for _, prefix := range m.PathPrefixes {
		plain, into := side(c, not, prefix)
		if err := checkPath(prefix, plain); err != nil {
			return nil, in("path_prefixes", words.Of(err))
		}
		into.prefixes = append(into.prefixes, strings.TrimSuffix(CleanPath(plain), "/"))
	}
	names := make(map[string]bool)
	for name, value := range m.Headers {
		canonical, err := headerName(name)
		if err != nil {
			return nil, in("headers", words.Of(err))
		}
		if canonical == "Host" {
			return nil, in("headers", words.Wrong("", "Host", "is not among the fields of a request; write hosts"))
		}
		if names[canonical] {
			return nil, in("headers", words.Wrong("", canonical, "duplicate, in upper and lower case; keep one"))
		}
		names[canonical] = true
		p, err := headerPatternOf(canonical, value)
		if err != nil {
			return nil, in("headers", words.Of(err).Within("", canonical))
		}
		switch {
		case p.not || p.operator != exactly && p.operator != present:
			c.texts = append(c.texts, namedPattern{canonical, p})
		case p.operator == present:
			c.headers = append(c.headers, headerMatch{canonical, "*"})
		default:
			c.headers = append(c.headers, headerMatch{canonical, p.text})
		}
	}
	var err error
	if c.query, err = namedPatterns("query", "query", m.Query); err != nil {
		return nil, err
	}
	if c.cookies, err = namedPatterns("cookies", "cookie", m.Cookies); err != nil {
		return nil, err
	}
	var except []netip.Prefix
	for _, s := range m.ExceptIPs {
		network, err := ParseNetwork(s)
		if err != nil {
			return nil, in("except_ips", words.Of(err))
		}
		except = append(except, network)
		c.exceptsPrivate = c.exceptsPrivate || isPrivate(network)
	}
	c.except = NewNetworks(except)
	c.finish()
	not.finish()
	if len(not.methods) > 0 || not.ofHost || not.ofPath {
		c.not = not
	}
	c.operators = c.not != nil || len(c.texts)+len(c.query)+len(c.cookies) > 0
	return c, nil
}

// in returns what is wrong with a field.
func in(field string, wrong *words.Mistake) *words.Mistake {
	return wrong.Within(field, "").Within("match", "")
}

// side returns a value without its !, and the Matcher into which it goes: not if it has one.
func side(c, not *Matcher, value string) (plain string, into *Matcher) {
	plain = strings.TrimPrefix(value, "!")
	into = c
	if plain != value {
		into = not
	}
	return plain, into
}

func (m *Matcher) finish() {
	m.ofHost = len(m.hosts)+len(m.suffixes) > 0
	m.ofPath = len(m.paths)+len(m.prefixes)+len(m.patterns) > 0
}

// addPath adds one of Paths. written is the value with its !, if it has one.
func (m *Matcher) addPath(written, value string) error {
	if strings.HasPrefix(value, "=") || strings.IndexByte(value, '*') < 0 {
		if err := checkPath(written, strings.TrimPrefix(value, "=")); err != nil {
			return err
		}
		m.paths = append(m.paths, CleanPath(strings.TrimPrefix(value, "=")))
		return nil
	}
	one, err := parsePattern(value)
	if err != nil {
		return err
	}
	if one.operator == present {
		return words.Wrong("", strconv.Quote(written), " is any path; leave paths out")
	}
	text := one.text
	if one.operator != begins { // which need not begin with a slash
		text = "/" + strings.TrimPrefix(text, "/")
	}
	if err = checkPath(written, text); err == nil && one.operator != begins && CleanPath(text) != strings.ToLower(text) {
		err = words.Wrong("", strconv.Quote(written), " has what requests are matched without: a doubled slash, or a dot segment")
	}
	if err != nil {
		return err
	}
	if one.operator == begins {
		one.text = CleanPath(one.text)
	}
	one.text = strings.ToLower(one.text)
	m.patterns = append(m.patterns, one)
	return nil
}

// CleanMethod returns a method in its canonical spelling: upper case. HTTP distinguishes "post" from "POST", and proxies pass it on
// unchanged. But many applications treat both alike, so "post" would get round a limit of POST.
func CleanMethod(method string) string { return strings.ToUpper(method) }

// MethodOf returns the method that the service gets, as CleanMethod spells it. A WebSocket that begins with CONNECT, over HTTP/2 (RFC 8441) or
// HTTP/3 (RFC 9220), reaches it as a GET. Go's servers have the protocol of such a request in a field, or in Proto.
func MethodOf(r *http.Request) string {
	if r.Method == http.MethodConnect && (r.ProtoMajor == 3 && r.Proto == "websocket" || r.ProtoMajor == 2 && r.Header.Get(":protocol") == "websocket") {
		return http.MethodGet
	}
	return strings.ToUpper(r.Method)
}

// CleanHost returns the host of a request in its canonical spelling: without port, in lower case, without the dot that may end a name, and an
// IPv6 address without brackets.
func CleanHost(host string) string { return plainHost(HostOf(host)) }

// plainHost returns a host in lower case, without the dot that may end it, and an IPv6 address without brackets.
func plainHost(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return host
}

// HostOf returns the host of "host:port", of "[host]:port", or of a host without a port.
func HostOf(hostport string) string {
	i := strings.LastIndexByte(hostport, ':')
	if i >= 0 && strings.IndexByte(hostport, ':') == i || i > 0 && hostport[i-1] == ']' {
		hostport = hostport[:i]
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}

// CleanPath returns a path in its canonical spelling: in lower case, without empty segments and without dot segments. So nobody gets round a
// limit by another spelling that the proxy or the server behind it treats as the same path. A slash at the end is kept, since it makes a
// different path. An empty path ("GET http://example.com HTTP/1.1") is "/", as proxies send it on; "*", which OPTIONS may have, is not a
// path, and stays.
func CleanPath(p string) string {
	if p == "" {
		return "/"
	}
	if strings.HasPrefix(p, "/") && (strings.Contains(p, "//") || strings.Contains(p, "/.")) {
		ended := strings.HasSuffix(p, "/") || strings.HasSuffix(p, "/.") || strings.HasSuffix(p, "/..")
		p = path.Clean(p)
		if ended && p != "/" {
			p += "/"
		}
	}
	return strings.ToLower(p)
}

// Excepts reports whether ExceptIPs has the whole network, so that all its clients are exempt.
func (m *Matcher) Excepts(network netip.Prefix) bool {
	return containsAll(m.except, network)
}

// ExceptsSome reports whether ExceptIPs has any address of the network.
func (m *Matcher) ExceptsSome(network netip.Prefix) bool {
	return containsSome(m.except, network)
}

// Covers reports whether the rule covers a request whose client has that address.
func (m *Matcher) Covers(r *http.Request, clientIP string) bool {
	path := ""
	if m.ReadsPath() {
		path = CleanPath(r.URL.Path)
	}
	return Covers(m, r, path, clientIP)
}

// ReadsPath reports whether the path of a request matters.
func (m *Matcher) ReadsPath() bool { return m.ofPath || m.not != nil && m.not.ofPath }

// Covers is Matcher.Covers for callers that have the request's CleanPath already, because they evaluate many matchers.
func Covers(m *Matcher, r *http.Request, path, clientIP string) bool {
	// Most methods come as they are written here; only if none matches is it looked what the service gets.
	if len(m.methods) > 0 && !contains(m.methods, r.Method) && !contains(m.methods, MethodOf(r)) {
		return false
	}
	if m.ofHost && !m.coversHost(plainHost(HostOf(r.Host))) {
		return false
	}
	if m.ofPath && !m.coversPath(path) {
		return false
	}
	if m.operators && !coversOperators(m, r, path) {
		return false
	}
	for i := range m.headers {
		if !hasValue(r.Header[m.headers[i].name], m.headers[i].value) {
			return false
		}
	}
	if len(m.except) > 0 {
		ip, err := netip.ParseAddr(clientIP)
		if err != nil {
			ip = dressedAddress(clientIP)
		}
		return !ip.IsValid() || !Contains(m.except, ip)
	}
	return true
}

// CoversCaller is Covers for a request that asks for the quotas of its own client: it ignores methods, paths and parameters.
func CoversCaller(m *Matcher, r *http.Request, clientIP string) bool {
	caller := Matcher{hosts: m.hosts, suffixes: m.suffixes, ofHost: m.ofHost, headers: m.headers, operators: m.operators, texts: m.texts, cookies: m.cookies, except: m.except}
	if m.not != nil {
		caller.not = &Matcher{hosts: m.not.hosts, suffixes: m.not.suffixes, ofHost: m.not.ofHost}
	}
	return Covers(&caller, r, "", clientIP)
}

// coversOperators reports whether a request meets the values with operators, of fields besides patterns.
func coversOperators(m *Matcher, r *http.Request, path string) bool {
	if not := m.not; not != nil {
		if len(not.methods) > 0 && contains(not.methods, MethodOf(r)) {
			return false
		}
		if not.ofHost && not.coversHost(plainHost(HostOf(r.Host))) {
			return false
		}
		if not.ofPath && not.coversPath(path) {
			return false
		}
	}
	for i := range m.texts {
		if !meets(r.Header[m.texts[i].name], &m.texts[i].value) {
			return false
		}
	}
	return (len(m.query) == 0 || meetAll(r.URL.Query(), m.query)) && (len(m.cookies) == 0 || meetAll(cookiesOf(r), m.cookies))
}

// ExceptsPrivate reports whether ExceptIPs has a network with private, loopback or link-local addresses. A single address does not
// count: its author knows whose it is.
func (m *Matcher) ExceptsPrivate() bool { return m.exceptsPrivate }

// isPrivate reports whether a network, and not a single address, has private addresses.
func isPrivate(network netip.Prefix) bool {
	if network.IsSingleIP() {
		return false
	}
	for _, private := range privateNetworks {
		if network.Overlaps(private) {
			return true
		}
	}
	return false
}

// privateNetworks are those of RFC 1918, 4193 and 6598, loopback and link-local.
var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10"),
}

func (m *Matcher) coversHost(host string) bool {
	if contains(m.hosts, host) {
		return true
	}
	dot := strings.IndexByte(host, '.')
	return dot > 0 && contains(m.suffixes, host[dot:])
}

func (m *Matcher) coversPath(path string) bool {
	if contains(m.paths, path) {
		return true
	}
	for _, p := range m.prefixes {
		if strings.HasPrefix(path, p) && (len(path) == len(p) || path[len(p)] == '/') {
			return true
		}
	}
	for i := range m.patterns {
		if m.patterns[i].fits(path) {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for i := range list {
		if list[i] == s {
			return true
		}
	}
	return false
}

func hasValue(values []string, want string) bool {
	if len(values) > manyValues {
		return true
	}
	if want != "*" {
		return contains(values, want)
	}
	for i := range values {
		if values[i] != "" {
			return true
		}
	}
	return false
}
