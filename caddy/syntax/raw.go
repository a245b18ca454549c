package syntax

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
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
