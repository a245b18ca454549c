package admin

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/caddy/page"
	"github.com/proxyweir/weir/caddy/syntax"
)

func init() {
	caddy.RegisterModule(new(Page))
	httpcaddyfile.RegisterHandlerDirective("rate_limit_page", parsePage)
	// Behind what keeps clients out: basic_auth, forward_auth, abort, error and respond.
	httpcaddyfile.RegisterDirectiveOrder("rate_limit_page", httpcaddyfile.Before, "reverse_proxy")
}

// Page serves the page with the rules in force, at `/rate_limit/` of a site, and those endpoints of the admin API that only read:
// `rules`, `top`, `key`, `health`, `advice`, `deferred` and `deferred/job`. It takes GET and HEAD alone, so nobody can reset or block
// through it. It forwards nothing: no other part of Caddy's admin API can be reached, whatever the path. Paths that do not begin with
// `/rate_limit` are left to the handlers behind it.
//
// The page shows clients' keys. Put authentication, or a matcher of addresses, in front of the handler.
type Page struct{}

// CaddyModule returns the Caddy module information.
func (*Page) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.rate_limit_page",
		New: func() caddy.Module { return new(Page) },
	}
}

// answersPath reports whether the handler answers the requests of a path.
func (*Page) answersPath(path string) bool {
	return strings.HasPrefix(path, page.Path) || path == strings.TrimSuffix(page.Path, "/")
}

// ServeHTTP answers the request, or leaves it to the next handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !p.answersPath(r.URL.Path) {
		return next.ServeHTTP(w, r)
	}
	if err := p.serve(w, r); err != nil {
		page.Refuse(w, err)
	}
	return nil
}

// serve answers a request. It compares whole paths, so a path with dots, escapes or empty segments is none of the endpoints.
func (*Page) serve(w http.ResponseWriter, r *http.Request) error {
	if r.TLS != nil && !r.TLS.HandshakeComplete { // as in Handler
		return adminError(http.StatusTooEarly, "the TLS handshake is not complete")
	}
	if !slices.Contains(reading, r.Method) {
		w.Header().Set("Allow", strings.Join(reading, ", "))
		return adminError(http.StatusMethodNotAllowed, "method %s: this page only reads, and takes GET and HEAD", r.Method)
	}
	name, below := strings.CutPrefix(r.URL.Path, page.Path)
	switch {
	case r.URL.RawPath != "":
	case !below:
		w.Header().Set("Location", "rate_limit/") // relative, so that it also holds behind handle_path
		w.WriteHeader(http.StatusFound)
		return nil
	case name == "":
		return page.ServeReadOnly(w, r)
	default:
		i := slices.IndexFunc(endpoints, func(e endpoint) bool { return e.name == name && slices.Contains(e.methods, http.MethodGet) })
		if i >= 0 {
			page.SetDataFields(w.Header())
			return endpoints[i].serve(w, r)
		}
	}
	return adminError(http.StatusNotFound, "there is nothing at this path; the page is at %s", page.Path)
}

// parsePage reads a rate_limit_page directive of a site:
//
//	rate_limit_page [<matcher>]
func parsePage(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	p := new(Page)
	return p, p.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens.
func (*Page) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	if d.NextArg() {
		return d.Errf("rate_limit_page: takes no value, not %s; the page is at %s", d.Val(), page.Path)
	}
	return syntax.NoBlock(d, "", "rate_limit_page")
}

// Interface guards
var (
	_ caddyhttp.MiddlewareHandler = (*Page)(nil)
	_ caddyfile.Unmarshaler       = (*Page)(nil)
)
