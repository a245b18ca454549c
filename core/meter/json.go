package meter

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
)

// scanner reads one document of JSON, in parts, and finds the numbers at its paths. It keeps the key or the number that it is in, as far as that matters,
// and for each path how far it has come. Values that no path leads into are skipped: of them only strings and brackets are looked at, so that a document
// that is not valid may pass for one that is.
type scanner struct {
	paths   []path
	state   state
	depth   int                        // how many containers are open that a path leads into
	isList  [core.MaxCostKeys + 1]bool // which of these are lists, by depth
	index   [core.MaxCostKeys + 1]int  // of the element of each list
	nested  int                        // how many containers are open that no path leads into
	text    []byte                     // the key after a quote, or the number
	window  int                        // the longest key that can match, as it is written
	tooLong bool                       // text is cut
	marks   [][]byte                   // see maySay
	open    bool                       // a path has no mark
	escaped bool                       // the string's last byte so far is a backslash
}

// path is a path of keys, and what the document says there.
type path struct {
	source  int
	keys    []string
	indices []int // the same as elements of lists; -1: it is none
	open    int   // how many of the open containers it leads into, from the outside
	meets   bool  // it leads to the value that is read, or into it
	said    bool  // the document has a value there
	cost    cost
}

// state is what the scanner expects, or is in.
type state int

const (
	beforeValue state = iota
	beforeKey
	beforeColon
	afterValue
	inKey
	inString
	inScalar // a number, true, false or null
	inSkipped
	broken
)

// addPath adds the path of a source.
func addPath(s *scanner, source int, keys []string) {
	indices := make([]int, len(keys))
	for i, key := range keys {
		if 6*len(key)+1 > s.window { // of \u0061, and the quote
			s.window = 6*len(key) + 1
		}
		n, err := strconv.Atoi(key)
		if err != nil || strconv.Itoa(n) != key {
			n = -1
		}
		indices[i] = n
	}
	s.paths = append(s.paths, path{source: source, keys: keys, indices: indices})
	if mark := markOf(keys, indices); mark != "" {
		s.marks = append(s.marks, []byte(mark))
	} else {
		s.open = true
	}
}

// markOf returns a text that a document has wherever it has a path and no \u00, by which JSON can write any of the mark's letters; "": there is none.
func markOf(keys []string, indices []int) string {
	for i := len(keys) - 1; i >= 0; i-- {
		if indices[i] >= 0 {
			continue
		}
		mark := strconv.Quote(keys[i])
		if mark == `"`+keys[i]+`"` && strconv.QuoteToASCII(keys[i]) == mark && strings.IndexByte(mark, '/') < 0 {
			return mark
		}
	}
	return ""
}

// maySay reports whether a document may have a value at a path. Most events of a stream have none, and need not be scanned.
func maySay(s *scanner, document []byte) bool {
	if s.open || bytes.Contains(document, escaped) {
		return true
	}
	for _, mark := range s.marks {
		if bytes.Contains(document, mark) {
			return true
		}
	}
	return false
}

var escaped = []byte(`\u00`)

// reset prepares for the next document.
func reset(s *scanner) {
	s.state = beforeValue
	s.depth = 0
	s.nested = 0
	s.escaped = false
	for i := range s.paths {
		p := &s.paths[i]
		p.meets = true
		p.said = false
	}
}

// isWhole reports whether the document has ended.
func isWhole(s *scanner) bool { return s.state == afterValue && s.depth == 0 }

// scan reads the next part.
func scan(s *scanner, p []byte) {
	for len(p) > 0 {
		switch s.state {
		case broken:
			return
		case inSkipped:
			i := bytes.IndexAny(p, `"{}[]`)
			if i < 0 {
				return
			}
			switch p[i] {
			case '"':
				s.state = inString
			case '{', '[':
				s.nested++
			default:
				s.nested--
				if s.nested == 0 {
					s.state = afterValue
				}
			}
			p = p[i+1:]
		case inString:
			i := closing(s, p)
			if i < 0 {
				return
			}
			s.state = afterValue
			if s.nested > 0 {
				s.state = inSkipped
			}
			p = p[i+1:]
		case inKey:
			i := closing(s, p)
			if i < 0 {
				keep(s, p, s.window)
				return
			}
			keep(s, p[:i], s.window)
			readKey(s)
			s.state = beforeColon
			p = p[i+1:]
		case inScalar:
			i := bytes.IndexAny(p, ",]} \t\r\n\"[{:")
			if i < 0 {
				keep(s, p, maxNumber)
				return
			}
			keep(s, p[:i], maxNumber)
			s.state = afterValue
			readScalar(s)
			p = p[i:]
		default:
			switch p[0] {
			case ' ', '\t', '\r', '\n':
				p = trimSpace(p)
			default:
				readMark(s, p[0])
				p = p[1:]
			}
		}
	}
}

