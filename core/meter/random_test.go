//go:build gc
// +build gc

package meter

// Yaegi leaves this file out: it would take hours.

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// documents is how many random documents a test reads.
const documents = 20_000

// A random document has few keys, so that paths often lead into it, and everything in it that its form allows.
func randomValue(random *rand.Rand, out *strings.Builder, depth int) {
	space := func() { out.WriteString([]string{"", "", "", " ", "\n\t", "\r\n  "}[random.Intn(6)]) }
	kind := random.Intn(9)
	if depth > 0 && depth < 6 {
		kind = random.Intn(14)
	}
	if depth == 0 {
		kind = 9 + random.Intn(5)
	}
	space()
	switch {
	case kind < 5:
		out.WriteString(randomNumber(random))
	case kind < 6:
		out.WriteString([]string{"true", "false"}[random.Intn(2)])
	case kind < 7:
		out.WriteString("null")
	case kind < 9:
		randomString(random, out, []string{"", "a", "12", `":{}[],5\`, "é\u2028\U0001d11e", "\\\"\n", strings.Repeat("x", random.Intn(100))}[random.Intn(7)])
	case kind < 12:
		out.WriteByte('{')
		for i, n := 0, random.Intn(5); i < n; i++ {
			if i > 0 {
				out.WriteByte(',')
			}
			space()
			randomString(random, out, randomKeys[random.Intn(len(randomKeys))])
			space()
			out.WriteByte(':')
			randomValue(random, out, depth+1)
		}
		space()
		out.WriteByte('}')
	default:
		out.WriteByte('[')
		for i, n := 0, random.Intn(4); i < n; i++ {
			if i > 0 {
				out.WriteByte(',')
			}
			randomValue(random, out, depth+1)
		}
		space()
		out.WriteByte(']')
	}
	space()
}

var randomKeys = []string{"a", "b", "0", "1", "a.b", "é", "\U0001d11e", `"\`, "", "usage"}

// randomString writes a string with some of its characters escaped.
func randomString(random *rand.Rand, out *strings.Builder, s string) {
	out.WriteByte('"')
	for _, r := range s {
		switch {
		case random.Intn(8) == 0 && r < 0x10000:
			fmt.Fprintf(out, `\u%04x`, r)
		case random.Intn(8) == 0 && r >= 0x10000:
			fmt.Fprintf(out, `\u%04X\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		case r == '"', r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
}

// randomNumber has at most 12 digits, so that a double has it.
func randomNumber(random *rand.Rand) string {
	n := fmt.Sprint(random.Int63n(int64(1) << uint(random.Intn(36))))
	if random.Intn(4) == 0 {
		n = "-" + n
	}
	if random.Intn(3) == 0 {
		n += []string{".0", ".5", ".03"}[random.Intn(3)]
	}
	if random.Intn(4) == 0 {
		n += []string{"e", "E+", "e-"}[random.Intn(3)] + fmt.Sprint(random.Intn(12))
	}
	return n
}

// oracle finds the cost at a path of a valid document, by the tokens that encoding/json reads; number reads a number.
func oracle(decoder *json.Decoder, path []string, number func(string) int64, cost *int64) {
	token, _ := decoder.Token()
	open, said := "", int64(unknown)
	switch v := token.(type) {
	case nil:
		return
	case json.Number:
		said = number(string(v))
	case json.Delim:
		open = v.String()
	}
	if path != nil && len(path) == 0 {
		*cost = said
	}
	for i := 0; open != "" && decoder.More(); i++ {
		key := fmt.Sprint(i)
		if open == "{" {
			name, _ := decoder.Token()
			key = fmt.Sprint(name)
		}
		var rest []string
		if len(path) > 0 && path[0] == key {
			rest = path[1:]
		}
		oracle(decoder, rest, number, cost)
	}
	if open != "" {
		decoder.Token() // its end
	}
}

// exactly returns a number rounded up, within the bounds of costs.
func exactly(number string) int64 {
	r, _ := new(big.Rat).SetString(number)
	if r.Sign() < 0 {
		return unknown
	}
	n, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	if n.Cmp(big.NewInt(1_000_000_000)) > 0 {
		return 1_000_000_000
	}
	return n.Int64()
}

// absent is the cost at a path that a document does not have.
const absent = -2

// costByOracle returns the cost at a path of a valid document, unknown or absent.
func costByOracle(document string, path []string, number func(string) int64) int64 {
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	cost := int64(absent)
	oracle(decoder, path, number, &cost)
	return cost
}

// splitAnywhere returns the parts of a text, of random lengths.
func splitAnywhere(random *rand.Rand, text string) []string {
	var parts []string
	longest := 1 + random.Intn(len(text)+1)
	for text != "" {
		n := 1 + random.Intn(longest)
		if n > len(text) {
			n = len(text)
		}
		parts = append(parts, text[:n])
		text = text[n:]
	}
	return parts
}

var randomPaths = []string{"json a", "json a.b", "json 0", "json a.0", "json 0.1", "json b.a.b", "json 'é'", "json 'a.b'.a", "json usage.1", "json '𝄞'.a"}

func TestRandomDocumentsCostWhatEncodingJSONFinds(t *testing.T) {
	underrace.OneGoroutine(t)
	random := rand.New(rand.NewSource(1))
	known := 0
	for i := 0; i < documents && !t.Failed(); i++ {
		var out strings.Builder
		randomValue(random, &out, 0)
		document := out.String()
		m := meterOf(t, randomPaths...)
		for j, got := range read(m, "application/json", splitAnywhere(random, document)...) {
			want := costByOracle(document, m.sources[j].Path(), exactly)
			if want == absent {
				want = unknown
			}
			must.Equal(t, got, want, "document %d, %s: %s", i, m.sources[j], document)
			if want != unknown {
				known++
			}
		}
	}
	must.Equal(t, known > documents/8, true, "%d costs in %d documents are enough", known, documents)
}

var lineBreak = regexp.MustCompile("\r\n|\r|\n")

// eventsByOracle returns the data of the events of a stream, as the HTML standard reads them.
func eventsByOracle(stream string) []string {
	var events, data []string
	for _, line := range lineBreak.Split(strings.TrimPrefix(stream, "\ufeff"), -1) {
		name, value, _ := strings.Cut(line, ":")
		if name == "data" {
			data = append(data, strings.TrimPrefix(value, " "))
		}
		if line == "" {
			events = append(events, strings.Join(data, "\n"))
			data = nil
		}
	}
	return append(events, strings.Join(data, "\n"))
}

// costOfEvents returns the cost at a path of the last event of a stream that has it, and whether all events are JSON.
func costOfEvents(stream string, path []string, number func(string) int64) (cost int64, valid bool) {
	cost, valid = unknown, true
	for _, event := range eventsByOracle(stream) {
		if !json.Valid([]byte(event)) {
			valid = valid && event == ""
		} else if said := costByOracle(event, path, number); said != absent {
			cost = said
		}
	}
	return cost, valid
}

func TestRandomStreamsCostWhatTheirEventsSay(t *testing.T) {
	underrace.OneGoroutine(t)
	random := rand.New(rand.NewSource(1))
	for i := 0; i < documents/20 && !t.Failed(); i++ {
		var out strings.Builder
		for n := random.Intn(6); n >= 0; n-- {
			newline := []string{"\n", "\r", "\r\n"}[random.Intn(3)]
			out.WriteString([]string{"", "event: x", ":", "id: 1", "data: [DONE]" + newline, "database: {}"}[random.Intn(6)] + newline)
			var value strings.Builder
			randomValue(random, &value, 0)
			for _, line := range lineBreak.Split(value.String(), -1) {
				out.WriteString([]string{"data:", "data: "}[random.Intn(2)] + line + newline)
			}
			out.WriteString(newline)
		}
		stream := out.String()
		m := meterOf(t, randomPaths...)
		for j, got := range read(m, "text/event-stream", splitAnywhere(random, stream)...) {
			want, _ := costOfEvents(stream, m.sources[j].Path(), exactly)
			must.Equal(t, got, want, "stream %d, %s: %q", i, m.sources[j], stream)
		}
	}
}
