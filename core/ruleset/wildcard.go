package ruleset

import (
	"fmt"
	"strings"

	"github.com/proxyweir/weir/core/match"
)

// isWildcard reports whether a descriptor's value is a wildcard: a * in it matches any text, also an empty one.
func isWildcard(value string) bool {
	return strings.IndexByte(value, '*') >= 0
}

// splitWildcard returns the text that the values of a wildcard begin with, and what else they must have; nil: nothing.
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

// fits reports whether the rest of a value has the texts of the wildcard. To take the first place of each text is enough, since the text
// behind it is then the longest. So it reads a value once, however many * there are, and never backtracks.
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

// The forms of values that have a canonical spelling. For the form "" nothing is known about which wildcards no request matches.
const (
	Hosts   = "hosts"   // in lower case, without a port
	Methods = "methods" // in upper case
	Paths   = "paths"   // in lower case and decoded, without empty segments
	URLs    = "URLs"    // a path in lower case and escaped, and maybe a query, as it was sent
	Pieces  = "pieces"  // in lower case
)

// forms has the forms of the sources whose values have a canonical spelling.
var forms = map[string]string{"host": Hosts, "header:Host": Hosts, "method": Methods, "path": Paths}

// FormOf returns the form of a source's values.
func FormOf(source match.Source) string {
	if kind, _, _ := strings.Cut(source.String(), ":"); kind == "path_segment" || kind == "path_regexp" {
		return Pieces
	}
	return forms[source.String()]
}

// Unreachable says why no request has a descriptor's value of a form; "": some may have it. spell returns a value from a configuration in the
// spelling of requests, and an error, which begins with the value, if no request can have it. A wildcard passes unless no value has the text
// beside its *.
func Unreachable(value, form string, spell func(value string) (string, error)) string {
	if !isWildcard(value) {
		spelled, err := spell(value)
		if err != nil {
			return err.Error()
		}
		return otherwise(value, spelled)
	}
	spelled, why := SpellWildcard(value, form)
	if why != "" {
		return fmt.Sprintf("%q: %s", shorten(value), why)
	}
	return otherwise(value, spelled)
}

func otherwise(value, spelled string) string {
	if spelled == value {
		return ""
	}
	return fmt.Sprintf("%q: requests have %q", shorten(value), shorten(spelled))
}

// SpellWildcard returns a wildcard in the spelling of values of the form, or says why it matches no request. If it is not certain, it returns
// the wildcard unchanged.
func SpellWildcard(value, form string) (spelled, why string) {
	switch {
	case strings.Trim(value, "*") == "":
	case form == Methods:
		_, err := match.SpellMethod(strings.ReplaceAll(value, "*", "X"))
		if err != nil {
			return value, "must be a method such as POST"
		}
		return strings.ToUpper(value), ""
	case form == Hosts:
		return spellHosts(strings.ToLower(value))
	case form == Paths:
		return spellPaths(value)
	case form == URLs:
		return spellURLs(value)
	case form == Pieces:
		return strings.ToLower(value), ""
	}
	return value, ""
}

// spellHosts is SpellWildcard for hosts in lower case. One with a colon is an IPv6 address, or was meant to have a port.
func spellHosts(value string) (spelled, why string) {
	if strings.IndexByte(value, '/') >= 0 {
		return value, "must be a host such as shop.example, without a scheme or a path"
	}
	if strings.IndexByte(value, ':') >= 0 {
		if strings.IndexByte(value, '%') < 0 && strings.Trim(value, "*0123456789abcdef:.") != "" {
			return value, "requests have hosts without a port"
		}
		return value, ""
	}
	_, err := match.SpellHost(strings.ReplaceAll(value, "*", "x"))
	if err != nil {
		return value, "must be one host, such as shop.example"
	}
	return strings.TrimSuffix(value, "."), ""
}

// spellPaths is SpellWildcard for paths.
func spellPaths(value string) (spelled, why string) {
	if value[0] != '/' && value[0] != '*' {
		return value, "must be a path, which begins with /"
	}
	escape := match.EscapeIn(value)
	if escape != "" {
		return value, "must be written decoded, without " + escape
	}
	return strings.ToLower(value), lackingIn(value, true)
}

// lackingIn says which text of a wildcard no path has in its canonical spelling. whole: the text ends the path.
func lackingIn(path string, whole bool) string {
	for _, text := range []string{"//", "/./", "/../"} {
		if strings.Contains(path, text) {
			return "requests have no path with " + text
		}
	}
	if whole && (strings.HasSuffix(path, "/.") || strings.HasSuffix(path, "/..")) {
		return "requests have no path that ends with a dot as its segment"
	}
	return ""
}

// spellURLs is SpellWildcard for URLs. It checks nothing behind the first *, since that may be in a query.
func spellURLs(value string) (spelled, why string) {
	if value[0] != '/' {
		return value, ""
	}
	end := strings.IndexAny(value, "*?")
	whole := value[end] == '?'
	if escape := strings.LastIndexByte(value[:end], '%'); escape >= 0 && escape+3 > end { // of which the rest is behind the *
		end = escape
	}
	path := strings.ToLower(value[:end])
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' && i+3 <= len(path) && match.EscapeIn(path[i:i+3]) != "" {
			b.WriteString(strings.ToUpper(path[i : i+3]))
			i += 2
		} else if c >= 0x80 || c == ' ' {
			b.WriteString(fmt.Sprintf("%%%02X", int(c)))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + value[end:], lackingIn(path, whole)
}
