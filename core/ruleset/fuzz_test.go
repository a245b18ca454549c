//go:build gc
// +build gc

package ruleset

// Yaegi leaves this file out, as it does compiled_test.go: it has no fuzzing.

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// value returns what encoding/json makes of a node's text.
func value(n *Node) interface{} {
	switch n.Kind {
	case String:
		return n.Value
	case Number:
		return json.Number(n.Value)
	case Boolean:
		return n.Value == "true"
	case List:
		list := make([]interface{}, 0, len(n.Items))
		for _, item := range n.Items {
			list = append(list, value(item))
		}
		return list
	case Map:
		members := make(map[string]interface{}, len(n.Members))
		for _, m := range n.Members {
			members[m.Key.Value] = value(m.Value)
		}
		return members
	}
	return nil
}

// FuzzParseJSON checks ParseJSON against encoding/json, and that values stand in the order of their places.
func FuzzParseJSON(f *testing.F) {
	for _, text := range []string{
		known, "", "null", "{}", "[]", "{\"a\": [1, 2.5e3, true, null, \"x\\n\"]}", "{\"a\": 1, \"a\": 2}", "{\"ä\": \"\\ud800\"}\n{}", "[1,\r\n2]",
		"\ufeff[]", "\xff", "[\"\xff\"]", strings.Repeat("[", 70) + strings.Repeat("]", 70), "{\"a\":{\"b\":{\"c\":[[]]}}}", "\"\\u0000\"",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, problems := ParseJSON("f", data)
		if (n == nil) == (problems == nil) {
			t.Fatalf("%q: %v, %v", data, n, problems)
		}
		lines := 1 + bytes.Count(data, []byte("\n"))
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines || p.Column < 1 || p.Column > 1+len(data) {
				t.Errorf("%q: the place %d:%d", data, p.Line, p.Column)
			}
		}
		text := bytes.TrimPrefix(data, []byte("\ufeff"))
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		var want interface{}
		err := decoder.Decode(&want)
		if problems != nil {
			said := problems[0].Text
			allowed := strings.Contains(said, "duplicate") || strings.Contains(said, "nested") || strings.Contains(said, "values") || !utf8.Valid(data)
			if err == nil && json.Valid(text) && !allowed {
				t.Errorf("%q: %s", data, said)
			}
			return
		}
		if err != nil || !json.Valid(text) {
			t.Fatalf("%q is accepted: %v", data, err)
		}
		a, _ := json.Marshal(value(n))
		b, _ := json.Marshal(want)
		if !bytes.Equal(a, b) {
			t.Errorf("%q: %s, want %s", data, a, b)
		}
		line, column := 0, 0
		checkPlaces(t, n, &line, &column)
		_, _ = Decode("f", n)
	})
}

func checkPlaces(t *testing.T, n *Node, line, column *int) {
	if n.Line < *line || n.Line == *line && n.Column <= *column {
		t.Errorf("%d:%d is behind %d:%d", n.Line, n.Column, *line, *column)
	}
	*line = n.Line
	*column = n.Column
	for _, item := range n.Items {
		checkPlaces(t, item, line, column)
	}
	for _, m := range n.Members {
		checkPlaces(t, m.Key, line, column)
		checkPlaces(t, m.Value, line, column)
	}
}

// FuzzWildcard checks what a wildcard fits against an oracle that tries every way.
func FuzzWildcard(f *testing.F) {
	for _, seed := range [][2]string{{"*", ""}, {"x*y*", "x1y2"}, {"/api/*/action", "/api/7/action"}, {"a*aa*a", "aaaa"}, {"\xff*", "\xff\xfe"}, {"ab*ba", "aba"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, wildcard, value string) {
		if !isWildcard(wildcard) || len(wildcard)*len(value) > 1<<20 {
			return
		}
		if got := fitting(wildcard, value); got != matches(wildcard, value) {
			t.Errorf("%q and %q: %v", wildcard, value, got)
		}
		// A value that is made of the wildcard fits.
		if made := strings.ReplaceAll(wildcard, "*", value); !fitting(wildcard, made) {
			t.Errorf("%q does not fit %q", wildcard, made)
		}
	})
}
