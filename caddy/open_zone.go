package ratelimit

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/ruleset"
	"go.uber.org/zap"
)

// openZone is a zone of a handler that serves, or is about to: its rule is open in the store.
type openZone struct {
	*syntax.CompiledZone
	matchers caddyhttp.MatcherSets
	reporter *report.Reporter
	opened   []*core.Rule
	place    *front.Place // nil: advice cannot touch the zone
}

// provision prepares the zone, which has been compiled, and registers it with the app.
func (z *openZone) provision(ctx caddy.Context, h *Handler) error {
	r := z.Rule
	if len(z.MatcherSetsRaw) > 0 {
		matchers, err := ctx.LoadModule(z.Zone, "MatcherSetsRaw")
		if err != nil {
			return fmt.Errorf("zone %q: match: %w", r.Name, err)
		}
		if err := z.matchers.FromInterface(matchers); err != nil {
			return fmt.Errorf("zone %q: match: %w", r.Name, err)
		}
		syntax.SeeSent(z.matchers)
		r.Covering = z.covers
	}
	if err := h.app.register(h.Namespace, r.Name, r.Limits, h.limiter, z.Defer != nil); err != nil {
		return err
	}
	for _, one := range r.Limits.Rules() {
		if err := h.limiter.Fits(one); err != nil {
			return fmt.Errorf("zone %q: %w", r.Name, err)
		}
		if err := h.limiter.Open(one); err != nil {
			return fmt.Errorf("zone %q: %w", r.Name, err)
		}
		z.opened = append(z.opened, one)
		h.limiter.WarnOf(one)
	}
	if r.Adapt != nil {
		z.place = h.placeOf(r)
	}
	z.reporter = h.newReporter(r.Name, z.readable())
	for _, one := range z.opened {
		one.Note(z.reporter)
	}
	ours := make(rulings)
	ours.addZone(h, z)
	h.app.predecessors().succeed(ours, nil)
	for _, advice := range r.Advice {
		h.logger.Warn(syntax.InJSON.Write(advice).Error(), zap.String("zone", r.Name))
	}
	settings := [][2]string{{"key", z.Key}, {"cost", z.Cost}}
	if z.Tiers != nil {
		settings = append(settings, [2]string{"tiers", z.Tiers.Source})
	}
	for _, s := range settings {
		if strings.Contains(s[1], "{http.auth.") && !syntax.AuthenticatedBefore(ctx, h.RateLimits) {
			h.logger.Warn("the zone's "+s[0]+" is about who is authenticated, but this handler runs before authentication: "+
				"put rate_limit after it in a route block, or set the global option: order rate_limit after basic_auth",
				zap.String("zone", r.Name), zap.String(s[0], s[1]))
		}
	}
	return nil
}

// readable returns a function that writes a request's key for the log: the template with its placeholders replaced.
func (z *openZone) readable() func(r *http.Request) string {
	t, err := syntax.NewTemplate(z.KeyText())
	if err != nil { // compile has reported it
		return nil
	}
	return t.Value
}

// covers reports whether the zone's matchers cover a request.
func (z *openZone) covers(r *http.Request) (bool, error) { return syntax.Covers(z.matchers, r) }

// close releases what provision has acquired.
func (z *openZone) close(l *stores.Limiter) {
	z.place.Close()
	l.EndSwitch(z.Rule.Limits)
	for _, r := range z.opened {
		l.Release(r)
	}
	z.opened = nil
	z.reporter.Close()
}

// placeOf returns the place where an adaptable rule of the handler decides.
func (h *Handler) placeOf(r *ruleset.Rule) *front.Place {
	return &front.Place{Rule: r, Limiter: h.limiter.Limiter, Applies: h.app.Advisor.Applies()}
}
