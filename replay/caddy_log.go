package replay

import (
	"strings"
	"time"

	"github.com/valyala/fastjson"
)

// caddyTimeKeys are the names that the time may have: time_key of the encoder can be any, and these are customary.
var caddyTimeKeys = []string{"ts", "time", "timestamp", "@timestamp"}

// parseCaddy reads a line of Caddy's access log. Its time is when the request ended.
func (p *lineParser) parseCaddy(o *fastjson.Object, request *fastjson.Value, e *entry) error {
	if !isAccess(o) {
		return errHandler
	}
	var at, precision int64
	ok := false
	for _, key := range caddyTimeKeys {
		if v := o.Get(key); v != nil {
			at, precision, ok = p.time(v)
			break
		}
	}
	if !ok {
		return errTime
	}
	duration, ok := p.caddyDuration(o.Get("duration"))
	if !ok {
		return errDuration
	}
	if !e.setTimes(at, precision, duration, true) {
		return errTime
	}
	fields, _ := request.Object()
	e.format = caddyJSON
	e.method = text(fields.Get("method"))
	e.uri = text(fields.Get("uri"))
	if e.method == "" || e.uri == "" {
		return errRequest
	}
	host := fields.Get("host")
	e.hasHost = host != nil
	e.host = text(host)
	e.remote = text(fields.Get("remote_ip"))
	e.client = text(fields.Get("client_ip"))
	if e.client == "" {
		e.client = e.remote
	}
	if status := o.Get("status"); status != nil {
		e.status, _ = status.Int()
	}
	if e.status == 0 { // nothing was written, for which net/http writes 200
		e.status = 200
	}
	if e.status == 400 && e.hasHost && e.host == "" && text(fields.Get("proto")) == "HTTP/1.1" {
		return errOther // Caddy refuses it before any handler is asked
	}
	e.byRule = text(o.Get("rate_limit_rule")) != "" // which Weir's handler adds, whatever the client is answered
	if len(p.wanted) > 0 {
		p.caddyHeaders(fields.Get("headers"), e)
	}
	return nil
}

// isAccess reports whether a line that has a request tells of its end. Those of handlers' errors have one, too. Where the encoder's
// message_key and name_key are others, nothing is known of that, and each is taken.
func isAccess(o *fastjson.Object) bool {
	if logger := o.Get("logger"); logger != nil {
		return strings.HasPrefix(text(logger), "http.log.access")
	}
	if message := o.Get("msg"); message != nil {
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
	case fastjson.TypeNull:
		return 0, true
	}
	return 0, false
}

// caddyHeaders reads those header fields that are asked for.
func (p *lineParser) caddyHeaders(v *fastjson.Value, e *entry) {
	if v == nil || v.Type() != fastjson.TypeObject {
		return
	}
	o, _ := v.Object()
	e.absent = known
	for _, name := range p.wanted {
		value := o.Get(name)
		if value == nil {
			continue
		}
		h := header{name: name}
		if list, err := value.Array(); err == nil {
			for _, item := range list {
				h.values = append(h.values, text(item))
			}
		} else { // as a filter may have made it
			h.values = append(h.values, text(value))
		}
		e.headers = append(e.headers, h)
	}
}
