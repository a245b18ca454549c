package ratelimit

import (
	"encoding/json"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// authenticatedBefore reports whether a handler that authenticates runs before h, which is being provisioned: in an earlier
// route of those around it, or earlier in its own.
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

// authenticatedIn looks through routes. If they are being provisioned, those before h's have their handlers by now, and h's
// own is raw JSON still; in the routes of another server h is not.
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

// authenticates is handlerAuthenticates for the JSON of a handler.
func authenticates(handler json.RawMessage) bool {
	return anyObject(handler, func(o map[string]any) bool { return o["handler"] == "authentication" })
}

// isIn reports whether a handler's JSON is h's, or has it inside.
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
