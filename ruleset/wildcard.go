package ruleset

import (
	"fmt"
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
// value that a person has written in that spelling, and an error where it can have none. Of a wildcard only the case of letters is looked
// at.
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
		return ""
	}
	return fmt.Sprintf("%q: requests have %q", shorten(value), shorten(spelled+value[len(path):]))
}
