package match

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// Source is one part of a key, and says from which part of a request its value is taken.
type Source struct {
	kind string // a word of sourceKinds
	name string // the field's, cookie's or parameter's; the text of static

	custom Custom // of the kind of that name; else nil
}

// Custom is a source in a proxy's own language.
type Custom interface {
	Value(r *http.Request) string              // as Source.Value
	Canonicalize(value string) (string, error) // as Source.Canonicalize
	Rewrites() bool                            // as Source.Rewrites
	OfAddress() bool                           // as Source.OfAddress
	String() string                            // as it is written
}

// NewSource returns the source that a proxy defines in its own language.
func NewSource(custom Custom) Source { return Source{kind: "custom", custom: custom} }

// Custom returns the argument of NewSource; nil: the source is one of this package's own kinds.
func (s Source) Custom() Custom { return s.custom }

// IsAddress reports whether the source is the address of the client or of the connection.
func (s Source) IsAddress() bool { return s.kind == "client_ip" || s.kind == "remote_ip" }

// OfAddress reports whether the source is, or has, the address of the client or of the connection.
func (s Source) OfAddress() bool { return s.IsAddress() || s.custom != nil && s.custom.OfAddress() }

// MayHoldAddress reports whether a value that is an address is one, so that prefixes group it. Hosts keep what looks like a port.
func (s Source) MayHoldAddress() bool {
	return (s.IsAddress() || s.kind == "header" || s.custom != nil) && !s.Rewrites()
}

// ClientChooses reports whether the client sends the value as it likes, or none: it may be a secret, and requests may lack it. Of sources in a proxy's own
// language only the proxy knows.
func (s Source) ClientChooses() bool { return ClientChooses(s.kind) }

// ClientChooses reports the same of a kind of sources: the word before the colon.
func ClientChooses(kind string) bool { return kind == "header" || kind == "cookie" || kind == "query" }

var sourceKinds = []string{"client_ip", "remote_ip", "host", "method", "path", "header", "cookie", "query", "static"}

// ParseSource reads client_ip, remote_ip, host, method, path, header:NAME, cookie:NAME, query:NAME or static:TEXT.
func ParseSource(s string) (Source, error) {
	kind, name, named := strings.Cut(s, ":")
	switch {
	case !contains(sourceKinds, kind):
		m := words.OneOf("key", strconv.Quote(s), kind, sourceKinds)
		m.Says = "the source " + m.Says
		return Source{}, m
	case ClientChooses(kind) || kind == "static":
		if name == "" {
			return Source{}, words.Wrong("key", strconv.Quote(s), "write %s:%s", kind, map[bool]string{true: "TEXT", false: "NAME"}[kind == "static"])
		}
	case named:
		return Source{}, words.Wrong("key", strconv.Quote(s), "%s takes no name", kind)
	}
	switch kind {
	case "header":
		canonical, err := headerName(name)
		if err != nil {
			return Source{}, words.Of(err).Within("key", strconv.Quote(s))
		}
		name = canonical
	case "cookie":
		if !words.IsToken(name) {
			return Source{}, words.Wrong("key", strconv.Quote(s), "%q cannot be the name of a cookie", name)
		}
	case "query":
		if strings.ContainsAny(name, "?&=#") {
			return Source{}, words.Wrong("key", strconv.Quote(s), "must have the name of the parameter alone, such as query:token")
		}
	}
	return Source{kind: kind, name: name}, nil
}

// String returns the source as it is written.
func (s Source) String() string {
	if s.custom != nil {
		return s.custom.String()
	}
	if s.name == "" {
		return s.kind
	}
	return s.kind + ":" + s.name
}

// Static reports whether the source is the same for all requests.
func (s Source) Static() bool { return s.kind == "static" }

// Value returns the value of the source for a request, "" if the request has none. clientIP is the client's address as the
// proxy determines it. A header that is sent several times is the list of its values. The host is as CleanHost returns it, also if it is
// read as a header, the method as CleanMethod returns it, and the path as CleanPath returns it.
func (s Source) Value(r *http.Request, clientIP string) string {
	switch s.kind {
	case "client_ip":
		return clientIP
	case "remote_ip":
		return HostOf(r.RemoteAddr)
	case "host":
		return plainHost(HostOf(r.Host))
	case "method":
		return MethodOf(r)
	case "path":
		return CleanPath(r.URL.Path)
	case "header":
		if s.name == "Host" {
			return plainHost(HostOf(r.Host))
		}
		return strings.Join(r.Header[s.name], ",")
	case "cookie":
		c, err := r.Cookie(s.name)
		if err != nil {
			return ""
		}
		return c.Value
	case "query":
		return r.URL.Query().Get(s.name)
	case "custom":
		return s.custom.Value(r)
	}
	return s.name
}

