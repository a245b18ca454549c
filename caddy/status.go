package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/answer"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/front"
	"github.com/proxyweir/weir/words"
	"go.uber.org/zap"
)

func init() {
	caddy.RegisterModule(new(Status))
}

// Status answers a client with its own quotas, as JSON, at no cost:
//
//	{"quotas":[{"name":"everyone","limit":300,"remaining":297,"reset":41}]}
//
// Limit and remaining are requests, or units where requests cost several; reset is the seconds until all of the quota is there
// again. Where the client is over the limit, `retry_after` has the seconds after which to come back. The keys are made of the request
// that asks as the rules make them of every request. Which requests a rule covers by path, method and the like is not asked; whom it
// excepts is. Rules that only watch, or have no limit for the client, are left out. Nothing is told but of the caller's own keys.
//
// It runs before `rate_limit` unless the order of directives is changed. A key that is about who is authenticated needs it behind the
// authentication.
type Status struct {
	// The names of the rules, of zones, rule files or descriptors; those of a namespace are written `namespace/name`. Required: a
	// client must not be told of another site's rules, nor by keys that only that site's own handlers make. One that there is not is
	// refused, or where there are rule files, which change, warned of.
	Rules []string `json:"rules,omitempty"`

	app     *App
	wanted  map[string]bool
	missing map[string]bool // those that were warned of
	logger  *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (*Status) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.rate_limit_status",
		New: func() caddy.Module { return new(Status) },
	}
}

// Provision enters the handler with the app, which looks for the rules when all are known.
func (s *Status) Provision(ctx caddy.Context) error {
	app, err := ctx.App("rate_limit")
	if err != nil {
		return err
	}
	s.app = app.(*App)
	s.logger = ctx.Logger()
	if len(s.Rules) == 0 {
		return errors.New(`rate_limit_status: names no rule; write those that clients are told of: "rules": ["everyone"]`)
	}
	s.wanted = make(map[string]bool)
	for _, name := range s.Rules {
		if err := checkLabel(name); err != nil {
			return err
		}
		s.wanted[name] = true
	}
	s.app.statuses = append(s.app.statuses, s)
	return s.checkAhead(ctx)
}

// checkAhead says which of the handler's rules there will not be, so that `caddy validate` does, which starts nothing: see checkStatuses.
// A rule may be of a handler that is yet to be provisioned, here or on another server. Those are read in the configuration. Where rule
// files come into it, or what is around the handler is not Caddy's HTTP app, nothing is known yet.
func (s *Status) checkAhead(ctx caddy.Context) error {
	a := s.app
	if !a.lookedAhead {
		a.lookedAhead = true
		a.ahead = labelsIn(serversIn(ctx))
	}
	if a.ahead == nil || len(a.files.groups) > 0 {
		return nil
	}
	known := slices.AppendSeq(labelsOf(a.subjects()), maps.Keys(a.ahead))
	slices.Sort(known)
	return s.check(slices.Compact(known))
}

// labelsIn returns what the zones are called of those handlers of servers that have not been provisioned yet: of the others Caddy
// forgets the JSON. It is nil where there are no servers, and where a handler goes by rule files.
func labelsIn(servers map[string]*caddyhttp.Server) map[string]bool {
	text, err := json.Marshal(servers)
	known := err == nil && servers != nil
	labels := make(map[string]bool)
	eachHandler("", text, func(_ string, h *Handler) {
		if len(h.RateLimits) == 0 || h.RulesFiles != nil || h.Descriptors != nil {
			known = false
			return
		}
		for name := range h.RateLimits {
			labels[labelOf(h.Namespace, name)] = true
		}
	})
	if !known {
		return nil
	}
	return labels
}

// check says which of the handler's rules there is not.
func (s *Status) check(known []string) error {
	for _, name := range s.Rules {
		if err := words.CheckWord("rate_limit_status: rule", name, known); err != nil {
			if len(known) == 0 {
				return fmt.Errorf("rate_limit_status: rule %q: there is none in the configuration", name)
			}
			return err
		}
	}
	return nil
}

// advise warns of the rules that there are not any more, or not yet, once for as long as that is so.
func (s *Status) advise(known []string) {
	missing := make(map[string]bool)
	for _, name := range s.Rules {
		if slices.Contains(known, name) {
			continue
		}
		missing[name] = true
		if s.missing[name] {
			continue
		}
		fields := []zap.Field{zap.String("rule", name)}
		if near := words.Nearest(name, known); near != "" {
			fields = append(fields, zap.String("did_you_mean", near))
		}
		s.logger.Warn("rate_limit_status names a rule that neither the configuration nor its rule files have; clients are not told of it", fields...)
	}
	s.missing = missing
}

