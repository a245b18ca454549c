package ratelimit

import (
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/match"
	"github.com/proxyweir/weir/ruleset"
	"go.uber.org/zap"
)

const clientIPPlaceholder = "{http.vars.client_ip}"

// keyMaker makes the keys of requests: a template taken apart once, of which the placeholders that nearly every key is
// made of are looked up without Caddy's replacer.
type keyMaker struct {
	parts               []keyPart // the placeholders, in order
	static              string    // the key, where there are none
	prefixes            match.Prefixes
	masks               bool
	template            string
	spec                string // what the key is made of, for the rule's identity
	needsAuthentication bool
	ofAddress           bool     // the client's, or the peer's
	whole               bool     // the template is one placeholder, and no text
	around              []string // the texts in front of the placeholders, and behind the last
}

// keyPart is one placeholder of a key.
type keyPart struct {
	kind   partKind
	name   string // of the placeholder
	header string // of the field, in canonical form
	spell  *spelling
}

type partKind int

const (
	anyPlaceholder partKind = iota
	clientIP
	remoteHost
	requestHeader
	spelled // that a client can write in several ways
)

// newKeyMaker takes a template apart. The error says which placeholder is wrong.
func newKeyMaker(template string, prefixes match.Prefixes) (*keyMaker, error) {
	k := &keyMaker{template: template, prefixes: prefixes, masks: prefixes != match.Prefixes{}}
	texts, err := splitPlaceholders(template, func(name string) error {
		if err := checkPlaceholder(name); err != nil {
			return err
		}
		part := keyPart{name: name}
		switch {
		case name == "http.vars.client_ip":
			part.kind = clientIP
			k.ofAddress = true
		case name == "http.request.remote.host":
			part.kind = remoteHost
			k.ofAddress = true
		case strings.HasPrefix(name, "http.request.header."):
			part.kind = requestHeader
			part.header = textproto.CanonicalMIMEHeaderKey(strings.TrimPrefix(name, "http.request.header."))
		case strings.HasPrefix(name, "http.auth."):
			k.needsAuthentication = true
		default:
			if part.spell = spellingOf(name); part.spell != nil {
				part.kind = spelled
			}
		}
		k.parts = append(k.parts, part)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", template, err)
	}
	k.around = texts
	text := strings.Join(texts, "")
	if len(k.parts) == 0 {
		k.static = text
		short := strings.Replace(text, "remote_ip", "remote_host", 1)
		if full := fullPlaceholder(short); full != "" {
			return nil, fmt.Errorf("key %q: has no braces, and would be one counter for all; write {%s}, in JSON %s", template, short, full)
		}
	}
	k.whole = len(k.parts) == 1 && text == ""
	k.spec = template
	if template == clientIPPlaceholder {
		k.spec = "client_ip" // as core's own sources are written, so that one counter serves several proxies
	}
	if prefixes.IPv4 == 32 { // which leaves addresses whole, as if nothing were said: see ruleset.KeySpec
		prefixes.IPv4 = 0
	}
	if prefixes.IPv6 == 128 {
		prefixes.IPv6 = 0
	}
	if prefixes != (match.Prefixes{}) {
		k.spec += fmt.Sprintf(" /%d /%d", prefixes.IPv4, prefixes.IPv6)
	}
	return k, nil
}

// make returns the request's key, and whether any part of it was missing. A key of one placeholder is its value; of
// several, the values with their lengths, so that no client can put together another's.
func (k *keyMaker) make(r *http.Request, q *inquiry) (key string, missing bool) {
	if len(k.parts) == 0 {
		return k.static, false
	}
	if len(k.parts) == 1 {
		value := k.value(&k.parts[0], r)
		return value, value == ""
	}
	q.key = q.key[:0]
	for i := range k.parts {
		value := k.value(&k.parts[i], r)
		missing = missing || value == ""
		q.key = match.AppendKeyPart(q.key, value)
	}
	return string(q.key), missing
}

// value returns a part's value, with addresses masked.
func (k *keyMaker) value(part *keyPart, r *http.Request) string {
	var value string
	switch part.kind {
	case clientIP:
		value = clientIPOf(r)
	case remoteHost:
		var err error
		if value, _, err = net.SplitHostPort(r.RemoteAddr); err != nil {
			value = r.RemoteAddr
		}
	case requestHeader:
		value = headerValue(r, part.header)
	case spelled:
		value = part.spell.of(r)
	default:
		value, _ = replacerOf(r).GetString(part.name)
	}
	return k.masked(part, value)
}

// masked returns a value of a part as keys have it: an address as its network, and in one spelling.
func (k *keyMaker) masked(part *keyPart, value string) string {
	// An IPv4-mapped address is its IPv4 in any case. Caddy writes the addresses that it knows in one way; elsewhere the same
	// IPv6 address may be written in many.
	respell := strings.HasPrefix(value, "::")
	if !part.isAddress() {
		respell = strings.IndexByte(value, ':') >= 0
	}
	if k.masks || respell {
		return k.prefixes.Mask(value)
	}
	return value
}

// isAddress reports whether a part is an address and nothing else.
func (p *keyPart) isAddress() bool { return p.kind == clientIP || p.kind == remoteHost }

// unixPeer is what a connection through a Unix socket has for an address.
const unixPeer = "@"

// named returns the value that requests have where a person has written this one for a part. The error says why none has it.
func (k *keyMaker) named(part *keyPart, value string) (string, error) {
	switch {
	case value == "":
		return "", nil
	case part.isAddress() && value == unixPeer:
		return value, nil
	case part.isAddress():
		return k.prefixes.Key(value)
	case part.kind == spelled:
		written, err := part.spell.written(value)
		if err != nil {
			return "", err
		}
		value = written
	default:
		if err := checkWritten(part.name, value); err != nil {
			return "", err
		}
	}
	return k.masked(part, value), nil
}

// keyNamed returns the key of requests for whose placeholders a person has written these values, of which there are as many. The error
// says of which of them no request is, and what would be right.
func (k *keyMaker) keyNamed(values []string) (string, error) {
	if len(k.parts) == 0 {
		return k.static, nil
	}
	named := make([]string, len(values))
	for i := range k.parts {
		var err error
		if named[i], err = k.named(&k.parts[i], values[i]); err != nil {
			return "", err
		}
	}
	if len(named) == 1 {
		return named[0], nil
	}
	var key []byte
	for _, value := range named {
		key = match.AppendKeyPart(key, value)
	}
	return string(key), nil
}

// of is keyNamed for values that have been checked.
func (k *keyMaker) of(values []string) string {
	key, _ := k.keyNamed(values)
	return key
}

// respells reports whether a value of the template, or a piece of it, has a spelling.
func (k *keyMaker) respells() bool {
	for i := range k.parts {
		if k.parts[i].kind == spelled {
			return true
		}
	}
	return false
}

// textNamed returns the text that requests have where a person has written this one for the template: as it is, but for what stands in
// the place of a placeholder that has a spelling. The error says why no request has such a one.
//
// Where a text can be taken apart in several ways, that which leaves it as it is goes first, since requests have that text; then that
// whose first pieces are the shortest.
func (k *keyMaker) textNamed(text string) (string, error) {
	if !k.respells() {
		return text, nil
	}
	if k.whole {
		if text == "" {
			return "", nil
		}
		return k.parts[0].spell.written(text)
	}
	s := textSpeller{maker: k, text: text, tries: mostTries}
	if rest, found := strings.CutPrefix(text, k.around[0]); found && s.take(0, rest, k.around[0]) {
		return s.text, nil
	}
	if s.found {
		return s.first, nil
	}
	if s.why != nil {
		return "", s.why
	}
	return "", fmt.Errorf("%q: is no text of %s", text, k.template)
}

// unmet says why no request has a value that a rule file has for the template; "": some may have it. See ruleset.Unmet. It takes from tries
// what it looks at, and where they run out it says nothing.
func (k *keyMaker) unmet(value string, tries *int) string {
	*tries--
	if *tries < 0 {
		return ""
	}
	if k.whole {
		return ruleset.Unmet(value, k.parts[0].spell.form, k.parts[0].spell.written)
	}
	if strings.IndexByte(value, '*') >= 0 {
		return k.unmetWildcard(value)
	}
	s := textSpeller{maker: k, text: value, tries: *tries}
	if s.tries > mostTries {
		s.tries = mostTries
	}
	before := s.tries
	rest, found := strings.CutPrefix(value, k.around[0])
	asItIs := found && s.take(0, rest, k.around[0])
	*tries -= before - s.tries
	if asItIs || !s.found || s.tries == 0 || s.first == value { // another descriptor of these keys may have it
		return ""
	}
	return fmt.Sprintf("%q: requests have %q", value, s.first)
}

// unmetWildcard is unmet for a wildcard. What it stands for may be any part of the template: so it looks at templates of one placeholder,
// and texts in front and behind that the value has, too.
func (k *keyMaker) unmetWildcard(value string) string {
	if len(k.parts) != 1 {
		return ""
	}
	first, last := strings.IndexByte(value, '*'), strings.LastIndexByte(value, '*')
	front, behind := k.around[0], k.around[1]
	if !strings.HasPrefix(value[:first], front) || !strings.HasSuffix(value[last+1:], behind) {
		return ""
	}
	piece := value[len(front) : len(value)-len(behind)]
	spelled, why := ruleset.SpellWildcard(piece, k.parts[0].spell.form)
	switch {
	case why != "":
		return fmt.Sprintf("%q: %s", value, why)
	case spelled == piece:
		return ""
	}
	return fmt.Sprintf("%q: requests have %q", value, front+spelled+behind)
}

// mostTries bounds the ways in which a text is taken apart.
const mostTries = 10000

// textSpeller takes a text apart by a template.
type textSpeller struct {
	maker *keyMaker
	text  string // as it is written
	first string // what the first way comes to
	found bool
	why   error // what is wrong with the first way that is none
	tries int
}

// take goes through the ways in which a text ends with the template's parts from one on, made being the spelling of what is in front. It
// reports whether one leaves all as it is.
func (s *textSpeller) take(part int, rest, made string) bool {
	if part == len(s.maker.parts) {
		if rest != "" {
			return false
		}
		if !s.found {
			s.found = true
			s.first = made
		}
		return made == s.text
	}
	behind := s.maker.around[part+1]
	for end := 0; end <= len(rest) && s.tries > 0; end++ {
		if !strings.HasPrefix(rest[end:], behind) || part == len(s.maker.parts)-1 && end+len(behind) != len(rest) {
			continue
		}
		s.tries--
		piece := rest[:end]
		if p := &s.maker.parts[part]; p.kind == spelled && piece != "" {
			var err error
			if piece, err = p.spell.written(piece); err != nil {
				if s.why == nil {
					s.why = err
				}
				continue
			}
		}
		if s.take(part+1, rest[end+len(behind):], made+piece+behind) {
			return true
		}
	}
	return false
}

// text returns the value of the template, with the text around its placeholders.
func (k *keyMaker) text(r *http.Request) string {
	if len(k.parts) == 0 {
		return k.static
	}
	if k.whole {
		return k.value(&k.parts[0], r)
	}
	return k.readable(r)
}

// warnOfClients warns of a tier that clients can choose themselves.
func (k *keyMaker) warnOfClients(logger *zap.Logger, zone string) {
	for _, part := range k.parts {
		for prefix, kind := range map[string]string{"http.request.header.": "header", "http.request.cookie.": "cookie", "http.request.uri.query.": "query"} {
			if name, found := strings.CutPrefix(part.name, prefix); found {
				logger.Warn(ruleset.TierAdvice(kind, name), zap.String("zone", zone))
			}
		}
	}
}

// clientIPOf returns the client's address as Caddy knows it. It can be empty.
func clientIPOf(r *http.Request) string {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return ip
}

func headerValue(r *http.Request, name string) string {
	values := r.Header[name]
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values, ",")
}

