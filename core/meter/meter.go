// Package meter reads from a response what its request has cost, while the response is sent. A Meter reads one response; the writer that NewWriter
// makes feeds it. Nothing is kept of a body but a key or a number, and nothing is held back.
package meter

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// Meter reads one response. New makes it. Its methods are called in turn, as those of an http.ResponseWriter.
type Meter struct {
	reservations []core.Reservation
	sources      []*core.ResponseCost
	costs        []cost // what the sources say
	status       int    // of the final header; 0: there is none yet
	headOnly     bool   // the request is a HEAD: what the handler writes as the body is not sent
	sent         int64  // bytes of the body
	form         form
	encoded      bool
	scanner      *scanner // nil: no source is JSON
	lines        lines
}

// cost is what a source says. The zero value is not known.
type cost struct {
	units int64
	known bool
}

// form is how a body is read.
type form int

const (
	unread    form = iota
	isEncoded      // it would be read, but for its coding
	isUntyped      // it has no type, and is JSON if it begins with an object
	isJSON
	isEvents // server-sent events, whose data are JSON
	isLines  // lines, each of them JSON
)

// New returns a Meter for a response. Its Cost has what the sources say by their index.
func New(sources []*core.ResponseCost) *Meter {
	m := &Meter{sources: sources, costs: make([]cost, len(sources))}
	for i, source := range sources {
		if source.Kind() == core.CostJSON {
			if m.scanner == nil {
				m.scanner = &scanner{}
			}
			addPath(m.scanner, i, source.Path())
		}
	}
	return m
}

// Of returns a Meter of the response to a request with a method. Its sources are those of the reservations whose rules measure, in their order; and
// reservations whose requests count by fields see these.
func Of(reservations []core.Reservation, method string) *Meter {
	var sources []*core.ResponseCost
	for i := range reservations {
		if reservations[i].Rule.Measures() {
			sources = append(sources, reservations[i].Rule.Overflow.Response)
		}
	}
	m := New(sources)
	m.reservations = reservations
	m.headOnly = method == http.MethodHead
	return m
}

// Status returns the final status; 0: there is none yet.
func (m *Meter) Status() int { return m.status }

// Begin reads the header of the response, as it is sent with its final status. Only the first call counts.
func (m *Meter) Begin(status int, h http.Header) {
	if m.status != 0 {
		return
	}
	m.status = status
	for i := range m.reservations {
		m.reservations[i].SeeFields(h, false)
	}
	for i, source := range m.sources {
		if source.Kind() == core.CostHeader {
			m.costs[i] = costOf(h[source.Name()])
		}
	}
	if m.scanner != nil && !m.headOnly && status != http.StatusSwitchingProtocols && status != http.StatusPartialContent {
		m.form = formOf(h)
		reset(m.scanner)
	}
}

// formOf returns how a body with a header is read.
func formOf(h http.Header) form {
	mediaType, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	f := unread
	switch {
	case mediaType == "":
		f = isUntyped
	case mediaType == "text/event-stream":
		f = isEvents
	case mediaType == "application/x-ndjson" || mediaType == "application/jsonl":
		f = isLines
	case mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"):
		f = isJSON
	}
	if coding := strings.ToLower(strings.Join(h["Content-Encoding"], ",")); f != unread && strings.Trim(coding, ", ") != "" && coding != "identity" {
		f = isEncoded
	}
	return f
}

// Write reads a part of the body, which has been sent.
func (m *Meter) Write(p []byte) {
	if m.headOnly || len(p) == 0 {
		return
	}
	m.sent += int64(len(p))
	switch m.form {
	case isEncoded:
		m.encoded = true
		m.form = unread
	case isUntyped:
		p = trimSpace(p)
		if len(p) > 0 {
			m.form = unread
			if p[0] == '{' {
				m.form = isJSON
				scan(m.scanner, p)
			}
		}
	case isJSON:
		scan(m.scanner, p)
	case isEvents:
		readEvents(m, p)
	case isLines:
		readLines(m, p)
	}
}

// count counts bytes of the body that have been sent, and are not read.
func (m *Meter) count(n int64) {
	if !m.headOnly {
		m.sent += n
	}
}

// End reads the trailers of the response from its header, after the handler: those that the field Trailer declares, and those with http.TrailerPrefix. It
// begins the response, if nothing has been written.
func (m *Meter) End(h http.Header) {
	m.Begin(http.StatusOK, h)
	trailers := trailersOf(h)
	for i := range m.reservations {
		m.reservations[i].SeeFields(trailers, true)
	}
	for i, source := range m.sources {
		if source.Kind() == core.CostTrailer {
			m.costs[i] = costOf(trailers[source.Name()])
		}
	}
	// An object that breaks off is of a client who left, and has said what it has said. An event or a line that breaks off has not happened.
	if m.form == isJSON || m.scanner != nil && isWhole(m.scanner) {
		take(m)
	}
	m.form = unread
}

// trailersOf returns the trailers in a header.
func trailersOf(h http.Header) http.Header {
	trailers := make(http.Header)
	for _, declared := range strings.Split(strings.Join(h["Trailer"], ","), ",") {
		name := http.CanonicalHeaderKey(strings.TrimSpace(declared))
		if values := h[name]; len(values) > 0 {
			trailers[name] = values
		}
	}
	for name, values := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			trailers[http.CanonicalHeaderKey(name[len(http.TrailerPrefix):])] = values
		}
	}
	return trailers
}

// take takes what the document that the scanner has read says.
func take(m *Meter) {
	for i := range m.scanner.paths {
		p := &m.scanner.paths[i]
		if p.said {
			m.costs[p.source] = p.cost
		}
	}
}

// Cost returns what a source says after End, in units from 0 to rate.MaxRequests. It is not known if the response does not say it, or says what is no
// such number; greater ones are rate.MaxRequests. The bytes of a connection that the handler took over are not known.
func (m *Meter) Cost(i int) (units int64, known bool) {
	if m.sources[i].Kind() != core.CostBytes {
		return m.costs[i].units, m.costs[i].known
	}
	units = m.sent
	if units > rate.MaxRequests {
		units = rate.MaxRequests
	}
	return units, m.status != http.StatusSwitchingProtocols
}

// Encoded reports whether a source would have been read in the body, but for a Content-Encoding.
func (m *Meter) Encoded() bool { return m.encoded }

// maxNumber is the longest text of a number, in bytes.
const maxNumber = 64

// costOf returns the cost that a field says. One that occurs twice says none.
func costOf(values []string) cost {
	if len(values) != 1 {
		return cost{}
	}
	return parse(strings.TrimSpace(values[0]))
}

// parse reads a decimal number, with or without a fraction and an exponent, as a double, and rounds it up.
func parse(text string) cost {
	if len(text) > maxNumber || strings.Trim(text, "0123456789+-.eE") != "" {
		return cost{}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && f < 1 || f < 0 { // at an error it is 0, or infinite if it is too great
		return cost{}
	}
	if f > rate.MaxRequests {
		f = rate.MaxRequests
	}
	return cost{units: int64(math.Ceil(f)), known: true}
}
