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
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/words"
)

func init() {
	caddy.RegisterModule(new(Status))
}

// Status answers a client with its own quotas, as JSON, at no cost:
//
//	{"quotas":[{"name":"everyone","limit":300,"remaining":297,"reset":41}]}
//
// Limit and remaining are in requests, or in units if requests have a cost; reset is the time in seconds until the whole quota is
// available again. If the client is over the limit, `retry_after` is the time in seconds until it may try again. The rules make the
// keys from the status request as from every other request. The handler ignores which requests a rule covers by path, method and
// the like, and honours its `except`. Shadow rules, and rules without a limit for the client, are left out. The answer is only
// about the caller's own keys.
//
// It runs before `rate_limit` unless the order of directives is changed. If a key depends on the authenticated user, put the
// handler behind the authentication.
type Status struct {
	// The names of the rules: of zones, of rules in files, or of descriptors; in a namespace a name is written `namespace/name`.
	// Required: a client must not learn about another site's rules, or use keys that only that site's own handlers make. A name
	// without a rule is refused; with rule files, which can change, it is only logged as a warning.
	Rules []string `json:"rules,omitempty"`

	app     *App
	wanted  map[string]bool
	missing map[string]bool // the names that were warned of
	logger  *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (*Status) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.rate_limit_status",
		New: func() caddy.Module { return new(Status) },
	}
}

// Provision registers the handler with the app, which checks the rules' names when all rules are known.
func (s *Status) Provision(ctx caddy.Context) error {
	app, err := ctx.App("rate_limit")
	if err != nil {
		return err
	}
	s.app = app.(*App)
	s.logger = ctx.Logger()
	if len(s.Rules) == 0 {
		return errors.New(`rate_limit_status: names no rule; write those whose quotas clients may read: "rules": ["everyone"]`)
	}
	s.wanted = make(map[string]bool)
	for _, name := range s.Rules {
		if err := checkLabel(name); err != nil {
			return err
		}
		s.wanted[name] = true
	}
	s.app.statuses = append(s.app.statuses, s.checkKnown)
	return s.checkAhead(ctx)
}

// checkAhead returns an error for the handler's names that no rule will have, so that `caddy validate` reports them although it
// starts nothing; see checkStatuses. A rule may belong to a handler that is not provisioned yet, here or on another server.
// checkAhead reads those from the configuration. If rule files are in use, or the handler is not in Caddy's HTTP app, nothing is
// known yet.
func (s *Status) checkAhead(ctx caddy.Context) error {
	a := s.app
	if !a.lookedAhead {
		a.lookedAhead = true
		a.ahead = labelsIn(syntax.ServersIn(ctx))
	}
	if a.ahead == nil || len(a.files.groups) > 0 {
		return nil
	}
	known := slices.AppendSeq(report.LabelsOf(a.activeRules()), maps.Keys(a.ahead))
	slices.Sort(known)
	return s.check(slices.Compact(known))
}

// labelsIn returns the labels of the zones of those handlers that have not been provisioned yet: Caddy discards the JSON of the
// others. It returns nil if there are no servers, or a handler uses rule files.
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
			labels[metrics.LabelOf(h.Namespace, name)] = true
		}
	})
	if !known {
		return nil
	}
	return labels
}

// check returns an error for the handler's names that no rule has.
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

// advise warns of the names that no rule has at present, once for as long as that is so.
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
		s.logger.Warn("rate_limit_status names a rule that neither the configuration nor its rule files have; clients cannot read its quota", fields...)
	}
	s.missing = missing
}

// checkStatuses returns an error for the names of rate_limit_status handlers that no rule has, when all rules are known. With rule
// files it only warns: an edit may remove a rule, and the configuration must still load afterwards.
func (a *App) checkStatuses() error {
	if len(a.statuses) == 0 {
		return nil
	}
	known := report.LabelsOf(a.activeRules())
	for _, check := range a.statuses {
		if err := check(known); err != nil {
			return err
		}
	}
	return nil
}

// checkKnown returns an error for the handler's names that no rule has, or with rule files warns of them.
func (s *Status) checkKnown(known []string) error {
	if len(s.app.files.groups) > 0 {
		s.advise(known)
		return nil
	}
	return s.check(known)
}

