package ratelimit

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// What stands around a handler in a configuration, of which much is JSON still while the handler is provisioned.

// serversIn returns the servers of the HTTP app that a module is provisioned in; none where that is another app.
func serversIn(ctx caddy.Context) map[string]*caddyhttp.Server {
	for _, mod := range ctx.Modules() {
		if app, ok := mod.(*caddyhttp.App); ok {
			return app.Servers
		}
	}
	return nil
}

// rawHandlers is a list of handlers as it stands in JSON.
type rawHandlers struct {
	path string // such as apps/http/servers/srv0/routes/0/handle
	list []json.RawMessage
}

// rawHandlersOf returns the handlers of a server's routes, of its error routes and of its named ones, that are JSON still.
func rawHandlersOf(name string, server *caddyhttp.Server) []rawHandlers {
	var all []rawHandlers
	path := "apps/http/servers/" + name
	add := func(path string, route *caddyhttp.Route) {
		all = append(all, rawHandlers{path + "/handle", route.HandlersRaw})
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

// eachObject calls f with every object in a JSON value and its path. It goes into those of which f says to.
func eachObject(path string, value any, f func(path string, object map[string]any) (into bool)) {
	switch value := value.(type) {
	case []any:
		for i, one := range value {
			eachObject(path+"/"+strconv.Itoa(i), one, f)
		}
	case map[string]any:
		if !f(path, value) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			eachObject(path+"/"+name, value[name], f)
		}
	}
}

// anyObject reports whether f is true of any object in JSON.
func anyObject(raw json.RawMessage, f func(object map[string]any) bool) bool {
	var value any
	_ = json.Unmarshal(raw, &value) // which has been read before
	found := false
	eachObject("", value, func(_ string, object map[string]any) bool {
		found = found || f(object)
		return !found
	})
	return found
}

// eachHandler calls f with every rate_limit handler in JSON, at any depth, and with its path. One that cannot be read is empty.
func eachHandler(path string, raw json.RawMessage, f func(path string, h *Handler)) {
	var value any
	_ = json.Unmarshal(raw, &value)
	eachObject(path, value, func(path string, object map[string]any) bool {
		if object["handler"] != "rate_limit" {
			return true
		}
		h, err := handlerFrom(object)
		if err != nil {
			h = new(Handler)
		}
		f(path, h)
		return false
	})
}

// handlerFrom reads a handler of which the JSON is an object.
func handlerFrom(object map[string]any) (*Handler, error) {
	delete(object, "handler") // as Caddy does
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	h := new(Handler)
	return h, h.UnmarshalJSON(text)
}
