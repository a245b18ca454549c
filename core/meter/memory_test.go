//go:build gc
// +build gc

package meter

// Yaegi leaves this file out: it allocates for each call.

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// chunk returns what a language model's server sends for a token, as an event.
func chunk(content string) string {
	return `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"gpt-4o-mini","system_fingerprint":"fp_44709d6fcb",` +
		`"choices":[{"index":0,"delta":{"content":"` + content + `"},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n"
}

const usage = `data: {"id":"chatcmpl-123","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":300,"total_tokens":320}}` + "\n\ndata: [DONE]\n\n"

// bodies are of 10 MB each, by their type.
func bodies() map[string]string {
	const size = 10 << 20
	var list strings.Builder
	list.WriteString(`{"object":"list","data":[`)
	for i := 0; list.Len() < size; i++ {
		fmt.Fprintf(&list, `{"object":"embedding","index":%d,"text":"a \"quoted\" text \u00e9","embedding":[-0.006929283495992422,-0.005336422007530928,1e-5]},`, i)
	}
	list.WriteString(`{}],"usage":{"prompt_tokens":20,"total_tokens":320}}`)
	return map[string]string{
		"text/event-stream": strings.Repeat(chunk(" the"), size/len(chunk(" the"))) + usage,
		"application/json":  list.String(),
	}
}

func TestAnyLengthOfBodyIsReadWithoutAllocating(t *testing.T) {
	for mediaType, body := range bodies() {
		header := http.Header{"Content-Type": {mediaType}}
		var m *Meter
		feed := func(n int) float64 {
			text := []byte(body[len(body)-n:])
			if mediaType == "application/json" {
				text = []byte(body[:n])
			}
			return testing.AllocsPerRun(3, func() {
				m = meterOf(t, "json usage.total_tokens")
				m.Begin(200, header)
				for p := text; len(p) > 0; {
					part := p[:min(len(p), 1000)]
					m.Write(part)
					p = p[len(part):]
				}
				m.End(header)
			})
		}
		short, long := feed(2000), feed(len(body))
		must.Equal(t, costAt(m, 0), 320, "the cost of a %s", mediaType)
		if long > short+2 { // the text of a number or two
			t.Errorf("%s: %v allocations for 10 MB, and %v for 2 kB", mediaType, long, short)
		}
		must.Equal(t, cap(m.scanner.text) <= 1024, true, "%s: %d bytes are kept, which are bounded", mediaType, cap(m.scanner.text))
	}
}

// Beside it, BenchmarkCopy is what a proxy does anyway.
func BenchmarkRead(b *testing.B) {
	for mediaType, body := range bodies() {
		b.Run(mediaType, func(b *testing.B) { benchmark(b, body, meterOf(b, "json usage.total_tokens"), mediaType) })
	}
}

func BenchmarkCopy(b *testing.B) {
	benchmark(b, bodies()["application/json"], meterOf(b, "bytes"), "application/json")
}

// benchmark feeds a body in parts of 4 kB, as it is copied.
func benchmark(b *testing.B, body string, m *Meter, mediaType string) {
	b.ReportAllocs()
	m.Begin(200, headerOf("Content-Type", mediaType))
	copied := make([]byte, 4096)
	for b.Loop() {
		for at := 0; at < len(body); at += len(copied) {
			m.Write(copied[:copy(copied, body[at:])])
		}
		if m.scanner != nil {
			reset(m.scanner)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(float64(len(body))/1024), "ns/kB")
}
