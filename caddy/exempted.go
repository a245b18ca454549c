package ratelimit

import (
	"reflect"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/core/front"
	"go.uber.org/zap"
)

// warnOfExempted warns of zones and rules that exempt private addresses on a server without trusted proxies. If that server is
// behind a load balancer, or in a container whose network replaces addresses, every client has a private address, and the limit
// applies to nobody.
func (h *Handler) warnOfExempted(ctx caddy.Context) {
	h.untrusting = h.trustsNoProxy(ctx)
	h.exempted = make(map[string]bool)
	h.warnOfExceptions("zone", h.rules)
	if files := h.files.Load(); files != nil {
		h.warnOfExceptions("rule", files.set.rules)
	}
}

// warnOfExceptions warns of some rules as warnOfExempted does: those of files may change while h serves.
func (h *Handler) warnOfExceptions(kind string, rules []*front.Rule) {
	for _, rule := range rules {
		name := rule.Ruled.Name
		if h.untrusting && !h.exempted[name] && rule.Matcher != nil && rule.Matcher.ExceptsPrivate() {
			h.exempted[name] = true
			h.logger.Warn("private addresses are exempt, and this server has no trusted_proxies: behind a load balancer, or in a container's network, "+
				"all requests come from a private address, and this limits nobody; set trusted_proxies in the global servers option, or except single addresses",
				zap.String(kind, name))
		}
	}
}

// trustsNoProxy reports whether h, which is being provisioned, is in a server without trusted_proxies.
func (h *Handler) trustsNoProxy(ctx caddy.Context) bool {
	for _, server := range serversIn(ctx) {
		if !trustsProxies(server) && h.isOf(server) {
			return true
		}
	}
	return false
}

// isOf reports whether h is in a route of a server that is not provisioned yet, so that h's own route is still raw JSON.
func (h *Handler) isOf(server *caddyhttp.Server) bool {
	return slices.ContainsFunc(rawHandlersOf("", server), func(raw rawHandlers) bool { return slices.ContainsFunc(raw.list, h.isIn) })
}

// trustsProxies reports whether a server has trusted_proxies. After provisioning, Caddy clears the public field, and keeps the
// proxies in an unexported one. A Caddy without that field counts as one that trusts, so that no warning is wrong.
func trustsProxies(server *caddyhttp.Server) bool {
	if server.TrustedProxiesRaw != nil || server.TrustedProxiesUnix {
		return true
	}
	provisioned := reflect.ValueOf(server).Elem().FieldByName("trustedProxies")
	return provisioned.Kind() != reflect.Interface || !provisioned.IsNil()
}
