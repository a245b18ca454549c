package core

import (
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// Statuses is a set of status codes of responses. ParseStatuses makes it. It is immutable, and safe for concurrent use.
type Statuses struct {
	has  []bool // indexed by code
	text string
}

// ParseStatuses reads a list of codes (401) and classes of codes (4xx), separated by spaces or commas. Codes are those of final
// responses: 101, and 200 to 599. The error names the word that is wrong.
func ParseStatuses(list []string) (*Statuses, error) {
	s := &Statuses{has: make([]bool, 600)}
	any := false
	for _, word := range strings.FieldsFunc(strings.Join(list, ","), isSeparator) {
		any = true
		if len(word) == 3 && word[0] >= '2' && word[0] <= '5' && strings.EqualFold(word[1:], "xx") {
			first := 100 * int(word[0]-'0')
			for code := first; code < first+100; code++ {
				s.has[code] = true
			}
			continue
		}
		code, err := strconv.Atoi(word)
		if err != nil || len(word) != 3 || code != 101 && (code < 200 || code > 599) {
			return nil, words.Wrong("count", strconv.Quote(word), "must be the status code of a response, 101 or 200 to 599, or a class of them such as 4xx")
		}
		s.has[code] = true
	}
	if !any {
		return nil, words.Wrong("count", "", "names no status; write those of the responses that stay charged, such as 401 or 4xx")
	}
	s.text = s.canonical()
	return s, nil
}

func isSeparator(r rune) bool { return r == ',' || r == ' ' || r == '\t' }

// canonical returns the set in its only form: whole classes as such, in ascending order.
func (s *Statuses) canonical() string {
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
	return strings.Join(words, ",")
}

// Has reports whether a code is in the set.
func (s *Statuses) Has(code int) bool {
	return code >= 0 && code < len(s.has) && s.has[code]
}

// String writes the set as ParseStatuses reads it: "401,5xx". Equal sets have equal texts.
func (s *Statuses) String() string { return s.text }
