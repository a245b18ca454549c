package replay

import (
	"bytes"
	"time"
)

// withoutPrefix takes off a line what `docker compose logs` writes before it: the container's name, blanks and a bar, with --timestamps a
// time, and on a terminal colours. found is false, and the line as it was, where there is no such prefix.
func withoutPrefix(line []byte) (rest []byte, found bool) {
	rest = withoutColours(line)
	name := 0
	for name < len(rest) && isNameByte(rest[name]) {
		name++
	}
	if name == 0 {
		return line, false
	}
	rest = withoutColours(bytes.TrimLeft(rest[name:], " "))
	if len(rest) == 0 || rest[0] != '|' {
		return line, false
	}
	rest = bytes.TrimLeft(withoutColours(bytes.TrimLeft(rest[1:], " ")), " ")
	if at, behind, _ := bytes.Cut(rest, []byte{' '}); len(at) >= len("2006-01-02T15:04:05Z") && at[10] == 'T' {
		if _, err := time.Parse(time.RFC3339Nano, string(at)); err == nil {
			rest = behind
		}
	}
	return bytes.TrimSpace(bytes.TrimSuffix(rest, []byte("\x1b[0m"))), true
}

// isNameByte reports whether a container's name can have that byte.
func isNameByte(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || isDigit(b) || b == '-' || b == '_' || b == '.'
}

// withoutColours takes off the sequences that switch a terminal's colours, where a text begins with them.
func withoutColours(text []byte) []byte {
	for bytes.HasPrefix(text, []byte("\x1b[")) {
		end := 2
		for end < len(text) && (isDigit(text[end]) || text[end] == ';') {
			end++
		}
		if end == len(text) || text[end] != 'm' {
			break
		}
		text = text[end+1:]
	}
	return text
}
