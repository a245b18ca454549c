package ratelimit

import (
	"reflect"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// warnOfExempted warns of zones and rules that except private addresses, where the server knows of no proxies to trust: if it is behind a
// load balancer, or in a container whose network replaces addresses, every client has a private address, and the limit holds for nobody.
func (h *Handler) warnOfExempted(ctx caddy.Context) {
	if !h.trustsNoProxy(ctx) {
		return
	}
	warn := func(kind, name string) {
		h.logger.Warn("private addresses are excepted, and this server has no trusted_proxies: behind a load balancer, or in a container's network, "+
			"all requests come from a private address, and this limits nobody; set trusted_proxies in the global servers option, or except single addresses",
			zap.String(kind, name))
	}
	for _, zone := range h.zones {
		if zone.except != nil && zone.except.ExceptsPrivate() {
			warn("zone", zone.name)
		}
	}
	if files := h.files.Load(); files != nil {
		for _, rule := range files.set.Rules {
			if rule.Matcher != nil && rule.Matcher.ExceptsPrivate() {
				warn("rule", rule.Name)
			}
		}
	}
}

// trustsNoProxy reports whether h, which is being provisioned, is in a server without trusted_proxies.
func (h *Handler) trustsNoProxy(ctx caddy.Context) bool {
	for _, mod := range ctx.Modules() {
		app, ok := mod.(*caddyhttp.App)
		if !ok {
			continue
		}
		for _, server := range app.Servers {
			if h.isAmong(server.Routes) && !trustsProxies(server) {
				return true
			}
		}
	}
	return false
}

// isAmong reports whether h is in a route that is not provisioned yet: its own is still raw JSON.
func (h *Handler) isAmong(routes caddyhttp.RouteList) bool {
	return slices.ContainsFunc(routes, func(route caddyhttp.Route) bool {
		return slices.ContainsFunc(route.HandlersRaw, h.isInRaw)
	})
}

// trustsProxies reports whether a server has trusted_proxies. Caddy clears the public field when it has provisioned the server, and then
// keeps them in one that is not exported; a Caddy without that field counts as one that trusts, so that nothing is said that may be wrong.
func trustsProxies(server *caddyhttp.Server) bool {
	if server.TrustedProxiesRaw != nil || server.TrustedProxiesUnix {
		return true
	}
	provisioned := reflect.ValueOf(server).Elem().FieldByName("trustedProxies")
	return provisioned.Kind() != reflect.Interface || !provisioned.IsNil()
}
