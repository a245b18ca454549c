package ratelimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/proxyweir/weir/caddy/admin"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
)

// This file has what the admin API reads of a configuration.

func init() {
	admin.Show(func() *admin.View {
		a := appInForce()
		if a == nil {
			return nil
		}
		v := &admin.View{Rules: a.subjects, Limiters: a.limiters(), Guards: a.guards(), Queues: a.queues(), Memory: a.memory.store, Adapting: &a.memory.adapting, Advised: a.advised, Ctx: a.ctx}
		if len(a.files.inUse()) > 0 {
			v.Files = &admin.FilesAnswer{Successful: !rulesRefused.Load(), Loaded: time.UnixMilli(rulesLoaded.Load() / 1000).UTC()}
		}
		return v
	})
}

// Explain decides on a request without charging it.
func (h *Handler) Explain(r *http.Request) (*admin.Explained, error) {
	of := &admin.Explained{Inquiry: new(front.Inquiry), Limiter: h.limiter, Guarded: h.guarded, Missing: h.expected.missing(r)}
	if _, err := h.assemble(of.Inquiry, r); err != nil {
		return nil, err
	}
	if len(of.Checks) > 0 {
		of.Failure = h.limiter.Decide(of.Checks, true, &of.Verdict)
	}
	for _, zone := range h.zones {
		if !slices.ContainsFunc(of.Checks, func(c core.Check) bool { return report.Of(&c) == zone.reporter }) {
			of.Uncovered = append(of.Uncovered, zone.reporter.Stats.Label)
		}
	}
	return of, nil
}
