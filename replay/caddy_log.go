package replay

import (
	"cmp"
	"strings"
	"time"

	"github.com/valyala/fastjson"
)

// caddyMembers has the names that the time may have: time_key of the encoder can be any, and these are customary.
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
	e.status = cmp.Or(line.GetInt("status"), 200) // nothing was written, for which net/http writes 200
	if e.status == 400 && e.hasHost && e.host == "" && text(request.Get("proto")) == "HTTP/1.1" {
		return errOther // Caddy refuses it before any handler is asked
	}
	e.byRule = text(line.Get("rate_limit_rule")) != "" // which Weir's handler adds, whatever the client is answered
	if len(p.wanted) > 0 {
		p.caddyHeaders(request.Get("headers"), e)
	}
	return nil
}

// isAccess reports whether a line that has a request tells of its end. Those of handlers' errors have one, too. Where the encoder's
// message_key and name_key are others, nothing is known of that, and each is taken.
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

// caddyDuration reads how long a request took. A line without is one of a log that leaves it out.
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

// caddyHeaders reads those header fields that are asked for.
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
