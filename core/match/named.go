package match

import (
	"net/http"
	"sort"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

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

// checkFieldName says why no request has a cookie or a parameter with that name.
func checkFieldName(kind, name string) error {
	if kind == "cookie" && !words.IsToken(name) {
		return words.Wrong("", "", "%q cannot be the name of a cookie", name)
	}
	if kind == "query" && (name == "" || strings.ContainsAny(name, "?&=#")) {
		return words.Wrong("", strconv.Quote(name), "must have the name of the parameter alone, such as query:token")
	}
	return nil
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