// Getter returns a function that returns Value for a source that does not need the client's address. A function that is made for one
// source costs an interpreter less. It passes values that have a byte of Dress, as addresses of IPv6 do, through the function dressed; nil: it
// leaves them as they are.
func (s Source) Getter(dressed func(value string) string) func(r *http.Request) string {
	name := s.name
	if dressed == nil && s.kind == "cookie" {
		return func(r *http.Request) string {
			c, err := r.Cookie(name)
			if err != nil {
				return ""
			}
			return c.Value
		}
	}
	if dressed != nil && s.kind == "header" && name != "Host" {
		return func(r *http.Request) string {
			value := strings.Join(r.Header[name], ",")
			if !strings.ContainsAny(value, Dress) {
				return value
			}
			return dressed(value)
		}
	}
	if dressed == nil && s.kind == "host" {
		return func(r *http.Request) string {
			host := r.Host
			if strings.ContainsAny(host, ":[]") || strings.HasSuffix(host, ".") {
				return plainHost(HostOf(host))
			}
			return strings.ToLower(host)
		}
	}
	if dressed == nil && s.kind == "path" {
		return func(r *http.Request) string { return CleanPath(r.URL.Path) }
	}
	return func(r *http.Request) string {
		value := s.Value(r, "")
		if dressed != nil && strings.ContainsAny(value, Dress) {
			return dressed(value)
		}
		return value
	}
}

// Canonicalize returns a value from a configuration in the spelling that Value returns. The error says why no request has such a value. "" is the
// value of a request that lacks the source.
func (s Source) Canonicalize(value string) (string, error) {
	if value == "" {
		return "", nil
	}
	switch s.kind {
	case "client_ip", "remote_ip":
		if !ReadAddress(value).IsValid() && value != "@" { // of a connection through a Unix socket
			return "", words.Wrong("", strconv.Quote(value), "must be an address, such as 192.0.2.7%s", networkHint(value))
		}
		return CleanAddress(value), nil
	case "host":
		return SpellHost(value)
	case "header":
		if s.name == "Host" {
			return SpellHost(value)
		}
	case "method":
		return SpellMethod(value)
	case "path":
		return CanonicalizePath(value)
	case "static":
		if value != s.name {
			return "", words.Wrong("", strconv.Quote(value), "must be %q, which is the same for all", s.name)
		}
	case "custom":
		return s.custom.Canonicalize(value)
	}
	return value, nil
}

// Rewrites reports whether Canonicalize may change a value: the source is a host, a method or a path.
func (s Source) Rewrites() bool {
	return s.custom != nil && s.custom.Rewrites() || s.kind == "host" || s.kind == "method" || s.kind == "path" || s.kind == "header" && s.name == "Host"
}

// SpellMethod returns a method from a configuration as CleanMethod spells it. The error says why no request has it.
func SpellMethod(value string) (string, error) {
	if !words.IsToken(value) {
		return "", words.Wrong("", strconv.Quote(value), "must be a method such as POST")
	}
	return CleanMethod(value), nil
}