// ServeHTTP answers the request.
func (s *Status) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		return s.answer(w, r, http.StatusMethodNotAllowed, []byte(`{"error":"only GET and HEAD are answered here"}`+"\n"))
	}
	if r.TLS != nil && !r.TLS.HandshakeComplete { // as in Handler
		return s.answer(w, r, http.StatusTooEarly, []byte(`{"error":"the TLS handshake is not complete"}`+"\n"))
	}
	checks, err := s.look(r)
	if err != nil {
		s.logger.Debug("a client's quotas could not be read", zap.Error(err))
		answer.SetRetryAfter(header, 0)
		return s.answer(w, r, http.StatusServiceUnavailable, []byte(`{"error":"the rate limits cannot be checked; try again"}`+"\n"))
	}
	return s.answer(w, r, http.StatusOK, answer.AppendQuotas(nil, checks, &core.Verdict{Reported: -1}))
}

func (s *Status) answer(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // fails if the client has gone
	}
	return nil
}

// look returns the state of the caller in the wanted rules.
func (s *Status) look(r *http.Request) ([]core.Check, error) {
	type counted struct {
		label   string
		limiter *stores.Limiter
	}
	var all []core.Check
	seen := make(map[counted]bool) // a rule that was seen in another handler
	for _, h := range s.app.handlers {
		checks := slices.DeleteFunc(h.quotas(r, s.wanted), func(c core.Check) bool {
			label := report.Of(&c).Stats.Label
			return !s.wanted[label] || seen[counted{label, h.limiter}] // the first label: that of descriptors
		})
		var v core.Verdict
		if err := h.limiter.Look(checks, &v); err != nil {
			return nil, err
		}
		for i := range checks {
			seen[counted{report.Of(&checks[i]).Stats.Label, h.limiter}] = true
		}
		all = append(all, checks...)
	}
	return tightest(all), nil
}

// tightest returns one check for each rule: that with the least remaining. Descriptors and several stores can give a rule several
// checks.
func tightest(checks []core.Check) []core.Check {
	var kept []core.Check
	for _, c := range inRows(checks) {
		same := slices.IndexFunc(kept, func(k core.Check) bool {
			return k.Rule.Namespace == c.Rule.Namespace && k.Rule.Policy() == c.Rule.Policy() && k.Rule.Shadow == c.Rule.Shadow
		})
		if same < 0 {
			kept = append(kept, c)
		} else if c.Decision.Remaining < kept[same].Decision.Remaining {
			kept[same] = c
		}
	}
	return kept
}

// inRows returns the checks, each followed by that of its rule's concurrency.
func inRows(checks []core.Check) []core.Check {
	var rows []core.Check
	for i := range checks {
		for c := &checks[i]; c != nil; c = c.InFlight {
			rows = append(rows, *c)
			rows[len(rows)-1].InFlight = nil
		}
	}
	return rows
}

// quotas returns a check for each wanted rule that applies to the client, whatever it requests, and for the limits of descriptors.
// It first finds out which rules are wanted, since there may be thousands of others.
func (h *Handler) quotas(r *http.Request, wanted map[string]bool) []core.Check {
	asked := h.asked
	if files := h.files.Load(); files != nil {
		asked = files.asked
	}
	names := make(map[string]bool)
	for label := range wanted {
		names[strings.TrimPrefix(label, metrics.LabelOf(h.Namespace, ""))] = true
	}
	var rules []*front.Rule
	for _, list := range [][]*front.Rule{asked.Own, asked.Files} {
		for _, rule := range list {
			if names[rule.Ruled.Name] {
				rules = append(rules, rule)
			}
		}
	}
	q := new(front.Evaluation)
	front.Quotas(asked, rules, math.MaxInt, q, r, syntax.ClientIPOf(r))
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
		return d.Err("rate_limit_status: names no rule; write those whose quotas clients may read behind it: rate_limit_status /quota everyone")
	}
	return nil
}

// checkLabel says what is wrong with a rule's name, which may have its namespace in front.
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
