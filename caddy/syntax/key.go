package syntax

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

const ClientIPPlaceholder = "{http.vars.client_ip}"

// Template is a text with placeholders, parsed once. It is also a source, whose value is the whole text.
type Template struct {
	text    string
	Sources []match.Source // the placeholders, in order
	around  []string       // the texts before each placeholder, and after the last
}

// NewTemplate parses a text. The error names the wrong placeholder.
func NewTemplate(text string) (*Template, error) {
	t := &Template{text: text}
	around, err := splitPlaceholders(text, func(name string) error {
		source, err := readPlaceholder(name)
		t.Sources = append(t.Sources, source)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.around = around
	if len(t.Sources) == 0 {
		short := strings.Replace(t.plain(), "remote_ip", "remote_host", 1)
		if full := fullPlaceholder(short); full != "" {
			return nil, fmt.Errorf("has no braces, and would be one counter for all; write {%s}, in JSON %s", short, full)
		}
		if source, err := match.ParseKey(t.plain()); err == nil && !source.Static() {
			return nil, fmt.Errorf("has no braces, and would be one counter for all; write %s", cmp.Or(nativeOf(source), "{"+ownPrefix+source.String()+"}"))
		}
	}
	return t, nil
}

// NewValue is NewTemplate for a text that is no key.
func NewValue(text string) (*Template, error) {
	t, err := NewTemplate(text)
	if err != nil {
		return nil, err
	}
	return t, ruleset.OnlyOfKey(t.Sources)
}

// keyTemplate is NewTemplate with the result that package ruleset needs.
func keyTemplate(text string) (*ruleset.Template, error) {
	t, err := NewTemplate(text)
	if err != nil {
		return nil, err
	}
	own := len(t.Sources) == 0 || strings.IndexFunc(t.plain(), func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }) >= 0
	for _, source := range t.Sources {
		own = own || IsCaddys(source)
	}
	return &ruleset.Template{Sources: t.Sources, Static: t.plain(), Own: own, Source: t.Source()}, nil
}

// plain returns the text around the placeholders.
func (t *Template) plain() string { return strings.Join(t.around, "") }

// whole reports whether the text is a single placeholder.
func (t *Template) whole() bool { return len(t.Sources) == 1 && t.plain() == "" }

// Source returns the template as a source.
func (t *Template) Source() match.Source {
	if t.whole() {
		return t.Sources[0]
	}
	return match.NewSource(t)
}

// String returns the text as it is written.
func (t *Template) String() string { return t.text }

// Value returns the text with the values of a request in place of the placeholders.
func (t *Template) Value(r *http.Request) string {
	if len(t.Sources) == 0 {
		return t.around[0]
	}
	address := ClientIPOf(r)
	var text strings.Builder
	for i := range t.Sources {
		text.WriteString(t.around[i])
		text.WriteString(t.Sources[i].Value(r, address))
	}
	text.WriteString(t.around[len(t.Sources)])
	return text.String()
}

// OfAddress reports whether the text contains the address of the client or of the connection.
func (t *Template) OfAddress() bool { return slices.ContainsFunc(t.Sources, match.Source.OfAddress) }

// Rewrites reports whether any of the text's placeholders has a normalized spelling.
func (t *Template) Rewrites() bool { return slices.ContainsFunc(t.Sources, match.Source.Rewrites) }

// Canonicalize returns the normalized form of a value that a person has written: the text as requests have it. The error says why no
// request has that value.
//
// If the value can be divided among the placeholders in several ways, the way that leaves it unchanged has priority, since requests
// have that text; then the way whose first pieces are shortest.
func (t *Template) Canonicalize(text string) (string, error) {
	if t.whole() {
		return t.Sources[0].Canonicalize(text)
	}
	if !t.Rewrites() {
		return text, nil
	}
	s := textSpeller{template: t, text: text, tries: mostTries}
	if rest, found := strings.CutPrefix(text, t.around[0]); found && s.take(0, rest, t.around[0]) {
		return s.text, nil
	}
	if s.found {
		return s.first, nil
	}
	if s.why != nil {
		return "", s.why
	}
	return "", words.Wrong("", strconv.Quote(text), "is no text of %s", t.text)
}

// Unreachable says why no request has a value that a rule file has for the template; "": a request may have it. See ruleset.Unreachable. It
// deducts its attempts from tries, and says nothing when they run out.
func (t *Template) Unreachable(value string, tries *int) string {
	*tries--
	if *tries < 0 {
		return ""
	}
	if t.whole() {
		return ruleset.Unreachable(value, FormOf(t.Sources[0]), t.Sources[0].Canonicalize)
	}
	if strings.IndexByte(value, '*') >= 0 {
		return t.unreachableWildcard(value)
	}
	s := textSpeller{template: t, text: value, tries: *tries}
	if s.tries > mostTries {
		s.tries = mostTries
	}
	before := s.tries
	rest, found := strings.CutPrefix(value, t.around[0])
	asItIs := found && s.take(0, rest, t.around[0])
	*tries -= before - s.tries
	if asItIs || !s.found || s.tries == 0 || s.first == value { // another descriptor with these keys may have it
		return ""
	}
	return fmt.Sprintf("%q: requests have %q", value, s.first)
}

// unreachableWildcard is Unreachable for a wildcard. A wildcard may stand for any part of the template. So it checks only templates with a
// single placeholder, whose texts before and after the value also has.
func (t *Template) unreachableWildcard(value string) string {
	if len(t.Sources) != 1 {
		return ""
	}
	first, last := strings.IndexByte(value, '*'), strings.LastIndexByte(value, '*')
	front, behind := t.around[0], t.around[1]
	if !strings.HasPrefix(value[:first], front) || !strings.HasSuffix(value[last+1:], behind) {
		return ""
	}
	piece := value[len(front) : len(value)-len(behind)]
	spelled, why := ruleset.SpellWildcard(piece, FormOf(t.Sources[0]))
	switch {
	case why != "":
		return fmt.Sprintf("%q: %s", value, why)
	case spelled == piece:
		return ""
	}
	return fmt.Sprintf("%q: requests have %q", value, front+spelled+behind)
}

// ownPrefix is how the placeholders begin that are sources of Weir's own.
const ownPrefix = "http.rate_limit."

// readPlaceholder returns the source of a placeholder, of Caddy's or of Weir's own.
func readPlaceholder(name string) (match.Source, error) {
	if err := checkPlaceholder(name); err != nil {
		return match.Source{}, err
	}
	own, found := strings.CutPrefix(name, ownPrefix)
	if !found {
		return sourceOf(name), nil
	}
	source, err := match.ParseFirst(own, readOwn)
	if err != nil {
		m := words.Of(err)
		m.At = m.At[:0]
		return match.Source{}, m.Within("", "{"+name+"}")
	}
	if native := nativeOf(source); native != "" {
		return match.Source{}, fmt.Errorf("{%s}: Caddy has a placeholder for it; write %s", name, native)
	}
	return source, nil
}

// readOwn reads a source of rule files, or among the sources of first(…) a placeholder in its braces.
func readOwn(text string) (match.Source, error) {
	if len(text) > 2 && text[0] == '{' && text[len(text)-1] == '}' {
		return readPlaceholder(text[1 : len(text)-1])
	}
	return match.ParseSource(text)
}

// placeholders have the sources that all proxies have by Caddy's placeholders, and by the beginnings of such with a name behind.
var (
	placeholders = map[string]string{
		"http.vars.client_ip": "client_ip", "http.request.remote.host": "remote_ip", "http.request.host": "host", "http.request.method": "method",
		"http.request.uri.path": "path",
	}
	namedPlaceholders = map[string]string{"http.request.header.": "header:", "http.request.cookie.": "cookie:", "http.request.uri.query.": "query:"}
)

// nativeOf returns the placeholder of Caddy's for a source of all proxies; "": there is none.
func nativeOf(source match.Source) string {
	text := source.String()
	for name, written := range placeholders {
		if written == text {
			return "{" + name + "}"
		}
	}
	for prefix, kind := range namedPlaceholders {
		if field, found := strings.CutPrefix(text, kind); found {
			return "{" + prefix + field + "}"
		}
	}
	if source.Static() {
		return "the text itself"
	}
	return ""
}

// sourceOf returns the source of a placeholder: one that all proxies have if it means the same, else one of Caddy's.
func sourceOf(name string) match.Source {
	written := placeholders[name]
	for prefix, kind := range namedPlaceholders {
		if field, found := strings.CutPrefix(name, prefix); found {
			written = kind + field
		}
	}
	if source, err := match.ParseSource(written); err == nil {
		return source
	}
	return match.NewSource(&Placeholder{name: name, Canonical: canonicalFormOf(name)})
}

// FormOf returns the form of a source's values; see ruleset.FormOf.
func FormOf(source match.Source) string {
	if p, ok := source.Custom().(*Placeholder); ok && p.Canonical != nil {
		return p.Canonical.Form
	}
	return ruleset.FormOf(source)
}

// IsCaddys reports whether only Caddy has a source, or one of its alternatives.
func IsCaddys(source match.Source) bool {
	return source.Custom() != nil || slices.ContainsFunc(source.Alternatives(), IsCaddys)
}

// Placeholder is a source that only Caddy has.
type Placeholder struct {
	name      string
	Canonical *CanonicalForm // nil: clients can write the value in only one way
}

// String returns the placeholder as it is written.
func (p *Placeholder) String() string { return "{" + p.name + "}" }

// Value returns the placeholder's value for a request.
func (p *Placeholder) Value(r *http.Request) string {
	if p.Canonical != nil {
		return p.Canonical.of(r)
	}
	value, _ := ReplacerOf(r).GetString(p.name)
	return value
}

// Canonicalize returns the normalized form of a value that a person has written. The error says why no request has it.
func (p *Placeholder) Canonicalize(value string) (string, error) {
	if p.Canonical != nil {
		return p.Canonical.Canonicalize(value)
	}
	return value, checkWritten(p.name, value)
}

// Rewrites reports whether the placeholder has a normalized spelling.
func (p *Placeholder) Rewrites() bool { return p.Canonical != nil }

// OfAddress returns false: the placeholders that are addresses are sources of all proxies.
func (*Placeholder) OfAddress() bool { return false }

// mostTries bounds the ways in which a text is divided.
const mostTries = 10000

// textSpeller divides a text among the parts of a template.
type textSpeller struct {
	template *Template
	text     string // as it is written
	first    string // the result of the first way
	found    bool
	why      error // why the first failed way failed
	tries    int
}

// take tries the ways in which rest can be divided among the template's parts from part on. made is the normalized text before it.
// It reports whether a way leaves the text unchanged.
func (s *textSpeller) take(part int, rest, made string) bool {
	if part == len(s.template.Sources) {
		if rest != "" {
			return false
		}
		if !s.found {
			s.found = true
			s.first = made
		}
		return made == s.text
	}
	behind := s.template.around[part+1]
	for end := 0; end <= len(rest) && s.tries > 0; end++ {
		if !strings.HasPrefix(rest[end:], behind) || part == len(s.template.Sources)-1 && end+len(behind) != len(rest) {
			continue
		}
		s.tries--
		piece := rest[:end]
		if source := s.template.Sources[part]; source.Rewrites() {
			var err error
			if piece, err = source.Canonicalize(piece); err != nil {
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

func ReplacerOf(r *http.Request) *caddy.Replacer {
	return r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
}

// splitPlaceholders calls f for each placeholder of a template, as Caddy's replacer finds them. It returns the texts before each
// and after the last, without the backslashes that escape braces. A brace that opens a placeholder and is never closed is an error.
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

// closingBrace returns where the placeholder ends that begins at open: at the first closing brace that is not escaped. A brace that
// is the last character always closes, as it does for Caddy. In a placeholder of Weir's own, braces within are closed first.
func closingBrace(template string, open int) int {
	if strings.HasPrefix(template[open+1:], ownPrefix) {
		return ownClosingBrace(template, open)
	}
	for i := open + 1; i < len(template); i++ {
		if template[i] == '}' && (template[i-1] != '\\' || i == len(template)-1) {
			return i
		}
	}
	return -1
}

// ownClosingBrace is closingBrace for a placeholder of Weir's own.
func ownClosingBrace(template string, open int) int {
	depth := 0
	for i := open; i < len(template); i++ {
		switch template[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			depth--
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}

// HasPlaceholder reports whether a template has a placeholder.
func HasPlaceholder(template string) bool {
	found := false
	_, _ = splitPlaceholders(template, func(string) error { found = true; return nil })
	return found
}

// checkPlaceholder refuses a placeholder that has no value when a limit decides, and a shorthand of the Caddyfile. Caddy replaces shorthands in sites; one that is left would be empty, and
// all clients would share one key.
func checkPlaceholder(name string) error {
	if name == "" {
		return fmt.Errorf("has an empty placeholder; write \\{ for a brace")
	}
	if full := fullPlaceholder(name); full != "" {
		return fmt.Errorf("{%s} is a shorthand that Caddy knows in the sites of a Caddyfile only; write %s", name, full)
	}
	if source, err := match.ParseKey(name); err == nil && strings.ContainsAny(name, ":(") {
		return fmt.Errorf("{%s} is no placeholder of Caddy; write %s", name, cmp.Or(nativeOf(source), "{"+ownPrefix+name+"}"))
	}
	return checkProvided(name)
}

// knownBelow has what Caddy provides below the first parts of placeholders.
var knownBelow = map[string][]string{
	"":             {"header", "cookie", "query", "path", "labels", "vars", "re", "file", "env", "http", "system", "time"},
	"http":         {"request", "vars", "auth", "regexp", "matchers", "error", "rate_limit"},
	"http.request": {"header", "cookie", "host", "uri", "orig_uri", "remote", "local", "tls"},
}

// Meant returns the placeholder that a misspelt one most likely means, without braces; "" if it may be right: any module can provide placeholders.
func Meant(name string) string {
	parts := strings.Split(name, ".")
	for i, part := range parts[:len(parts)-1] {
		known := knownBelow[strings.Join(parts[:i], ".")]
		if slices.Contains(known, part) {
			continue
		}
		parts[i] = words.NearestWithin(part, known, len(part)/3)
		if parts[i] == "" {
			break
		}
		return strings.Join(parts, ".")
	}
	return ""
}

// fullPlaceholder returns the placeholder that a shorthand of the Caddyfile stands for, or "" for any other text.
func fullPlaceholder(shorthand string) string {
	segment := caddyfile.Segment{{Text: "{" + shorthand + "}"}}
	httpcaddyfile.NewShorthandReplacer().ApplyToSegment(&segment)
	if full := segment[0].Text; full != "{"+shorthand+"}" {
		return full
	}
	return ""
}

// ClientIPOf returns the client's address as Caddy knows it, an IPv4-mapped one as its IPv4. It can be empty.
func ClientIPOf(r *http.Request) string {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	if strings.HasPrefix(ip, "::") {
		return match.CleanAddress(ip)
	}
	return ip
}

// ClientAddress returns the client's address as Caddy determines it; behind trusted proxies this is not the peer's.
func ClientAddress(r *http.Request) string {
	if ip := ClientIPOf(r); ip != "" {
		return ip
	}
	return match.HostOf(r.RemoteAddr)
}

// tooLate has the beginnings of placeholders that have a value only when a limit has decided already.
var tooLate = []string{"http.reverse_proxy.", "http.response.", "http.intercept.", "http.rate_limit.exceeded."}

// checkProvided refuses a placeholder that has no value when a limit decides, or that would read a whole body first.
func checkProvided(name string) error {
	for _, prefix := range tooLate {
		if strings.HasPrefix(name, prefix) {
			return fmt.Errorf("{%s} has a value only after the limit has decided, so it would always be empty; write one of the request, such as {http.request.header.X-Customer}", name)
		}
	}
	if name == "http.request.body" || name == "http.request.body_base64" {
		return fmt.Errorf("{%s} would read the whole body of every request, however large, before the limit decides; write a field of the request, such as {http.request.header.X-Customer}", name)
	}
	return nil
}
