package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/deferred"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/ruleset"
)

// Provision sets up the handler and its zones. It changes nothing of the running configuration.
func (h *Handler) Provision(ctx caddy.Context) error {
	err := h.provision(ctx)
	if err != nil && h.At != "" && !errors.As(err, new(*syntax.ReportedError)) {
		return fmt.Errorf("%w, at %s", err, h.At)
	}
	return err
}

func (h *Handler) provision(ctx caddy.Context) error {
	h.ctx = ctx
	h.logger = ctx.Logger()
	app, err := ctx.App("rate_limit")
	if err != nil {
		return err
	}
	h.app = app.(*App)
	if err := h.app.keepRaw(ctx); err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return err
	}
	h.limiter, err = h.provisionLimiter(ctx)
	if err != nil {
		return err
	}
	events, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("getting events app: %v", err)
	}
	h.events = events.(*caddyevents.App)
	h.errors.Response = h.Response
	if h.cors != nil {
		if err := h.cors.Count(h.app.memory.store, h.Namespace); err != nil {
			return fmt.Errorf("cors: %w", err)
		}
	}
	if err := h.provisionGuard(); err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(h.RateLimits)) {
		zone, err := h.RateLimits[name].Compile(name, h.Namespace)
		if err != nil {
			return syntax.InJSON.Write(err)
		}
		if err := ruleset.ReadAnswer(zone.Rule); err != nil {
			return fmt.Errorf("zone %q: %w", name, err)
		}
		h.zones = append(h.zones, &openZone{CompiledZone: zone})
		h.waits = h.waits || zone.Rule.Limits.Delays()
		h.shadows = h.shadows || zone.Rule.Limits.HasShadow()
	}
	files, err := h.patterns()
	if err != nil {
		return err
	}
	tracks := h.waits || h.app.files.delays(files)
	for _, zone := range h.zones {
		if tracks {
			zone.Rule.Limits.TrackReservations()
		}
		if err := zone.provision(ctx, h); err != nil {
			return err
		}
		rule := front.NewRule(zone.Rule)
		h.rules = append(h.rules, rule)
	}
	h.asked = front.NewSet(h.rules, nil, nil, nil, nil)
	h.expected = expectationsOf(h.zones, h.Descriptors, h.At, h.logger)
	if err := h.provisionFiles(ctx, files); err != nil {
		return err
	}
	h.app.handlers = append(h.app.handlers, h)
	h.app.sweep = shortest(h.app.sweep, time.Duration(h.SweepInterval))
	h.provisionSurroundings(ctx)
	h.warnOfExempted(ctx)
	return h.provisionDeferring()
}

// provisionFiles reads the handler's rule files, which patterns name.
func (h *Handler) provisionFiles(ctx caddy.Context, patterns []string) (err error) {
	if h.descriptors, h.described, err = newDescriptors(h.Descriptors); err != nil {
		return err
	}
	if len(patterns) == 0 {
		if len(h.Descriptors) > 0 {
			return errors.New("descriptors: need rules_files, since the limits of descriptors are in a file")
		}
		if h.RulesInterval != 0 {
			return fmt.Errorf("rules_interval %s: has no effect without rule files, which rules_files has, in a Caddyfile rules_file", time.Duration(h.RulesInterval))
		}
		if len(h.RateLimits) == 0 && h.Guard == nil {
			return errors.New(`rate_limit has no zone: write one into rate_limits, such as "api": {` + syntax.LimitInJSON + `}, or the names of files with rules into rules_files`)
		}
		return nil
	}
	h.app.RulesInterval = shortest(h.app.RulesInterval, h.RulesInterval)
	h.app.usesFiles = h.app.usesFiles || len(h.RulesFiles) == 0
	return h.app.files.join(h, patterns)
}

// provisionLimiter returns the limiter over the handler's own store, or else the app's.
func (h *Handler) provisionLimiter(ctx caddy.Context) (*stores.Limiter, error) {
	if err := h.distribute(); err != nil {
		return nil, err
	}
	if h.StorageRaw != nil && h.Distributed == nil {
		h.logger.Warn("storage has no effect without distributed, as in caddy-ratelimit: counters live in this process's memory")
	}
	if h.StoreRaw == nil {
		return h.app.limiter, nil
	}
	mod, err := ctx.LoadModule(h, "StoreRaw")
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if m, ok := mod.(*stores.MemoryStore); ok && m.MaxKeys != 0 {
		return nil, errors.New("store memory: max_keys belongs in the store of the app rate_limit, since there is one memory for all handlers")
	}
	return stores.LimiterOver(mod, h.app.memory.store, h.app.memory.exceptions)
}

// provisionSurroundings finds out which error routes are around the handler, and which servers notify it when they stop.
func (h *Handler) provisionSurroundings(ctx caddy.Context) {
	h.stopping = make(chan struct{})
	stop := sync.OnceFunc(func() { close(h.stopping) })
	for _, mod := range ctx.Modules() {
		switch mod := mod.(type) {
		case *caddyhttp.Subroute:
			h.errors.Enclosed = h.errors.Enclosed || mod.Errors != nil
		case *caddyhttp.App:
			first := !slices.ContainsFunc(h.app.handlers, func(other *Handler) bool { return other.http == mod })
			h.http = mod
			for _, server := range mod.Servers {
				server.RegisterOnShutdown(stop)
				if first {
					report.TellConnections(server)
				}
			}
		}
	}
}

