package ratelimit

import (
	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/admin"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
)

// The types of modules and of their settings that other packages declare.
type (
	Zone          = syntax.Zone
	Tiers         = syntax.Tiers
	LimitFrom     = syntax.LimitFrom
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

	Admin         = admin.Admin
	Advisor       = adapt.Advisor
	Guard         = protect.Guard
	GuardPriority = protect.GuardPriority
	GuardPressure = protect.GuardPressure
	Page          = admin.Page
)
