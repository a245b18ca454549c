package ruleset

import (
	"fmt"
	"strconv"
	"strings"
)

// isWildcard reports whether a descriptor's value stands for several: a * in it is any text, also none.
func isWildcard(value string) bool {
	return strings.IndexByte(value, '*') >= 0
}

// splitWildcard returns what the values of a wildcard begin with, and what else they must have; nil: nothing.
func splitWildcard(value string) (prefix string, more *tail) {
	first := strings.IndexByte(value, '*')
	last := strings.LastIndexByte(value, '*')
	prefix = value[:first]
	behind := &tail{suffix: value[last+1:]}
	for _, text := range strings.Split(value[first:last+1], "*") {
		if text != "" {
			behind.inner = append(behind.inner, text)
		}
	}
	if behind.suffix != "" || len(behind.inner) > 0 {
		more = behind
	}
	return prefix, more
}

// fits reports whether the rest of a value has what the wildcard asks of it. To take the first place of each text is enough, since what
// is behind it is then the longest: so it reads a value once, however many * there are, and never goes back.
func fits(t *tail, rest string) bool {
	if !strings.HasSuffix(rest, t.suffix) {
		return false
	}
	rest = rest[:len(rest)-len(t.suffix)]
	for i := range t.inner {
		at := strings.Index(rest, t.inner[i])
		if at < 0 {
			return false
		}
		rest = rest[at+len(t.inner[i]):]
	}
	return true
}

// Unmet says why no request has a descriptor's value, where what it is taken from has one spelling; "": some may have it. spell returns a
// value that a person has written in that spelling, and an error where it can have none, which begins with the value. Of a wildcard the
// case of letters is looked at, and whether a few texts in place of its * make a value that requests have.
func Unmet(value string, spell func(value string) (string, error)) string {
	if !isWildcard(value) {
		spelled, err := spell(value)
		if err != nil {
			return err.Error()
		}
		if spelled != value {
			return fmt.Sprintf("%q: requests have %q", shorten(value), shorten(spelled))
		}
		return ""
	}
	letters, err := spell("/Aa")
	if err != nil {
		letters, _ = spell("Aa")
	}
	path := value // in front of a query, which is as it was sent
	if i := strings.IndexByte(value, '?'); i >= 0 {
		path = value[:i]
	}
	spelled := path
	if strings.HasSuffix(letters, "aa") {
		spelled = strings.ToLower(path)
	} else if strings.HasSuffix(letters, "AA") {
		spelled = strings.ToUpper(path)
	}
	if spelled == path {
		return unmetWildcard(value, spell, strings.HasSuffix(letters, "AA"))
	}
	return fmt.Sprintf("%q: requests have %q", shorten(value), shorten(spelled+value[len(path):]))
}

// samples are what the * of a value is tried with: pieces of hosts, methods, paths and URLs.
var samples = []string{"x", "", "/x", "x/", "/", "/x/", "X", "1", ".x", ".", "x.x", ":1", "::1", ":", "%2Fx", "%2F"}

// unmetWildcard says why no request has what a wildcard stands for. The first and the last * are tried with every sample, those between
// with a letter.
func unmetWildcard(value string, spell func(value string) (string, error), upper bool) string {
	pieces := strings.Split(value, "*")
	if strings.Trim(value, "*") == "" {
		return ""
	}
	letter := "x"
	if upper {
		letter = "X"
	}
	why := ""   // what the first that is refused is refused for
	other := "" // the first that is spelt in another way
	for _, last := range samples {
		for _, first := range samples {
			candidate := pieces[0] + first + strings.Join(pieces[1:], letter)
			if n := len(pieces) - 1; n > 1 {
				candidate = pieces[0] + first + strings.Join(pieces[1:n], letter) + last + pieces[n]
			}
			spelled, err := spell(candidate)
			if err == nil && spelled == candidate {
				return ""
			}
			if err != nil && why == "" {
				why = fmt.Sprintf("%q: %s", shorten(value), strings.TrimPrefix(err.Error(), strconv.Quote(candidate)+": "))
			}
			if err == nil && other == "" {
				other = fmt.Sprintf("%q: requests have %q in place of %q", shorten(value), shorten(spelled), shorten(candidate))
			}
		}
		if len(pieces) == 2 {
			break
		}
	}
	if other != "" {
		return other
	}
	return why
}