// distribute makes a store of the handler's own of what caddy-ratelimit's words mean.
func (h *Handler) distribute() error {
	if h.Distributed == nil {
		return nil
	}
	if h.StoreRaw != nil {
		return errors.New("distributed and store are mutually exclusive: distributed means a store in Caddy's storage; remove one")
	}
	var err error
	h.StoreRaw, err = json.Marshal(struct {
		Store string `json:"store"`
		stores.StorageStore
	}{"storage", stores.StorageStore{ReadInterval: h.Distributed.ReadInterval, WriteInterval: h.Distributed.WriteInterval, PurgeAge: h.Distributed.PurgeAge, StorageRaw: h.StorageRaw}})
	return err
}

// provisionGuard makes the handler's guard ready.
func (h *Handler) provisionGuard() error {
	g := h.Guard
	if g == nil {
		return nil
	}
	if err := g.Check(); err != nil {
		return err
	}
	for _, other := range h.app.handlers {
		if other.Guard != nil && other.Guard.Name == g.Name && other.Namespace == h.Namespace && !g.Alike(other.Guard) {
			return fmt.Errorf("guard %q: two handlers define it differently; handlers with guards of one name share it, so define it alike, or give one of them another name", g.Name)
		}
	}
	for _, other := range h.app.handlers {
		if g.Name == "" && other.Guard != nil && other.Guard.Name == "" && other.Namespace == h.Namespace {
			h.logger.Warn("several handlers share the guard that has no name; where they stand before different services, name each: guard <name>")
			break
		}
	}
	var err error
	h.guarded, err = protect.New(g, h.Namespace, max(0, h.jitter()), &h.errors, h.logger)
	return err
}

// provisionDeferring makes the handler ready to defer, if one of its zones does. All zones have been provisioned.
func (h *Handler) provisionDeferring() error {
	h.serve, h.decide = h.limit, h.charge
	defers, name, err := syntax.DeferringZone(h.RateLimits)
	if defers == nil || err != nil {
		return err
	}
	zone := h.zones[slices.IndexFunc(h.zones, func(z *openZone) bool { return z.Zone == defers })]
	switch {
	case h.limiter.Settings == nil:
		err = errors.New("on_limit defer: needs a store in Redis, which keeps the requests; write store redis and its address")
	case len(h.RulesFiles) > 0 || len(h.Descriptors) > 0:
		err = errors.New("on_limit defer: the handler cannot have rules_file and descriptor, too; write those into another rate_limit")
	default:
		h.deferring, err = deferred.New(deferred.Host{Self: h, Namespace: h.Namespace, Zone: zone.CompiledZone, Zones: h.rules, Stats: zone.reporter.Stats,
			Limiter: h.limiter, Guarded: h.guarded, Errors: &h.errors, Jitter: max(0, h.jitter()), HTTP: h.http, Stopping: h.stopping, Context: h.ctx, Logger: h.logger, Reject: h.rejectDecided})
	}
	if err != nil {
		return fmt.Errorf("zone %q: %w", name, err)
	}
	h.serve, h.decide = h.deferring.Around(h.serve, h.decide)
	return nil
}

// shortest returns the shorter of two intervals; 0 is none.
func shortest[T ~int64](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// provision prepares the zone, which has been compiled, and registers it with the app.
func (z *openZone) provision(ctx caddy.Context, h *Handler) error {
	r := z.Rule
	if len(z.MatcherSetsRaw) > 0 {
		if err := z.loadMatchers(ctx, "match", "MatcherSetsRaw", &z.matchers); err != nil {
			return err
		}
		r.Covering = z.covers
	}
	if len(z.CountMatcherSetsRaw) > 0 {
		if err := z.loadMatchers(ctx, "count_match", "CountMatcherSetsRaw", &z.counted); err != nil {
			return err
		}
		r.Counts = z.counts
	}
	if err := h.app.register(h.Namespace, r.Name, r.Limits, h.limiter, z.Defer != nil); err != nil {
		return err
	}
	for _, one := range r.Limits.Rules() {
		if err := h.limiter.Fits(one); err != nil {
			return fmt.Errorf("zone %q: %w", r.Name, err)
		}
		if err := h.limiter.Open(one); err != nil {
			return fmt.Errorf("zone %q: %w", r.Name, err)
		}
		z.opened = append(z.opened, one)
		h.limiter.WarnOf(one)
	}
	if r.Adapt != nil {
		z.instance = h.instanceOf(r)
	}
	z.reporter = h.newReporter(r.Name, z.readable())
	z.reporter.Address = report.AddressOf(r)
	for _, one := range z.opened {
		one.Note(z.reporter)
	}
	z.obeying = h.limiter.Obeying(h.Namespace, []*ruleset.Rule{r}, nil)
	z.reporter.ReportLimits(r.Limits.Requested())
	ours := make(limitsByName)
	ours.addZone(h.Namespace, h.limiter, z)
	ours.continueFrom(h.app.limitsBefore(), nil)
	for _, advice := range r.Advice {
		h.logger.Warn(syntax.InJSON.Write(advice).Error(), zap.String("zone", r.Name))
	}
	settings := [][2]string{{"key", z.Key}, {"cost", z.Cost}}
	if z.Tiers != nil {
		settings = append(settings, [2]string{"tiers", z.Tiers.Source})
	}
	if z.LimitFrom != nil {
		settings = append(settings, [2]string{"limit_from", z.LimitFrom.Source})
	}
	for _, s := range settings {
		if strings.Contains(s[1], "{http.auth.") && !syntax.AuthenticatedBefore(ctx, h.RateLimits) {
			h.logger.Warn("the zone's "+s[0]+" is about who is authenticated, but this handler runs before authentication: "+
				"put rate_limit after it in a route block, or set the global option: order rate_limit after basic_auth",
				zap.String("zone", r.Name), zap.String(s[0], s[1]))
		}
	}
	return nil
}
