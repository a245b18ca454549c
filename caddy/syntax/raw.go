package syntax

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/proxyprotocol"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
)

// The functions of this file find what is around a handler in a configuration. While the handler is provisioned, much of that is
// still JSON.

// ServersIn returns the servers of the HTTP app in which a module is provisioned; nil if it is in another app.
func ServersIn(ctx caddy.Context) map[string]*caddyhttp.Server {
	for _, mod := range ctx.Modules() {
		if app, ok := mod.(*caddyhttp.App); ok {
			return app.Servers
		}
	}
	return nil
}

// RawHandlers is a list of handlers in JSON.
type RawHandlers struct {
	Path string // for example apps/http/servers/srv0/routes/0/handle
	List []json.RawMessage
}

// RawHandlersOf returns those handlers of a server's routes, error routes and named routes that are still JSON.
func RawHandlersOf(name string, server *caddyhttp.Server) []RawHandlers {
	var all []RawHandlers
	path := "apps/http/servers/" + name
	add := func(path string, route *caddyhttp.Route) {
		all = append(all, RawHandlers{path + "/handle", route.HandlersRaw})
	}
	for i := range server.Routes {
		add(path+"/routes/"+strconv.Itoa(i), &server.Routes[i])
	}
	if server.Errors != nil {
		for i := range server.Errors.Routes {
			add(path+"/errors/routes/"+strconv.Itoa(i), &server.Errors.Routes[i])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(server.NamedRoutes)) {
		if route := server.NamedRoutes[name]; route != nil {
			add(path+"/named_routes/"+name, route)
		}
	}
	return all
}

// EachObject calls f with every object in a JSON value and its path. It descends into those for which f returns true.
func EachObject(path string, value any, f func(path string, object map[string]any) (into bool)) {
	switch value := value.(type) {
	case []any:
		for i, one := range value {
			EachObject(path+"/"+strconv.Itoa(i), one, f)
		}
	case map[string]any:
		if !f(path, value) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			EachObject(path+"/"+name, value[name], f)
		}
	}
}

// anyObject reports whether f returns true for any object in JSON.
func anyObject(raw json.RawMessage, f func(object map[string]any) bool) bool {
	var value any
	_ = json.Unmarshal(raw, &value) // cannot fail: it was parsed before
	found := false
	EachObject("", value, func(_ string, object map[string]any) bool {
		found = found || f(object)
		return !found
	})
	return found
}

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

// TrustedProxies returns the networks of a server's trusted proxies now, and those of its balancers that may speak the PROXY protocol. known is false if this
// Caddy has them in another place than trustsProxies looks.
func TrustedProxies(server *caddyhttp.Server) (networks []netip.Prefix, known bool) {
	source, ok := unexported[caddyhttp.IPRangeSource](server, "trustedProxies")
	wrappers, also := unexported[[]caddy.ListenerWrapper](server, "listenerWrappers")
	if source != nil {
		networks = source.GetIPRanges(new(http.Request))
	}
	for _, one := range wrappers {
		if speaking, is := one.(*proxyprotocol.ListenerWrapper); is {
			for _, text := range speaking.Allow {
				if network, err := match.ParseNetwork(text); err == nil {
					networks = append(networks, network)
				}
			}
		}
	}
	return networks, ok && also
}

// WrapsConnections reports whether a server has listener wrappers, also before it is provisioned.
func WrapsConnections(server *caddyhttp.Server) bool {
	wrappers, known := unexported[[]caddy.ListenerWrapper](server, "listenerWrappers")
	return server.ListenerWrappersRaw != nil || len(wrappers) > 0 || !known
}

// unexported returns an unexported field of a server; ok is false if this Caddy has none such.
func unexported[T any](server *caddyhttp.Server, name string) (value T, ok bool) {
	field := reflect.ValueOf(server).Elem().FieldByName(name)
	if !field.IsValid() || field.Type() != reflect.TypeFor[T]() {
		return value, false
	}
	return *(*T)(field.Addr().UnsafePointer()), true
}

// addObject adds an object as the value of a field; of is its name in the schema.
func addObject(t *ruleset.RuleText, field, of string, value any) {
	o := new(ruleset.Object)
	setTexts(o, of, reflect.ValueOf(value))
	ruleset.AddObject(t, field, o)
}

// setTexts sets the fields of an object of the schema from a struct, by their names in JSON.
func setTexts(o *ruleset.Object, object string, v reflect.Value) {
	for _, f := range ruleset.Schema[object] {
		i := slices.Index(FieldNames(v.Type()), f.Name)
		if i < 0 || f.Of != "" || v.Field(i).IsZero() {
			continue
		}
		switch value := v.Field(i).Interface().(type) {
		case []string:
			ruleset.SetList(o, f.Name, value)
		case map[string]string:
			var pairs []ruleset.Pair
			for _, name := range slices.Sorted(maps.Keys(value)) {
				pairs = append(pairs, ruleset.Pair{Name: name, Value: value[name]})
			}
			ruleset.SetPairs(o, f.Name, pairs)
		case caddy.Duration:
			ruleset.SetText(o, f.Name, time.Duration(value).String())
		default:
			ruleset.SetText(o, f.Name, fmt.Sprint(value))
		}
	}
}
