package ruleset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// Kind is the kind of a Node.
type Kind int

// The kinds of nodes.
const (
	Null Kind = iota
	String
	Number
	Boolean
	List
	Map
)

// String returns the kind with its article, for messages.
func (k Kind) String() string {
	return [...]string{"nothing", "a text", "a number", "true or false", "a list", "a map"}[k]
}

// Node is a value in a file, and its place there.
type Node struct {
	Kind    Kind
	Line    int    // from 1
	Column  int    // from 1, in characters
	Value   string // of a text, number or boolean: as it is written, without quotes
	Items   []*Node
	Members []Member // of a map, in the order in which they are written
}

// Member is a key of a map with its value.
type Member struct {
	Key   *Node // a text
	Value *Node
}

// The bounds of files and of their contents.
const (
	MaxFile    = 8 << 20  // bytes of a file
	MaxFiles   = 5000     // files that a list of patterns may name
	MaxTotal   = 64 << 20 // bytes of all of them
	MaxNesting = 64       // maps and lists in each other

	MaxValues = 1_000_000 // of a file, about: each takes some 200 bytes while it is read
)

// ParseJSON reads a file in JSON. It refuses duplicate keys, and anything after the value. It skips a byte order mark at the beginning.
func ParseJSON(file string, data []byte) (*Node, Problems) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	p := &jsonParser{file: file, data: data, line: 1, column: 1}
	if wrong := invalidUTF8(data); wrong >= 0 { // which encoding/json makes other characters of
		line, column := p.position(wrong)
		return nil, Problems{{File: file, Line: line, Column: column, Text: fmt.Sprintf("the byte 0x%02x is no UTF-8; save the file in that encoding", data[wrong])}}
	}
	if !json.Valid(data) {
		return nil, p.syntax()
	}
	p.decoder = json.NewDecoder(bytes.NewReader(data))
	p.decoder.UseNumber()
	n := p.value(0)
	if p.problem != nil {
		return nil, Problems{*p.problem}
	}
	return n, nil
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8; -1: there is none.
func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	at := 0
	for {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
}

// jsonParser makes nodes of the tokens of encoding/json, which says where they end.
type jsonParser struct {
	file    string
	data    []byte
	decoder *json.Decoder
	problem *Problem // the first
	values  int

	counted, line, column int // the offset up to which lines and columns are counted, and what they are there
}

// syntax reports the syntax error of data that is not JSON.
func (p *jsonParser) syntax() Problems {
	var anything interface{}
	err := json.Unmarshal(p.data, &anything)
	offset := len(p.data)
	text := "is no JSON"
	if err != nil {
		text = "is no JSON: " + err.Error()
	}
	if syntax, ok := err.(*json.SyntaxError); ok && int(syntax.Offset) <= offset {
		offset = int(syntax.Offset)
		if offset > 0 {
			offset-- // it is behind the character
		}
	}
	line, column := p.position(offset)
	return Problems{{File: p.file, Line: line, Column: column, Text: text}}
}

// position returns the line and column of an offset. Offsets must not decrease from call to call.
func (p *jsonParser) position(offset int) (line, column int) {
	passed := p.data[p.counted:offset]
	if last := bytes.LastIndexByte(passed, '\n'); last >= 0 {
		p.line += bytes.Count(passed, []byte("\n"))
		p.column = 1
		passed = passed[last+1:]
	}
	p.column += utf8.RuneCount(passed)
	p.counted = offset
	return p.line, p.column
}

// next returns a token, and the line and column where it begins.
func (p *jsonParser) next() (token json.Token, line, column int, err error) {
	from := int(p.decoder.InputOffset())
	skipped := len(p.data[from:]) - len(bytes.TrimLeft(p.data[from:], " \t\r\n,:"))
	line, column = p.position(from + skipped)
	token, err = p.decoder.Token()
	return token, line, column, err
}

func (p *jsonParser) fail(line, column int, text string) {
	if p.problem == nil {
		p.problem = &Problem{File: p.file, Line: line, Column: column, Text: text}
	}
}

// value reads the next value. After a problem it returns anything.
func (p *jsonParser) value(nesting int) *Node {
	token, line, column, err := p.next()
	n := &Node{Line: line, Column: column}
	if err != nil && err != io.EOF {
		p.fail(line, column, "is no JSON: "+err.Error())
		return n
	}
	if nesting > MaxNesting {
		p.fail(line, column, fmt.Sprintf("is nested more than %d deep", MaxNesting))
		return n
	}
	p.values++
	if p.values > MaxValues {
		p.fail(line, column, fmt.Sprintf("has more than %d values up to here; write several files", MaxValues))
		return n
	}
	if delim, ok := token.(json.Delim); ok {
		if delim == '[' {
			n.Kind = List
			p.items(n, nesting)
			return n
		}
		n.Kind = Map
		p.members(n, nesting)
		return n
	}
	setSingle(n, token)
	return n
}

// setSingle fills in the node of a single value of encoding/json, and reports whether token is one.
func setSingle(n *Node, value interface{}) bool {
	if text, ok := value.(string); ok {
		n.Kind = String
		n.Value = text
		return true
	}
	if number, ok := value.(json.Number); ok {
		n.Kind = Number
		n.Value = number.String()
		return true
	}
	truth, ok := value.(bool)
	if ok {
		n.Kind = Boolean
		n.Value = strconv.FormatBool(truth)
	}
	return ok
}

// items reads a list up to its end.
func (p *jsonParser) items(n *Node, nesting int) {
	for p.problem == nil && p.decoder.More() {
		item := p.value(nesting + 1)
		n.Items = append(n.Items, item)
	}
	p.end()
}

// members reads a map up to its end.
func (p *jsonParser) members(n *Node, nesting int) {
	seen := make(map[string]int)
	for p.problem == nil && p.decoder.More() {
		token, line, column, err := p.next()
		key, ok := token.(string)
		if err != nil || !ok {
			p.fail(line, column, "is no JSON")
			return
		}
		if first := seen[key]; first > 0 {
			p.fail(line, column, fmt.Sprintf("duplicate key %q, first in line %d; keep one", shorten(key), first))
			return
		}
		seen[key] = line
		value := p.value(nesting + 1)
		n.Members = append(n.Members, Member{Key: &Node{Kind: String, Line: line, Column: column, Value: key}, Value: value})
	}
	p.end()
}

// end reads the bracket that closes a list or a map.
func (p *jsonParser) end() {
	if p.problem != nil {
		return
	}
	if _, line, column, err := p.next(); err != nil {
		p.fail(line, column, "is no JSON: "+err.Error())
	}
}
