package match

import (
	"fmt"
	"net/http"
	"net/netip"
	"path"
	"strings"
)

// Match says which requests a rule covers, independent of a proxy's own matchers. A request must meet every field that is set, and one of the
// values in each. The zero Match covers every request.
type Match struct {
	Methods      []string          // "GET", in upper or lower case, as requests may have it: see CleanMethod
	Hosts        []string          // without port; "*.example.com" is every name one level below
	Paths        []string          // whole, in any of the spellings that CleanPath takes for the same
	PathPrefixes []string          // as Paths, in whole segments: "/v1" covers /v1 and /v1/users, not /v10
	Headers      map[string]string // each must have that value; "*" is any value
	ExceptIPs    []string          // addresses and networks of clients that are exempt
}

// Matcher is a compiled Match: immutable, safe for concurrent use.
type Matcher struct {
	methods, hosts, suffixes, paths, prefixes []string
	headers                                   []headerMatch
	except                                    []netip.Prefix
}

type headerMatch struct {
	name, value string
}

// Compile checks m and returns its Matcher. The error says which field and value are wrong.
func (m Match) Compile() (*Matcher, error) {
	c := &Matcher{}
	for _, method := range m.Methods {
		if !isToken(method) {
			return nil, fmt.Errorf("match: methods: %q is not a method; write one such as POST, each for itself", method)
		}
		c.methods = append(c.methods, CleanMethod(method))
	}
	for _, host := range m.Hosts {
		if err := checkHost(host); err != nil {
			return nil, err
		}
		host = plainHost(host)
		if strings.HasPrefix(host, "*.") {
			c.suffixes = append(c.suffixes, host[1:])
		} else {
			c.hosts = append(c.hosts, host)
		}
	}
	for _, path := range m.Paths {
		if err := checkPath("paths", path); err != nil {
			return nil, err
		}
		c.paths = append(c.paths, CleanPath(path))
	}
	for _, prefix := range m.PathPrefixes {
		if err := checkPath("path prefixes", prefix); err != nil {
			return nil, err
		}
		c.prefixes = append(c.prefixes, strings.TrimSuffix(CleanPath(prefix), "/"))
	}
	for name, value := range m.Headers {
		if !isToken(name) {
			return nil, fmt.Errorf("match: headers: %q cannot be the name of a header field", name)
		}
		name = http.CanonicalHeaderKey(name)
		if name == "Host" {
			return nil, fmt.Errorf("match: headers: Host: is not among the fields of a request; write hosts")
		}
		for i := range c.headers {
			if c.headers[i].name == name {
				return nil, fmt.Errorf("match: headers: %s: duplicate, in upper and lower case; keep one", name)
			}
		}
		c.headers = append(c.headers, headerMatch{name, value})
	}
	for _, s := range m.ExceptIPs {
		network, err := ParseNetwork(s)
		if err != nil {
			return nil, fmt.Errorf("match: except IPs: %w", err)
		}
		c.except = append(c.except, network)
	}
	return c, nil
}

// checkHost says why no request could be for a host.
func checkHost(host string) error {
	name := strings.TrimPrefix(host, "*.")
	if !isASCII(name) {
		return fmt.Errorf("match: hosts: %q must be written as it is sent, in Punycode: xn--…", host)
	}
	plain := plainHost(name)
	if plain == "" || strings.ContainsAny(plain, "*/ []") || HostOf(plain) != plain {
		return fmt.Errorf("match: hosts: %q must be a host name without port, or *. and one", host)
	}
	return nil
}

// CleanMethod returns a method in its canonical spelling: upper case. HTTP distinguishes "post" from "POST", and proxies pass it on
// unchanged. But many applications treat both alike, so "post" would get round a limit of POST.
func CleanMethod(method string) string { return strings.ToUpper(method) }

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

// checkPath says why no request could have a path.
func checkPath(field, path string) error {
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("match: %s: %q must begin with /", field, path)
	}
	if strings.ContainsAny(path, "*?#") {
		if field == "paths" {
			return fmt.Errorf("match: paths: %q must be a path as it is; what is below one is covered by a path prefix, without a *", path)
		}
		return fmt.Errorf("match: %s: %q covers all that is below it, without a *; write it as /v1", field, path)
	}
	if escape := EscapeIn(path); escape != "" {
		return fmt.Errorf("match: %s: %q must be written decoded, without %s", field, path, escape)
	}
	return nil
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
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

// ParseNetwork reads a network in CIDR notation, or a single address. An IPv4-mapped IPv6 address counts as IPv4.
func ParseNetwork(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		ip, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%q must be an address or a network such as 10.0.0.0/8", s)
		}
		ip = ip.Unmap().WithZone("")
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q must be an address or a network such as 10.0.0.0/8", s)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%q mixes IPv4 and IPv6 addresses", s)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// Excepts reports whether one of the networks in ExceptIPs contains the whole network, so that all its clients are exempt.
func (m *Matcher) Excepts(network netip.Prefix) bool {
	for i := range m.except {
		if m.except[i].Bits() <= network.Bits() && m.except[i].Contains(network.Addr()) {
			return true
		}
	}
	return false
}

// Covers reports whether the rule covers a request whose client has that address.
func (m *Matcher) Covers(r *http.Request, clientIP string) bool {
	path := ""
	if len(m.paths)+len(m.prefixes) > 0 {
		path = CleanPath(r.URL.Path)
	}
	return Covers(m, r, path, clientIP)
}

// Covers is Matcher.Covers for callers that have the request's CleanPath already, because they evaluate many matchers.
func Covers(m *Matcher, r *http.Request, path, clientIP string) bool {
	// Most methods come in upper case already; only if none matches are they compared in upper case.
	if len(m.methods) > 0 && !contains(m.methods, r.Method) && !contains(m.methods, strings.ToUpper(r.Method)) {
		return false
	}
	if len(m.hosts)+len(m.suffixes) > 0 && !m.coversHost(plainHost(HostOf(r.Host))) {
		return false
	}
	if len(m.paths)+len(m.prefixes) > 0 && !m.coversPath(path) {
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
			return true
		}
		ip = ip.Unmap().WithZone("")
		for i := range m.except {
			if m.except[i].Contains(ip) {
				return false
			}
		}
	}
	return true
}

// CoversCaller is Covers for a request that asks for the quotas of its own client: it ignores methods and paths.
func CoversCaller(m *Matcher, r *http.Request, clientIP string) bool {
	caller := Matcher{hosts: m.hosts, suffixes: m.suffixes, headers: m.headers, except: m.except}
	return Covers(&caller, r, "", clientIP)
}

// ExceptsPrivate reports whether ExceptIPs has a network with private, loopback or link-local addresses. A single address does not
// count: its author knows whose it is.
func (m *Matcher) ExceptsPrivate() bool {
	for i := range m.except {
		p := m.except[i]
		if p.IsSingleIP() {
			continue
		}
		for _, private := range privateNetworks {
			if p.Overlaps(private) {
				return true
			}
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

// manyValues is how often a request may send a field for its values to be compared. A field that is sent more often matches any value: its
// sender wants to get round a limit, or to make it costly.
const manyValues = 64

func hasValue(values []string, want string) bool {
	if want == "*" || len(values) > manyValues {
		return len(values) > 0
	}
	return contains(values, want)
}
