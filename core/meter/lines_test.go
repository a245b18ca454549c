package meter

import (
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestTheLastEventWithThePathCounts(t *testing.T) {
	for _, c := range []struct {
		stream string
		want   int64
	}{
		{"data: {\"a\":4}\n\ndata: {\"a\":5}\n\n", 5},
		{"data: {\"a\":5}\n\ndata: {\"b\":9}\n\ndata: [DONE]\n\n", 5},
		{"data: {\"a\":5}\n\ndata: {\"a\":null}\n\n", 5},
		{"data: {\"a\":5}\n\ndata: {\"a\":\"x\"}\n\n", unknown},
		{"data: {\"a\":5}\n\ndata: {\"a\":9\n\ndata: {\"a\":9,}}\n\ndata: hello {\"a\":9}\n\n", 5},
		{"\xef\xbb\xbfdata: {\"a\":5}\n\n", 5},
		{"\xef\xbb\xbf\ndata:{\"a\":5}\n\n", 5},
		{"data:  {\"a\":5}\r\n\r\n", 5},
		{"data:{\"a\":5}\r\r", 5},
		{"event: end\ndata: {\ndata: \"a\"\nid: 3\n: comment\ndata: :\ndata\ndata:5}\nretry: 9\n\n", 5},
		{"data: {\"a\":\"\ndata:\", \"a\":5}\n\n", 5},
		{"data: {\"a\":5}\n\ndatas: {\"a\":9}\n\n data: {\"a\":9}\n\nDATA: {\"a\":9}\n\n: data: {\"a\":9}\n\n\xef\xbb\xbfdata: {\"a\":9}\n\n", 5},
		{"data: {\"a\":5}\n", 5}, // whole, though the stream breaks off
		{"data: {\"a\":5}\n\ndata: {\"a\":9", 5},
		{"data: {\"a\":5}\n\ndata: {\"a\":\"\\\n\ndata: {\"b\":\"\\", 5},
		{"data: {\"a\":5}\n\ndata: {\"a\":9,\n\ndata: {\"b\":1}\n\n", 5},
		{"data: {\"b\":[[\n\ndata: {\"b\":\"\",\"a\":5}\n\n", 5},
		{"data: {\"b\":\"\\\n\ndata: {\"\":1,\"a\":5}\n\n", 5},
		{"data: {\"a\":5}\n\ndata: {\"a\":9\ndata:9}\n\n", 5},
		{"data: {\"a\":5}\n\ndata: {\"a\":DONE}\n\n", 5},
		{"data: {\"a\":4}\n\ndata: {\"\\u0061\":5}\n\n", 5},
		{"data: {\"a\":4}\n\ndata: {\"b\":1}\ndata: ,\ndata: \"a\":9}\n\n", 4},
		{"data: {\"a\":4}\n\ndata: {\"b\":1\ndata: ,\ndata: \"a\":5}\n\n", 5},
		{"", unknown},
	} {
		for split := 0; split <= len(c.stream); split++ {
			for _, parts := range [][]string{{c.stream[:split], c.stream[split:]}, strings.Split(c.stream, "")} {
				got := read(meterOf(t, "json a"), "text/event-stream", parts...)[0]
				must.Equal(t, got, c.want, "%q, split at %d", c.stream, split)
			}
		}
	}
}

func TestTheLastLineWithThePathCounts(t *testing.T) {
	for text, want := range map[string]int64{
		"{\"a\":4}\n{\"a\":5}\n":                      5,
		"{\"a\":4}\r\n\r\n{\"a\":5}":                  5,
		"{\"a\":5}\nnonsense }{\n\"\n{\"b\":9}\n":     5,
		"{\"a\":5}\n{\"a\":9\n,\"a\":9}\n{\"a\":9} 1": 5,
		"{\"a\":4}\n{\"\\u0061\":5}\n{\"b\":9}\n":     5,
		"": unknown,
	} {
		for split := 0; split <= len(text); split++ {
			got := read(meterOf(t, "json a"), "application/x-ndjson", text[:split], text[split:])[0]
			must.Equal(t, got, want, "%q, split at %d", text, split)
		}
	}
}
