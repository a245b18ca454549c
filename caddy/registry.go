package ratelimit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/transition"
)

// register adds a zone to the registry. It returns an error if a zone, or a rule in a file, of the same name differs from it.
func (a *App) register(namespace, name string, limits *core.Limits, store *stores.Limiter, defers bool) error {
	id := syntax.ZoneID(namespace, name)
	a.checkStore(id, "zone", name, store)
	if others := a.zones[id]; len(others) > 0 {
		if defers || a.deferring[id] {
			return fmt.Errorf("zone %q: on_limit defer: two handlers have the zone, and its requests can be in the queue of one only; rename one zone, or give its handler a namespace", name)
		}
		if what := difference(others[0], limits); what != "" {
			return definedDifferently(name, a.firstInJSON(namespace, name, others[0]), what)
		}
	} else {
		if set := a.fileRules.sets[id]; set != nil {
			if what := difference(a.fileRules.limits[id][0], limits); what != "" {
				return set.definedElsewhere(name, what)
			}
		}
		if a.fileRules.descriptors[id] != nil {
			return fmt.Errorf("zone %q: a descriptor of the rule files has its name, so that they could not be told apart; rename one, or give its handler a namespace", name)
		}
		a.deferring[id] = defers
	}
	a.zones[id] = append(a.zones[id], limits)
	keepCompany(a.zones[id], a.fileRules.limits[id])
	return nil
}

// checkStore warns of a zone or rule whose name is in another store, too, so that each store admits the limit.
func (a *App) checkStore(id, kind, name string, store *stores.Limiter) {
	counters := store.CountersName()
	first, found := a.stores[id]
	if !found {
		a.stores[id] = counters
	} else if first != counters {
		a.logger.Warn("a "+kind+" is in two stores, and each of them counts for itself and admits the limit; have its handlers use one store, or rename one",
			zap.String(kind, name), zap.Strings("stores", []string{first, counters}))
	}
}

// keepCompany makes all limits that count together see what waiting requests have reserved, if any one of them does. None of the
// limits may be in force yet.
func keepCompany(lists ...[]*core.Limits) {
	all := slices.Concat(lists...)
	if slices.ContainsFunc(all, (*core.Limits).TracksReservations) {
		for _, limits := range all {
			limits.TrackReservations()
		}
	}
}

func newFileRules() fileRules {
	return fileRules{limits: make(map[string][]*core.Limits), sets: make(map[string]*fileSet), descriptors: make(map[string]*core.Rule)}
}

// enter adds the rules of a set. It returns an error if one of them differs from a rule or a zone of the same name.
//
// Zones that are in force cannot change any more. So with zonesInForce, enter refuses a rule that newly must see reservations and
// counts together with a zone that does not see them.
func (a *App) enter(known fileRules, set *fileSet, zonesInForce bool) error {
	for _, r := range set.Rules {
		id := set.namespace + "/" + r.Name
		if !zonesInForce {
			a.checkStore(id, "rule", r.Name, set.limiter)
		}
		others := known.limits[id]
		if len(others) == 0 {
			others, known.sets[id] = a.zones[id], set
		}
		if len(others) > 0 {
			if what := difference(others[0], r.Limits); what != "" {
				return set.definedElsewhere(r.Name, what)
			}
		}
		known.limits[id] = append(known.limits[id], r.Limits)
		if !zonesInForce {
			keepCompany(a.zones[id], known.limits[id])
			continue
		}
		for _, zone := range a.zones[id] {
			if r.Limits.TracksReservations() && !zone.TracksReservations() {
				return set.problem(r.Name, "on_limit delay: is new for this rule, which counts together with a zone of its name; it takes effect when Caddy's configuration is loaded again")
			}
			if zone.TracksReservations() {
				r.Limits.TrackReservations()
			}
		}
		keepCompany(known.limits[id])
	}
	for _, d := range set.Domains {
		for _, r := range d.Rules() {
			id := set.namespace + "/" + r.Name()
			if a.zones[id] != nil || known.limits[id] != nil {
				return fmt.Errorf("descriptor %q of the rule files: a zone or a rule has its name, so that they could not be told apart; rename one, or give its handler a namespace", r.Name())
			}
			other := known.descriptors[id]
			if other == nil {
				known.descriptors[id] = r
			} else if what := core.Difference(other, r); what != "" {
				return fmt.Errorf("descriptor %q of the rule files: is defined in files of another handler, too, with %s; descriptors of one domain share their counters and must be alike: rename a domain, or give its handler a namespace", r.Name(), what)
			}
		}
	}
	return nil
}

// difference says in what two rules of one name differ; "" if they are alike.
func difference(a, b *core.Limits) string {
	if a.Own() != nil && b.Own() != nil {
		if what := core.Difference(a.Own(), b.Own()); what != "" {
			return what
		}
	}
	if !a.Same(b) {
		return "other limits of tiers, of single keys or from requests"
	}
	return ""
}

// limitsByName returns those of zones and of some sets of files.
func (a *App) limitsByName(files []*fileSet) limitsByName {
	all := make(limitsByName)
	for _, h := range a.handlers {
		for _, z := range h.zones {
			all.addZone(h.Namespace, h.limiter, z)
		}
	}
	for _, s := range files {
		all.addFiles(s)
	}
	return all
}

// reportTransition logs that a rule keeps to its former limit for a while, or starts afresh under an old name.
func (a *App) reportTransition(r, before activeLimits, c transition.Change) {
	if is, was := r.limiter.CountersName(), before.limiter.CountersName(); is != was {
		a.logger.Info("the zone counts in another store now, and takes no counts over", zap.String("zone", r.name), zap.String("store", is), zap.String("former", was))
		return
	}
	in, old := r.active.Limits(), before.active.Limits()
	if c.Lasts > 0 {
		a.logger.Info("the zone keeps to its former limit, too, for a while, since its algorithm or period has changed",
			zap.String("zone", r.name), zap.Stringer("limit", describe.LimitOf(in)), zap.Stringer("former", describe.LimitOf(old)), zap.Duration("for", time.Duration(c.Lasts)*time.Microsecond))
		return
	}
	if c.Afresh {
		a.logger.Info("the zone starts counting afresh, since its algorithm, period or key has changed; keys that were blocked in it are unblocked",
			zap.String("zone", r.name), zap.Stringer("limit", describe.LimitOf(in)))
	}
}

// Zones of one name that differ are refused. The error has the place of the first. In a Caddyfile, that is the file and line, and
// the error comes when the Caddyfile is adapted; in JSON, it is the path in Caddy's admin API, and the error comes when the
// configuration is loaded. (Caddy itself adds the place of the second.)

// definedDifferently returns the error for two zones of one name that differ; first is the place of the first, such as ", first at
// Caddyfile:3", or "".
func definedDifferently(name, first, what string) error {
	return fmt.Errorf("zone %q: duplicate name%s, with %s; zones of one name share their counters and must be alike: rename one (a short form is named after its matcher and key: write a zone instead), or give its handler a namespace", name, first, what)
}

// keepRaw keeps the JSON of the HTTP app's handlers until the app starts, since Caddy discards the JSON of each list after loading
// it. The first of our handlers that is provisioned calls it: at that time Caddy has discarded no list with such a handler. The error is that of syntax.CheckSurroundings.
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
