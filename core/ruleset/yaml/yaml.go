// Package yaml reads rule files in YAML, of which JSON is a part.
package yaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/core/ruleset"
)

// Parse reads one document. It refuses what a list of limits does not need, and what makes files larger than they look: anchors
// and aliases, tags, a second document, duplicate keys, and keys that are not texts. A map in JSON is read as JSON, which has escapes
// and long keys that the YAML parser refuses. A file whose name ends in .json must be JSON, as in Traefik, which reads nothing else.
func Parse(file string, data []byte) (*ruleset.Node, ruleset.Problems) {
	if strings.EqualFold(filepath.Ext(file), ".json") {
		root, problems := ruleset.ParseJSON(file, data)
		if len(problems) > 0 && !json.Valid(bytes.TrimPrefix(data, []byte("\ufeff"))) {
			problems[0].Text += "; comments and commas at the end are YAML: name the file .yaml"
		}
		return root, problems
	}
	if text := bytes.TrimPrefix(data, []byte("\ufeff")); bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && json.Valid(text) {
		return ruleset.ParseJSON(file, data)
	}
	return parse(file, data)
}

// parse is Parse for YAML.
func parse(file string, data []byte) (*ruleset.Node, ruleset.Problems) {
	c := &converter{file: file}
	if countTokens(data) > ruleset.MaxValues {
		return nil, ruleset.Problems{{File: file, Text: fmt.Sprintf("has more than %d values; write several files", ruleset.MaxValues)}}
	}
	if p := unreadable(file, data); p != nil {
		return nil, ruleset.Problems{*p}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return &ruleset.Node{Line: 1, Column: 1}, nil
	}
	if err != nil {
		return nil, ruleset.Problems{syntax(file, data, err)}
	}
	root := c.node(document.Content[0], 0)
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		return nil, ruleset.Problems{{File: file, Line: second.Line, Column: second.Column, Text: "a second document begins here; a file has one: take the --- out, or write a file of its own"}}
	} else if !errors.Is(err, io.EOF) {
		return nil, ruleset.Problems{syntax(file, data, err)}
	}
	return root, nil
}

// countTokens returns an upper bound, except for a few, of the number of values in a file: each takes one of these characters.
func countTokens(data []byte) int {
	n := 0
	for _, c := range []byte("\n,[{:-?") {
		n += bytes.Count(data, []byte{c})
	}
	return n
}

// unreadable reports the first character that YAML does not allow, whose place the parser does not report; nil: there is none.
func unreadable(file string, data []byte) *ruleset.Problem {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		text := ""
		switch {
		case r == utf8.RuneError && size == 1:
			text = fmt.Sprintf("the byte 0x%02x is no UTF-8; save the file in that encoding", data[at])
		case r < ' ' && r != '\t' && r != '\n' && r != '\r' || r >= 0x7f && r < 0xa0 && r != 0x85:
			text = fmt.Sprintf("the control character %U; take it out", r)
		}
		if text != "" {
			line, column := position(data, at)
			return &ruleset.Problem{File: file, Line: line, Column: column, Text: text}
		}
		at += size
	}
	return nil
}

// position returns the line and column of an offset.
func position(data []byte, offset int) (line, column int) {
	before := bytes.TrimPrefix(data[:offset], []byte("\ufeff"))
	start := bytes.LastIndexByte(before, '\n') + 1
	return 1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[start:])
}

var (
	lineOf    = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)
	unknownOf = regexp.MustCompile(`^unknown anchor '(.+)' referenced$`)
)

// afterLine is the beginning of the errors of the parser's second stage, which count lines from 0.
var afterLine = []string{"did not find expected node content", "did not find expected key", "did not find expected ',' or", "did not find expected '-'", "did not find expected <"}

// breaks returns the number of line breaks, as YAML defines them.
func breaks(data []byte) int {
	n := 0
	for i, c := range string(data) {
		if c == '\n' || c == '\r' && !bytes.HasPrefix(data[i+1:], []byte("\n")) || c == 0x85 || c == 0x2028 || c == 0x2029 {
			n++
		}
	}
	return n
}

