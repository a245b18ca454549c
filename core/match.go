package core

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Match says which requests a rule covers, where the proxy has no language of its own for it. Of the fields that are set, a
// request must meet every one; of the values in a field, one. The zero Match covers every request.
type Match struct {
	Methods      []string          // "GET"
	Hosts        []string          // without port; "*.example.com" is every name one level below
	Paths        []string          // exact
	PathPrefixes []string          // whole segments: "/v1" covers /v1 and /v1/users, not /v10
	Headers      map[string]string // each must have that value; "*" is any value
	ExceptIPs    []string          // addresses and networks of clients that are not covered
}

// Matcher is a Match made ready: immutable, safe for concurrent use.
type Matcher struct {
	methods, hosts, suffixes, paths, prefixes []string
	headers                                   []headerMatch
	except                                    []netip.Prefix
}

type headerMatch struct {
	name, value string
}

// Compile checks m and makes it ready. The error says which field and value are wrong.
func (m Match) Compile() (*Matcher, error) {
	c := &Matcher{paths: m.Paths}
	for _, method := range m.Methods {
		if method == "" {
			return nil, fmt.Errorf("match: methods: %q is not a method", method)
		}
		c.methods = append(c.methods, strings.ToUpper(method))
	}
	for _, host := range m.Hosts {
		host = strings.ToLower(host)
		name := strings.TrimPrefix(host, "*.")
		switch {
		case name == "" || strings.ContainsAny(name, "*/ "):
			return nil, fmt.Errorf("match: hosts: %q must be a host name, or *. and one", host)
		case name != host:
			c.suffixes = append(c.suffixes, host[1:])
		default:
			c.hosts = append(c.hosts, host)
		}
	}
	for _, path := range m.Paths {
		if !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("match: paths: %q must begin with /", path)
		}
	}
	for _, prefix := range m.PathPrefixes {
		if !strings.HasPrefix(prefix, "/") {
			return nil, fmt.Errorf("match: path prefixes: %q must begin with /", prefix)
		}
		c.prefixes = append(c.prefixes, strings.TrimSuffix(prefix, "/"))
	}
	for name, value := range m.Headers {
		if name == "" {
			return nil, fmt.Errorf("match: headers: a field has no name")
		}
		c.headers = append(c.headers, headerMatch{http.CanonicalHeaderKey(name), value})
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

// ParseNetwork reads a network in CIDR notation, or a single address. An IPv4-mapped IPv6 address is its IPv4.
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

// Covers reports whether the rule covers a request whose client has that address.
func (m *Matcher) Covers(r *http.Request, clientIP string) bool {
	if len(m.methods) > 0 && !contains(m.methods, r.Method) {
		return false
	}
	if len(m.hosts)+len(m.suffixes) > 0 && !m.coversHost(strings.ToLower(HostOf(r.Host))) {
		return false
	}
	if len(m.paths)+len(m.prefixes) > 0 && !m.coversPath(r.URL.Path) {
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

func hasValue(values []string, want string) bool {
	if want == "*" {
		return len(values) > 0
	}
	return contains(values, want)
}
