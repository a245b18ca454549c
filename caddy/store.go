package ratelimit

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/proxyweir/weir/core"
)

func init() {
	caddy.RegisterModule(MemoryStore{})
}

// StoreModule is a module of the namespace http.rate_limit.stores: it has a store for handlers to count in.
type StoreModule interface {
	Store() core.Store
}

// FleetStoreModule is a StoreModule whose store several nodes share.
type FleetStoreModule interface {
	StoreModule

	// Fleet returns how many nodes share the store; 0 if nobody has said.
	Fleet() int
}

// limiterOver returns a limiter over the store of a loaded module: one that counts in the app's memory where the store
// fails.
func (a *App) limiterOver(mod any) (*limiter, error) {
	m, ok := mod.(StoreModule)
	if !ok {
		return nil, fmt.Errorf("store: the module %T has no store for rate limits", mod)
	}
	limiter := newLimiter(m.Store(), caddy.GetModuleName(mod))
	if r, ok := mod.(*RedisStore); ok {
		limiter.redis, limiter.trouble = r.shared.store, r.shared.trouble
	}
	if _, isMemory := mod.(*MemoryStore); !isMemory {
		nodes := 0
		if fleet, ok := mod.(FleetStoreModule); ok {
			nodes = fleet.Fleet()
		}
		limiter.FallBack(a.memory.store, nodes)
	}
	return limiter, nil
}

// MemoryStore keeps counters in the memory of this process. There is one memory for all handlers.
type MemoryStore struct {
	// How many keys the memory holds, over all zones: from 1 to 100000000, by default 1000000, which take about 40 bytes
	// each. Past it the key makes way that costs least to forget. This is set in the app `rate_limit`, not in a handler.
	MaxKeys int `json:"max_keys,omitempty"`

	memory *sharedMemory
}

// CaddyModule returns the Caddy module information.
func (MemoryStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.rate_limit.stores.memory",
		New: func() caddy.Module { return new(MemoryStore) },
	}
}

const maxMaxKeys = 100_000_000

// Provision takes hold of the process's memory.
func (m *MemoryStore) Provision(caddy.Context) error {
	if m.MaxKeys < 0 || m.MaxKeys > maxMaxKeys {
		return fmt.Errorf("max_keys %d: must be from 1 to %d", m.MaxKeys, maxMaxKeys)
	}
	memory, err := acquireMemory()
	m.memory = memory
	return err
}

// Store implements StoreModule.
func (m *MemoryStore) Store() core.Store { return m.memory.store }

// Cleanup lets go of the memory.
func (m *MemoryStore) Cleanup() error {
	if m.memory == nil {
		return nil
	}
	return releaseMemory()
}

// Interface guards
var (
	_ StoreModule        = (*MemoryStore)(nil)
	_ caddy.Provisioner  = (*MemoryStore)(nil)
	_ caddy.CleanerUpper = (*MemoryStore)(nil)
)