// syntax returns the parser's error as a problem with its place.
func syntax(file string, data []byte, err error) ruleset.Problem {
	p := ruleset.Problem{File: file, Line: 1, Column: 1}
	text := err.Error()
	found := lineOf.FindStringSubmatch(text)
	if found != nil {
		text = strings.TrimPrefix(text, found[0])
		if line, err := strconv.Atoi(found[1]); err == nil {
			p.Line = line
			for _, beginning := range afterLine {
				if strings.HasPrefix(text, beginning) {
					p.Line++
				}
			}
		}
	}
	if last := breaks(data) + 1; p.Line > last { // where the end of the file is in the way
		p.Line = last
	}
	if alias := unknownOf.FindStringSubmatch(text); alias != nil {
		if at := bytes.Index(data, []byte("*"+alias[1])); at >= 0 {
			p.Line, p.Column = position(data, at)
		}
		p.Text = fmt.Sprintf("*%s: aliases are not taken; write the value out, or in quotes if it is meant as it is", alias[1])
		return p
	}
	p.Text = "is no YAML: " + text
	if strings.Contains(text, "cannot start any token") {
		p.Text += "; is it indented with a tab? YAML takes spaces only"
	}
	if strings.Contains(text, "expected alphabetic or numeric character") {
		p.Text += "; write a value or a key that is * in quotes"
	}
	return p
}

// converter makes ruleset's nodes of YAML nodes.
type converter struct {
	file     string
	problems ruleset.Problems
}

func (c *converter) fail(n *yaml.Node, text string) {
	if len(c.problems) < 100 {
		c.problems = append(c.problems, ruleset.Problem{File: c.file, Line: n.Line, Column: n.Column, Text: text})
	}
}

func (c *converter) node(n *yaml.Node, nesting int) *ruleset.Node {
	out := &ruleset.Node{Line: n.Line, Column: n.Column}
	switch {
	case n.Kind == yaml.AliasNode:
		c.fail(n, fmt.Sprintf("*%s: aliases are not taken; write the value out", n.Value))
		return out
	case n.Anchor != "":
		c.fail(n, fmt.Sprintf("&%s: anchors are not taken; write the value out where it is needed", n.Anchor))
		return out
	case nesting > ruleset.MaxNesting:
		c.fail(n, fmt.Sprintf("is nested more than %d deep", ruleset.MaxNesting))
		return out
	case n.Style&yaml.TaggedStyle != 0:
		c.fail(n, n.ShortTag()+": tags are not taken; take it out")
		return out
	}
	switch n.Kind {
	case yaml.SequenceNode:
		out.Kind = ruleset.List
		out.Items = make([]*ruleset.Node, 0, len(n.Content))
		for _, item := range n.Content {
			out.Items = append(out.Items, c.node(item, nesting+1))
		}
	case yaml.MappingNode:
		out.Kind = ruleset.Map
		c.members(n, out, nesting)
	case yaml.ScalarNode:
		out.Kind = kindOf(n)
		out.Value = n.Value
	}
	return out
}

// members converts the members of a map.
func (c *converter) members(n *yaml.Node, out *ruleset.Node, nesting int) {
	out.Members = make([]ruleset.Member, 0, len(n.Content)/2)
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || kindOf(key) != ruleset.String || key.ShortTag() == "!!merge" {
			c.badKey(key)
			continue
		}
		if first := seen[key.Value]; first > 0 {
			c.fail(key, fmt.Sprintf("duplicate key %q, first in line %d; keep one", key.Value, first))
			continue
		}
		seen[key.Value] = key.Line
		out.Members = append(out.Members, ruleset.Member{Key: c.node(key, nesting+1), Value: c.node(n.Content[i+1], nesting+1)})
	}
}

func (c *converter) badKey(key *yaml.Node) {
	switch {
	case key.ShortTag() == "!!merge":
		c.fail(key, "<<: merging is not taken; write the fields out")
	case key.Kind != yaml.ScalarNode:
		c.fail(key, "a key must be a text")
	default:
		c.fail(key, fmt.Sprintf("the key %s must be a text; put it in quotes if it is meant as one", key.Value))
	}
}

func kindOf(n *yaml.Node) ruleset.Kind {
	switch n.ShortTag() {
	case "!!null":
		return ruleset.Null
	case "!!int", "!!float":
		return ruleset.Number
	case "!!bool":
		return ruleset.Boolean
	}
	return ruleset.String
}
