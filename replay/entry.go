package replay

import (
	"net/netip"
	"strings"

	"github.com/proxyweir/weir/core/match"
)

// entry is one request of a log as in its line.
type entry struct {
	start, end int64 // nanoseconds; equal if the log has no duration
	coarse     bool  // the line has whole seconds
	status     int
	byRule     bool // the line names the rule that rejected it
	method     string
	host       string
	uri        string
	client     string // address; "" if the line has none
	remote     string // address of the peer

	strange bool      // the client's column is not an address
	hasHost bool      // the format has the host, which may be empty
	headers []header  // the wanted ones that the line has
	absent  lack      // why a header field is not among them
	format  logFormat // of the line
}

// header is a header field with its values.
type header struct {
	name   string // canonical
	values []string
}

// logFormat is the format of a line.
type logFormat int

const (
	noFormat logFormat = iota
	caddyJSON
	traefikJSON
	traefikCommon
	combined
	common
	formats // how many there are
)

func (f logFormat) String() string {
	return [...]string{"", "caddy-json", "traefik-json", "traefik-common", "combined", "common"}[f]
}

// redacted is the word that Caddy and Traefik write in place of a value that must not be in the log.
const redacted = "REDACTED"

// find returns the values of a header field that the line has.
func (e *entry) find(name string) ([]string, bool) {
	for i := range e.headers {
		if e.headers[i].name == name {
			return e.headers[i].values, true
		}
	}
	return nil, false
}

// reset clears the entry for another line.
func (e *entry) reset() {
	headers := e.headers
	clear(headers)
	*e = entry{headers: headers[:0], absent: unlogged}
}

// setTimes sets when the request began and ended, from its end or (if ended is false) its start, and its duration. With times in whole seconds
// it also rounds the duration to whole seconds, so that the lines of a second stay together.
func (e *entry) setTimes(at, precision, duration int64, ended bool) bool {
	if at < earliest || at > latest {
		return false
	}
	duration = min(max(duration, 0), longest)
	e.coarse = precision == wholeSecond
	if e.coarse {
		duration -= duration % wholeSecond
	}
	e.start, e.end = at, at
	if ended {
		e.start = max(at-duration, earliest)
	} else {
		e.end = min(at+duration, latest)
	}
	return true
}

// lastAddress returns the last of a list of addresses such as X-Forwarded-For, as match.CleanAddress does.
func lastAddress(list string) string {
	if i := strings.LastIndexByte(list, ','); i >= 0 {
		list = list[i+1:]
	}
	list = strings.TrimSpace(list)
	if list == "-" {
		return ""
	}
	return match.CleanAddress(list)
}

// isAddress reports whether a text is an IP address and nothing else.
func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}
