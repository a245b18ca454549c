package match

import (
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// ParseKey reads a source of a key: what ParseSource reads, or first(SOURCE, SOURCE…), whose value is that of the first source that has one, with the
// name of that source in front, so that values of different sources are never the same.
func ParseKey(s string) (Source, error) { return ParseFirst(s, ParseSource) }

// ParseFirst is ParseKey for sources that parse reads.
func ParseFirst(s string, parse func(s string) (Source, error)) (Source, error) {
	if !strings.HasPrefix(s, firstOf) {
		return parse(s)
	}
	var list []Source
	items := splitFirst(s[len(firstOf):])
	if items == nil {
		return Source{}, words.Wrong("key", strconv.Quote(s), "must end where its parenthesis closes: first(header:X-User, client_ip)")
	}
	if len(items) < 2 {
		return Source{}, words.Wrong("key", strconv.Quote(s), "must have several sources, with commas between: first(header:X-User, client_ip)")
	}
	for _, item := range items {
		source, err := parse(item)
		if err != nil {
			return Source{}, words.Of(err).Within("key", strconv.Quote(s))
		}
		for i := range list {
			if kind := list[i].kind; kind == "static" || kind == "method" || kind == "path" {
				return Source{}, words.Wrong("key", strconv.Quote(s), "every request has %s, so that %s is never taken; write it in front", list[i].String(), source.String())
			}
			if strings.HasPrefix(source.label(), list[i].label()) || strings.HasPrefix(list[i].label(), source.label()) {
				return Source{}, words.Wrong("key", strconv.Quote(s), "%s and %s could not be told apart; remove one", list[i].String(), source.String())
			}
		}
		list = append(list, source)
	}
	labels := make([]string, len(list))
	for i := range list {
		labels[i] = list[i].label()
	}
	return Source{kind: "first", first: &alternatives{list, labels}}, nil
}

// splitFirst returns the items of a list, with commas between, that a parenthesis ends; nil: that does not end the text. Commas in brackets, and
// what is behind a backslash, are parts of items.
func splitFirst(text string) (items []string) {
	depth, from := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '(', '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			if depth == 0 {
				items = append(items, strings.TrimSpace(text[from:i]))
				from = i + 1
			}
		case ')':
			depth--
			if depth < 0 {
				if i < len(text)-1 {
					return nil
				}
				return append(items, strings.TrimSpace(text[from:i]))
			}
		}
	}
	return nil
}

// Joined returns a list of sources in which items are joined that are pieces of one: YAML and Traefik's labels split a list at each comma, also at those
// within first(…) and within a regular expression.
func Joined(list []string) []string {
	var joined []string
	open := "" // what has no closing bracket so far
	for _, item := range list {
		text := item
		if open != "" {
			text = open + "," + item
		}
		plain := strings.TrimSpace(text)
		open = ""
		if strings.HasPrefix(plain, firstOf) && splitFirst(plain[len(firstOf):]) == nil || strings.HasPrefix(plain, "path_regexp:") && splitFirst(plain+")") == nil {
			open = text
			continue
		}
		joined = append(joined, text)
	}
	if open != "" {
		joined = append(joined, open)
	}
	return joined
}