// checkStatuses says which rules that a rate_limit_status names there are not, when all are known. With rule files that is only warned of: an edit may take
// a rule away, and with what is in force then the configuration must start again.
func (a *App) checkStatuses() error {
	if len(a.statuses) == 0 {
		return nil
	}
	known := labelsOf(a.subjects())
	for _, s := range a.statuses {
		if len(a.files.groups) > 0 {
			s.advise(known)
		} else if err := s.check(known); err != nil {
			return err
		}
	}
	return nil
}

// ServeHTTP answers the request.
func (s *Status) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		return s.answer(w, r, http.StatusMethodNotAllowed, []byte(`{"error":"only GET and HEAD are answered here"}`+"\n"))
	}
	if r.TLS != nil && !r.TLS.HandshakeComplete { // as Handler
		return s.answer(w, r, http.StatusTooEarly, []byte(`{"error":"the TLS handshake is not complete"}`+"\n"))
	}
	checks, err := s.look(r)
	if err != nil {
		s.logger.Debug("a client's quotas could not be had", zap.Error(err))
		header.Set("Retry-After", "1")
		return s.answer(w, r, http.StatusServiceUnavailable, []byte(`{"error":"the rate limits cannot be checked; try again"}`+"\n"))
	}
	return s.answer(w, r, http.StatusOK, answer.AppendQuotas(nil, checks, &core.Verdict{Reported: -1}))
}

func (s *Status) answer(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone; there is nobody to tell
	}
	return nil
}

// look returns how the caller stands in the rules.
func (s *Status) look(r *http.Request) ([]core.Check, error) {
	type counted struct {
		label   string
		limiter *limiter
	}
	var all []core.Check
	seen := make(map[counted]bool) // in another handler
	for _, h := range s.app.handlers {
		checks := slices.DeleteFunc(h.quotas(r, s.wanted), func(c core.Check) bool {
			label := reporterOf(&c).stats.label
			return !s.wanted[label] || seen[counted{label, h.limiter}] // the first: of descriptors
		})
		var v core.Verdict
		if err := h.limiter.Look(checks, &v); err != nil {
			return nil, err
		}
		for i := range checks {
			seen[counted{reporterOf(&checks[i]).stats.label, h.limiter}] = true
		}
		all = append(all, checks...)
	}
	return tightest(all), nil
}

// tightest leaves of checks of one rule, of which there are several where descriptors or stores are, the one with the least left.
func tightest(checks []core.Check) []core.Check {
	kept := checks[:0]
	for _, c := range checks {
		same := slices.IndexFunc(kept, func(k core.Check) bool {
			return k.Rule.Namespace() == c.Rule.Namespace() && k.Rule.Policy() == c.Rule.Policy() && k.Rule.Shadow() == c.Rule.Shadow()
		})
		if same < 0 {
			kept = append(kept, c)
		} else if c.Decision.Remaining < kept[same].Decision.Remaining {
			kept[same] = c
		}
	}
	return kept
}

// quotas returns a check for each wanted rule that the client comes under, whatever it asks for, and for the limits of descriptors. Whether a
// rule is wanted comes before all else: there may be thousands of others.
func (h *Handler) quotas(r *http.Request, wanted map[string]bool) []core.Check {
	asked := h.asked
	if files := h.files.Load(); files != nil {
		asked = files.asked
	}
	names := make(map[string]bool)
	for label := range wanted {
		names[strings.TrimPrefix(label, labelOf(h.Namespace, ""))] = true
	}
	var rules []*front.Rule
	for _, list := range [][]*front.Rule{asked.Own, asked.Files} {
		for _, rule := range list {
			if names[rule.Ruled.Name] {
				rules = append(rules, rule)
			}
		}
	}
	q := &front.Inquiry{Quiet: true}
	front.Quotas(asked, rules, math.MaxInt, q, r, clientIPOf(r))
	return q.Checks
}

// parseStatus reads a rate_limit_status directive of a site:
//
//	rate_limit_status [<matcher>] <rule names...>
func parseStatus(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	s := new(Status)
	return s, s.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens.
func (s *Status) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	for d.NextArg() {
		if err := checkLabel(d.Val()); err != nil {
			return d.WrapErr(err)
		}
		s.Rules = append(s.Rules, d.Val())
	}
	if d.NextBlock(0) {
		return d.Errf("rate_limit_status: takes no block; write the rules' names behind it: rate_limit_status /quota everyone")
	}
	if len(s.Rules) == 0 {
		return d.Err("rate_limit_status: names no rule; write those that clients are told of behind it: rate_limit_status /quota everyone")
	}
	return nil
}

// checkLabel says what is wrong with a rule's name, which may stand after that of its namespace.
func checkLabel(label string) error {
	namespace, name, found := strings.Cut(label, "/")
	if !found {
		return words.CheckName(label)
	}
	if err := words.CheckName(namespace); err != nil {
		return fmt.Errorf("namespace %w", err)
	}
	return words.CheckName(name)
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Status)(nil)
	_ caddyhttp.MiddlewareHandler = (*Status)(nil)
	_ caddyfile.Unmarshaler       = (*Status)(nil)
)
