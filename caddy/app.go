package ratelimit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/deferred"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
)

func init() {
	caddy.RegisterModule(App{})
}

// App holds what the `rate_limit` handlers of a configuration share: the default store, the bound on memory, and the registry of
// zones, which refuses two different definitions of one zone. It need not be configured.
type App struct {
	// The store of handlers that have none of their own. The default is memory.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=http.rate_limit.stores inline_key=store"`

	// Rule files for the handlers that have neither zones nor rule files of their own, or that make descriptors of requests: paths,
	// or globs such as `/etc/caddy/rules/*.yaml`. They are read again when they change.
	RulesFiles []string `json:"rules_files,omitempty"`

	// How often rule files are checked for changes if the system does not report them: from 1s to 1h; the default is 10s. The
	// shortest interval of the app and all handlers applies.
	RulesInterval caddy.Duration `json:"rules_interval,omitempty"`

	// Who gives advice on the limits of zones and rules that have `adapt`. The default is nobody.
	Advisor *adapt.Advisor `json:"advisor,omitempty"`

	limiter   *stores.Limiter // over the default store
	advised   *adapt.Source   // nil: there is no advisor
	memory    *sharedMemory
	maxKeys   int
	sweep     time.Duration
	zones     map[string]*core.Limits   // by namespace and name
	deferring map[string]bool           // the same zones: whether they defer
	stores    map[string]string         // the same zones, and rules of files: the counters of limiters
	together  map[string][]*core.Limits // by namespace and name, those of all handlers that have the zone
	files     *ruleFiles
	watcher   *watcher // while the app runs

	before rulings // of the configuration before, while this one is loaded; nil: not looked up

	fileRules fileRules // those in force; once the app has started, files.mu guards it

	raw         []syntax.RawHandlers // of the HTTP app, until it starts; nil: not kept
	handlers    []*Handler
	line        *line // the requests that wait
	statuses    []*Status
	lookedAhead bool
	ahead       map[string]bool // labels of the zones whose handlers were not provisioned yet at that time; nil: unknown
	usesFiles   bool            // any handler uses RulesFiles
	ctx         caddy.Context
	logger      *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "rate_limit",
		New: func() caddy.Module { return new(App) },
	}
}

// Provision acquires the process's memory for counters, and loads the configured store.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx = ctx
	a.logger = ctx.Logger()
	a.zones = make(map[string]*core.Limits)
	a.stores = make(map[string]string)
	a.deferring = make(map[string]bool)
	a.together = make(map[string][]*core.Limits)
	a.files = &ruleFiles{app: a}
	a.fileRules = newFileRules()
	if err := syntax.CheckFields(a.settings()); err != nil {
		return err
	}
	memory, err := acquireMemory()
	if err != nil {
		return err
	}
	a.memory = memory
	if err := register(ctx.GetMetricsRegistry()); err != nil {
		return err
	}
	if a.Advisor != nil {
		if err := a.Advisor.Provision(ctx); err != nil {
			return err
		}
	}
	a.line = new(line)
	a.limiter = stores.NewLimiter(memory.store, stores.MemoryName)
	if a.StoreRaw != nil {
		mod, err := ctx.LoadModule(a, "StoreRaw")
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if m, ok := mod.(*stores.MemoryStore); ok {
			a.maxKeys = m.MaxKeys
		}
		if a.limiter, err = stores.LimiterOver(mod, memory.store); err != nil {
			return err
		}
	}
	if a.Advisor != nil {
		a.advised = &adapt.Source{Advisor: a.Advisor, Redis: a.limiter.Redis, Rules: a.adaptedRules}
	}
	return nil
}

// register adds a zone to the registry. It returns an error if a zone, or a rule in a file, of the same name differs from it.
func (a *App) register(namespace, name string, limits *core.Limits, store *stores.Limiter, defers bool) error {
	id := syntax.ZoneID(namespace, name)
	a.checkStore(id, "zone", name, store)
	if other := a.zones[id]; other != nil {
		if defers || a.deferring[id] {
			return fmt.Errorf("zone %q: on_limit defer: two handlers have the zone, and its requests can be in the queue of one only; rename one zone, or give its handler a namespace", name)
		}
		if what := difference(other, limits); what != "" {
			return definedDifferently(name, a.firstInJSON(namespace, name, other), what)
		}
	} else {
		if other, ok := a.fileRules.limits[id]; ok {
			if what := difference(other.limits, limits); what != "" {
				return other.set.definedElsewhere(name, what)
			}
		}
		if a.fileRules.descriptors[id] != nil {
			return fmt.Errorf("zone %q: a descriptor of the rule files has its name, so that they could not be told apart; rename one, or give its handler a namespace", name)
		}
		a.zones[id] = limits
		a.deferring[id] = defers
	}
	a.together[id] = append(a.together[id], limits)
	keepCompany(a.together[id], a.fileRules.together[id])
	return nil
}

