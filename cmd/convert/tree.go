package convert

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// documents returns the documents of a file in YAML, of which JSON is a part.
func documents(text []byte) (list []*yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, document.Content...)
	}
}

// at returns the value at a path of keys, in upper or lower case; nil: there is none.
func at(n *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		var found *yaml.Node
		each(n, func(k, v *yaml.Node) {
			if found == nil && strings.EqualFold(k.Value, key) {
				found = v
			}
		})
		n = found
	}
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// each calls a function for the members of a map.
func each(n *yaml.Node, do func(key, value *yaml.Node)) {
	if n = at(n); n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		do(n.Content[i], at(n.Content[i+1]))
	}
}

// walk calls a function for all values in a file, without following aliases, and for those within others if it returns true.
func walk(n *yaml.Node, do func(n *yaml.Node) bool) {
	if do(n) {
		for _, in := range n.Content {
			walk(in, do)
		}
	}
}

// items returns the items of a list, or a single value.
func items(n *yaml.Node) []*yaml.Node {
	switch n = at(n); {
	case n == nil || n.Tag == "!!null":
		return nil
	case n.Kind == yaml.SequenceNode:
		return n.Content
	}
	return []*yaml.Node{n}
}

// value returns the single value at a path; "": there is none.
func value(n *yaml.Node, path ...string) string {
	if n = at(n, path...); n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return ""
	}
	return strings.TrimSpace(n.Value)
}

// number returns a whole number, or standard if there is no text. ok is false if it is none that a limit can have.
func number(text string, standard int64) (n int64, ok bool) {
	if text == "" {
		return standard, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && n <= 1_000_000_000
}

// indented returns a value as lines of YAML.
func indented(n *yaml.Node, indent string) string {
	text, _ := yaml.Marshal(n) // what was read can be written
	return indent + strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n"+indent) + "\n"
}

// taken are the keys of maps that have been read, so that the others can be told.
type taken map[*yaml.Node]bool

// value is as the function, and takes the keys of the path.
func (t taken) value(n *yaml.Node, path ...string) string {
	for _, key := range path {
		each(n, func(k, _ *yaml.Node) { t[k] = t[k] || strings.EqualFold(k.Value, key) })
		n = at(n, key)
	}
	return value(n)
}

// rest calls a function, once, for each key within a value that was not taken, unless its value is what protobuf has for a key that is not written.
func (t taken) rest(n *yaml.Node, do func(key *yaml.Node)) {
	if n = at(n); n == nil || t[n] {
		return
	}
	t[n] = true // aliases can lead in circles
	each(n, func(k, v *yaml.Node) {
		if t[k] {
			t.rest(v, do)
		} else if v.Kind != yaml.ScalarNode || !slices.Contains([]string{"", "0", "false"}, value(v)) {
			do(k)
		}
	})
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			t.rest(item, do)
		}
	}
}