// readable returns the key as a person wants to read it in a log: the template with its placeholders replaced.
func (k *keyMaker) readable(r *http.Request) string {
	text, _ := replacerOf(r).ReplaceFunc(k.template, func(name string, value any) (any, error) { // which fails where that does
		for i := range k.parts {
			if part := &k.parts[i]; part.kind == spelled && part.name == name {
				return part.spell.of(r), nil
			}
		}
		return value, nil
	})
	return text
}

func replacerOf(r *http.Request) *caddy.Replacer {
	return r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
}

// splitPlaceholders calls f for each placeholder of a template, as Caddy's replacer finds them, and returns the texts in front of each
// and behind the last, without the backslashes that escape braces. A brace that opens a placeholder and is never closed is an error.
func splitPlaceholders(template string, f func(name string) error) (texts []string, err error) {
	var around strings.Builder
	for i := 0; i < len(template); i++ {
		c := template[i]
		if c == '\\' && i+1 < len(template) && (template[i+1] == '{' || template[i+1] == '}') {
			i++
			around.WriteByte(template[i])
			continue
		}
		if c != '{' {
			around.WriteByte(c)
			continue
		}
		end := closingBrace(template, i)
		if end < 0 {
			return nil, fmt.Errorf("%q has no closing brace; write \\{ for a brace that opens nothing", template[i:])
		}
		if err := f(template[i+1 : end]); err != nil {
			return nil, err
		}
		texts = append(texts, around.String())
		around.Reset()
		i = end
	}
	return append(texts, around.String()), nil
}

