package ratelimit

import (
	"encoding/json"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// authenticatedBefore reports whether an authenticating handler runs before h, which is being provisioned: in an earlier route
// around it, or earlier in its own route.
func authenticatedBefore(ctx caddy.Context, h *Handler) bool {
	for _, mod := range ctx.Modules() {
		if sub, ok := mod.(*caddyhttp.Subroute); ok && h.authenticatedIn(sub.Routes) {
			return true
		}
	}
	for _, server := range serversIn(ctx) {
		if h.authenticatedIn(server.Routes) {
			return true
		}
	}
	return false
}

// authenticatedIn looks through routes for such a handler. While routes are being provisioned, those before h's already have their
// handlers, and h's own is still raw JSON. In the routes of another server it does not find h.
func (h *Handler) authenticatedIn(routes caddyhttp.RouteList) bool {
	own := slices.IndexFunc(routes, func(route caddyhttp.Route) bool { return len(route.HandlersRaw) > 0 })
	if own < 0 {
		return false
	}
	before, found := false, false // in h's own route
	for _, raw := range routes[own].HandlersRaw {
		if found = h.isIn(raw); found {
			break
		}
		before = before || authenticates(raw)
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

// authenticates reports the same as handlerAuthenticates, for a handler in JSON.
func authenticates(handler json.RawMessage) bool {
	return anyObject(handler, func(o map[string]any) bool { return o["handler"] == "authentication" })
}

// isIn reports whether a handler's JSON is that of h, or contains it.
func (h *Handler) isIn(handler json.RawMessage) bool {
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
