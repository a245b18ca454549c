package syntax

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// The functions of this file know a handler that is being provisioned by its zones: its own JSON is still among that of the others.

// AuthenticatedBefore reports whether an authenticating handler runs before that with some zones, which is being provisioned: in an earlier
// route around it, or earlier in its own route.
func AuthenticatedBefore(ctx caddy.Context, zones map[string]*Zone) bool {
	for _, mod := range ctx.Modules() {
		if sub, ok := mod.(*caddyhttp.Subroute); ok && authenticatedIn(sub.Routes, zones) {
			return true
		}
	}
	for _, server := range ServersIn(ctx) {
		if authenticatedIn(server.Routes, zones) {
			return true
		}
	}
	return false
}

// authenticatedIn looks through routes for such a handler. While routes are being provisioned, those before the handler's already have their
// handlers, and its own is still raw JSON. In the routes of another server it is not found.
func authenticatedIn(routes caddyhttp.RouteList, zones map[string]*Zone) bool {
	own := slices.IndexFunc(routes, func(route caddyhttp.Route) bool { return len(route.HandlersRaw) > 0 })
	if own < 0 {
		return false
	}
	before, found := false, false // in the handler's own route
	for _, raw := range routes[own].HandlersRaw {
		if found = isIn(raw, zones); found {
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

// isIn reports whether a handler's JSON is that of the handler with some zones, or contains it.
func isIn(handler json.RawMessage, zones map[string]*Zone) bool {
	return anyObject(handler, func(o map[string]any) bool {
		written, _ := o["rate_limits"].(map[string]any)
		for name := range written {
			if zones[name] == nil {
				return false
			}
		}
		return o["handler"] == "rate_limit" && len(written) == len(zones)
	})
}

// TrustsNoProxy reports whether the handler with some zones, which is being provisioned, is in a server without trusted_proxies.
func TrustsNoProxy(ctx caddy.Context, zones map[string]*Zone) bool {
	for _, server := range ServersIn(ctx) {
		if !trustsProxies(server) && isOf(server, zones) {
			return true
		}
	}
	return false
}

// isOf reports whether that handler is in a route of a server that is not provisioned yet, so that its own route is still raw JSON.
func isOf(server *caddyhttp.Server, zones map[string]*Zone) bool {
	return slices.ContainsFunc(RawHandlersOf("", server), func(raw RawHandlers) bool {
		return slices.ContainsFunc(raw.List, func(handler json.RawMessage) bool { return isIn(handler, zones) })
	})
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
