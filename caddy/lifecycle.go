package ratelimit

import (
	"cmp"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
)

// Provision acquires the process's memory for counters, and loads the configured store.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx = ctx
	a.logger = ctx.Logger()
	a.zones = make(map[string][]*core.Limits)
	a.stores = make(map[string]string)
	a.deferring = make(map[string]bool)
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
	if err := syntax.ResolvePlaceholders(caddy.NewReplacer(), "exceptions_file", &a.ExceptionsFile); err != nil {
		return err
	}
	if err := memory.useExceptions(a.ExceptionsFile); err != nil {
		return err
	}
	a.limiter = stores.NewLimiter(memory.store, stores.MemoryName, memory.exceptions)
	if a.StoreRaw != nil {
		mod, err := ctx.LoadModule(a, "StoreRaw")
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if m, ok := mod.(*stores.MemoryStore); ok {
			a.maxKeys = m.MaxKeys
		}
		if a.limiter, err = stores.LimiterOver(mod, memory.store, memory.exceptions); err != nil {
			return err
		}
	}
	if a.Advisor != nil {
		a.adviceSource = &adapt.Source{Advisor: a.Advisor, Redis: a.limiter.Redis, Rules: a.adaptableRules}
	}
	return nil
}

// Start activates what the new configuration changes for the whole process: at once if no other configuration runs, else when that
// one stops. Until then another app may fail to start, and Caddy may refuse the new configuration.
func (a *App) Start() error {
	named := a.placeholders()
	a.raw = nil
	a.before = nil
	if err := a.checkNamed(); err != nil {
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
		a.unwatch = startWatcher(a.files, cmp.Or(time.Duration(a.RulesInterval), defaultRulesInterval), a.logger).close
	}
	return nil
}

// Stop hands over to the configuration that has started, or undoes a start that Caddy has taken back. Cleanup releases what the app
// holds, after the next configuration has taken over.
func (a *App) Stop() error {
	if a.unwatch != nil {
		a.unwatch()
		a.unwatch = nil
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
