package admin

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/deferred"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core/memory"
)

// View is a configuration in force, as the API sees it.
type View struct {
	Rules    func() []*report.ActiveRule
	Limiters []*stores.Limiter  // of the handlers
	Guards   []*protect.Guarded // each once
	Queues   []*deferred.Deferral
	Memory   *memory.Store
	Adapting *adapt.Controller
	Advised  *adapt.Source // nil: there is no advisor
	Files    *FilesAnswer  // nil: there are no rule files
	Ctx      caddy.Context
}

// current returns the configuration in force; nil: it has no rate_limit. Who has the configurations sets it.
var current func() *View

// Show has the API show what f returns.
func Show(f func() *View) { current = f }

// FilesAnswer says whether the rules in force are those of the rule files on disk.
type FilesAnswer struct {
	Successful bool      `json:"successful"`
	Loaded     time.Time `json:"loaded"` // when rule files last came into force
}
