package advice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
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
	text   string   // of a text, or as a number is written
	names  []string // of an object's members
	values []*node  // of these, or of a list
}

// parseJSON reads a text of JSON: one value, UTF-8, no object with a name twice, nested maxDepth deep at most.
func parseJSON(body []byte) (*node, error) {
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
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return parseNode(d, "", 0)
}

// parseNode reads the next value. path is where it is.
func parseNode(d *json.Decoder, path string, depth int) (*node, error) {
	token, err := d.Token()
	if err != nil {
		if err == io.EOF { //nolint:errorlint // as the decoder returns it
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if token == nil {
		return &node{kind: isNull}, nil
	}
	switch v := token.(type) {
	case bool:
		return &node{kind: isBool}, nil
	case string:
		return &node{kind: isText, text: v}, nil
	case json.Number:
		return &node{kind: isNum, text: string(v)}, nil
	case json.Delim:
		if depth == maxDepth {
			return nil, fmt.Errorf("%s: nested more than %d deep", path, maxDepth)
		}
		if v == '[' {
			return parseList(d, path, depth+1)
		}
		return parseObject(d, path, depth+1)
	}
	return nil, fmt.Errorf("%s: %v is unexpected", path, token)
}

func parseList(d *json.Decoder, path string, depth int) (*node, error) {
	n := &node{kind: isList}
	for d.More() {
		v, err := parseNode(d, path+"["+strconv.Itoa(len(n.values))+"]", depth)
		if err != nil {
			return nil, err
		}
		n.values = append(n.values, v)
	}
	_, err := d.Token() // the end
	return n, err
}

func parseObject(d *json.Decoder, path string, depth int) (*node, error) {
	n := &node{kind: isObj}
	seen := make(map[string]bool)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		name, _ := token.(string)
		if seen[name] {
			return nil, fmt.Errorf("%s: duplicate", join(path, name))
		}
		seen[name] = true
		v, err := parseNode(d, join(path, name), depth)
		if err != nil {
			return nil, err
		}
		n.names = append(n.names, name)
		n.values = append(n.values, v)
	}
	_, err := d.Token()
	return n, err
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
