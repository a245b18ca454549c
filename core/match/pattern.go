package match

import (
	"net/http"
	"sort"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// namedPattern is what the values of a header field, a parameter or a cookie must meet.
type namedPattern struct {
	name  string
	value pattern
}

// namedPatterns reads the values that parameters or cookies must have. field is the field of Match that has them, kind the kind of source of such values.
func namedPatterns(field, kind string, values map[string]string) ([]namedPattern, error) {
	list := make([]namedPattern, 0, len(values))
	for name, value := range values {
		if err := checkFieldName(kind, name); err != nil {
			return nil, in(field, words.Of(err))
		}
		p := pattern{operator: present, not: true}
		if value != "" {
			read, err := parsePattern(value)
			if err != nil {
				return nil, in(field, words.Of(err).Within("", name))
			}
			p = read
		}
		list = append(list, namedPattern{name, p})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
	return list, nil
}

// meetAll reports whether values by their names meet all of some patterns.
func meetAll(values map[string][]string, list []namedPattern) bool {
	for i := range list {
		if !meets(values[list[i].name], &list[i].value) {
			return false
		}
	}
	return true
}

// cookiesOf returns the values of a request's cookies by their names.
func cookiesOf(r *http.Request) map[string][]string {
	values := make(map[string][]string)
	for _, c := range r.Cookies() {
		values[c.Name] = append(values[c.Name], c.Value)
	}
	return values
}

// meets reports whether the values of a field meet a pattern: one of them fits it, or with not none of them.
func meets(values []string, p *pattern) bool {
	if len(values) > manyValues {
		return true
	}
	for i := range values {
		if p.fits(values[i]) {
			return !p.not
		}
	}
	return p.not
}

// manyValues is how often a request may send a field for its values to be compared. A field that is sent more often matches any value: its
// sender wants to get round a limit, or to make it costly.
const manyValues = 64

// pattern is a value of a match that is read as an operator and a text: "text", "text*", "*text", "*text*" or "*", and each with a ! in front. With an
// = in front the rest is the text as it is.
type pattern struct {
	operator operator
	not      bool // of the requests that the pattern without its ! does not fit
	text     string
}

type operator int

const (
	_ operator = iota
	exactly
	begins
	ends
	within    // *text*
	present   // *
	mediaType // exactly, but for the parameters behind a media type and its upper and lower case
)

// parsePattern reads a pattern. The error says what to write instead of what others write for such a thing.
func parsePattern(value string) (pattern, error) {
	var p pattern
	text := strings.TrimPrefix(value, "!")
	p.not = text != value
	if err := checkRegexp(text); err != nil {
		return p, words.Of(err).Within("", strconv.Quote(value))
	}
	plain := strings.TrimPrefix(text, "=")
	if plain != text {
		p.operator = exactly
		p.text = plain
		return p, nil
	}
	if text == "" && p.not || strings.HasPrefix(text, "!") {
		return p, words.Wrong("", strconv.Quote(value), " must have a text behind one !, or \"!*\" for no value")
	}
	p.text = strings.TrimPrefix(strings.TrimSuffix(text, "*"), "*")
	front, end := strings.HasPrefix(text, "*"), strings.HasSuffix(text, "*")
	p.operator = exactly
	switch {
	case text == "*":
		p.operator = present
	case front && end:
		p.operator = within
	case front:
		p.operator = ends
	case end:
		p.operator = begins
	}
	if text != "*" && p.text == "" && text != "" || strings.IndexByte(p.text, '*') >= 0 {
		return p, words.Wrong("", strconv.Quote(value), " may have one * at its beginning and one at its end; the text as it is would be %q", "="+text)
	}
	return p, nil
}

// checkRegexp refuses a text that is most likely a regular expression, which is no operator.
func checkRegexp(text string) error {
	if strings.HasPrefix(text, "=") && !strings.HasPrefix(text, "=~") {
		return nil
	}
	found := strings.HasSuffix(text, "$")
	for _, sign := range []string{"~", "=~", "^", "(?"} {
		found = found || strings.HasPrefix(text, sign)
	}
	for _, sign := range []string{".*", ".+", `\d`, `\w`, `\.`} {
		found = found || strings.Contains(text, sign)
	}
	if found {
		return words.Wrong("", "", " looks like a regular expression, which is not available; write \"text*\" for what begins with a text, \"*text\" for what ends with it, \"*text*\" for what has it, and a ! in front for the others")
	}
	return nil
}

// fits reports whether a value fits the pattern, whatever not says.
func (p *pattern) fits(value string) bool {
	switch p.operator {
	case begins:
		return strings.HasPrefix(value, p.text)
	case ends:
		return strings.HasSuffix(value, p.text)
	case within:
		return strings.Contains(value, p.text)
	case present:
		return value != ""
	case mediaType:
		value, _, _ = strings.Cut(value, ";")
		return strings.EqualFold(strings.TrimSpace(value), p.text)
	}
	return value == p.text
}
