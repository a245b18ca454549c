package match

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/words"
)

// Source is one part of a key, taken from a request without the help of a proxy's own language.
type Source struct {
	kind string // a word of sourceKinds
	name string // the field's, cookie's or parameter's; the text of static

	custom Custom // of the kind of that name; else nil
}

// Custom is a source in a proxy's own language.
type Custom interface {
	Value(r *http.Request) string         // as Source.Value
	Written(value string) (string, error) // as Source.Spell
	Respells() bool                       // as Source.Respells
	OfAddress() bool                      // as Source.OfAddress
	String() string                       // as it is written
}

// NewSource returns the source that a proxy has in its own language.
func NewSource(custom Custom) Source { return Source{kind: "custom", custom: custom} }

// Kind returns what kind of source it is: the word that it begins with, or "custom".
func (s Source) Kind() string { return s.kind }

// Custom returns what NewSource was given; nil: the source is in no proxy's own language.
func (s Source) Custom() Custom { return s.custom }

// OfAddress reports whether the source is, or has, the address of the client or of the connection.
func (s Source) OfAddress() bool {
	return s.kind == "client_ip" || s.kind == "remote_ip" || s.custom != nil && s.custom.OfAddress()
}

var sourceKinds = []string{"client_ip", "remote_ip", "host", "method", "path", "header", "cookie", "query", "static"}

// ParseSource reads client_ip, remote_ip, host, method, path, header:NAME, cookie:NAME, query:NAME or static:TEXT.
func ParseSource(s string) (Source, error) {
	kind, name, named := strings.Cut(s, ":")
	switch {
	case !contains(sourceKinds, kind):
		return Source{}, fmt.Errorf("key %q: the source %s", s, words.OneOf(kind, sourceKinds))
	case kind == "header" || kind == "cookie" || kind == "query" || kind == "static":
		if name == "" {
			return Source{}, fmt.Errorf("key %q: write %s:%s", s, kind, map[bool]string{true: "TEXT", false: "NAME"}[kind == "static"])
		}
	case named:
		return Source{}, fmt.Errorf("key %q: %s takes no name", s, kind)
	}
	if kind == "header" {
		if !isToken(name) {
			return Source{}, fmt.Errorf("key %q: %q cannot be the name of a header field", s, name)
		}
		name = http.CanonicalHeaderKey(name)
	}
	return Source{kind: kind, name: name}, nil
}

