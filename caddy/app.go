package ratelimit

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/proxyweir/weir/core"
	"go.uber.org/zap"
)

func init() {
	caddy.RegisterModule(App{})
}

// App holds what the `rate_limit` handlers of a configuration share: the store they use unless they say otherwise, the
// bound on memory, and the registry that keeps one zone from being defined in two ways. It need not be configured.
type App struct {
	// Where handlers keep their counters unless they say otherwise. The default is memory.
	StoreRaw json.RawMessage `json:"store,omitempty" caddy:"namespace=http.rate_limit.stores inline_key=store"`

	store   core.Store
	memory  *sharedMemory
	maxKeys int
	sweep   time.Duration
	rules   map[string]*core.Rule // by namespace and name
	logger  *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "rate_limit",
		New: func() caddy.Module { return new(App) },
	}
}

// Provision takes hold of the memory that the process has for counters, and loads the configured store.
func (a *App) Provision(ctx caddy.Context) error {
	a.logger = ctx.Logger()
	a.rules = make(map[string]*core.Rule)
	memory, err := acquireMemory()
	if err != nil {
		return err
	}
	a.memory = memory
	a.store = memory.store
	if a.StoreRaw == nil {
		return nil
	}
	mod, err := ctx.LoadModule(a, "StoreRaw")
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if m, ok := mod.(*MemoryStore); ok {
		a.maxKeys = m.MaxKeys
	}
	a.store = mod.(StoreModule).Store()
	return nil
}

// register enters a rule, or says that there is one of its name that differs.
func (a *App) register(r *core.Rule) error {
	id := r.Namespace() + "/" + r.Name()
	other := a.rules[id]
	if other == nil {
		a.rules[id] = r
		return nil
	}
	what := ""
	switch {
	case other.Identity() != r.Identity() && other.Limit().Identity() == r.Limit().Identity():
		what = "another key"
	case !other.Limit().Same(r.Limit()):
		what = fmt.Sprintf("another limit: %s and %s", other.Limit(), r.Limit())
	case other.Shadow() != r.Shadow():
		what = "another enforcement"
	case other.CountRejected() != r.CountRejected():
		what = "another count_rejected"
	default:
		return nil
	}
	return fmt.Errorf("zone %q: is defined twice, with %s; zones of one name share their counters and must be alike: rename one, or give its handler a namespace", r.Name(), what)
}

// wantSweep says how often a handler wants memory to be swept; 0 means it does not mind.
func (a *App) wantSweep(interval time.Duration) {
	if interval > 0 && (a.sweep == 0 || interval < a.sweep) {
		a.sweep = interval
	}
}

// Start puts in force what the new configuration changes for all.
func (a *App) Start() error {
	a.memory.store.SetMaxKeys(a.maxKeys)
	a.memory.sweepEvery(a.sweep)
	for _, r := range a.memory.commit(a.rules) {
		a.logger.Info("the zone starts counting afresh, since its algorithm, period or key has changed",
			zap.String("zone", r.Name()), zap.Stringer("limit", r.Limit()))
	}
	return nil
}

// Stop does nothing: what the app holds is let go of by Cleanup, after the next configuration has taken over.
func (a *App) Stop() error { return nil }

// Cleanup lets go of the memory, which ends with the last configuration that uses it.
func (a *App) Cleanup() error {
	if a.memory == nil {
		return nil
	}
	return releaseMemory()
}

// memories has the one sharedMemory of the process, which must outlive every reload.
var memories = caddy.NewUsagePool()

const memoryKey = "memory"

// sharedMemory is the memory of all configurations' handlers, with the goroutine that sweeps it.
type sharedMemory struct {
	store    *core.Memory
	interval chan time.Duration
	stop     chan struct{}

	mu         sync.Mutex
	identities map[string]string // of the rules in force, by namespace and name
}

func acquireMemory() (*sharedMemory, error) {
	value, _, err := memories.LoadOrNew(memoryKey, func() (caddy.Destructor, error) {
		s := &sharedMemory{
			store:    core.NewMemory(core.MemoryConfig{}),
			interval: make(chan time.Duration, 1),
			stop:     make(chan struct{}),
		}
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

// commit remembers which rules are in force, and returns those that count anew under an old name.
func (s *sharedMemory) commit(rules map[string]*core.Rule) []*core.Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fresh []*core.Rule
	identities := make(map[string]string, len(rules))
	for id, r := range rules {
		identities[id] = r.Identity()
		if before, ok := s.identities[id]; ok && before != r.Identity() {
			fresh = append(fresh, r)
		}
	}
	s.identities = identities
	return fresh
}

const defaultSweepInterval = time.Minute

// sweepEvery changes the interval; 0 means the default.
func (s *sharedMemory) sweepEvery(interval time.Duration) {
	if interval == 0 {
		interval = defaultSweepInterval
	}
	select {
	case <-s.interval: // one that was not yet taken
	default:
	}
	select {
	case s.interval <- interval:
	default:
	}
}

// sweeper sweeps until the memory is no longer used.
func (s *sharedMemory) sweeper() {
	ticker := time.NewTicker(defaultSweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.store.Sweep()
		case interval := <-s.interval:
			ticker.Reset(interval)
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
