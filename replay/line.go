package replay

import (
	"bytes"
	"errors"
	"time"

	"github.com/valyala/fastjson"
)

// lineParser reads lines of access logs, each by itself: its beginning shows the format of a line, and its members that of JSON.
// It is for one goroutine.
type lineParser struct {
	wanted []string // canonical names of the wanted header fields
	prefix []string // of wanted, as Traefik's JSON has them
	json   fastjson.Parser
	number []byte
}

func newLineParser(wanted []string) *lineParser {
	p := &lineParser{wanted: wanted}
	for _, name := range wanted {
		p.prefix = append(p.prefix, "request_"+name)
	}
	return p
}

// otherLine is the error of a valid line that is not a request of an access log: it says what the line is.
type otherLine string

func (o otherLine) Error() string { return string(o) }

// isOther reports whether an error is an otherLine.
func isOther(err error) bool {
	_, other := err.(otherLine)
	return other
}

const (
	errBlank   otherLine = "is blank"
	errOther   otherLine = "is no request"
	errMessage otherLine = "is JSON without a request, as a proxy's own messages are: a line of Caddy's access log, which needs log in the site, has an object request, and one of Traefik's has RequestMethod"
	errHandler otherLine = "is a message of Caddy about a request, and not of its access log, whose logger begins with http.log.access"
)

var (
	errFormat   = errors.New("is none of the formats that are known: JSON of Caddy or Traefik, or the common or combined format")
	errTwoWays  = errors.New("can be read in two ways, as one can in which a client has forged columns")
	errTime     = errors.New("has no time that can be read, from 1970 to 2199")
	errDuration = errors.New("has a duration that cannot be read")
	errRequest  = errors.New("has no request that can be read")
	errJSON     = errors.New("is no JSON, or is cut off")
)

// parse reads a line into e. The error says what is wrong with it.
func (p *lineParser) parse(line []byte, e *entry) error {
	e.reset()
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return errBlank
	}
	if line[0] == '{' {
		return p.parseJSON(line, e)
	}
	line, found := withoutPrefix(line)
	if !found || len(line) > 0 && line[0] != '{' {
		return p.parseCommon(line, e)
	}
	if len(line) == 0 {
		return errBlank
	}
	// A client can write such a prefix and an object into Traefik's common format, but not the end of the line.
	if line[len(line)-1] == '}' {
		return p.parseJSON(line, e)
	}
	err := p.parseCommon(line, e)
	if errors.Is(err, errFormat) {
		return errJSON
	}
	return err
}

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
