//go:build gc
// +build gc

package meter

// Yaegi leaves this file out: it cannot fuzz.

import (
	"encoding/json"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// inUnits reads a number as the Meter does.
func inUnits(number string) int64 {
	if c := parse(number); c.known {
		return c.units
	}
	return unknown
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":{"b":[1,2.5e3]},"é":"\u00e9\\"}`, `[[1,2],{"0":{"a":-1}}] `, `{"a":1}{"a":2}`, `{"a":[1}`, `{"\u0061":null,"usage":[true,1e99]}`} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, document string, split int) {
		if split < 0 || split > len(document) {
			return
		}
		m := meterOf(t, randomPaths...)
		whole, parts := read(m, "application/json", document), read(meterOf(t, randomPaths...), "application/json", document[:split], document[split:])
		for i, source := range m.sources {
			must.Equal(t, parts[i], whole[i], "%s of %q, split at %d", source, document, split)
			if !json.Valid([]byte(document)) {
				continue
			}
			if want := costByOracle(document, source.Path(), inUnits); want != absent {
				must.Equal(t, whole[i], want, "%s of %q", source, document)
			}
		}
	})
}

func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: {\"a\":1}\n\ndata: [DONE]\n\n", "\ufeffdata:{\r\ndata:\"a\":2}\r\r", "data\n:c\nid: 1\ndata: {\"a\":{\"b\":1}}\n", "data: {\n\n{\"a\":1}\n"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, stream string, split int) {
		if split < 0 || split > len(stream) {
			return
		}
		for _, mediaType := range []string{"text/event-stream", "application/jsonl"} {
			m := meterOf(t, randomPaths...)
			whole, parts := read(m, mediaType, stream), read(meterOf(t, randomPaths...), mediaType, stream[:split], stream[split:])
			for i, source := range m.sources {
				must.Equal(t, parts[i], whole[i], "%s of %q of type %s, split at %d", source, stream, mediaType, split)
				if want, valid := costOfEvents(stream, source.Path(), inUnits); valid && mediaType == "text/event-stream" {
					must.Equal(t, whole[i], want, "%s of %q", source, stream)
				}
			}
		}
	})
}
