package ratelimit

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/core"
)

const clientIPPlaceholder = "{http.vars.client_ip}"

// keyMaker makes the keys of requests: a template taken apart once, of which the placeholders that nearly every key is
// made of are looked up without Caddy's replacer.
type keyMaker struct {
	parts               []keyPart // the placeholders, in order
	static              string    // the key, where there are none
	prefixes            core.Prefixes
	masks               bool
	template            string
	spec                string // what the key is made of, for the rule's identity
	needsAuthentication bool
}

// keyPart is one placeholder of a key.
type keyPart struct {
	kind   partKind
	name   string // of the placeholder
	header string // of the field, in canonical form
}

type partKind int

const (
	anyPlaceholder partKind = iota
	clientIP
	remoteHost
	requestHeader
)

// newKeyMaker takes a template apart. The error says which placeholder is wrong.
func newKeyMaker(template string, prefixes core.Prefixes) (*keyMaker, error) {
	k := &keyMaker{template: template, prefixes: prefixes, masks: prefixes != core.Prefixes{}}
	text, err := splitPlaceholders(template, func(name string) error {
		if err := checkPlaceholder(name); err != nil {
			return err
		}
		part := keyPart{name: name}
		switch {
		case name == "http.vars.client_ip":
			part.kind = clientIP
		case name == "http.request.remote.host":
			part.kind = remoteHost
		case strings.HasPrefix(name, "http.request.header."):
			part.kind = requestHeader
			part.header = textproto.CanonicalMIMEHeaderKey(strings.TrimPrefix(name, "http.request.header."))
		case strings.HasPrefix(name, "http.auth."):
			k.needsAuthentication = true
		}
		k.parts = append(k.parts, part)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", template, err)
	}
	if len(k.parts) == 0 {
		k.static = text
	}
	k.spec = template
	if template == clientIPPlaceholder {
		k.spec = "client_ip" // as core's own sources are written, so that one counter serves several proxies
	}
	if k.masks {
		k.spec += fmt.Sprintf(" /%d /%d", prefixes.IPv4, prefixes.IPv6)
	}
	return k, nil
}

// make returns the request's key, and whether any part of it was missing. A key of one placeholder is its value; of
// several, the values with their lengths, so that no client can put together another's.
func (k *keyMaker) make(r *http.Request, q *inquiry) (key string, missing bool) {
	if len(k.parts) == 0 {
		return k.static, false
	}
	if len(k.parts) == 1 {
		value := k.value(&k.parts[0], r)
		return value, value == ""
	}
	q.key = q.key[:0]
	for i := range k.parts {
		value := k.value(&k.parts[i], r)
		missing = missing || value == ""
		q.key = core.AppendKeyPart(q.key, value)
	}
	return string(q.key), missing
}

// value returns a part's value, with addresses masked.
func (k *keyMaker) value(part *keyPart, r *http.Request) string {
	var value string
	switch part.kind {
	case clientIP:
		value, _ = caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	case remoteHost:
		var err error
		if value, _, err = net.SplitHostPort(r.RemoteAddr); err != nil {
			value = r.RemoteAddr
		}
	case requestHeader:
		value = headerValue(r, part.header)
	default:
		value, _ = replacerOf(r).GetString(part.name)
	}
	if k.masks || strings.HasPrefix(value, "::") {
		return k.prefixes.Mask(value) // an IPv4-mapped address is its IPv4 in any case
	}
	return value
}

func headerValue(r *http.Request, name string) string {
	values := r.Header[name]
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values, ",")
}

// readable returns the key as a person wants to read it in a log: the template with its placeholders replaced.
func (k *keyMaker) readable(r *http.Request) string {
	return replacerOf(r).ReplaceAll(k.template, "")
}

func replacerOf(r *http.Request) *caddy.Replacer {
	return r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
}

// splitPlaceholders calls f for each placeholder of a template, as Caddy's replacer finds them, and returns the text
// around them, without the backslashes that escape braces. A brace that opens a placeholder and is never closed is an error.
func splitPlaceholders(template string, f func(name string) error) (text string, err error) {
	var around strings.Builder
	for i := 0; i < len(template); i++ {
		c := template[i]
		if c == '\\' && i+1 < len(template) && (template[i+1] == '{' || template[i+1] == '}') {
			i++
			around.WriteByte(template[i])
			continue
		}
		if c != '{' {
			around.WriteByte(c)
			continue
		}
		end := closingBrace(template, i)
		if end < 0 {
			return "", fmt.Errorf("%q has no closing brace; write \\{ for a brace that opens nothing", template[i:])
		}
		if err := f(template[i+1 : end]); err != nil {
			return "", err
		}
		i = end
	}
	return around.String(), nil
}