// SpellHost returns a host from a configuration, maybe with a port, as CleanHost spells it. The error says why no request has it.
// It also refuses a name with a *, which nobody but an attacker sends.
func SpellHost(value string) (string, error) {
	authority := value
	scheme := strings.Index(value, "://")
	if scheme >= 0 {
		authority = value[scheme+3:]
	}
	end := strings.IndexAny(authority, "/?#")
	if end >= 0 {
		authority = authority[:end]
	}
	host := CleanHost(authority[strings.LastIndexByte(authority, '@')+1:])
	if !isASCII(host) {
		return "", words.Wrong("", strconv.Quote(value), "must be a host as it is sent, in Punycode: xn--…")
	}
	if !isHost(host) {
		return "", words.Wrong("", strconv.Quote(value), "must be one host, such as shop.example")
	}
	if scheme >= 0 {
		return "", words.Wrong("", strconv.Quote(value), "must be a host, and is a URL; write %s", host)
	}
	if end >= 0 {
		return "", words.Wrong("", strconv.Quote(value), "must be a host such as shop.example, without a path")
	}
	host = CleanHost(value)
	if !isHost(host) {
		return "", words.Wrong("", strconv.Quote(value), "must be one host, such as shop.example")
	}
	return host, nil
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// isHost reports whether CleanHost may return this text: a name or an address.
func isHost(host string) bool {
	if strings.IndexByte(host, ':') >= 0 {
		_, err := netip.ParseAddr(host)
		return err == nil
	}
	isSent := strings.Trim(host, words.NameBytes+"!$%&'()+,;=~") == "" // as Go's server takes it, but for *
	return isSent && strings.Trim(host, ".") != ""
}

// CanonicalizePath returns a path from a configuration as CleanPath spells it. The error says why no request has it, or that it is
// written as in a URL.
func CanonicalizePath(value string) (string, error) {
	if !strings.HasPrefix(value, "/") && value != "*" { // which OPTIONS may have
		return "", words.Wrong("", strconv.Quote(value), "must be a path, which begins with /")
	}
	if escape := EscapeIn(value); escape != "" {
		return "", words.Wrong("", strconv.Quote(value), "must be written decoded, without %s", escape)
	}
	if i := strings.IndexAny(value, "?#"); i >= 0 {
		return "", words.Wrong("", strconv.Quote(value), "must be a path alone; write %s", value[:i])
	}
	return CleanPath(value), nil
}

// EscapeIn returns the first percent-encoded byte of a text, such as %20; "" if there is none.
func EscapeIn(text string) string {
	for i := 0; i+2 < len(text); i++ {
		if text[i] == '%' && isHex(text[i+1]) && isHex(text[i+2]) {
			return text[i : i+3]
		}
	}
	return ""
}

// AppendKeyPart adds one part to a key made of several: its length, a colon and its bytes, so that the parts "a" and "bc" do not make the
// same key as "ab" and "c".
func AppendKeyPart(key []byte, part string) []byte {
	key = strconv.AppendInt(key, int64(len(part)), 10)
	key = append(key, ':')
	return append(key, part...)
}

// Prefixes says to networks of how many bits the addresses in a key are masked. Zero leaves them whole. IPv4 is at most 32, IPv6 at most 128.
type Prefixes struct {
	IPv4, IPv6 int
}

// Key returns the key of clients that a configuration names by an address, or by the network in CIDR notation that shares a key. The
// error says why no client has such a key, and what would be accepted.
func (p Prefixes) Key(text string) (string, error) {
	if ReadAddress(text).IsValid() {
		return p.Mask(text), nil
	}
	network, err := ParseNetwork(text)
	if err != nil {
		return "", words.Wrong("", strconv.Quote(text), "must be an address, such as 192.0.2.7%s%s", p.orNetwork(), networkHint(text))
	}
	key := p.Mask(network.Addr().String())
	if network.IsSingleIP() || key == network.String() {
		return key, nil
	}
	if network.Bits() == 0 {
		return "", words.Wrong("", strconv.Quote(text), "is no client, but all; what holds for all is the rule's limit itself; name one, such as %s", p.Mask(someAddress(network)))
	}
	field := "ipv6_prefix"
	most := p.IPv6
	if network.Addr().Is4() {
		field = "ipv4_prefix"
		most = p.IPv4
	}
	if most == 0 {
		most = network.Addr().BitLen()
	}
	if network.Bits() > most {
		return "", words.Wrong("", strconv.Quote(text), "is a part of %s, which is counted as one (`"+field+"` %d)", key, most)
	}
	if most == network.Addr().BitLen() {
		return "", words.Wrong("", strconv.Quote(text), "is no client: each of its addresses is counted by itself; name one, or count by such networks (`"+field+"` %d)", network.Bits())
	}
	return "", words.Wrong("", strconv.Quote(text), "is no client: it is counted by smaller networks, such as %s (`"+field+"` %d); name one, or count by larger ones (`"+field+"` %d)", key, most, network.Bits())
}

// someAddress returns an example address of a network's address family.
func someAddress(network netip.Prefix) string {
	if network.Addr().Is4() {
		return "192.0.2.7"
	}
	return "2001:db8::7"
}

// orNetwork says which networks are accepted in place of an address.
func (p Prefixes) orNetwork() string {
	var networks []string
	for _, address := range []string{"192.0.2.7", "2001:db8::7"} {
		if network := p.Shared(address); network != "" {
			networks = append(networks, network)
		}
	}
	if len(networks) == 0 {
		return ""
	}
	return ", or a network such as " + strings.Join(networks, " or ")
}

// Shared returns the network whose addresses all have the key of value, an address or a network of one address; "" if value is not an
// address, or has a key of its own.
func (p Prefixes) Shared(address string) string {
	if strings.IndexByte(address, '/') >= 0 {
		network, err := ParseNetwork(address)
		if err != nil || !network.IsSingleIP() {
			return ""
		}
		address = network.Addr().String()
	}
	if !ReadAddress(address).IsValid() {
		return ""
	}
	key := p.Mask(address)
	if strings.IndexByte(key, '/') < 0 {
		return ""
	}
	return key
}

// Mask returns the network of an address ("192.0.2.0/24"), or the address in its shortest form if its address family is not masked. It reads
// addresses as ReadAddress does. Any other text is returned as it is.
func (p Prefixes) Mask(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		if ip = dressedAddress(address); !ip.IsValid() {
			return address
		}
	}
	ip = ip.Unmap().WithZone("")
	bits := p.IPv6
	if ip.Is4() {
		bits = p.IPv4
	}
	if bits == 0 || bits == ip.BitLen() {
		return ip.String()
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return address
	}
	return network.String()
}
