// Package stores has the stores in which Caddy's handlers count: modules of the namespace http.rate_limit.stores, and limiters over them.
package stores

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
)

func init() {
	caddy.RegisterModule(MemoryStore{})
}

// StoreModule is a module of the namespace http.rate_limit.stores, with a store in which handlers count. MemoryStore does not
// implement it, since the app has the memory.
type StoreModule interface {
	Store() core.Store
}

// FleetStoreModule is a StoreModule whose store several nodes share.
type FleetStoreModule interface {
	StoreModule

	// Fleet returns how many nodes share the store; 0 if that is not configured.
	Fleet() int
}

// MemoryName is the name of the store in this process's memory.
const MemoryName = "memory"

// MemoryStore keeps counters in the memory of this process. All handlers share one memory.
type MemoryStore struct {
	// How many keys the memory holds, over all zones: from 1 to 100000000, by default 1000000, which take about 40 bytes each. When
	// it is full, a new key replaces the key that costs least to forget. Set this in the app `rate_limit`, not in a handler.
	MaxKeys int `json:"max_keys,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (MemoryStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.rate_limit.stores.memory",
		New: func() caddy.Module { return new(MemoryStore) },
	}
}

const MaxMaxKeys = 100_000_000

// Provision checks the setting. The memory itself is the app's.
func (m *MemoryStore) Provision(caddy.Context) error {
	if m.MaxKeys < 0 || m.MaxKeys > MaxMaxKeys {
		return fmt.Errorf("max_keys %d: must be from 1 to %d", m.MaxKeys, MaxMaxKeys)
	}
	return nil
}

// Interface guard
var _ caddy.Provisioner = (*MemoryStore)(nil)

// UnmarshalJSON reads the store's JSON as strictly as a handler's.
func (m *MemoryStore) UnmarshalJSON(data []byte) error {
	type plain MemoryStore
	return syntax.UnmarshalStrict(data, (*plain)(m))
}