// closingBrace returns where the placeholder ends that begins at open: at the first closing brace that is not escaped. The
// last character of a template closes in any case, as it does for Caddy.
func closingBrace(template string, open int) int {
	for i := open + 1; i < len(template); i++ {
		if template[i] == '}' && (template[i-1] != '\\' || i == len(template)-1) {
			return i
		}
	}
	return -1
}

// placeholderName returns the name in a text that is one placeholder and nothing else.
func placeholderName(text string) (name string, ok bool) {
	if len(text) < 3 || text[0] != '{' || strings.IndexByte(text, '}') != len(text)-1 {
		return "", false
	}
	return text[1 : len(text)-1], true
}

// hasPlaceholder reports whether a template has a placeholder.
func hasPlaceholder(template string) bool {
	found := false
	_, _ = splitPlaceholders(template, func(string) error { found = true; return nil })
	return found
}

// checkPlaceholder refuses a shorthand of the Caddyfile. Caddy replaces those in sites; where one is left it would be
// empty, and all clients would share one key.
func checkPlaceholder(name string) error {
	if name == "" {
		return fmt.Errorf("has an empty placeholder; write \\{ for a brace")
	}
	if full := fullPlaceholder(name); full != "" {
		return fmt.Errorf("{%s} is a shorthand that Caddy knows in the sites of a Caddyfile only; write %s", name, full)
	}
	return nil
}

// fullPlaceholder returns the placeholder that a shorthand of the Caddyfile stands for, or "" where it is none.
func fullPlaceholder(shorthand string) string {
	segment := caddyfile.Segment{{Text: "{" + shorthand + "}"}}
	httpcaddyfile.NewShorthandReplacer().ApplyToSegment(&segment)
	if full := segment[0].Text; full != "{"+shorthand+"}" {
		return full
	}
	return ""
}
