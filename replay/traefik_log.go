package replay

import (
	"github.com/proxyweir/weir/match"
	"github.com/valyala/fastjson"
)

// parseTraefik reads a line of Traefik's access log in JSON. Its StartUTC is when the request came, and its Duration is in nanoseconds.
func (p *lineParser) parseTraefik(v *fastjson.Value, e *entry) error {
	o, err := v.Object()
	if err != nil {
		return errFormat
	}
	var at, precision int64
	ok := false
	ended := false
	for _, key := range []string{"StartUTC", "StartLocal", "time"} {
		if t := o.Get(key); t != nil {
			at, precision, ok = p.time(t)
			ended = key == "time"
			break
		}
	}
	if !ok {
		return errTime
	}
	duration := int64(0)
	if d := o.Get("Duration"); d != nil && d.Type() == fastjson.TypeNumber {
		whole, _, fine := splitNumber(p.raw(d))
		if fine {
			duration = whole
		} else if raw := p.raw(d); raw[0] != '-' {
			return errDuration
		}
	}
	if !e.setTimes(at, precision, duration, ended) {
		return errTime
	}
	e.format = traefikJSON
	e.method = text(o.Get("RequestMethod"))
	e.uri = text(o.Get("RequestPath"))
	if e.method == "" || e.uri == "" {
		return errRequest
	}
	host := o.Get("RequestHost")
	e.hasHost = host != nil
	e.host = text(host)
	e.client = lastAddress(text(o.Get("ClientHost")))
	e.remote = match.HostOf(text(o.Get("ClientAddr")))
	if e.remote == "" {
		e.remote = e.client
	}
	e.status = status(o.Get("DownstreamStatus"))
	if e.status == 0 {
		e.status = status(o.Get("OriginStatus"))
	}
	if len(p.wanted) == 0 {
		return nil
	}
	e.absent = doubtful
	for i, name := range p.prefix {
		if value := o.Get(name); value != nil {
			e.headers = append(e.headers, header{p.wanted[i], []string{text(value)}})
		}
	}
	return nil
}

func status(v *fastjson.Value) int {
	if v == nil {
		return 0
	}
	n, _ := v.Int()
	return n
}
