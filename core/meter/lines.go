package meter

import "bytes"

// lines is where a body of lines is.
type lines struct {
	at      int    // in field; or inValue, inOther
	afterCR bool   // the last line ended with CR, and an LF is still its end
	begun   bool   // the scanner has read something of the event
	passed  []byte // the event's first line of data, which says nothing by itself, and was not scanned
}

// field is the name of the field that is read, after the byte order mark that may begin a stream.
const field = "\ufeffdata"

const (
	afterMark = len("\ufeff") // where a line begins that is not the first
	inValue   = len(field) + 1
	inOther   = len(field) + 2
)

// readEvents reads a part of a stream of server-sent events, as the HTML standard defines it. Each line of data is a part of the event's document, and
// a line break or a space before it is white space there. An event counts if it is a whole document with a value at the path.
func readEvents(m *Meter, p []byte) {
	l := &m.lines
	for len(p) > 0 {
		if l.afterCR {
			l.afterCR = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			readPart(m, p)
			return
		}
		if !passLine(m, p[:end]) {
			readPart(m, p[:end])
		}
		endLine(m)
		l.afterCR = p[end] == '\r'
		p = p[end+1:]
	}
}

// data begins a line of data.
var data = []byte("data:")

// passLine passes over a whole line, if it is the first of its event with data and says nothing by itself, and reports whether it has. The line is kept
// for the case that the event has more of them.
func passLine(m *Meter, line []byte) bool {
	l := &m.lines
	if l.begun || l.at != afterMark || len(l.passed) > 0 || len(line) > maxPassed || !bytes.HasPrefix(line, data) || maySay(m.scanner, line) {
		return false
	}
	l.passed = append(l.passed, line[len(data):]...)
	l.at = inValue
	return true
}

// maxPassed is the longest line that is kept, in bytes.
const maxPassed = 16 << 10

// scanData scans data of an event.
func scanData(m *Meter, p []byte) {
	l := &m.lines
	l.begun = true
	if len(l.passed) > 0 {
		scan(m.scanner, l.passed)
		l.passed = l.passed[:0]
		scan(m.scanner, newLine)
	}
	scan(m.scanner, p)
}

var newLine = []byte{'\n'}

// readPart reads a part of a line.
func readPart(m *Meter, p []byte) {
	l := &m.lines
	if l.at == 0 && len(p) > 0 && p[0] != field[0] {
		l.at = afterMark
	}
	for len(p) > 0 {
		switch l.at {
		case inOther:
			return
		case inValue:
			scanData(m, p)
			return
		case len(field):
			l.at = inOther
			if p[0] == ':' {
				l.at = inValue
				scanData(m, newLine) // joins it to the line before
				p = p[1:]
			}
		default:
			if p[0] != field[l.at] {
				l.at = inOther
				return
			}
			l.at++
			p = p[1:]
		}
	}
}

// endLine ends a line; an empty one ends the event.
func endLine(m *Meter) {
	if m.lines.at == afterMark {
		endDocument(m)
	}
	m.lines.at = afterMark
}

// readLines reads a part of a body of lines, each of which is a document.
func readLines(m *Meter, p []byte) {
	for {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			m.lines.begun = m.lines.begun || len(p) > 0
			scan(m.scanner, p)
			return
		}
		if m.lines.begun || maySay(m.scanner, p[:end]) {
			m.lines.begun = true
			scan(m.scanner, p[:end])
			endDocument(m)
		}
		p = p[end+1:]
	}
}

// endDocument takes what a document says, if it is whole, and begins the next.
func endDocument(m *Meter) {
	if isWhole(m.scanner) {
		take(m)
	}
	if m.lines.begun {
		reset(m.scanner)
	}
	m.lines.begun = false
	m.lines.passed = m.lines.passed[:0]
}
