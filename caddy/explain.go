package ratelimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
)

// This file has what the admin API reads of a configuration.

func init() {
	showInForce(func() *view {
		a := appInForce()
		if a == nil {
			return nil
		}
		v := &view{rules: a.subjects, limiters: a.limiters(), guards: a.guards(), queues: a.queues(), memory: a.memory.store, adapting: &a.memory.adapting, advised: a.advised, ctx: a.ctx}
		if len(a.files.inUse()) > 0 {
			v.files = &filesAnswer{!rulesRefused.Load(), time.UnixMilli(rulesLoaded.Load() / 1000).UTC()}
		}
		return v
	})
}

// Explain decides on a request without charging it.
func (h *Handler) Explain(r *http.Request) (*explained, error) {
	of := &explained{Inquiry: new(front.Inquiry), limiter: h.limiter, guarded: h.guarded, missing: h.expected.missing(r)}
	if _, err := h.assemble(of.Inquiry, r); err != nil {
		return nil, err
	}
	if len(of.Checks) > 0 {
		of.failure = h.limiter.Decide(of.Checks, true, &of.Verdict)
	}
	for _, zone := range h.zones {
		if !slices.ContainsFunc(of.Checks, func(c core.Check) bool { return reporterOf(&c) == zone.reporter }) {
			of.uncovered = append(of.uncovered, zone.reporter.stats.Label)
		}
	}
	return of, nil
}
