package ratelimit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
)

// Zones of one name that differ are refused. The error has the place of the first. In a Caddyfile, that is the file and line, and
// the error comes when the Caddyfile is adapted; in JSON, it is the path in Caddy's admin API, and the error comes when the
// configuration is loaded. (Caddy itself adds the place of the second.)

// definedDifferently returns the error for two zones of one name that differ; first is the place of the first, such as ", first at
// Caddyfile:3", or "".
func definedDifferently(name, first, what string) error {
	return fmt.Errorf("zone %q: duplicate name%s, with %s; zones of one name share their counters and must be alike: rename one (a short form is named after its matcher and key: write a zone instead), or give its handler a namespace", name, first, what)
}

// keepRaw keeps the JSON of the HTTP app's handlers until the app starts, since Caddy discards the JSON of each list after loading
// it. The first of our handlers that is provisioned calls it: at that time Caddy has discarded no list with such a handler. The error is that of checkSurroundings.
func (a *App) keepRaw(ctx caddy.Context) error {
	if a.raw != nil {
		return nil
	}
	a.raw = []syntax.RawHandlers{}
	servers := syntax.ServersIn(ctx)
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		a.raw = append(a.raw, syntax.RawHandlersOf(name, servers[name])...)
	}
	return syntax.CheckSurroundings(servers, placeAndZones, a.logger)
}

// firstInJSON returns the place of a zone with these limits; "" if it is unknown.
func (a *App) firstInJSON(namespace, name string, limits *core.Limits) (first string) {
	for _, raw := range a.raw {
		for i, handler := range raw.List {
			eachHandler(raw.Path+"/"+strconv.Itoa(i), handler, func(path string, h *Handler) {
				if first != "" || h.Namespace != namespace || h.RateLimits[name] == nil {
					return
				}
				if zone, err := h.RateLimits[name].Compile(name, namespace); err == nil && difference(zone.Rule.Limits, limits) == "" {
					first = ", first at " + path
				}
			})
		}
	}
	return first
}

// knownZone has the limits of a zone that was adapted, with its place.
type knownZone struct {
	limits *core.Limits
	place  string // for example "at Caddyfile:3"
}

// checkAlike refuses a zone that differs from a zone of the same name in another directive of the Caddyfile. App.register does the
// same, but does not know their places any more. All directives share the helper's state while they are adapted, except those of
// named routes, which have their own state and are adapted first.
func (h *Handler) checkAlike(helper httpcaddyfile.Helper) error {
	const key = "rate_limit.zones"
	known, _ := helper.State[key].(map[string]knownZone) // by namespace and name
	if known == nil {
		known = zonesOfNamedRoutes(helper)
	}
	for _, name := range slices.Sorted(maps.Keys(h.written)) {
		id, zone := syntax.ZoneID(h.Namespace, name), h.written[name]
		first, found := known[id]
		if !found {
			known[id] = knownZone{zone.Rule.Limits, "at " + syntax.PlaceOf(zone.At)}
		} else if what := difference(first.limits, zone.Rule.Limits); what != "" {
			return syntax.ErrorAt(zone.At, definedDifferently(name, ", first "+first.place, what))
		}
	}
	if helper.State != nil {
		helper.State[key] = known
	}
	return nil
}

// zonesOfNamedRoutes returns the zones of the named routes that have been adapted. Only their JSON is left, without lines.
func zonesOfNamedRoutes(helper httpcaddyfile.Helper) map[string]knownZone {
	known := make(map[string]knownZone)
	routes, _ := helper.Option("named_routes").(map[string]*caddyhttp.Route)
	for _, route := range slices.Sorted(maps.Keys(routes)) {
		for _, raw := range routes[route].HandlersRaw {
			eachHandler("", raw, func(_ string, h *Handler) {
				for name, zone := range h.RateLimits {
					id := syntax.ZoneID(h.Namespace, name)
					if c, err := zone.Compile(name, h.Namespace); known[id].limits == nil && err == nil {
						known[id] = knownZone{c.Rule.Limits, "in the named route &(" + route + ")"}
					}
				}
			})
		}
	}
	return known
}
