package replay

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/match"
)

// parseCommon reads a line of the common or combined format of NCSA's servers, or of Traefik's, which has four columns more:
//
//	host ident user [time] "request" status size "referer" "user agent" number "router" "server" 12ms
//
// Traefik's time is when the request began. Others write when it began or ended, and no duration. Apache's vhost_combined has the
// virtual host and its port before all that.
//
// Traefik writes host, user and request as clients send them, so a client can forge whole columns. So all ways to read a line are tried, and
// a line that can be read in two ways is refused.
func (p *lineParser) parseCommon(line []byte, e *entry) error {
	var found commonLine
	readings, tries := 0, 0
	err := errFormat
	for open, next := anchor(line, 0); open >= 0; open, next = anchor(line, next) {
		at, ok := parseCommonTime(string(line[open+2 : next-1]))
		if !ok {
			if readings == 0 && err == errFormat {
				err = errTime
			}
			continue
		}
		body, ok := bytes.CutPrefix(bytes.TrimLeft(line[next:], " "), []byte{'"'})
		if !ok {
			continue
		}
		for end := requestEnd(body, 0); end >= 0; end = requestEnd(body, end+1) {
			if tries++; tries > mostReadings {
				return errTwoWays
			}
			one := commonLine{at: at, before: line[:open]}
			if !one.columns(body[end+1:]) {
				continue
			}
			if !one.request(body[:end]) {
				err = errOther // a connection that has sent something else, or nothing
				continue
			}
			found = one
			readings++
		}
	}
	switch {
	case readings > 1:
		return errTwoWays
	case readings == 0:
		return err
	}
	return p.fill(e, &found)
}

// mostReadings is the most ways of reading a line that are tried, since a client could cause very many.
const mostReadings = 64

// commonLine is one way to read a line.
type commonLine struct {
	at             int64
	before         []byte // the columns before the time
	method, uri    string
	status         int
	format         logFormat
	referer, agent string
	duration       int64
}

// anchor finds the next column in brackets, like the time: the place of the blank before it, and the place after it.
func anchor(line []byte, from int) (open, next int) {
	open = bytes.Index(line[from:], []byte(" ["))
	if open < 0 {
		return -1, 0
	}
	open += from
	length := bytes.IndexByte(line[open:], ']')
	if length < 0 {
		return -1, 0
	}
	next = open + length + 1
	if inner := bytes.LastIndex(line[open+1:next], []byte(" [")); inner >= 0 { // the brackets next to each other
		open += 1 + inner
	}
	return open, next
}