// trimSpace returns the text without JSON's white space before it.
func trimSpace(p []byte) []byte { return bytes.TrimLeft(p, " \t\r\n") }

// closing returns the index of the quote that ends a string; -1: it goes on. A backslash takes the next byte with it.
func closing(s *scanner, p []byte) int {
	at := 0
	if s.escaped {
		s.escaped = false
		at = 1
	}
	for at < len(p) {
		end := len(p)
		quote := bytes.IndexByte(p[at:], '"')
		if quote >= 0 {
			end = at + quote
		}
		for at <= end {
			backslash := bytes.IndexByte(p[at:end], '\\')
			if backslash < 0 && quote < 0 {
				return -1
			}
			if backslash < 0 {
				return end
			}
			at += backslash + 2
		}
	}
	s.escaped = at > len(p)
	return -1
}

// keep adds to the text, unless it becomes longer than what matters.
func keep(s *scanner, p []byte, most int) {
	if s.tooLong || len(s.text)+len(p) > most {
		s.tooLong = true
		return
	}
	s.text = append(s.text, p...)
}

// begin begins a text with its first byte.
func begin(s *scanner, first byte) {
	s.text = append(s.text[:0], first)
	s.tooLong = false
}

// readMark reads a byte that belongs to no string, number or word, or is the first of one.
func readMark(s *scanner, c byte) {
	switch s.state {
	case beforeKey:
		switch c {
		case '"':
			begin(s, c)
			s.state = inKey
		case '}':
			closeContainer(s)
		default:
			s.state = broken
		}
	case beforeColon:
		s.state = broken
		if c == ':' {
			s.state = beforeValue
		}
	case afterValue:
		readSeparator(s, c)
	case beforeValue:
		if s.depth > 0 && s.isList[s.depth] {
			if c == ']' {
				closeContainer(s)
				return
			}
			for i := range s.paths {
				p := &s.paths[i]
				p.meets = p.open == s.depth && p.indices[s.depth-1] == s.index[s.depth]
			}
		}
		readFirst(s, c)
	}
}

// readSeparator reads what follows a value.
func readSeparator(s *scanner, c byte) {
	if s.depth == 0 {
		s.state = broken
		return
	}
	list := s.isList[s.depth]
	switch c {
	case ',':
		s.state = beforeKey
		if list {
			s.state = beforeValue
			s.index[s.depth]++
		}
	case ']', '}':
		closeContainer(s)
		if list != (c == ']') {
			s.state = broken
		}
	default:
		s.state = broken
	}
}

// readFirst reads the first byte of a value.
func readFirst(s *scanner, c byte) {
	switch c {
	case '{', '[':
		openContainer(s, c == '[')
	case '"':
		say(s, cost{})
		s.state = inString
	case ',', ':', ']', '}':
		s.state = broken
	default:
		begin(s, c)
		s.state = inScalar
	}
}

// openContainer begins an object or a list.
func openContainer(s *scanner, list bool) {
	say(s, cost{})
	wanted := false
	for i := range s.paths {
		p := &s.paths[i]
		if p.meets && len(p.keys) > s.depth {
			p.open = s.depth + 1
			wanted = true
		}
	}
	if !wanted {
		s.nested = 1
		s.state = inSkipped
		return
	}
	s.depth++
	s.isList[s.depth] = list
	s.index[s.depth] = 0
	s.state = beforeKey
	if list {
		s.state = beforeValue
	}
}

// closeContainer ends the innermost container that a path leads into.
func closeContainer(s *scanner) {
	s.depth--
	for i := range s.paths {
		p := &s.paths[i]
		if p.open > s.depth {
			p.open = s.depth
		}
	}
	s.state = afterValue
}

// readKey finds the paths that lead to the member with the key in the text.
func readKey(s *scanner) {
	key := s.text[1:]
	if bytes.IndexByte(key, '\\') >= 0 && !s.tooLong {
		var plain string
		if json.Unmarshal(append(s.text, '"'), &plain) == nil {
			key = []byte(plain)
		}
	}
	for i := range s.paths {
		p := &s.paths[i]
		p.meets = !s.tooLong && p.open == s.depth && p.keys[s.depth-1] == string(key)
	}
}

// readScalar reads the number or word in the text, if a path leads to it.
func readScalar(s *scanner) {
	met := false
	for i := range s.paths {
		p := &s.paths[i]
		met = met || p.meets && len(p.keys) == s.depth
	}
	if !met {
		return
	}
	switch s.text[0] {
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 't', 'f': // but null is no value, as for a field that is not set, nor is [DONE]
		c := cost{}
		if !s.tooLong {
			c = parse(string(s.text))
		}
		say(s, c)
	}
}

// say notes the cost at the paths that lead to the value that is read.
func say(s *scanner, c cost) {
	for i := range s.paths {
		p := &s.paths[i]
		if p.meets && len(p.keys) == s.depth {
			p.said = true
			p.cost = c
		}
	}
}
