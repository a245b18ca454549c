package advice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep a document may be nested. One that has no unknown fields is nested 4 deep.
const maxDepth = 16

// The kinds of a node.
const (
	isNull = "null"
	isBool = "boolean"
	isNum  = "number"
	isText = "text"
	isList = "list"
	isObj  = "object"
)

// node is a value of JSON.
type node struct {
	kind   string
	text   string          // of a text, or as a number is written
	names  []string        // of an object's members
	values []*node         // of these, or of a list
	seen   map[string]bool // names, if there are many
}

// parseJSON reads a text of JSON: one value, UTF-8, no object with a name twice, nested maxDepth deep at most, with so many values in all at most.
func parseJSON(body []byte, most int) (*node, error) {
	if !utf8.Valid(body) {
		return nil, fmt.Errorf("is not UTF-8")
	}
	// Unmarshal checks the whole syntax, which Token does not, and says where it is wrong.
	var raw json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		if at, is := err.(*json.SyntaxError); is { //nolint:errorlint // Unmarshal wraps nothing
			return nil, fmt.Errorf("is not JSON: byte %d: %w", at.Offset, err)
		}
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	p := &parser{decoder: json.NewDecoder(bytes.NewReader(body)), left: most}
	p.decoder.UseNumber()
	n := parseNode(p, 0)
	if p.wrong != "" {
		at := ""
		for i := len(p.path) - 1; i >= 0; i-- {
			at += p.path[i]
		}
		return nil, fmt.Errorf("%s: %s", strings.TrimPrefix(at, "."), p.wrong)
	}
	return n, nil
}

// parser reads values. An interpreter takes some 10 µs for each, so it does for none what only an error needs.
type parser struct {
	decoder *json.Decoder
	left    int      // values that there may still be
	wrong   string   // what is wrong; "": nothing
	path    []string // where, from the inside out
}

// parseNode reads the next value.
func parseNode(p *parser, depth int) *node {
	token, err := p.decoder.Token()
	if err != nil {
		p.wrong = err.Error() // not reached: the syntax has been checked
		return nil
	}
	if p.left--; p.left < 0 {
		p.wrong = "has more values than advice for all rules"
		return nil
	}
	switch v := token.(type) {
	case json.Number:
		return &node{kind: isNum, text: string(v)}
	case string:
		return &node{kind: isText, text: v}
	case json.Delim:
		if depth == maxDepth {
			p.wrong = "nested more than " + strconv.Itoa(maxDepth) + " deep"
			return nil
		}
		if v == '[' {
			return parseList(p, depth+1)
		}
		return parseObject(p, depth+1)
	case bool:
		return &node{kind: isBool}
	}
	return &node{kind: isNull}
}

func parseList(p *parser, depth int) *node {
	n := &node{kind: isList}
	for p.decoder.More() {
		v := parseNode(p, depth)
		if p.wrong != "" {
			p.path = append(p.path, "["+strconv.Itoa(len(n.values))+"]")
			return nil
		}
		n.values = append(n.values, v)
	}
	p.decoder.Token() //nolint:errcheck // the end, which is there
	return n
}

func parseObject(p *parser, depth int) *node {
	n := &node{kind: isObj}
	for p.decoder.More() {
		token, _ := p.decoder.Token()
		name, _ := token.(string)
		v := parseNode(p, depth)
		if p.wrong == "" && n.has(name) {
			p.wrong = "duplicate"
		}
		if p.wrong != "" {
			p.path = append(p.path, "."+shortly(name))
			return nil
		}
		n.names = append(n.names, name)
		n.values = append(n.values, v)
	}
	p.decoder.Token() //nolint:errcheck // the end, which is there
	return n
}

// has reports whether an object has a member. It makes an index of one that has many, which no document has.
func (n *node) has(name string) bool {
	if n.seen == nil && len(n.names) < 16 {
		return indexOf(n.names, name) >= 0
	}
	if n.seen == nil {
		n.seen = make(map[string]bool)
		for _, known := range n.names {
			n.seen[known] = true
		}
	}
	if n.seen[name] {
		return true
	}
	n.seen[name] = true
	return false
}

// join returns the path of a member. Names are shortened, since an advisor chooses them and they are logged.
func join(path, name string) string {
	if name = shortly(name); path == "" {
		return name
	}
	return path + "." + name
}

// shortly returns a text that fits into a log line: quoted where it is no plain word, and cut where it is long.
func shortly(s string) string {
	const most = 64
	cut := s
	if len(cut) > most {
		cut = cut[:most]
	}
	if quoted := strconv.QuoteToASCII(cut); len(quoted) != len(cut)+2 || cut == "" {
		cut = quoted
	}
	if len(s) > most {
		cut += "..."
	}
	return cut
}
