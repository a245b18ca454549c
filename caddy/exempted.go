package ratelimit

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/front"
	"go.uber.org/zap"
)

// warnOfExempted warns of zones and rules that exempt private addresses on a server without trusted proxies. If that server is
// behind a load balancer, or in a container whose network replaces addresses, every client has a private address, and the limit
// applies to nobody.
func (h *Handler) warnOfExempted(ctx caddy.Context) {
	h.untrusting = syntax.TrustsNoProxy(ctx, h.RateLimits)
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
