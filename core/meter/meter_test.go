package meter

import (
	"net/http"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestNumbersAreRoundedUpAndBounded(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "7": 7, " 7 ": 7, "007": 7, "2.0": 2, "2.1": 3, "0.000001": 1, "1e3": 1000, "1.5E+1": 15, "25e-1": 3, "-0": 0, "999999999.1": 1_000_000_000,
		"1000000000": 1_000_000_000, "1000000001": 1_000_000_000, "1e400": 1_000_000_000, strings.Repeat("0", 63) + "5": 5,
		"": unknown, "-1": unknown, "-0.5": unknown, "-1e400": unknown, "many": unknown, "1,000": unknown, "1 2": unknown, "0x10": unknown, "1_0": unknown, "NaN": unknown,
		"Inf": unknown, "٣": unknown, "e": unknown, strings.Repeat("0", 64) + "5": unknown,
	} {
		m := meterOf(t, "header X-Cost")
		m.Begin(200, headerOf("X-Cost", text))
		must.Equal(t, costAt(m, 0), want, "header %q", text)
	}
}

func TestAFieldSaysTheCostIfItOccursOnce(t *testing.T) {
	for _, c := range []struct {
		header http.Header
		want   int64
	}{
		{headerOf("x-cost", "3"), 3},
		{headerOf("Other", "3"), unknown},
		{headerOf("X-Cost", "3", "X-Cost", "4"), unknown},
	} {
		m := meterOf(t, "header x-cost")
		m.Begin(200, c.header)
		m.Begin(500, headerOf("X-Cost", "9")) // is not sent
		c.header.Set("X-Cost", "9")
		m.End(c.header)
		must.Equal(t, costAt(m, 0), c.want, "%v", c.header)
	}
	m := meterOf(t, "header X-Cost")
	m.End(headerOf("X-Cost", "5"))
	must.Equal(t, costAt(m, 0), 5, "a response without a body")
}

func TestTrailersAreThoseThatAreSent(t *testing.T) {
	for _, c := range []struct {
		end  http.Header
		want int64
	}{
		{headerOf("Trailer", "X-Cost", "X-Cost", "3"), 3},
		{headerOf("Trailer", "X-Other, x-cost", "X-Cost", "3"), 3},
		{headerOf(http.TrailerPrefix+"X-Cost", "3"), 3},
		{headerOf("X-Cost", "3"), unknown},
		{headerOf("Trailer", "X-Other", "X-Cost", "3"), unknown},
		{headerOf("Trailer", "X-Cost"), unknown},
		{headerOf(http.TrailerPrefix+"X-Cost", "3", http.TrailerPrefix+"X-Cost", "4"), unknown},
	} {
		m := meterOf(t, "trailer X-Cost")
		m.Begin(200, headerOf())
		m.End(c.end)
		must.Equal(t, costAt(m, 0), c.want, "%v", c.end)
	}
}

func TestBytesAreThoseOfTheBody(t *testing.T) {
	m := meterOf(t, "bytes")
	m.Begin(200, headerOf("Content-Encoding", "gzip"))
	m.Write(make([]byte, 1000))
	m.Write(nil)
	m.Write(make([]byte, 24))
	must.Equal(t, costAt(m, 0), 1024, "before the end")
	m.End(headerOf())
	must.Equal(t, costAt(m, 0), 1024, "after the end")
	must.Equal(t, m.Encoded(), false, "bytes have a coding that matters")
	m.count(1 << 40)
	must.Equal(t, costAt(m, 0), 1_000_000_000, "more than there are units")

	m = meterOf(t, "bytes", "json cost")
	m.headOnly = true
	m.Begin(200, headerOf("Content-Type", "application/json"))
	m.Write([]byte(`{"cost":5}`))
	m.count(5)
	m.End(headerOf())
	must.Equal(t, costAt(m, 0), 0, "the bytes of a response to HEAD")
	must.Equal(t, costAt(m, 1), unknown, "the body of a response to HEAD")

	m = meterOf(t, "bytes")
	m.Begin(http.StatusSwitchingProtocols, headerOf())
	m.End(headerOf())
	must.Equal(t, costAt(m, 0), unknown, "the bytes of another protocol")
}

func TestTheTypeSaysHowABodyIsRead(t *testing.T) {
	const object, stream, lines = `{"cost":5}`, "data: {\"cost\":5}\n\n", "{\"cost\":4}\n{\"cost\":5}\n"
	for _, c := range []struct {
		mediaType, body string
		want            int64
	}{
		{"application/json", object, 5},
		{"Application/JSON ; charset=utf-8", object, 5},
		{"application/problem+json", object, 5},
		{"application/json", stream, unknown},
		{"application/json", lines, 4},
		{"text/event-stream; charset=utf-8", stream, 5},
		{"text/event-stream", object, unknown},
		{"application/x-ndjson", lines, 5},
		{"application/jsonl", lines, 5},
		{"", object, 5},
		{"", "\r\n\t " + object, 5},
		{"", "[" + object + "]", unknown},
		{"", stream, unknown},
		{"text/html", object, unknown},
		{"text/plain", object, unknown},
	} {
		for split := 0; split <= len(c.body); split++ {
			m := meterOf(t, "json cost")
			m.Begin(200, headerOf("Content-Type", c.mediaType))
			m.Write([]byte(c.body[:split]))
			m.Write([]byte(c.body[split:]))
			m.End(headerOf())
			must.Equal(t, costAt(m, 0), c.want, "%q of type %q, split at %d", c.body, c.mediaType, split)
		}
	}
	m := meterOf(t, "json cost")
	m.Begin(http.StatusPartialContent, headerOf("Content-Type", "application/json"))
	m.Write([]byte(object))
	m.End(headerOf())
	must.Equal(t, costAt(m, 0), unknown, "a part of a body")
}

func TestABodyWithACodingIsNotRead(t *testing.T) {
	for _, c := range []struct {
		mediaType, coding, body string
		want                    int64
		encoded                 bool
	}{
		{"application/json", "identity", `{"cost":5}`, 5, false},
		{"application/json", "", `{"cost":5}`, 5, false},
		{"application/json", "gzip", `{"cost":5}`, unknown, true},
		{"text/event-stream", "br", "data: {\"cost\":5}\n\n", unknown, true},
		{"", "zstd", `{"cost":5}`, unknown, true},
		{"text/html", "gzip", `{"cost":5}`, unknown, false},
		{"application/json", "gzip", "", unknown, false},
	} {
		m := meterOf(t, "json cost")
		m.Begin(200, headerOf("Content-Type", c.mediaType, "Content-Encoding", c.coding))
		m.Write([]byte(c.body))
		m.End(headerOf())
		must.Equal(t, costAt(m, 0), c.want, "%v", c)
		must.Equal(t, m.Encoded(), c.encoded, "%v: a coding is in the way", c)
	}
}

func TestEachSourceSaysItsOwnCost(t *testing.T) {
	m := meterOf(t, "json usage.out", "header X-Cost", "bytes", "json usage.in", "trailer X-Cost", "json usage")
	body := `{"usage":{"in":3,"out":4.5}}`
	m.Begin(200, headerOf("Content-Type", "application/json", "X-Cost", "7"))
	m.Write([]byte(body))
	m.End(headerOf(http.TrailerPrefix+"X-Cost", "8"))
	for i, want := range []int64{5, 7, int64(len(body)), 3, 8, unknown} {
		must.Equal(t, costAt(m, i), want, "source %d", i)
	}
}
