package ratelimit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/core"
)

// Zones of one name that differ are refused, and told with the place of the first: of a Caddyfile when it is adapted, with file and line,
// of JSON when it is loaded, with the path that Caddy's admin API has for it. (Caddy itself says where the second stands.)

// definedTwice says how two zones of one name differ; first is where the first stands, such as ", first at Caddyfile:3", or "".
func definedTwice(name, first, what string) error {
	return fmt.Errorf("zone %q: is defined twice%s, with %s; zones of one name share their counters and must be alike: rename one (a short form is named after its matcher and key: write a zone instead), or give its handler a namespace", name, first, what)
}

// keepRaw keeps the JSON of the handlers of the HTTP app until it starts. Caddy forgets that of each list when it has loaded the list.
// The first handler of ours that is provisioned calls it: by then no list is forgotten that has one.
func (a *App) keepRaw(ctx caddy.Context) {
	if a.raw != nil {
		return
	}
	a.raw = []rawHandlers{}
	servers := serversIn(ctx)
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		a.raw = append(a.raw, rawHandlersOf(name, servers[name])...)
	}
}

// firstInJSON says where a zone with these limits stands; "" where that is not known.
func (a *App) firstInJSON(namespace, name string, limits *core.Limits) (first string) {
	for _, raw := range a.raw {
		for i, handler := range raw.list {
			eachHandler(raw.path+"/"+strconv.Itoa(i), handler, func(path string, h *Handler) {
				zone := h.RateLimits[name]
				if first == "" && zone != nil && h.Namespace == namespace && zone.compile(name, namespace) == nil && difference(zone.rule.Limits, limits) == "" {
					first = ", first at " + path
				}
			})
		}
	}
	return first
}

// writtenZone is a zone of a Caddyfile, and where it stands.
type writtenZone struct {
	limits *core.Limits
	place  string // such as "at Caddyfile:3"
}

// checkAlike refuses a zone that differs from one of its name in another directive of the Caddyfile, as App.register does, which does not
// know any more where they stand. All directives share the helper's state while they are adapted, but for those of named routes, which
// have a state of their own and are adapted first.
func (h *Handler) checkAlike(helper httpcaddyfile.Helper) error {
	const key = "rate_limit.zones"
	known, _ := helper.State[key].(map[string]writtenZone) // by namespace and name
	if known == nil {
		known = zonesOfNamedRoutes(helper)
	}
	for _, name := range slices.Sorted(maps.Keys(h.RateLimits)) {
		id, limits, token := zoneID(h.Namespace, name), h.RateLimits[name].rule.Limits, h.places[name]
		first, twice := known[id]
		if !twice {
			known[id] = writtenZone{limits, "at " + placeOf(token)}
		} else if what := difference(first.limits, limits); what != "" {
			return errorAt(token, definedTwice(name, ", first "+first.place, what))
		}
	}
	if helper.State != nil {
		helper.State[key] = known
	}
	return nil
}

// zonesOfNamedRoutes returns the zones of the named routes that have been adapted. What is left of those is their JSON, without lines.
func zonesOfNamedRoutes(helper httpcaddyfile.Helper) map[string]writtenZone {
	known := make(map[string]writtenZone)
	routes, _ := helper.Option("named_routes").(map[string]*caddyhttp.Route)
	for _, route := range slices.Sorted(maps.Keys(routes)) {
		for _, raw := range routes[route].HandlersRaw {
			eachHandler("", raw, func(_ string, h *Handler) {
				for name, zone := range h.RateLimits {
					if id := zoneID(h.Namespace, name); known[id].limits == nil && zone.compile(name, h.Namespace) == nil {
						known[id] = writtenZone{zone.rule.Limits, "in the named route &(" + route + ")"}
					}
				}
			})
		}
	}
	return known
}
