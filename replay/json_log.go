package replay

import (
	"strings"

	"github.com/valyala/fastjson"
)

// parseJSON reads a line of Caddy's or Traefik's JSON.
func (p *lineParser) parseJSON(line []byte, e *entry) error {
	v, err := p.json.ParseBytes(line)
	if err != nil {
		return errJSON
	}
	if v.Type() != fastjson.TypeObject {
		return errFormat
	}
	if request := v.Get("request"); request != nil && request.Type() == fastjson.TypeObject {
		return p.parseCaddy(v, request, e)
	}
	if v.Exists("RequestMethod") || v.Exists("StartUTC") {
		return p.parseTraefik(v, e)
	}
	return errMessage
}

// members has the names of the members that all JSON formats have.
type members struct {
	times             []string // the first of them that a line has is its time; Start... is when the request began, others when it ended
	method, uri, host string   // of the request
}

// read reads the members that all JSON formats have. fine reports whether the line's duration could be read.
func (m *members) read(p *lineParser, line, request *fastjson.Value, duration int64, fine bool, e *entry) error {
	var at, precision int64
	ok, ended := false, false
	for _, name := range m.times {
		if v := line.Get(name); v != nil {
			at, precision, ok = p.time(v)
			ended = !strings.HasPrefix(name, "Start")
			break
		}
	}
	if ok && !fine {
		return errDuration
	}
	if !ok || !e.setTimes(at, precision, duration, ended) {
		return errTime
	}
	e.method, e.uri = text(request.Get(m.method)), text(request.Get(m.uri))
	if e.method == "" || e.uri == "" {
		return errRequest
	}
	host := request.Get(m.host)
	e.host, e.hasHost = text(host), host != nil
	return nil
}

// text returns a member that is a text, "" for others.
func text(v *fastjson.Value) string { return string(v.GetStringBytes()) }

// raw returns a number as it is written, in memory of the parser.
func (p *lineParser) raw(v *fastjson.Value) []byte {
	p.number = v.MarshalTo(p.number[:0])
	return p.number
}

// time reads a time that is a number or a text.
func (p *lineParser) time(v *fastjson.Value) (nanos, precision int64, ok bool) {
	switch v.Type() {
	case fastjson.TypeNumber:
		nanos, ok = parseNumberTime(p.raw(v))
		return nanos, 1, ok
	case fastjson.TypeString:
		return parseTextTime(text(v))
	}
	return 0, 0, false
}
