package ratelimit

import (
	"encoding/json"
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
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/ruleset"
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

	// The file that keeps the limits and blocks of single keys that the admin API has set, in the store `memory`, beyond the end of this process.
	// The default is none: they end with the process. Redis keeps them in any case.
	ExceptionsFile string `json:"exceptions_file,omitempty"`

	// Who gives advice on the limits of zones and rules that have `adapt`. The default is nobody.
	Advisor *adapt.Advisor `json:"advisor,omitempty"`

	limiter      *stores.Limiter // over the default store
	adviceSource *adapt.Source   // nil: there is no advisor
	memory       *sharedMemory
	maxKeys      int
	sweep        time.Duration
	zones        map[string][]*core.Limits // by namespace and name, those of all handlers that have the zone
	deferring    map[string]bool           // the same zones: whether they defer
	stores       map[string]string         // the same zones, and rules of files: the counters of limiters
	files        *ruleFiles
	unwatch      func() // ends the watch of rule files; nil: there is none

	before limitsByName // of the configuration before, while this one is loaded; nil: not looked up

	fileRules fileRules // those in force; once the app has started, files.mu guards it

	raw         []syntax.RawHandlers // of the HTTP app, until it starts; nil: not kept
	handlers    []*Handler
	line        *line         // the requests that wait
	named       []*namedRules // of handlers: they learn when all rules are known
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

// fileRules are the rules and descriptors of rule files by namespace and name.
type fileRules struct {
	limits      map[string][]*core.Limits // those of all sets
	sets        map[string]*fileSet       // the first that has the rule
	descriptors map[string]*core.Rule     // the first of each name
}

// sharedMemory is the memory that the handlers of all configurations share, with the goroutine that sweeps it.
type sharedMemory struct {
	store  *memory.Store
	sweeps *time.Ticker
	stop   chan struct{}

	adapting adapt.Controller
	blocked  *report.BlockedAddresses

	kept       stores.LocalExceptions
	exceptions *excepted.Table // those in kept

	mu            sync.Mutex
	inForce, next *App // the app that has started, and the one that has started to replace it
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

// ruleFiles are all rule files of a configuration. They are read when it is loaded, and again when they change. A change replaces
// all rules in one step, or nothing if any file is wrong.
type ruleFiles struct {
	app *App

	mu       sync.Mutex // guards what follows; held while files are read and replaced
	groups   []*fileGroup
	parsed   map[string]parsedFile // by name
	reported map[string]bool       // the warnings about a probable mistake that were logged
}

// parsedFile is a file without errors of its own.
type parsedFile struct {
	sum  string
	size int
	file *ruleset.File
}

// fileGroup has the files of one list of patterns, and the handlers that use them.
type fileGroup struct {
	patterns []string
	files    []*ruleset.File
	sets     []*fileSet
	handlers []*Handler
}

// inForce is a handler's view of its rule files.
type inForce struct {
	set       *fileSet
	asked     *front.Set         // the rules of the files and the handler's zones
	domain    *ruleset.Domain    // nil: the handler has no descriptors
	reporters []*report.Reporter // of the domain's rules
}