// checkStore warns of a zone or rule whose name is in another store, too, so that each store admits the limit.
func (a *App) checkStore(id, kind, name string, store *stores.Limiter) {
	counters := store.Counters()
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
	accompanied := false
	for _, list := range lists {
		for _, limits := range list {
			accompanied = accompanied || limits.Accompanied()
		}
	}
	for _, list := range lists {
		for _, limits := range list {
			if accompanied {
				limits.Accompany()
			}
		}
	}
}

// fileRules are the rules and descriptors of rule files by namespace and name: the first of each name in each set.
type fileRules struct {
	limits      map[string]limitsOfSet
	together    map[string][]*core.Limits // those of all sets
	descriptors map[string]*core.Rule
}

type limitsOfSet struct {
	limits *core.Limits
	set    *fileSet
}

func newFileRules() fileRules {
	return fileRules{limits: make(map[string]limitsOfSet), together: make(map[string][]*core.Limits), descriptors: make(map[string]*core.Rule)}
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
		other := a.zones[id]
		if first, ok := known.limits[id]; ok {
			other = first.limits
		} else {
			known.limits[id] = limitsOfSet{r.Limits, set}
		}
		if other != nil {
			if what := difference(other, r.Limits); what != "" {
				return set.definedElsewhere(r.Name, what)
			}
		}
		known.together[id] = append(known.together[id], r.Limits)
		if !zonesInForce {
			keepCompany(a.together[id], known.together[id])
			continue
		}
		for _, zone := range a.together[id] {
			if r.Limits.Accompanied() && !zone.Accompanied() {
				return set.problem(r.Name, "on_limit delay: is new for this rule, which counts together with a zone of its name; it takes effect when Caddy's configuration is loaded again")
			}
			if zone.Accompanied() {
				r.Limits.Accompany()
			}
		}
		keepCompany(known.together[id])
	}
	for _, d := range set.Domains {
		for _, r := range d.Rules() {
			id := set.namespace + "/" + r.Name()
			if a.zones[id] != nil || known.limits[id].limits != nil {
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
		return "other limits of tiers or single keys"
	}
	return ""
}

// shortest returns the shorter of two intervals; 0 is none.
func shortest[T ~int64](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// Start activates what the new configuration changes for the whole process: at once if no other configuration runs, else when that
// one stops. Until then another app may fail to start, and Caddy may refuse the new configuration.
func (a *App) Start() error {
	named := a.placeholders()
	a.raw = nil
	a.before = nil
	if err := a.checkStatuses(); err != nil {
		return err
	}
	for i, h := range a.handlers {
		if h.deferring == nil {
			continue
		}
		if err := h.deferring.Start(named); err != nil {
			for _, before := range a.handlers[:i] {
				before.deferring.Stop(0, false)
			}
			return err
		}
	}
	a.memory.start(a)
	if len(a.RulesFiles) > 0 && !a.usesFiles {
		a.logger.Warn("the rules_file of the global option is not read: every rate_limit has zones or files of its own; write a bare rate_limit in a site, or take rules_file out")
	}
	if len(a.files.groups) == 0 && a.RulesInterval != 0 {
		a.logger.Warn("the rules_interval of the global option has no effect: no rule files are read; write rules_file, or take it out")
	}
	if len(a.files.groups) > 0 {
		noteRulesStarted()
		a.watcher = startWatcher(a.files, cmp.Or(time.Duration(a.RulesInterval), defaultRulesInterval), a.logger)
	}
	return nil
}

// Stop hands over to the configuration that has started, or undoes a start that Caddy has taken back. Cleanup releases what the app
// holds, after the next configuration has taken over.
func (a *App) Stop() error {
	if a.watcher != nil {
		a.watcher.close()
		a.watcher = nil
	}
	for _, h := range a.handlers {
		if h.deferring != nil {
			h.deferring.Stop(time.Duration(h.http.GracePeriod), caddy.Exiting())
		}
	}
	a.memory.leave(a)
	return nil
}

// Cleanup releases the memory, which ends with the last configuration that uses it.
func (a *App) Cleanup() error {
	if a.memory == nil {
		return nil
	}
	a.files.leave()
	a.memory.leave(a)
	return releaseMemory()
}

// memories holds the one sharedMemory of the process, which must outlive every reload.
var memories = caddy.NewUsagePool()

const memoryKey = "memory"

// sharedMemory is the memory that the handlers of all configurations share, with the goroutine that sweeps it.
type sharedMemory struct {
	store  *memory.Store
	sweeps *time.Ticker
	stop   chan struct{}

	adapting adapt.Controller

	mu            sync.Mutex
	inForce, next *App // the app that has started, and the one that has started to replace it
}

func acquireMemory() (*sharedMemory, error) {
	value, _, err := memories.LoadOrNew(memoryKey, func() (caddy.Destructor, error) {
		s := &sharedMemory{
			// Created for the largest possible number of keys, so that it has many shards, and each is small.
			store:  memory.New(memory.Config{MaxKeys: stores.MaxMaxKeys}),
			sweeps: time.NewTicker(defaultSweepInterval),
			stop:   make(chan struct{}),
		}
		s.store.SetMaxKeys(0)
		go s.sweeper()
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*sharedMemory), nil
}

func releaseMemory() error {
	_, err := memories.Delete(memoryKey)
	return err
}

// Destruct implements caddy.Destructor.
func (s *sharedMemory) Destruct() error {
	close(s.stop)
	return nil
}

// start puts a in force, or makes it wait until the current app leaves.
func (s *sharedMemory) start(a *App) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inForce != nil {
		s.next = a
		return
	}
	s.putInForce(a)
}

// leave undoes start. It does nothing if a has left already.
func (s *sharedMemory) leave(a *App) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a {
	case s.next:
		s.next = nil
	case s.inForce:
		next := s.next
		s.next = nil
		s.putInForce(next)
	}
}

// putInForce makes a the app in force; nil is none. From now on its rules succeed those of the app before: see rulings.
func (s *sharedMemory) putInForce(a *App) {
	before := s.inForce
	s.inForce = a
	if a == nil {
		s.adapting.Use(nil)
		return
	}
	s.adapting.Use(a.advised)
	for _, h := range a.handlers {
		h.guarded.PutInForce()
	}
	s.store.SetMaxKeys(a.maxKeys)
	s.sweeps.Reset(cmp.Or(a.sweep, defaultSweepInterval))
	if before == nil {
		return
	}
	before.rulings(before.files.inUse()).succeed(a.rulings(a.files.inUse()), a.reportSuccession)
}

// appInForce returns the app of the configuration that serves requests now, or nil if there is none.
func appInForce() *App {
	var s *sharedMemory
	memories.Range(func(_, value any) bool { // there is at most one
		s = value.(*sharedMemory)
		return false
	})
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil { // the next app serves already, and the old one has yet to stop
		return s.next
	}
	return s.inForce
}

const defaultSweepInterval = time.Minute

// sweeper sweeps the memory until it is no longer used.
func (s *sharedMemory) sweeper() {
	defer s.sweeps.Stop()
	for {
		select {
		case <-s.sweeps.C:
			s.store.Sweep()
			report.SweepTopKeys()
		case <-s.stop:
			return
		}
	}
}

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
	_ caddy.Destructor   = (*sharedMemory)(nil)
)

