package match

import (
	"net"
	"net/http"
	"net/netip"
	"sort"
	"strings"
)

// CoversFunc returns a function that returns Covers. A function that is made for one matcher costs an interpreter less, and it searches lists in a time
// that does not grow with them. client returns the client's address; nil: it is the connection's. noted, if it is not nil, gets each request whose
// client is exempt, or has no address, which is told.
func (m *Matcher) CoversFunc(client func(r *http.Request) string, noted func(r *http.Request, address string)) func(r *http.Request) bool {
	var parts []func(r *http.Request) bool
	not := m.not
	if not == nil {
		not = &Matcher{}
	}
	if len(m.methods)+len(not.methods) > 0 {
		parts = append(parts, coversMethods(alone(&Matcher{methods: m.methods}, &Matcher{methods: not.methods})))
	}
	if m.ofHost || not.ofHost {
		parts = append(parts, coversHosts(alone(&Matcher{hosts: m.hosts, suffixes: m.suffixes}, &Matcher{hosts: not.hosts, suffixes: not.suffixes})))
	}
	if m.ofPath || not.ofPath {
		parts = append(parts, coversPaths(m, not))
	}
	for i := range m.headers {
		parts = append(parts, coversHeader(m.headers[i].name, m.headers[i].value))
	}
	for i := range m.texts {
		parts = append(parts, coversText(m.texts[i].name, &m.texts[i].value))
	}
	if len(m.query)+len(m.cookies) > 0 {
		named := &Matcher{query: m.query, cookies: m.cookies}
		parts = append(parts, func(r *http.Request) bool { return coversOperators(named, r, "") })
	}
	if len(m.except) > 0 {
		parts = append(parts, coversClients(m.except, client, noted))
	}
	return coversAll(parts)
}

// Gate returns a handler that passes requests which the matcher covers to covered, and others to other. client and noted are those of CoversFunc, which it
// does in the same function if the matcher has nothing but exempt clients, told apart by the connection's address.
func (m *Matcher) Gate(client func(r *http.Request) string, noted func(r *http.Request, address string), covered, other http.Handler) http.Handler {
	if client == nil && m.exceptsOnly() {
		except := m.except
		covers := func(r *http.Request) bool { return coversClient(except, connected(r.RemoteAddr), r, noted) }
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			if sort.SearchStrings(except, string(net.ParseIP(host)))&1 == 0 && !covers(r) {
				other.ServeHTTP(w, r)
				return
			}
			covered.ServeHTTP(w, r)
		})
	}
	covers := m.CoversFunc(client, noted)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if covers(r) {
			covered.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}

// alone returns a matcher with the fields of one, and of another with a ! in front.
func alone(m, not *Matcher) *Matcher {
	m.finish()
	not.finish()
	m.not = not
	m.operators = true
	return m
}

// coversAll returns a function that reports whether all of some do so.
func coversAll(parts []func(r *http.Request) bool) func(r *http.Request) bool {
	switch len(parts) {
	case 0:
		return func(r *http.Request) bool { return true }
	case 1:
		return parts[0]
	case 2:
		first, second := parts[0], parts[1]
		return func(r *http.Request) bool { return first(r) && second(r) }
	}
	first, second, others := parts[0], parts[1], coversAll(parts[2:])
	return func(r *http.Request) bool { return first(r) && second(r) && others(r) }
}

// coversMethods is Covers for a matcher of methods alone.
func coversMethods(m *Matcher) func(r *http.Request) bool {
	common := make(map[string]bool)
	for _, method := range knownMethods[:5] {
		common[method] = Covers(m, &http.Request{Method: method}, "", "")
	}
	return func(r *http.Request) bool {
		var covered, ok bool
		covered, ok = common[r.Method]
		if !ok {
			covered = Covers(m, r, "", "")
		}
		return covered
	}
}

// coversHosts is Covers for a matcher of hosts alone.
func coversHosts(m *Matcher) func(r *http.Request) bool {
	named := make(map[string]bool)
	below := make(map[string]bool) // by suffix
	for _, list := range [][]string{m.hosts, m.not.hosts} {
		for _, host := range list {
			named[host] = Covers(m, &http.Request{Host: host}, "", "")
		}
	}
	for _, suffix := range m.suffixes {
		below[suffix] = true
	}
	for _, suffix := range m.not.suffixes {
		below[suffix] = false
	}
	others := !m.ofHost
	return func(r *http.Request) bool {
		var covered, ok bool
		covered, ok = named[r.Host]
		if !ok {
			covered = hostCovered(named, below, others, plainHost(HostOf(r.Host)))
		}
		return covered
	}
}

// hostCovered is coversHosts for a host in its canonical spelling. others says it of hosts that are not named.
func hostCovered(named, below map[string]bool, others bool, host string) bool {
	covered, ok := named[host]
	if ok {
		return covered
	}
	if dot := strings.IndexByte(host, '.'); dot > 0 {
		covered, ok = below[host[dot:]]
	}
	if !ok {
		covered = others
	}
	return covered
}

