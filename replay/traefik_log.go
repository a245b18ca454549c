package replay

import (
	"cmp"

	"github.com/valyala/fastjson"

	"github.com/proxyweir/weir/core/match"
)

var traefikMembers = members{times: []string{"StartUTC", "StartLocal", "time"}, method: "RequestMethod", uri: "RequestPath", host: "RequestHost"}

// parseTraefik reads a line of Traefik's access log in JSON. Its StartUTC is when the request began.
func (p *lineParser) parseTraefik(line *fastjson.Value, e *entry) error {
	duration, fine := p.traefikDuration(line.Get("Duration"))
	if err := traefikMembers.read(p, line, line, duration, fine, e); err != nil {
		return err
	}
	e.format = traefikJSON
	e.client = lastAddress(text(line.Get("ClientHost")))
	e.remote = cmp.Or(match.HostOf(text(line.Get("ClientAddr"))), e.client)
	e.status = cmp.Or(line.GetInt("DownstreamStatus"), line.GetInt("OriginStatus"))
	if len(p.wanted) == 0 {
		return nil
	}
	e.absent = doubtful
	for i, name := range p.prefix {
		if value := line.Get(name); value != nil {
			e.headers = append(e.headers, header{p.wanted[i], []string{text(value)}})
		}
	}
	return nil
}

// traefikDuration reads how long a request took, in nanoseconds. A number below 0 counts as none.
func (p *lineParser) traefikDuration(v *fastjson.Value) (nanos int64, ok bool) {
	if v == nil || v.Type() != fastjson.TypeNumber {
		return 0, true
	}
	raw := p.raw(v)
	nanos, _, ok = splitNumber(raw)
	return nanos, ok || raw[0] == '-'
}