// isToken reports whether a text is a token, as RFC 9110 has it: what the name of a field is.
func isToken(s string) bool {
	return s != "" && strings.Trim(s, words.NameBytes+"!#$%&'*+^`|~") == ""
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

// Value returns what the source is for a request, "" where the request has none. clientIP is the client's address as the
// proxy knows it. A header that is sent several times is the list of its values. The host is as CleanHost has it, also where it is
// taken as a header, the method as CleanMethod has it, and the path as CleanPath has it.
func (s Source) Value(r *http.Request, clientIP string) string {
	switch s.kind {
	case "client_ip":
		return clientIP
	case "remote_ip":
		return HostOf(r.RemoteAddr)
	case "host":
		return plainHost(HostOf(r.Host))
	case "method":
		return strings.ToUpper(r.Method)
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

// Spell returns a value that a person has written for the source in the spelling that Value has it in. The error says why no request
// has such a value. "" is what a request has that lacks it.
func (s Source) Spell(value string) (string, error) {
	if value == "" {
		return "", nil
	}
	switch s.kind {
	case "host":
		return SpellHost(value)
	case "header":
		if s.name == "Host" {
			return SpellHost(value)
		}
	case "method":
		return SpellMethod(value)
	case "path":
		return SpellPath(value)
	case "static":
		if value != s.name {
			return "", fmt.Errorf("%q: must be %q, which is the same for all", value, s.name)
		}
	case "custom":
		return s.custom.Written(value)
	}
	return value, nil
}

// Respells reports whether Spell has anything to do: the source is a host, a method or a path.
func (s Source) Respells() bool {
	return s.custom != nil && s.custom.Respells() || s.kind == "host" || s.kind == "method" || s.kind == "path" || s.kind == "header" && s.name == "Host"
}

// SpellMethod returns a method that a person has written as CleanMethod has it. The error says why no request has such a one.
func SpellMethod(value string) (string, error) {
	if !isToken(value) {
		return "", fmt.Errorf("%q: must be a method such as POST", value)
	}
	return CleanMethod(value), nil
}

// SpellHost returns a host that a person has written, maybe with a port, as CleanHost has it. The error says why no request has such a
// one. A name with a * is refused, too: nobody but an attacker sends it.
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
		return "", fmt.Errorf("%q: must be a host as it is sent, in Punycode: xn--…", value)
	}
	if !isHost(host) {
		return "", fmt.Errorf("%q: must be one host, such as shop.example", value)
	}
	if scheme >= 0 {
		return "", fmt.Errorf("%q: must be a host, and is a URL; write %s", value, host)
	}
	if end >= 0 {
		return "", fmt.Errorf("%q: must be a host such as shop.example, without a path", value)
	}
	host = CleanHost(value)
	if !isHost(host) {
		return "", fmt.Errorf("%q: must be one host, such as shop.example", value)
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

// isHost reports whether a text is a name or an address that CleanHost may have left of a request's host.
func isHost(host string) bool {
	if strings.IndexByte(host, ':') >= 0 {
		_, err := netip.ParseAddr(host)
		return err == nil
	}
	isSent := strings.Trim(host, words.NameBytes+"!$%&'()+,;=~") == "" // as Go's server takes it, but for *
	return isSent && strings.Trim(host, ".") != ""
}

// SpellPath returns a path that a person has written as CleanPath has it. The error says why no request has such a one, or that it is
// written as in a URL.
func SpellPath(value string) (string, error) {
	if !strings.HasPrefix(value, "/") && value != "*" { // which OPTIONS may have
		return "", fmt.Errorf("%q: must be a path, which begins with /", value)
	}
	if escape := EscapeIn(value); escape != "" {
		return "", fmt.Errorf("%q: must be written decoded, without %s", value, escape)
	}
	return CleanPath(value), nil
}

// EscapeIn returns the first byte that is escaped in a text as in a URL, such as %20; "" where there is none.
func EscapeIn(text string) string {
	for i := 0; i+2 < len(text); i++ {
		if text[i] == '%' && isHex(text[i+1]) && isHex(text[i+2]) {
			return text[i : i+3]
		}
	}
	return ""
}

// HostOf returns the host of "host:port", of "[host]:port", or of a host without a port.
func HostOf(hostport string) string {
	i := strings.LastIndexByte(hostport, ':')
	if i >= 0 && strings.IndexByte(hostport, ':') == i || i > 0 && hostport[i-1] == ']' {
		hostport = hostport[:i]
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}

// AppendKeyPart adds one part to a key made of several: its length, a colon and its bytes, so that the parts "a" and "bc"
// are not the key that "ab" and "c" are.
func AppendKeyPart(key []byte, part string) []byte {
	key = strconv.AppendInt(key, int64(len(part)), 10)
	key = append(key, ':')
	return append(key, part...)
}

// Prefixes says how far the addresses in a key are masked: to a network of that many bits. Zero leaves them whole.
type Prefixes struct {
	IPv4, IPv6 int
}

// Check says what is wrong with the numbers.
func (p Prefixes) Check() error {
	if p.IPv4 < 0 || p.IPv4 > 32 {
		return fmt.Errorf("ipv4_prefix %d: must be from 1 to 32", p.IPv4)
	}
	if p.IPv6 < 0 || p.IPv6 > 128 {
		return fmt.Errorf("ipv6_prefix %d: must be from 1 to 128", p.IPv6)
	}
	return nil
}

// Key returns the key of the clients that a person names by an address, or by a network in CIDR notation that they share a key as. The
// error says why no client has such a key, and what would be right.
func (p Prefixes) Key(text string) (string, error) {
	if _, err := netip.ParseAddr(text); err == nil {
		return p.Mask(text), nil
	}
	network, err := ParseNetwork(text)
	if err != nil {
		return "", fmt.Errorf("%q: must be an address, such as 192.0.2.7%s", text, p.orNetwork())
	}
	key := p.Mask(network.Addr().String())
	if network.IsSingleIP() || key == network.String() {
		return key, nil
	}
	if network.Bits() == 0 {
		return "", fmt.Errorf("%q: is no client, but all; what holds for all is the rule's limit itself; name one, such as %s", text, p.Mask(someAddress(network)))
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
		return "", fmt.Errorf("%q: is a part of %s, which is counted as one (%s %d)", text, key, field, most)
	}
	if most == network.Addr().BitLen() {
		return "", fmt.Errorf("%q: is no client: each of its addresses is counted by itself; name one, or count by such networks (%s %d)", text, field, network.Bits())
	}
	return "", fmt.Errorf("%q: is no client: it is counted by smaller networks, such as %s (%s %d); name one, or count by larger ones (%s %d)", text, key, field, most, field, network.Bits())
}

// someAddress returns an address for an example, of the kind that a network's are.
func someAddress(network netip.Prefix) string {
	if network.Addr().Is4() {
		return "192.0.2.7"
	}
	return "2001:db8::7"
}

// orNetwork says what may stand in place of an address.
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

// Shared returns the network whose addresses all have the key that an address has, which may be written as a network of one; "" where it
// is no address, or has a key of its own.
func (p Prefixes) Shared(address string) string {
	if strings.IndexByte(address, '/') >= 0 {
		network, err := ParseNetwork(address)
		if err != nil || !network.IsSingleIP() {
			return ""
		}
		address = network.Addr().String()
	}
	if _, err := netip.ParseAddr(address); err != nil {
		return ""
	}
	key := p.Mask(address)
	if strings.IndexByte(key, '/') < 0 {
		return ""
	}
	return key
}

// Mask returns the network that an address lies in ("192.0.2.0/24"), or the address in its shortest form where its kind is
// not masked. An IPv4-mapped IPv6 address is its IPv4, and an IPv6 zone is left out where the address is masked. What is no
// address is returned as it is.
func (p Prefixes) Mask(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	ip = ip.Unmap()
	bits := p.IPv6
	if ip.Is4() {
		bits = p.IPv4
	}
	if bits == 0 {
		return ip.String()
	}
	ip = ip.WithZone("")
	if bits == ip.BitLen() {
		return ip.String()
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return address
	}
	return network.String()
}