// coversPaths is Covers for the paths of a matcher, without those of not.
func coversPaths(m, not *Matcher) func(r *http.Request) bool {
	if len(m.prefixes)+len(m.patterns) == 1 && len(m.paths) == 0 && !not.ofPath {
		fits, text, end := strings.HasPrefix, "", ""
		if len(m.prefixes) == 1 {
			text, end = m.prefixes[0]+"/", "/"
		} else {
			fits, text = m.patterns[0].function(), m.patterns[0].text
		}
		return func(r *http.Request) bool {
			path := r.URL.Path
			if path == "" || strings.Contains(path, "//") || strings.Contains(path, "/.") {
				path = CleanPath(path)
			}
			return fits(strings.ToLower(path)+end, text)
		}
	}
	of := &pathTable{whole: make(map[string]bool), prefixes: ownPrefixes(m.prefixes), patterns: m.patterns, not: ownPrefixes(not.prefixes), notPatterns: not.patterns, others: !m.ofPath}
	for _, path := range m.paths {
		of.whole[path] = !not.coversPath(path)
	}
	for _, path := range not.paths {
		of.whole[path] = false
	}
	whole := of.whole
	return func(r *http.Request) bool {
		var covered, ok bool
		covered, ok = whole[r.URL.Path]
		if !ok {
			covered = pathCovered(of, CleanPath(r.URL.Path))
		}
		return covered
	}
}

// pathTable has the paths of a matcher.
type pathTable struct {
	whole                 map[string]bool // whether a path is covered
	prefixes, not         []string        // as ownPrefixes returns them
	patterns, notPatterns []pattern
	others                bool // paths that are not named are covered
}

// ownPrefixes returns prefixes with a slash at the end, sorted, without those that begin with another.
func ownPrefixes(prefixes []string) []string {
	all := make([]string, 0, len(prefixes))
	for _, prefix := range prefixes {
		all = append(all, prefix+"/")
	}
	sort.Strings(all)
	n := 0
	for i := range all {
		if i == 0 || !strings.HasPrefix(all[i], all[n-1]) {
			all[n] = all[i]
			n++
		}
	}
	return all[:n]
}

// pathCovered is coversPaths for a path in its canonical spelling.
func pathCovered(of *pathTable, path string) bool {
	covered, ok := of.whole[path]
	if ok {
		return covered
	}
	return (of.others || listed(of.prefixes, of.patterns, path)) && !listed(of.not, of.notPatterns, path)
}

// listed reports whether a path begins with one of the prefixes, as ownPrefixes returns them, or fits one of the patterns.
func listed(prefixes []string, patterns []pattern, path string) bool {
	if len(prefixes) > 0 {
		own := path + "/"
		i := sort.SearchStrings(prefixes, own+"\x00") // if any is a beginning of the path, it is the one before
		if i > 0 && strings.HasPrefix(own, prefixes[i-1]) {
			return true
		}
	}
	for i := range patterns {
		if patterns[i].fits(path) {
			return true
		}
	}
	return false
}

// coversHeader is Covers for the value that one field must have.
func coversHeader(name, want string) func(r *http.Request) bool {
	if want == "*" {
		return func(r *http.Request) bool { return hasValue(r.Header[name], want) }
	}
	return func(r *http.Request) bool {
		values := r.Header[name]
		return len(values) > 0 && (values[0] == want || hasValue(values, want))
	}
}

// function returns the function of fits, which gets the text, too; nil: it is none of package strings.
func (p *pattern) function() func(value, text string) bool {
	switch p.operator {
	case begins:
		return strings.HasPrefix
	case ends:
		return strings.HasSuffix
	case within:
		return strings.Contains
	}
	return nil
}

// coversText is Covers for the pattern of one field.
func coversText(name string, p *pattern) func(r *http.Request) bool {
	fits := p.function()
	if fits == nil {
		return func(r *http.Request) bool { return meets(r.Header[name], p) }
	}
	text, not := p.text, p.not
	return func(r *http.Request) bool {
		values := r.Header[name]
		if len(values) != 1 {
			return meets(values, p)
		}
		return fits(values[0], text) != not
	}
}

// coversClients is Covers for ExceptIPs. client and noted are those of CoversFunc.
func coversClients(except Networks, client func(r *http.Request) string, noted func(r *http.Request, address string)) func(r *http.Request) bool {
	if client == nil {
		return func(r *http.Request) bool {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			if sort.SearchStrings(except, string(net.ParseIP(host)))&1 == 1 {
				return true
			}
			return coversClient(except, connected(r.RemoteAddr), r, noted)
		}
	}
	return func(r *http.Request) bool {
		text := client(r)
		if sort.SearchStrings(except, string(net.ParseIP(text)))&1 == 1 {
			return true
		}
		return coversClient(except, text, r, noted)
	}
}

// exceptsOnly reports whether ExceptIPs is set, and no other field.
func (m *Matcher) exceptsOnly() bool {
	return len(m.except) > 0 && len(m.methods)+len(m.headers) == 0 && !m.ofHost && !m.ofPath && !m.operators
}

// connected returns the client's address, of the address of its connection.
func connected(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// coversClient is coversClients for a client's address.
func coversClient(except Networks, text string, r *http.Request, noted func(r *http.Request, address string)) bool {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		ip = dressedAddress(text)
	}
	covered := !ip.IsValid() || !Contains(except, ip)
	if noted != nil && (text == "" || !covered) {
		noted(r, text)
	}
	return covered
}
