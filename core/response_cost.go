package core

import (
	"net/textproto"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/proxyweir/weir/core/words"
)

// ResponseCost says where a response says what its request has cost. ParseResponseCost makes it. It is immutable, and safe for concurrent use.
type ResponseCost struct {
	kind string
	name string   // of the field
	path []string // keys, from the outside in
}

// The kinds of a ResponseCost.
const (
	CostHeader  = "header"  // a field of the header
	CostTrailer = "trailer" // a field of the trailers
	CostJSON    = "json"    // a number in a body of JSON
	CostBytes   = "bytes"   // the length of the body
)

// MaxCostKeys is how many keys a path of CostJSON may have, and MaxCostKey how many bytes each.
const (
	MaxCostKeys = 16
	MaxCostKey  = 128
)

// ParseResponseCost reads "header X-Cost", "trailer X-Cost", "json usage.total_tokens" or "bytes", in one word or several. A path of JSON is made of keys
// with dots between them. A key that is a number is an element of a list, too, counted from 0. A key with other characters than letters, digits, _ and -
// stands in single quotes: 'a.b'.c
func ParseResponseCost(list []string) (*ResponseCost, error) {
	text := strings.Join(strings.Fields(strings.Join(list, " ")), " ")
	kind, rest, _ := strings.Cut(text, " ")
	switch kind {
	case CostHeader, CostTrailer:
		if !words.IsToken(rest) {
			return nil, words.Wrong("cost_response", strconv.Quote(text), "must have the name of one field, such as %s X-Cost", kind)
		}
		return &ResponseCost{kind: kind, name: textproto.CanonicalMIMEHeaderKey(rest)}, nil
	case CostJSON:
		path := parseCostPath(rest)
		if len(path) == 0 {
			return nil, words.Wrong("cost_response", strconv.Quote(text), "must have keys with dots between them, such as json usage.total_tokens; "+
				"a key with other characters than letters, digits, _ and - stands in single quotes, such as json 'a.b'.c")
		}
		if len(path) > MaxCostKeys {
			return nil, words.Wrong("cost_response", strconv.Quote(text), "has %d keys; at most %d are possible", len(path), MaxCostKeys)
		}
		for _, key := range path {
			if len(key) > MaxCostKey {
				return nil, words.Wrong("cost_response", strconv.Quote(text), "has a key of %d bytes; at most %d are possible", len(key), MaxCostKey)
			}
		}
		return &ResponseCost{kind: kind, path: path}, nil
	case CostBytes:
		if rest == "" {
			return &ResponseCost{kind: kind}, nil
		}
	}
	return nil, words.Wrong("cost_response", strconv.Quote(text), "must be header and a field, trailer and a field, json and a path, or bytes").
		Guess(words.Nearest(kind, []string{CostHeader, CostTrailer, CostJSON, CostBytes}))
}

// parseCostPath returns the keys of a path, or none if they are written wrongly.
func parseCostPath(text string) []string {
	var path []string
	for {
		var key string
		if strings.HasPrefix(text, "'") {
			end := strings.IndexByte(text[1:], '\'')
			if end < 1 || !utf8.ValidString(text) {
				return nil
			}
			key, text = text[1:1+end], text[2+end:]
		} else {
			end := strings.IndexFunc(text, needsQuotes)
			if end < 0 {
				end = len(text)
			}
			key, text = text[:end], text[end:]
		}
		if key == "" {
			return nil
		}
		path = append(path, key)
		if text == "" {
			return path
		}
		if text[0] != '.' {
			return nil
		}
		text = text[1:]
	}
}

func needsQuotes(r rune) bool {
	return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// Kind returns CostHeader, CostTrailer, CostJSON or CostBytes.
func (c *ResponseCost) Kind() string { return c.kind }

// Name returns the canonical name of the field; "" if there is none.
func (c *ResponseCost) Name() string { return c.name }

// Path returns the keys of CostJSON, from the outside in. The caller must not change them.
func (c *ResponseCost) Path() []string { return c.path }

// String writes the source as ParseResponseCost reads it. Equal sources have equal texts.
func (c *ResponseCost) String() string {
	text := c.kind
	if c.name != "" {
		text += " " + c.name
	}
	for i, key := range c.path {
		if strings.IndexFunc(key, needsQuotes) >= 0 {
			key = "'" + key + "'"
		}
		if i == 0 {
			text += " " + key
		} else {
			text += "." + key
		}
	}
	return text
}
