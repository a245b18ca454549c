// Package arms has Caddy modules that Weir's guard is compared with, for the experiment: a fixed cap on the requests under way, and the adaptive
// limiter of failsafe-go. Both answer what they turn away with 503.
package arms

import (
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(new(Cap))
	httpcaddyfile.RegisterHandlerDirective("cap", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		c := new(Cap)
		return c, c.UnmarshalCaddyfile(h.Dispenser)
	})
}

// Cap lets a fixed number of requests be under way: cap 48.
type Cap struct {
	Most     int64 `json:"most"`
	underWay atomic.Int64
}

// CaddyModule implements caddy.Module.
func (*Cap) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.cap", New: func() caddy.Module { return new(Cap) }}
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler.
func (c *Cap) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	var most string
	d.Next()
	if !d.Args(&most) {
		return d.ArgErr()
	}
	n, err := strconv.ParseInt(most, 10, 64)
	if err != nil || n < 1 {
		return d.Errf("cap %q: must be a number from 1", most)
	}
	c.Most = n
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (c *Cap) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	defer c.underWay.Add(-1)
	if c.underWay.Add(1) > c.Most {
		return caddyhttp.Error(http.StatusServiceUnavailable, nil)
	}
	return next.ServeHTTP(w, r)
}
