package match

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// firstOf is how a source begins that is the first of several which has a value.
const firstOf = "first("

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
	return words.Wrong("", strconv.Quote(value), "must have the source that it comes from in front, such as %s", s.first.labels[0]+value)
}

// firstText is Source.String for the first of several sources.
func firstText(list []Source) string {
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = list[i].String()
	}
	return firstOf + strings.Join(texts, ", ") + ")"
}
