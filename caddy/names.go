package ratelimit

import (
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
)

// The types of a configuration that are declared in other packages. MatchSentPath is a module.
type (
	Zone          = syntax.Zone
	Tiers         = syntax.Tiers
	Override      = syntax.Override
	Candidate     = syntax.Candidate
	Adapt         = syntax.Adapt
	Defer         = syntax.Defer
	MatchSentPath = syntax.MatchSentPath

	ClientTLS        = stores.ClientTLS
	Distributed      = stores.Distributed
	FleetStoreModule = stores.FleetStoreModule
	MemoryStore      = stores.MemoryStore
	RedisStore       = stores.RedisStore
	StorageStore     = stores.StorageStore
	StoreModule      = stores.StoreModule
)
