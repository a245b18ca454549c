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

	limiter *core.Limiter // over the store
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
	a.limiter = core.NewLimiter(memory.store)
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
	a.limiter, err = a.limiterOver(mod)
	return err
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
	return fmt.Errorf("zone %q: is defined twice, with %s; zones of one name share their counters and must be alike: rename one (a short form is named after its matcher and key: write a zone instead), or give its handler a namespace", r.Name(), what)
}

// wantSweep says how often a handler wants memory to be swept; 0 means it does not mind.
func (a *App) wantSweep(interval time.Duration) {
	if interval > 0 && (a.sweep == 0 || interval < a.sweep) {
		a.sweep = interval
	}
}

// Start puts in force what the new configuration changes for all: at once where there is no other, else when the one that
// is in force stops. Until then another app may fail to start, and the new configuration be refused.
func (a *App) Start() error {
	a.memory.start(a)
	return nil
}

// Stop hands over to the configuration that has started, or takes back a start that came to nothing. What the app holds is
// let go of by Cleanup, after the next configuration has taken over.
func (a *App) Stop() error {
	a.memory.leave(a)
	return nil
}

// Cleanup lets go of the memory, which ends with the last configuration that uses it.
func (a *App) Cleanup() error {
	if a.memory == nil {
		return nil
	}
	a.memory.leave(a)
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

	mu            sync.Mutex
	inForce, next *App // the app that has started, and the one that has started to replace it
}

func acquireMemory() (*sharedMemory, error) {
	value, _, err := memories.LoadOrNew(memoryKey, func() (caddy.Destructor, error) {
		s := &sharedMemory{
			// Made for the most keys there can be, so that its shards are many, and each is small.
			store:    core.NewMemory(core.MemoryConfig{MaxKeys: maxMaxKeys}),
			interval: make(chan time.Duration, 1),
			stop:     make(chan struct{}),
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

// start puts a in force, or has it wait for the app that is to leave.
func (s *sharedMemory) start(a *App) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inForce != nil {
		s.next = a
		return
	}
	s.putInForce(a)
}

// leave ends what start began, and is harmless where it has ended.
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

// putInForce makes a, or nobody where it is nil, the app in force, and says in the log which rules count anew under an old
// name.
func (s *sharedMemory) putInForce(a *App) {
	before := s.inForce
	s.inForce = a
	if a == nil {
		return
	}
	s.store.SetMaxKeys(a.maxKeys)
	s.sweepEvery(a.sweep)
	if before == nil {
		return
	}
	for id, r := range a.rules {
		if old := before.rules[id]; old != nil && old.Identity() != r.Identity() {
			a.logger.Info("the zone starts counting afresh, since its algorithm, period or key has changed",
				zap.String("zone", r.Name()), zap.Stringer("limit", r.Limit()))
		}
	}
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