// closingBrace returns where the placeholder ends that begins at open: at the first closing brace that is not escaped. The
// last character of a template closes in any case, as it does for Caddy.
func closingBrace(template string, open int) int {
	for i := open + 1; i < len(template); i++ {
		if template[i] == '}' && (template[i-1] != '\\' || i == len(template)-1) {
			return i
		}
	}
	return -1
}

// placeholderName returns the name in a text that is one placeholder and nothing else.
func placeholderName(text string) (name string, ok bool) {
	if len(text) < 3 || text[0] != '{' || strings.IndexByte(text, '}') != len(text)-1 {
		return "", false
	}
	return text[1 : len(text)-1], true
}

// hasPlaceholder reports whether a template has a placeholder.
func hasPlaceholder(template string) bool {
	found := false
	_, _ = splitPlaceholders(template, func(string) error { found = true; return nil })
	return found
}

// checkPlaceholder refuses a shorthand of the Caddyfile. Caddy replaces those in sites; where one is left it would be
// empty, and all clients would share one key.
func checkPlaceholder(name string) error {
	if name == "" {
		return fmt.Errorf("has an empty placeholder; write \\{ for a brace")
	}
	segment := caddyfile.Segment{{Text: "{" + name + "}"}}
	httpcaddyfile.NewShorthandReplacer().ApplyToSegment(&segment)
	if full := segment[0].Text; full != "{"+name+"}" {
		return fmt.Errorf("{%s} is a shorthand that Caddy knows in the sites of a Caddyfile only; write %s", name, full)
	}
	return nil
}

// authenticatedBefore reports whether a handler that authenticates runs before h, which is being provisioned: in an earlier
// route of those around it, or earlier in its own.
func authenticatedBefore(ctx caddy.Context, h *Handler) bool {
	for _, mod := range ctx.Modules() {
		switch mod := mod.(type) {
		case *caddyhttp.Subroute:
			if h.authenticatedIn(mod.Routes) {
				return true
			}
		case *caddyhttp.App:
			for _, server := range mod.Servers {
				if h.authenticatedIn(server.Routes) {
					return true
				}
			}
		}
	}
	return false
}

// authenticatedIn looks through routes. If they are being provisioned, those before h's have their handlers by now, and h's
// own is raw JSON still; in the routes of another server h is not.
func (h *Handler) authenticatedIn(routes caddyhttp.RouteList) bool {
	own := slices.IndexFunc(routes, func(route caddyhttp.Route) bool { return len(route.HandlersRaw) > 0 })
	if own < 0 {
		return false
	}
	before, found := false, false // in h's own route
	for _, raw := range routes[own].HandlersRaw {
		var handler any
		if json.Unmarshal(raw, &handler) != nil {
			return false
		}
		if h.isIn(handler) {
			found = true
			break
		}
		before = before || authenticates(handler)
	}
	return found && (before || slices.ContainsFunc(routes[:own], func(route caddyhttp.Route) bool {
		exclusive := route.Group != "" && route.Group == routes[own].Group
		return !exclusive && slices.ContainsFunc(route.Handlers, handlerAuthenticates)
	}))
}

func handlerAuthenticates(handler caddyhttp.MiddlewareHandler) bool {
	if sub, ok := handler.(*caddyhttp.Subroute); ok {
		return slices.ContainsFunc(sub.Routes, func(route caddyhttp.Route) bool {
			return slices.ContainsFunc(route.Handlers, handlerAuthenticates)
		})
	}
	mod, ok := handler.(caddy.Module)
	return ok && mod.CaddyModule().ID == "http.handlers.authentication"
}

// authenticates is handlerAuthenticates for the JSON of a handler.
func authenticates(handler any) bool {
	return anyObject(handler, func(o map[string]any) bool { return o["handler"] == "authentication" })
}

// isIn reports whether a handler's JSON is h's, or has it inside.
func (h *Handler) isIn(handler any) bool {
	return anyObject(handler, func(o map[string]any) bool {
		zones, _ := o["rate_limits"].(map[string]any)
		for name := range zones {
			if h.RateLimits[name] == nil {
				return false
			}
		}
		return o["handler"] == "rate_limit" && len(zones) == len(h.RateLimits)
	})
}

// anyObject reports whether f is true of any object in a JSON value.
func anyObject(value any, f func(map[string]any) bool) bool {
	switch value := value.(type) {
	case []any:
		return slices.ContainsFunc(value, func(v any) bool { return anyObject(v, f) })
	case map[string]any:
		if f(value) {
			return true
		}
		for _, v := range value {
			if anyObject(v, f) {
				return true
			}
		}
	}
	return false
}
