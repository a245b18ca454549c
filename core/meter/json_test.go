package meter

import (
	"strings"
	"testing"
)

// read returns the costs that sources find in a body of a type, which comes in parts.
func read(m *Meter, mediaType string, parts ...string) []int64 {
	m.Begin(200, headerOf("Content-Type", mediaType))
	for _, part := range parts {
		m.Write([]byte(part))
	}
	m.End(headerOf())
	var costs []int64
	for i := range m.sources {
		costs = append(costs, costAt(m, i))
	}
	return costs
}

func TestPathsLeadToNumbers(t *testing.T) {
	for _, c := range []struct {
		path, document string
		want           int64
	}{
		{"a.b", `{"a":{"b":5}}`, 5},
		{"a.b", "\n{ \"x\" : [1, {\"a\":{\"b\":9}}], \"a\" : {\"c\":7 , \"b\" : 5 } }\n", 5},
		{"a.b", `{"b":9,"a":{"c":{"b":9}},"x":{"a":{"b":9}}}`, unknown},
		{"a.b", `{"a":{"b":9,"b":5}}`, 5},
		{"a.b", `{"a":{"b":5},"a":{"c":9}}`, 5},
		{"a.b", `{"a":{"b":5,"b":null},"a":null}`, 5},
		{"a.b", `{"a":{"b":5,"b":"6"}}`, unknown},
		{"a.b", `{"a":{"b":5,"b":true}}`, unknown},
		{"a.b", `{"a":{"b":5,"b":-6}}`, unknown},
		{"a.b", `{"a":{"b":5,"b":{"b":6}}}`, unknown},
		{"a.b", `{"a":{"b":5,"b":[6]}}`, unknown},
		{"a.b", `{"a":{"b":` + strings.Repeat("0", 64) + `5}}`, unknown},
		{"a.b", `{"a":[5]}`, unknown},
		{"a.0", `{"a":[5,6]}`, 5},
		{"a.1", `{"a":[5 , 6]}`, 6},
		{"a.2", `{"a":[5,6]}`, unknown},
		{"a.1", `{"a":{"1":5}}`, 5},
		{"a.01", `{"a":{"01":5},"a":[9,9]}`, 5},
		{"a.1.b", `{"a":[{"b":9},{"b":5},{"b":9},[]]}`, 5},
		{"1.1", `[[9,9],[9,5]]`, 5},
		{"0", `[]`, unknown},
		{"a", `5`, unknown},
		{"a", `"a"`, unknown},
		{"a", `{"\u0061":5}`, 5},
		{"'a\"b'", `{"a\"b":5}`, 5},
		{`'\'`, `{"\\":5}`, 5},
		{"'é'", `{"\u00e9":5}`, 5},
		{"'𝄞'", `{"\ud834\udd1e":5}`, 5},
		{"'a.b'", `{"a":{"b":9},"a.b":5}`, 5},
		{"a", `{"x":"\"a\":9}","a":5,"y":"\\"}`, 5},
		{"a", `{"` + strings.Repeat("a", 1000) + `":9,"a":5}`, 5},
		{"a", `{"` + strings.Repeat("a", 1000) + `":9}`, unknown},
		{"a", `{"x":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `,"a":5}`, 5},
		{"a", `{"a":5,"b":`, 5},    // the client has left
		{"a.b", `{"a":{"b":5}`, 5}, // here, too
		{"a", `{"a":5`, unknown},   // it may go on
		{"a", `{"a":5}{"a":9}`, 5}, // is more than a document
		{"a", `{"b":1]"a":9}`, unknown},
		{"a.b", `{"a":{"c":1],"a":{"b":9}}`, unknown},
		{"a", `{"a" 9}`, unknown},
		{"a", `{9:1,"a":9}`, unknown},
		{"a", `{"b":,"a":9}`, unknown},
		{"a", `{"b":1 "a":9}`, unknown},
	} {
		for split := 0; split <= len(c.document); split += 1 + len(c.document)/1200 {
			got := read(meterOf(t, "json "+c.path), "application/json", c.document[:split], c.document[split:])[0]
			if got != c.want {
				t.Errorf("json %s of %.200s, split at %d: %d, want %d", c.path, c.document, split, got, c.want)
			}
		}
	}
}
