package core

import (
	"net/textproto"
	"sort"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// Counted says which responses count: those with one of several statuses, or with one of several fields. ParseCounted makes it. It is immutable, and
// safe for concurrent use.
type Counted struct {
	has    []bool // indexed by code
	fields []countedField
	text   string
}

// countedField is a header field or a trailer.
type countedField struct {
	name      string // canonical
	value     string
	isTrailer bool
	anyValue  bool
}

// countedWords say what count may name.
const countedWords = "must be the status code of a response, 101 or 200 to 599, a class of them such as 4xx, or a field such as header:X-Login, header:X-Login=failed or trailer:Grpc-Status=16"

// ParseCounted reads a list of codes (401) and classes of codes (4xx), separated by spaces or commas. Codes are those of final
// responses: 101, and 200 to 599. An item may also be a field of the response, with any value or with that one: header:NAME, header:NAME=VALUE,
// trailer:NAME or trailer:NAME=VALUE. The error names the word that is wrong.
func ParseCounted(list []string) (*Counted, error) {
	s := &Counted{has: make([]bool, 600)}
	any := false
	for _, item := range list {
		if field := strings.TrimSpace(item); isCountedField(field) { // its value may have spaces
			if err := s.addField(field); err != nil {
				return nil, err
			}
			any = true
			continue
		}
		for _, word := range strings.FieldsFunc(item, isSeparator) {
			any = true
			if err := s.addWord(word); err != nil {
				return nil, err
			}
		}
	}
	if !any {
		return nil, words.Wrong("count", "", "names no status; write those of the responses that stay charged, such as 401 or 4xx")
	}
	s.text = s.canonical()
	return s, nil
}

// addWord adds a status, a class of them, or a field.
func (s *Counted) addWord(word string) error {
	if isCountedField(word) {
		return s.addField(word)
	}
	if len(word) == 3 && word[0] >= '2' && word[0] <= '5' && strings.EqualFold(word[1:], "xx") {
		first := 100 * int(word[0]-'0')
		for code := first; code < first+100; code++ {
			s.has[code] = true
		}
		return nil
	}
	code, err := strconv.Atoi(word)
	if err != nil || len(word) != 3 || code != 101 && (code < 200 || code > 599) {
		return words.Wrong("count", strconv.Quote(word), countedWords)
	}
	s.has[code] = true
	return nil
}

func isCountedField(text string) bool {
	return strings.HasPrefix(text, "header:") || strings.HasPrefix(text, "trailer:")
}

// addField adds a field.
func (s *Counted) addField(text string) error {
	kind, named, _ := strings.Cut(text, ":")
	name, value, valued := strings.Cut(named, "=")
	if !words.IsToken(name) {
		return words.Wrong("count", strconv.Quote(text), "has no name of a header field; write one such as "+kind+":X-Login=failed")
	}
	f := countedField{name: textproto.CanonicalMIMEHeaderKey(name), value: strings.TrimSpace(value), isTrailer: kind == "trailer", anyValue: !valued}
	for _, other := range s.fields {
		if other == f {
			return nil
		}
	}
	s.fields = append(s.fields, f)
	return nil
}

// Fields reports whether it asks for fields of responses.
func (s *Counted) Fields() bool { return len(s.fields) > 0 }

// Meets reports whether the header fields of a response, or its trailers, have one that counts.
func (s *Counted) Meets(header map[string][]string, trailers bool) bool {
	for i := range s.fields {
		f := &s.fields[i]
		if f.isTrailer != trailers {
			continue
		}
		for _, value := range header[f.name] {
			if f.anyValue || strings.TrimSpace(value) == f.value {
				return true
			}
		}
	}
	return false
}

func isSeparator(r rune) bool { return r == ',' || r == ' ' || r == '\t' }

// canonical returns what counts in its only form: whole classes as such, in ascending order, and then the fields.
func (s *Counted) canonical() string {
	var words []string
	if s.has[101] {
		words = append(words, "101")
	}
	for class := 2; class <= 5; class++ {
		var codes []string
		for code := 100 * class; code < 100*class+100; code++ {
			if s.has[code] {
				codes = append(codes, strconv.Itoa(code))
			}
		}
		if len(codes) == 100 {
			words = append(words, strconv.Itoa(class)+"xx")
		} else {
			words = append(words, codes...)
		}
	}
	fields := make([]string, len(s.fields))
	for i, f := range s.fields {
		fields[i] = "header:" + f.name
		if f.isTrailer {
			fields[i] = "trailer:" + f.name
		}
		if !f.anyValue {
			fields[i] += "=" + strconv.Quote(f.value)
		}
	}
	sort.Strings(fields)
	return strings.Join(append(words, fields...), ",")
}

// Has reports whether responses with that status count.
func (s *Counted) Has(code int) bool {
	return code >= 0 && code < len(s.has) && s.has[code]
}

// String writes it in its only form: "401,5xx". Equal ones have equal texts.
func (s *Counted) String() string { return s.text }
