package replay

import (
	"bytes"
	"time"
)

// containerName has the characters of containers' names.
const containerName = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_."

// withoutPrefix removes the prefix of a line that `docker compose logs` writes: the container's name, blanks and a bar, with --timestamps a
// time, and on a terminal colours. If there is no such prefix, found is false and the line unchanged.
func withoutPrefix(line []byte) (rest []byte, found bool) {
	before, rest, found := bytes.Cut(line, []byte{'|'})
	if !found {
		return line, false
	}
	before = withoutColours(before)
	behind := bytes.TrimLeft(before, containerName)
	if len(behind) == len(before) || len(withoutColours(bytes.TrimLeft(behind, " "))) > 0 {
		return line, false
	}
	rest = bytes.TrimLeft(withoutColours(bytes.TrimLeft(rest, " ")), " ")
	if at, behind, _ := bytes.Cut(rest, []byte{' '}); len(at) >= len("2006-01-02T15:04:05Z") && at[10] == 'T' {
		if _, err := time.Parse(time.RFC3339Nano, string(at)); err == nil {
			rest = behind
		}
	}
	return bytes.TrimSpace(bytes.TrimSuffix(rest, []byte("\x1b[0m"))), true
}

// withoutColours removes the escape sequences for a terminal's colours at the beginning of a text.
func withoutColours(text []byte) []byte {
	for {
		code, found := bytes.CutPrefix(text, []byte("\x1b["))
		rest, ended := bytes.CutPrefix(bytes.TrimLeft(code, "0123456789;"), []byte{'m'})
		if !found || !ended {
			return text
		}
		text = rest
	}
}
