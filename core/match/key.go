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

	custom Custom                       // of the kind of that name; else nil
	take   func(r *http.Request) string // of the kinds that are prepared once: see taker; else nil
	first  *alternatives                // of the kind of that name: see ParseKey; else nil
}

// alternatives are several sources, and what is in front of the values of each.
type alternatives struct {
	list   []Source
	labels []string
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

// NeedsClient reports whether the source is the client's address, or may take it.
func (s Source) NeedsClient() bool {
	return s.kind == "client_ip" || some(s.Alternatives(), func(one Source) bool { return one.NeedsClient() })
}

// OfAddress reports whether the source is, or has, the address of the client or of the connection.
func (s Source) OfAddress() bool {
	return s.IsAddress() || s.custom != nil && s.custom.OfAddress() || some(s.Alternatives(), func(one Source) bool { return one.OfAddress() })
}

// OfRequest reports whether the source describes the request, and not its client.
func (s Source) OfRequest() bool {
	return s.kind == "method" || s.ofPath() || some(s.Alternatives(), func(one Source) bool { return one.OfRequest() })
}

// ofPath reports whether the source is the path, or a part of it.
func (s Source) ofPath() bool {
	return s.kind == "path" || s.kind == "path_segment" || s.kind == "path_regexp"
}

// MayHoldAddress reports whether a value that is an address is one, so that prefixes group it. Hosts keep what looks like a port.
func (s Source) MayHoldAddress() bool {
	return (s.IsAddress() || s.kind == "header" || s.custom != nil) && !s.Rewrites() || some(s.Alternatives(), func(one Source) bool { return one.MayHoldAddress() })
}

// ClientChooses reports whether the client sends the value as it likes, or none: it may be a secret, and requests may lack it. Of sources in a proxy's own
// language only the proxy knows.
func (s Source) ClientChooses() bool {
	return IsField(s.kind) || s.kind == "unverified_jwt_claim" || some(s.Alternatives(), func(one Source) bool { return one.ClientChooses() })
}

// some reports whether a source of a list has a property.
func some(list []Source, has func(s Source) bool) bool {
	for i := range list {
		if has(list[i]) {
			return true
		}
	}
	return false
}

// IsField reports whether a kind of sources, the word before the colon, is a field of the request that a client writes by itself.
func IsField(kind string) bool { return kind == "header" || kind == "cookie" || kind == "query" }

var sourceKinds = []string{"client_ip", "remote_ip", "host", "method", "path", "path_segment", "path_regexp", "header", "cookie", "query", "unverified_jwt_claim", "client_cert", "static"}

// names has what is written behind the colon of a kind that has such a name.
var names = map[string]string{"path_segment": "N", "path_regexp": "REGEXP", "header": "NAME", "cookie": "NAME", "query": "NAME", "unverified_jwt_claim": "NAME", "client_cert": "FIELD", "static": "TEXT"}

// othersKinds has what kinds of sources are called by others.
var othersKinds = map[string]string{"jwt": "unverified_jwt_claim", "jwt_claim": "unverified_jwt_claim", "claim": "unverified_jwt_claim", "segment": "path_segment", "regexp": "path_regexp", "cert": "client_cert",
	"country": "header"}

// ParseSource reads client_ip, remote_ip, host, method, path, path_segment:N, path_regexp:REGEXP, header:NAME, cookie:NAME, query:NAME,
// unverified_jwt_claim:NAME, client_cert:FIELD or static:TEXT.
func ParseSource(s string) (Source, error) {
	kind, name, named := strings.Cut(s, ":")
	switch {
	case strings.HasPrefix(s, firstOf):
		return Source{}, words.Wrong("key", strconv.Quote(s), "is only for the key of a `rule`; write one source here")
	case !contains(sourceKinds, kind):
		m := words.OneOf("key", strconv.Quote(s), kind, sourceKinds)
		m.Says = "the source " + m.Says
		if m.Meant == "" {
			m.Guess(othersKinds[kind])
		}
		if field, err := headerName(s); m.Meant == "" && err == nil && (strings.Contains(s, "-") || s[0] >= 'A' && s[0] <= 'Z') {
			m.Guess("header:" + field)
		}
		return Source{}, m
	case names[kind] != "":
		if name == "" {
			return Source{}, words.Wrong("key", strconv.Quote(s), "write %s:%s", kind, names[kind])
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
	case "cookie", "query":
		if err := checkFieldName(kind, name); err != nil {
			m := words.Of(err)
			m.At = m.At[:0]
			return Source{}, m.Within("key", strconv.Quote(s))
		}
	}
	take, name, err := taker(kind, name)
	if err != nil {
		return Source{}, words.Of(err).Within("key", strconv.Quote(s))
	}
	return Source{kind: kind, name: name, take: take}, nil
}

// String returns the source as it is written.
func (s Source) String() string {
	if s.custom != nil {
		return s.custom.String()
	}
	if s.kind == "first" {
		return firstText(s.first.list)
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
// read as a header, the method as CleanMethod returns it, and the path as CleanPath returns it. Authorization and Proxy-Authorization have the usual
// spelling of their scheme, and one space behind it.
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
		if s.take != nil {
			return s.take(r)
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
	case "static":
		return s.name
	case "first":
		return firstValue(s.first, r, clientIP)
	}
	return s.take(r)
}

// Getter returns a function that returns Value for a source that does not need the client's address. A function that is made for one
// source costs an interpreter less. It passes values that have a byte of Dress, as addresses of IPv6 do, through the function dressed; nil: it
// leaves them as they are.
func (s Source) Getter(dressed func(value string) string) func(r *http.Request) string {
	name := s.name
	if dressed == nil && s.take != nil {
		return s.take
	}
	if dressed == nil && s.kind == "cookie" {
		return func(r *http.Request) string {
			c, err := r.Cookie(name)
			if err != nil {
				return ""
			}
			return c.Value
		}
	}
	if dressed != nil && s.kind == "header" && s.take == nil {
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
		if s.take != nil {
			return spellCredentials(value), nil
		}
	case "method":
		return SpellMethod(value)
	case "path":
		return CanonicalizePath(value)
	case "path_segment":
		return SpellSegment(value)
	case "path_regexp":
		return SpellDecoded(value)
	case "first":
		of, label, rest, ok := s.Chosen(value)
		if !ok {
			return "", s.Unlabelled(value)
		}
		spelt, err := of.Canonicalize(rest)
		return label + spelt, err
	case "static":
		if value != s.name {
			return "", words.Wrong("", strconv.Quote(value), "must be %q, which is the same for all", s.name)
		}
	case "custom":
		return s.custom.Canonicalize(value)
	}
	return value, nil
}

// Rewrites reports whether Canonicalize may change a value: the source is a host, a method, a path, or a field with credentials.
func (s Source) Rewrites() bool {
	return s.custom != nil && s.custom.Rewrites() || s.kind == "host" || s.kind == "method" || s.ofPath() || s.kind == "header" && s.take != nil
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

// label is in front of a value of the source where it may come from several.
func (s Source) label() string { return strings.Trim(s.String(), "{}") + "=" }

// Alternatives returns the sources of first(…), in order; nil: it is another source.
func (s Source) Alternatives() []Source {
	if s.first == nil {
		return nil
	}
	return s.first.list
}

// Labels returns what is in front of the values of Alternatives.
func (s Source) Labels() []string { return s.first.labels }

// Chosen returns the one of Alternatives that a value with a label is of, the label, and the value without it. Of any other source it returns that
// source itself. ok is false if the value has none of the labels.
func (s Source) Chosen(value string) (of Source, label, rest string, ok bool) {
	if s.first == nil {
		return s, "", value, true
	}
	for i, label := range s.first.labels {
		if strings.HasPrefix(value, label) {
			return s.first.list[i], label, value[len(label):], true
		}
	}
	return s, "", value, false
}

// firstValue is Source.Value for the first of several sources.
func firstValue(s *alternatives, r *http.Request, clientIP string) string {
	for i := range s.list {
		value := s.list[i].Value(r, clientIP)
		if value != "" {
			return s.labels[i] + value
		}
	}
	return ""
}

// Unlabelled says that a value lacks a label, and what would be right.
func (s Source) Unlabelled(value string) error {
	return words.Wrong("", strconv.Quote(value), "must have the source that it comes from in front, such as %s…", s.first.labels[0])
}

// firstText is Source.String for the first of several sources.
func firstText(list []Source) string {
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = list[i].String()
	}
	return firstOf + strings.Join(texts, ", ") + ")"
}

// firstOf is how a source begins that is the first of several which has a value.
const firstOf = "first("

// AppendKeyPart adds one part to a key made of several: its length, a colon and its bytes, so that the parts "a" and "bc" do not make the
// same key as "ab" and "c".
func AppendKeyPart(key []byte, part string) []byte {
	key = strconv.AppendInt(key, int64(len(part)), 10)
	key = append(key, ':')
	return append(key, part...)
}
