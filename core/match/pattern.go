package match

import (
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

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
