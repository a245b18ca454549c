package replay

import (
	"cmp"
	"strings"
	"time"

	"github.com/valyala/fastjson"
)

// caddyMembers has the usual names of the time: the encoder's time_key can set any.
var caddyMembers = members{times: []string{"ts", "time", "timestamp", "@timestamp"}, method: "method", uri: "uri", host: "host"}

// parseCaddy reads a line of Caddy's access log. Its time is when the request ended.
func (p *lineParser) parseCaddy(line, request *fastjson.Value, e *entry) error {
	if !isAccess(line) {
		return errHandler
	}
	duration, fine := p.caddyDuration(line.Get("duration"))
	if err := caddyMembers.read(p, line, request, duration, fine, e); err != nil {
		return err
	}
	e.format = caddyJSON
	e.remote = text(request.Get("remote_ip"))
	e.client = cmp.Or(text(request.Get("client_ip")), e.remote)
	e.status = cmp.Or(line.GetInt("status"), 200) // a handler that writes nothing gets net/http's 200
	if e.status == 400 && e.hasHost && e.host == "" && text(request.Get("proto")) == "HTTP/1.1" {
		return errOther // Caddy refuses it before any handler runs
	}
	e.byRule = text(line.Get("rate_limit_rule")) != "" // Weir's handler adds it, whatever the response is
	if len(p.wanted) > 0 {
		p.caddyHeaders(request.Get("headers"), e)
	}
	return nil
}

// isAccess reports whether a line with a request is of the access log. Lines of handlers' errors have a request, too. If the encoder's
// message_key and name_key are changed, this is not known, and every line counts.
func isAccess(line *fastjson.Value) bool {
	if logger := line.Get("logger"); logger != nil {
		return strings.HasPrefix(text(logger), "http.log.access")
	}
	if message := line.Get("msg"); message != nil {
		m := text(message)
		return m == "handled request" || m == "NOP"
	}
	return true
}

// caddyDuration reads how long a request took. A log may leave it out.
func (p *lineParser) caddyDuration(v *fastjson.Value) (nanos int64, ok bool) {
	if v == nil {
		return 0, true
	}
	switch v.Type() {
	case fastjson.TypeNumber:
		return parseNumberDuration(p.raw(v))
	case fastjson.TypeString:
		d, err := time.ParseDuration(text(v))
		return int64(d), err == nil
	}
	return 0, v.Type() == fastjson.TypeNull
}

// caddyHeaders reads the wanted header fields.
func (p *lineParser) caddyHeaders(v *fastjson.Value, e *entry) {
	if v == nil || v.Type() != fastjson.TypeObject {
		return
	}
	e.absent = known
	for _, name := range p.wanted {
		value := v.Get(name)
		if value == nil {
			continue
		}
		list, err := value.Array()
		if err != nil { // as a filter may have made it
			list = []*fastjson.Value{value}
		}
		h := header{name: name}
		for _, item := range list {
			h.values = append(h.values, text(item))
		}
		e.headers = append(e.headers, h)
	}
}
