package ratelimit

import (
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/excepted"
)

// openZone is a zone of a handler that serves, or is about to: its rule is open in the store.
type openZone struct {
	*syntax.CompiledZone
	matchers caddyhttp.MatcherSets
	counted  caddyhttp.MatcherSets // of count_match
	reporter *report.Reporter
	opened   []*core.Rule
	instance *adaptive.Instance // nil: advice cannot touch the zone
	obeying  *excepted.Group    // nil: not open
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

// counts reports whether a request counts.
func (z *openZone) counts(r *http.Request, _, _ string) (bool, error) {
	return syntax.Covers(z.counted, r)
}

// loadMatchers provisions the matchers of one of the zone's fields.
func (z *openZone) loadMatchers(ctx caddy.Context, word, field string, to *caddyhttp.MatcherSets) error {
	matchers, err := ctx.LoadModule(z.Zone, field)
	if err == nil {
		err = to.FromInterface(matchers)
	}
	if err != nil {
		return fmt.Errorf("zone %q: %s: %w", z.Rule.Name, word, err)
	}
	syntax.SeeSent(*to)
	return nil
}

// close releases what provision has acquired.
func (z *openZone) close(l *stores.Limiter) {
	l.Disregard(z.obeying)
	z.Rule.Active.End()
	for _, r := range z.opened {
		l.Release(r)
	}
	z.opened = nil
	z.reporter.Close()
}