// requestEnd finds the next quote that may end the request: one with a status after it, and no backslash before it.
func requestEnd(body []byte, from int) int {
	for i := from; i < len(body); i++ {
		quote := bytes.IndexByte(body[i:], '"')
		if quote < 0 {
			return -1
		}
		i += quote
		before := body[:i]
		backslashes := len(before) - len(bytes.TrimRight(before, "\\"))
		if behind := body[i+1:]; backslashes%2 == 0 && len(behind) > 1 && behind[0] == ' ' && isDigit(behind[1]) {
			return i
		}
	}
	return -1
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// columns reads the columns after the request.
func (l *commonLine) columns(rest []byte) bool {
	c := columns{rest}
	code, err := strconv.Atoi(c.word())
	if err != nil {
		return false
	}
	l.status = code
	l.format = common
	if size := c.word(); size != "" && size != "-" && strings.Trim(size, "0123456789") != "" {
		return false
	}
	for open, next := anchor(c.rest, 0); open >= 0; open, next = anchor(c.rest, next) { // the line's own time would stand before another
		if _, ok := parseCommonTime(string(c.rest[open+2 : next-1])); ok && bytes.HasPrefix(c.rest[next:], []byte(` "`)) {
			return false
		}
	}
	if l.traefik(c.rest) {
		return true
	}
	referer, ok := c.quoted()
	if agent, also := c.quoted(); ok && also {
		l.format, l.referer, l.agent = combined, referer, agent
	}
	return true
}

// traefik reads the columns that Traefik writes after the size. It writes a backslash before each quote in them, and none before a
// backslash, so only a blank and a quote begin a column.
func (l *commonLine) traefik(rest []byte) bool {
	quoted := bytes.Split(rest, []byte(` "`))
	if len(quoted) != 5 || len(quoted[0]) > 0 {
		return false
	}
	last := bytes.LastIndexByte(quoted[2], '"')
	server, took, ok := bytes.Cut(quoted[4], []byte(`" `))
	if last < 0 || !ok || bytes.IndexByte(server, '"') >= 0 || len(quoted[1]) == 0 || !bytes.HasSuffix(quoted[1], []byte{'"'}) || !bytes.HasSuffix(quoted[3], []byte{'"'}) {
		return false
	}
	if _, err := strconv.ParseUint(string(bytes.TrimSpace(quoted[2][last+1:])), 10, 64); err != nil {
		return false
	}
	number, ok := strings.CutSuffix(string(took), "ms")
	millis, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil {
		return false
	}
	l.format = traefikCommon
	l.referer = strings.ReplaceAll(string(quoted[1][:len(quoted[1])-1]), `\"`, `"`)
	l.agent = strings.ReplaceAll(string(quoted[2][:last]), `\"`, `"`)
	l.duration = min(max(millis, 0), longest/int64(time.Millisecond)) * int64(time.Millisecond)
	return true
}

// request reads the request's column. Only the query may have a blank, and only over HTTP/2 and later.
func (l *commonLine) request(column []byte) bool {
	text := string(column)
	if l.format != traefikCommon {
		text = unescape(text)
	}
	words := strings.Fields(text)
	if len(words) < 2 || !isMethod(words[0]) {
		return false
	}
	last := words[len(words)-1]
	switch {
	case len(words) == 2:
		l.method, l.uri = words[0], words[1]
		return bytes.IndexByte(column, '"') < 0 || l.format != traefikCommon
	case !strings.HasPrefix(last, "HTTP/"):
		return false
	case len(words) > 3 && (strings.HasPrefix(last, "HTTP/1") || !strings.Contains(words[1], "?")):
		return false
	}
	l.method, l.uri = words[0], words[1]
	if len(words) > 3 {
		_, text, _ = strings.Cut(strings.TrimSpace(text), " ")
		l.uri = strings.TrimSpace(strings.TrimSuffix(text, last))
	}
	return true
}

// fill makes an entry of the line.
func (p *lineParser) fill(e *entry, l *commonLine) error {
	if !e.setTimes(l.at, wholeSecond, l.duration, false) {
		return errTime
	}
	e.format, e.status, e.method, e.uri = l.format, l.status, l.method, l.uri
	if e.format != common {
		p.known(e, "Referer", l.referer)
		p.known(e, "User-Agent", l.agent)
	}
	return e.setClient(string(l.before))
}

// setClient reads the columns before the time. The client is the first of them, or behind a virtual host the second.
func (e *entry) setClient(before string) error {
	list, rest, found := strings.Cut(before, " - ")
	if !found { // the second column is somebody's name
		list, rest, _ = strings.Cut(before, " ")
		if behind, _, _ := strings.Cut(rest, " "); isVirtualHost(list, behind) {
			list += " " + behind
		}
	}
	if host, behind, two := strings.Cut(list, " "); two && e.format != traefikCommon && isVirtualHost(host, behind) {
		e.host, e.hasHost = match.HostOf(host), true
		list = behind
	}
	e.client = lastAddress(list)
	known := isAddress(e.client)
	for tries := 0; ; tries++ { // a name may have such a thing in it, and so may the list
		more, behind, another := strings.Cut(rest, " - ")
		if !another {
			break
		}
		if tries == mostReadings {
			return errTwoWays
		}
		list += " - " + more
		rest = behind
		if other := lastAddress(list); isAddress(other) && other != e.client {
			if known {
				return errTwoWays
			}
			e.client, known = other, true
		}
	}
	e.remote = e.client
	e.strange = !known && e.client != ""
	return nil
}

// isVirtualHost reports whether two columns are a virtual host, with its port, and a client.
func isVirtualHost(host, client string) bool {
	if strings.HasSuffix(host, ",") || strings.Contains(client, " ") {
		return false
	}
	if isAddress(lastAddress(client)) {
		return !isAddress(host)
	}
	_, port, _ := strings.Cut(host, ":") // behind which a client may have a name
	return port != "" && strings.Trim(port, "0123456789") == "" && client != "" && client != "-"
}

// known notes a header field that the line has a column for, in which - stands for none.
func (p *lineParser) known(e *entry, name, value string) {
	switch {
	case !slices.Contains(p.wanted, name):
	case value != "-":
		e.headers = append(e.headers, header{name, []string{value}})
	case e.format != traefikCommon: // which writes - for what it leaves out, too
		e.headers = append(e.headers, header{name: name})
	}
}

// isMethod reports whether a word can be the method of a request.
func isMethod(word string) bool {
	return word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") == ""
}

// columns are what is left of a line.
type columns struct {
	rest []byte
}

// word takes the next column, which ends with a space.
func (c *columns) word() string {
	c.rest = bytes.TrimLeft(c.rest, " ")
	end := bytes.IndexByte(c.rest, ' ')
	if end < 0 {
		end = len(c.rest)
	}
	word := string(c.rest[:end])
	c.rest = c.rest[end:]
	return word
}

// quoted takes the next column, which is in quotes; \" and \x22 are a quote in it.
func (c *columns) quoted() (value string, ok bool) {
	rest, begun := bytes.CutPrefix(bytes.TrimLeft(c.rest, " "), []byte{'"'})
	for i := 0; begun && i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			c.rest = rest[i+1:]
			return unescape(string(rest[:i])), true
		}
	}
	return "", false
}

// unescape replaces what Apache and nginx write for bytes that cannot stand in a column.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' && i+1 < len(s) {
			i++
			c = s[i]
			switch c {
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			case 'r':
				c = '\r'
			case 'x':
				n, err := strconv.ParseUint(s[i+1:min(i+3, len(s))], 16, 8)
				if err == nil && i+2 < len(s) {
					c = byte(n)
					i += 2
				} else {
					b = append(b, '\\')
				}
			}
		}
		b = append(b, c)
	}
	return string(b)
}
