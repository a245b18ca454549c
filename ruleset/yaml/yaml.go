// Package yaml reads rule files in YAML, of which JSON is a part.
package yaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/ruleset"
	"go.yaml.in/yaml/v3"
)

// maxTokens is how many values a file may have, about: each takes some 200 bytes while it is read.
const maxTokens = 1_000_000

// Parse reads one document. It refuses what a list of limits has no use for, and what makes files larger than they look: anchors
// and aliases, tags, a second document, keys that are there twice or are no texts.
func Parse(file string, data []byte) (*ruleset.Node, ruleset.Problems) {
	c := &converter{file: file}
	if countTokens(data) > maxTokens {
		return nil, ruleset.Problems{{File: file, Text: fmt.Sprintf("has more than %d values; write several files", maxTokens)}}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return &ruleset.Node{Line: 1, Column: 1}, nil
	}
	if err != nil {
		return nil, ruleset.Problems{syntax(file, err)}
	}
	root := c.node(document.Content[0], 0)
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		return nil, ruleset.Problems{{File: file, Line: second.Line, Column: second.Column, Text: "a second document begins here; a file has one: take the --- out, or write a file of its own"}}
	} else if !errors.Is(err, io.EOF) {
		return nil, ruleset.Problems{syntax(file, err)}
	}
	return root, nil
}

// countTokens returns an upper bound of the values in a file, but for a few: each takes one of these characters.
func countTokens(data []byte) int {
	n := 0
	for _, c := range data {
		switch c {
		case '\n', ',', '[', '{', ':', '-', '?':
			n++
		}
	}
	return n
}

var lineOf = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax says what the parser says, and where.
func syntax(file string, err error) ruleset.Problem {
	p := ruleset.Problem{File: file, Line: 1, Column: 1}
	text := err.Error()
	found := lineOf.FindStringSubmatch(text)
	if found != nil {
		text = strings.TrimPrefix(text, found[0])
		if line, err := strconv.Atoi(found[1]); err == nil {
			p.Line = line
		}
	}
	p.Text = "is no YAML: " + text
	if strings.Contains(text, "cannot start any token") {
		p.Text += "; is it indented with a tab? YAML takes spaces only"
	}
	if strings.Contains(text, "expected alphabetic or numeric character") {
		p.Text += "; a value or a key that is * stands in quotes"
	}
	return p
}

// converter makes ruleset's nodes of YAML's.
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

// members converts a map's.
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
			c.fail(key, fmt.Sprintf("%q is there twice, first in line %d; keep one", key.Value, first))
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