// guards returns the guards in force, each once.
func (a *App) guards() []*protect.Guarded {
	var list []*protect.Guarded
	seen := make(map[*protect.GuardState]bool)
	for _, h := range a.handlers {
		if g := h.guarded; g != nil && !seen[g.GuardState] {
			seen[g.GuardState] = true
			list = append(list, g)
		}
	}
	return list
}

// placeholders returns those that the configuration's handlers name, if any of them defers. It must be called before raw is dropped.
func (a *App) placeholders() []string {
	if !slices.ContainsFunc(a.handlers, func(h *Handler) bool { return h.deferring != nil }) {
		return nil
	}
	var names []string
	for _, raw := range a.raw {
		for _, handler := range raw.List {
			names = append(names, deferred.PlaceholdersIn(handler)...)
		}
	}
	return names
}

// queues returns the zones that defer, in the order of the handlers.
func (a *App) queues() []*deferred.Deferral {
	var list []*deferred.Deferral
	for _, h := range a.handlers {
		if h.deferring != nil {
			list = append(list, h.deferring)
		}
	}
	return list
}

// limiters returns those of the handlers.
func (a *App) limiters() []*stores.Limiter {
	list := make([]*stores.Limiter, 0, len(a.handlers))
	for _, h := range a.handlers {
		list = append(list, h.limiter)
	}
	return list
}
